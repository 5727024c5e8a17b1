"""ONNX Runtime on an NVIDIA GPU: the backend `onnxruntime-cuda`.

Flow: evaluate.py -> build (precision variant) -> engine file -> open (graph optimizations, CUDA provider) -> session.
The engine is the model in the precision that was asked for, with the way to open it written into it. It is optimized
when it is opened: what the optimizer makes for this provider may use operators that exist only inside a session.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import onnxruntime as ort

from objectives.backends import cuda_runtime, ort_cuda_knobs
from objectives.backends.base import NO_TERMS, REPLICAS, Backend, BuildTerms, Environment, Session, Values
from objectives.backends.cuda_runtime import Stream
from objectives.backends.gpu_facts import gpu_details, gpu_devices, gpu_identity, new_gpu_watch
from objectives.backends.keep import KEEP, read_keep
from objectives.backends.ort import OnnxRuntimeBackend
from objectives.backends.ort_bfloat import write_bfloat
from objectives.backends.ort_cuda_knobs import PRECISION, CudaKnob
from objectives.backends.ort_cuda_provider import (
    CPU,
    CUDA,
    default_options,
    forbid_cpu,
    library_versions,
    open_on_gpu,
    placement,
    why_unusable,
)
from objectives.backends.ort_cuda_session import OrtCudaSession
from objectives.backends.ort_graph import load_graph, new_options, read_stamp, save_copy, stamp, weight_types
from objectives.backends.ort_settings import Settings, apply_settings, require_settings
from objectives.backends.ort_variants import MIXED, write_variant
from objectives.devices import Device
from objectives.digest import digest_of_file
from objectives.errors import BackendUnavailableError, CandidateError
from objectives.knobs import KnobKind, KnobSpace
from objectives.model import ModelSpec, read_onnx
from objectives.outcome import EngineFile, FailureKind
from objectives.tensors import Array, Tensors

_FALLBACK = FailureKind.FALLBACK
_ORDERLY = (FailureKind.UNSUPPORTED, _FALLBACK, FailureKind.BUILD_FAILED, FailureKind.RUN_FAILED)
_STREAM = "user_compute_stream"


class OnnxRuntimeCudaBackend(Backend):
    """Builds anywhere in principle, but what it offers is asked of the provider, which needs its GPU."""

    name = "onnxruntime-cuda"
    options = (KEEP, REPLICAS)
    _keep: tuple[str, ...] = ()

    def configure(self, options: Mapping[str, str]) -> None:
        super().configure(options)
        self._keep = read_keep(options)

    def environment(self) -> Environment:
        self._require_usable()
        gpu = cuda_runtime.gpu()
        assert gpu is not None, "the provider was just found to work"
        identity = gpu_identity(gpu) | library_versions()
        details = gpu_details(gpu) | {"onnxruntime_build": str(getattr(ort, "get_build_info", str)())}
        return Environment(self.name, str(ort.__version__), f"cuda:{gpu.uuid}", identity, details)

    def devices(self) -> tuple[Device, ...]:
        return gpu_devices(cuda_runtime.gpus())

    def cannot_run(self) -> str:
        reason = why_unusable()
        return f"engines cannot be run here: {reason}" if reason else ""

    def is_sound(self, kind: FailureKind) -> bool:
        """Refused in the library's words, and the GPU is well: a broken context says so to everybody from then on."""
        if kind not in _ORDERLY:
            return False
        cuda_runtime.settle()
        return True

    def describe(self, path: Path) -> ModelSpec:
        return read_onnx(path)

    def knobs(self, path: Path, model: ModelSpec) -> KnobSpace:
        return ort_cuda_knobs.knob_space(self._knobs, load_graph(path))

    def reference(self, path: Path, inputs: Tensors) -> dict[str, Array]:
        return OnnxRuntimeBackend().reference(path, inputs)

    def build(self, path: Path, values: Values, workdir: Path, terms: BuildTerms = NO_TERMS) -> EngineFile:
        full = self._complete(values)
        engine = workdir / "engine.onnx"
        with tempfile.TemporaryDirectory(dir=workdir, prefix="variant.") as folder:
            sidecars = save_copy(_variant(path, full[PRECISION.name], Path(folder), self._keep), engine)
        stamp(engine, {**self._built(full), "weights": weight_types(load_graph(engine))})
        size = sum((workdir / name).stat().st_size for name in (engine.name, *sidecars))
        digests = {name: digest_of_file(workdir / name) for name in sidecars}
        return EngineFile(str(engine), digest_of_file(engine), size, "onnx", digests)

    def open(self, engine: EngineFile, values: Values) -> Session:
        full = self._complete(values)
        chosen = ort_cuda_knobs.settings(self._knobs, full)
        asked = ort_cuda_knobs.options(self._knobs, full)
        path, stream = Path(engine.path), Stream()
        try:
            session = open_on_gpu(path, _options(chosen), {**asked, _STREAM: str(stream.handle)})
            require_settings(session, chosen)
            ort_cuda_knobs.require_options(session.get_provider_options()[CUDA], asked)
            effective = {**full, **self._facts(session, full), **_where(session, path, chosen, asked)}
        except BaseException:
            session = None  # the library is done with the stream before it goes
            stream.close()
            raise
        is_captured = full.get(ort_cuda_knobs.CUDA_GRAPH) == "on"
        return OrtCudaSession(session, stream, effective, is_captured, new_gpu_watch(cuda_runtime.gpu()))

    def _require_usable(self) -> None:
        if reason := why_unusable():
            hint = "pip install 'tensorrt-tuner[onnxruntime-cuda]' where there is an NVIDIA GPU with its CUDA libraries"
            raise BackendUnavailableError(reason, hint=hint)

    @cached_property
    def _knobs(self) -> tuple[CudaKnob, ...]:
        self._require_usable()
        return ort_cuda_knobs.all_knobs(default_options())

    def _complete(self, values: Values) -> dict[str, str]:
        """Every knob with its value. Raises: KnobError for a knob or value that this version does not offer."""
        space = ort_cuda_knobs.knob_space(self._knobs)
        return space.values(space.candidate(values))

    def _built(self, full: Values) -> dict[str, str]:
        """The values that belong to the engine file."""
        return {one.knob.name: full[one.knob.name] for one in self._knobs if one.knob.kind != KnobKind.RUNTIME}

    def _facts(self, session: Any, full: Values) -> dict[str, str]:
        """What the file says of itself. Raises: CandidateError if it was built otherwise than it is opened."""
        built = read_stamp(session)
        if built is None:
            raise CandidateError(FailureKind.BUILD_FAILED, "the file was not built by this backend")
        for name, value in self._built(full).items():
            if built.get(name) != value:
                raise CandidateError(_FALLBACK, f"{name}={value} was asked for, the engine has {built.get(name)}")
        return {"providers": " ".join(session.get_providers()), "weights": built["weights"]}


