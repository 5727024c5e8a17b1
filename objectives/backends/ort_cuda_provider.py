"""ONNX Runtime's CUDA provider as it is installed: whether it works, which options it has, which libraries it found.

Flow: ort_cuda.py and ort_cuda_knobs.py -> HERE -> a probe session on the GPU, opened once per process. The library does
not fail when its provider cannot be loaded: it writes a line to its log and runs everything on the CPU. So nothing is
believed here but what an open session tells.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from objectives.backends import cuda_runtime
from objectives.backends.ort_denormals import denormals
from objectives.backends.ort_errors import translate_errors
from objectives.backends.ort_graph import new_options, new_session
from objectives.errors import CandidateError
from objectives.outcome import FailureKind

CUDA = "CUDAExecutionProvider"
CPU = "CPUExecutionProvider"
_RECORD = "session.record_ep_graph_assignment_info"
_NO_CPU = "session.disable_cpu_ep_fallback"


def why_unusable() -> str:
    """Why the provider cannot be used here, in a sentence; empty if it can."""
    if CUDA not in ort.get_available_providers():
        return f"onnxruntime {ort.__version__} is installed without its CUDA provider"
    return cuda_runtime.why_unavailable() or _probe()[1]


def default_options() -> Mapping[str, str]:
    """Every option of the installed provider with its default, as an open session tells; empty if unusable."""
    return {} if why_unusable() else _probe()[0]


def library_versions() -> dict[str, str]:
    """Versions of the CUDA libraries that the provider finds, those whose kernels decide about speed."""
    built_for = str(getattr(ort, "cuda_version", "") or "unknown")
    major = built_for.partition(".")[0]
    return {
        "built_for_cuda": built_for,
        "cudnn": _version(("libcudnn.so.9", "libcudnn.so.8"), "cudnnGetVersion"),
        "cublas": _version((f"libcublasLt.so.{major}",), "cublasLtGetVersion"),
    }


def open_on_gpu(path: Path | bytes, options: Any, provider: Mapping[str, str]) -> Any:
    """An InferenceSession with the CUDA provider first, where `provider` are its options, and the CPU for the rest.

    Raises: CandidateError in the library's words; of kind `fallback` if it came without the provider.
    """
    if can_tell_placement():
        options.add_session_config_entry(_RECORD, "1")
    with translate_errors(FailureKind.BUILD_FAILED), denormals(flush=False):
        session = new_session(path, options, [(CUDA, dict(provider)), CPU])
    if tuple(session.get_providers())[:1] != (CUDA,):
        words = f"asked for {CUDA}, the session runs on {' '.join(session.get_providers())} alone"
        raise CandidateError(FailureKind.FALLBACK, words)
    return session


def can_tell_placement() -> bool:
    """Whether the installed version says which node runs where."""
    return hasattr(ort.InferenceSession, "get_provider_graph_assignment_info")


def placement(session: Any) -> dict[str, tuple[str, ...]]:
    """Operators of the nodes by provider, as they were assigned; empty where the library does not tell."""
    if not can_tell_placement():
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for part in session.get_provider_graph_assignment_info():
        found[part.ep_name] = (*found.get(part.ep_name, ()), *(node.op_type for node in part.get_nodes()))
    return found


def forbid_cpu(options: Any) -> None:
    """Let a session refuse a model of which a node would run on the CPU."""
    options.add_session_config_entry(_NO_CPU, "1")


@cache
def _probe() -> tuple[Mapping[str, str], str]:
    """The options of an open session, and why there is none."""
    try:
        session = open_on_gpu(_tiny_model(), new_options(), {})
    except CandidateError as error:
        return {}, f"onnxruntime's CUDA provider cannot be used: {_missing_library() or error}"
    return {str(name): str(value) for name, value in session.get_provider_options()[CUDA].items()}, ""


def _tiny_model() -> bytes:
    """`y = x + x` for two numbers."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "probe", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def _missing_library() -> str:
    """What the loader says about the provider's library: the library itself writes it to its log only."""
    for name in ("libonnxruntime_providers_shared.so", "libonnxruntime_providers_cuda.so"):
        try:
            ctypes.CDLL(str(Path(ort.__file__).parent / "capi" / name), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            return str(error)
    return ""


def _version(names: tuple[str, ...], function: str) -> str:
    """What a version function of the first of `names` that can be loaded returns; `unknown` without one."""
    for name in names:
        with suppress(OSError, AttributeError):
            found = getattr(ctypes.CDLL(name), function)
            found.restype = ctypes.c_size_t
            return str(found())
    return "unknown"
