"""int8 and fp8 as a variant of the model: explicit quantization (Q/DQ nodes) by NVIDIA ModelOpt.

Flow: trt_precision.py -> write_quantized HERE -> trt_modelopt.py in a process of its own -> the variant's file -> the
parser. Ranges of numbers come from the study's typical inputs. Offered only where ModelOpt is installed, which is
looked up without importing it. Nothing is kept between builds.

One way of calibrating (ModelOpt's default, entropy) and two formats for what is not quantized: on four trained networks
no way of calibrating was better throughout, and each further value of a knob costs every study trials.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

import msgspec
import onnx

from objectives.backends.ort_graph import SINGLE_FILE_BYTES, load_graph, op_types, total_bytes
from objectives.backends.ort_variants import prepare
from objectives.backends.trtexec_process import Ended, run
from objectives.errors import CandidateError
from objectives.model import ModelSpec, read_onnx
from objectives.outcome import FailureKind
from objectives.tensors import load_tensors

_PROGRAM = "objectives.backends.trt_modelopt"
# What its import for ONNX needs beside itself and what this project needs anyway; torch is a dependency of it.
_NEEDED = ("modelopt", "lief", "onnx_graphsurgeon", "onnxscript", "onnxslim")
_METHOD = "entropy"
_LOG_CHARS = 600
_EIGHT_BIT = {"int8": onnx.TensorProto.INT8, "fp8": onnx.TensorProto.FLOAT8E4M3FN}


@dataclass(frozen=True, slots=True)
class Recipe:
    """A way to quantize: `mode` is int8 or fp8, `rest` the format of what stays unquantized (fp32: as given)."""

    mode: str
    rest: str = "fp32"


RECIPES = {
    "int8": Recipe("int8"),
    "int8-fp16": Recipe("int8", "fp16"),
    "fp8": Recipe("fp8"),
    "fp8-fp16": Recipe("fp8", "fp16"),
}


class Job(msgspec.Struct, frozen=True):
    """What the converter's process is asked; paths are absolute."""

    source: str  # prepared for this job; the converter may change it
    target: str
    words: str  # a file for what the converter said when it refused
    mode: str
    rest: str
    method: str
    inputs: tuple[str, ...]
    calibration: tuple[str, ...]
    is_large: bool


def version() -> str:
    """Version of the installed ModelOpt; empty where it, or what its part for ONNX needs, is not installed."""
    if any(util.find_spec(name) is None for name in _NEEDED):
        return ""
    try:
        return metadata.version("nvidia-modelopt")
    except metadata.PackageNotFoundError:
        return "unknown"


def write_quantized(model: Path, recipe: Recipe, calibration: Sequence[Path], folder: Path) -> Path:
    """`model` quantized by `recipe`, written into `folder`, which must be empty. Inputs and outputs keep their types.

    Raises: CandidateError: `unsupported` without typical inputs or for a model that is quantized already, `fallback`
    if nothing was quantized, `build_failed` in the converter's words. WorkloadError if a file cannot be read.
    """
    if not calibration:
        words = f"{recipe.mode}: the study has no typical inputs to take ranges of numbers from"
        raise CandidateError(FailureKind.UNSUPPORTED, words)
    if {"QuantizeLinear", "DequantizeLinear"} & op_types(load_graph(model)):
        words = f"{recipe.mode}: the model is quantized already"
        raise CandidateError(FailureKind.UNSUPPORTED, words)
    for path in calibration:
        load_tensors(path)
    source, target, words_path = (folder / name for name in ("source.onnx", "quantized.onnx", "words.txt"))
    # Batch normalizations stay beside their convolutions in exported models, with variances beyond fp16.
    prepare(model, source)
    _name_dimensions(source)
    spec = read_onnx(model)
    job = Job(
        source=str(source.absolute()),
        target=str(target.absolute()),
        words=str(words_path.absolute()),
        mode=recipe.mode,
        rest=recipe.rest,
        method=_METHOD,
        inputs=tuple(one.name for one in spec.inputs),
        calibration=tuple(str(path.absolute()) for path in calibration),
        is_large=total_bytes(source)[0] > SINGLE_FILE_BYTES,
    )
    order = folder / "job.json"
    order.write_bytes(msgspec.json.encode(job))
    ended = run([sys.executable, "-m", _PROGRAM, str(order)], None)
    _require_written(ended, target, words_path, recipe.mode)
    _require_quantized(target, spec, recipe.mode)
    return target


def _name_dimensions(path: Path) -> None:
    """Give a name of its own to each dimension of an input that has neither size nor name: ModelOpt needs one."""
    graph = load_graph(path)
    for value in graph.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.dim_param and dim.dim_value <= 0:
                dim.dim_param = f"{value.name}:{axis}"
    onnx.save(graph, str(path))


def _require_written(ended: Ended, target: Path, words_path: Path, mode: str) -> None:
    if ended.is_good and target.is_file():
        return
    said = words_path.read_text() if words_path.is_file() else f"ModelOpt {ended.describe()}: {_end_of(ended.text)}"
    # Nobody but the kernel's memory guard sends SIGKILL as a rule.
    is_memory = said.startswith("MemoryError") or ended.signal == signal.SIGKILL
    kind = FailureKind.OUT_OF_MEMORY if is_memory else FailureKind.BUILD_FAILED
    raise CandidateError(kind, f"the model cannot be converted to {mode}: {said}")


def _require_quantized(target: Path, before: ModelSpec, mode: str) -> None:
    graph = load_graph(target)
    if "QuantizeLinear" not in op_types(graph):
        words = f"{mode}: the converter found nothing to quantize and left the model unchanged"
        raise CandidateError(FailureKind.FALLBACK, words)
    points = {one.data_type for one in graph.graph.initializer}
    if _EIGHT_BIT[mode] not in points:
        words = f"{mode}: the converter quantized to another type"
        raise CandidateError(FailureKind.FALLBACK, words)
    after = read_onnx(target)
    for old, new in ((before.inputs, after.inputs), (before.outputs, after.outputs)):
        if [(one.name, one.dtype) for one in old] != [(one.name, one.dtype) for one in new]:
            words = f"{mode}: the converter changed inputs or outputs: {new} instead of {old}"
            raise CandidateError(FailureKind.BUILD_FAILED, words)


def _end_of(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][-_LOG_CHARS:] if lines else "it said nothing"