def _variant(path: Path, precision: str, folder: Path, keep: Sequence[str]) -> Path:
    if precision.startswith("bf16"):
        return write_bfloat(path, folder, keep, is_mixed=precision.endswith(MIXED), is_strict=True)
    return write_variant(path, precision, folder, keep)


def _options(chosen: Settings) -> Any:
    options = new_options()
    apply_settings(options, chosen)
    return options


def _where(session: Any, path: Path, chosen: Settings, asked: Mapping[str, str]) -> dict[str, str]:
    """How many nodes run where, as they were assigned before fusions.

    Raises: CandidateError of kind `fallback` if none runs on the GPU.
    """
    placed = placement(session)
    if not placed:
        return {"cpu_nodes": _some_or_none(path, chosen, asked)}
    on_cpu = placed.get(CPU, ())
    if not placed.get(CUDA):
        raise CandidateError(_FALLBACK, f"none of the model's {len(on_cpu)} nodes runs on the GPU")
    facts = {"cuda_nodes": str(len(placed[CUDA])), "cpu_nodes": str(len(on_cpu))}
    if on_cpu:
        facts["cpu_operators"] = " ".join(f"{name}:{times}" for name, times in sorted(Counter(on_cpu).items()))
    return facts


def _some_or_none(path: Path, chosen: Settings, asked: Mapping[str, str]) -> str:
    """For versions that do not tell: whether a session that forbids nodes on the CPU is refused."""
    options = _options(chosen)
    forbid_cpu(options)
    try:
        open_on_gpu(path, options, asked)
    except CandidateError:
        return "some"
    return "0"
