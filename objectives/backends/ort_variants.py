"""Precision as a variant of the model: the same network in another number format, written before the build.

Flow: ort.py build -> write_variant HERE -> the variant's file -> optimized into the engine.
The variant starts from the library's own basic optimizations: exporters hide weights in constants and
branches where the quantizer does not find them (of ten trained networks it refused three as exported, and
one after). Nothing is kept between builds; a variant costs about as much as reading and writing the model a
few times.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.registry import IntegerOpsRegistry

# The library's own copy of onnxconverter-common's converter. The original leaves existing casts and nested
# graphs half converted: it gave a loadable model for four of ten trained networks, this copy for all ten.
from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16

from objectives.backends.keep import kept_nodes
from objectives.backends.ort_denormals import denormals
from objectives.backends.ort_errors import translate_errors
from objectives.backends.ort_graph import (
    SINGLE_FILE_BYTES,
    constants,
    graphs,
    initializers,
    load_graph,
    new_options,
    op_types,
    save_optimized,
    total_bytes,
)
from objectives.errors import CandidateError
from objectives.knobs import Knob, KnobKind
from objectives.outcome import FailureKind

PRECISION = Knob(
    "precision",
    ("fp32", "fp16", "fp16-mixed", "int8", "int8-per-channel", "int8-matmul", "uint8"),
    "fp32",
    KnobKind.PRECISION,
    "Number format of the weights: as given, 16 bit (mixed: but for sums and exponentials), or 8 bit with activations "
    "quantized at run time.",
)
MIXED = "-mixed"  # what is put behind a 16-bit format that leaves `SENSITIVE` nodes as they are
# What adds up many numbers or leaves the range of 16 bits: rounding errors come from here, and little time is spent.
SENSITIVE = frozenset(
    {
        *("Softmax", "LogSoftmax", "Exp", "Log", "Pow", "Sqrt", "Reciprocal", "LpNormalization"),
        *("ReduceSum", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"),
        *("LayerNormalization", "SimplifiedLayerNormalization", "SkipLayerNormalization", "RMSNormalization"),
        *("BatchNormalization", "InstanceNormalization", "GroupNormalization", "MeanVarianceNormalization"),
        *("GlobalAveragePool", "Resize", "GridSample"),
    }
)
_EIGHT_BIT = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
_HALF = onnx.TensorProto.FLOAT16
Spare = Callable[[Any], Iterable[str]]  # ModelProto -> operator types that are to stay as they are
Writer = Callable[[Path, Path, list[str]], None]  # prepared model, its variant, nodes to leave alone


def write_variant(
    model: Path, precision: str, folder: Path, keep: Sequence[str] = (), spare: Spare | None = None
) -> Path:
    """`model` in another precision, written into `folder`; `model` itself for the default.

    Inputs and outputs keep their types, and so do the nodes that the patterns `keep` match (`keep.kept_nodes`), and
    those of the operator types that `spare` names of the prepared model.
    Raises: CandidateError: `fallback` if nothing was converted, `build_failed` in the converter's words, `unsupported`
    for a pattern that matches nothing.
    """
    if precision == PRECISION.default:
        return model
    prepared, target = folder / "prepared.onnx", folder / "variant.onnx"
    prepare(model, prepared)
    patterns = [*keep, *(spare(load_graph(prepared)) if spare else ())]
    kept = _name_and_choose(prepared, patterns)
    with _quiet(), _converter_errors(precision):
        _WRITERS[precision](prepared, target, kept)
    _require_change((load_graph(model), load_graph(prepared)), load_graph(target), precision)
    return target


def prepare(model: Path, target: Path) -> None:
    """Write `model` with the library's own basic optimizations to `target`: what every converter starts from.

    Raises: CandidateError in the library's words.
    """
    with translate_errors(FailureKind.BUILD_FAILED), denormals(flush=False):
        options = new_options()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        save_optimized(model, target, options)


def _name_and_choose(prepared: Path, keep: Sequence[str]) -> list[str]:
    """Names of the nodes to leave alone. Names are optional in ONNX; the converters know nodes by nothing else, and
    older ones make names of casts from them, the same for all that have none."""
    model = load_graph(prepared)
    nodes = [node for graph in graphs(model) for node in graph.node]
    taken = {node.name for node in nodes}
    for index, node in enumerate(nodes):
        if not node.name:
            node.name = next(n for n in _names(f"{node.op_type}_{index}") if n not in taken)
            taken.add(node.name)
    prepared.write_bytes(model.SerializeToString())  # weights that lie beside it stay there
    return kept_nodes(model, keep)


def _names(first: str) -> Iterator[str]:
    yield first
    yield from (f"{first}_{number}" for number in itertools.count())


def _write_half(prepared: Path, target: Path, kept: list[str], types: Iterable[str] = ()) -> None:
    blocked = [*DEFAULT_OP_BLOCK_LIST, *sorted(types)]
    # By path, not by ModelProto: then shapes are inferred through files, which has no 2 GiB limit.
    model = convert_float_to_float16(str(prepared), keep_io_types=True, op_block_list=blocked, node_block_list=kept)
    merge_casts(model)
    is_large = total_bytes(prepared)[0] > SINGLE_FILE_BYTES
    onnx.save(model, str(target), save_as_external_data=is_large, location=target.name + ".data")


def merge_casts(model: Any) -> None:
    """Keep one of several casts that make the same value twice.

    Where two nodes that stay as they are share an input, the converter of versions up to 1.31 writes its cast for
    each: an invalid model, refused for its names.
    """
    for graph in graphs(model):
        seen: set[str] = set()
        for node in [node for node in graph.node if node.op_type == "Cast"]:
            if node.output[0] in seen:
                graph.node.remove(node)
            seen.add(node.output[0])


def _quantizer(**arguments: Any) -> Writer:
    def write(prepared: Path, target: Path, kept: list[str]) -> None:
        quantize_dynamic(
            prepared,
            target,
            use_external_data_format=total_bytes(prepared)[0] > SINGLE_FILE_BYTES,
            nodes_to_exclude=kept,
            extra_options={"EnableSubgraph": True},  # or If and Loop bodies silently stay as they are
            **{"weight_type": QuantType.QInt8, **arguments},
        )

    return write


_WRITERS: Mapping[str, Writer] = {
    "fp16": _write_half,
    f"fp16{MIXED}": partial(_write_half, types=SENSITIVE),
    "int8": _quantizer(),
    "int8-per-channel": _quantizer(per_channel=True),
    # Dynamically quantized convolutions are slow in this library (measured: 4 to 7 times fp32 with signed
    # weights).
    "int8-matmul": _quantizer(op_types_to_quantize=sorted(set(IntegerOpsRegistry) - {"Conv"})),
    "uint8": _quantizer(weight_type=QuantType.QUInt8),
}


@contextlib.contextmanager
def _converter_errors(precision: str) -> Iterator[None]:
    try:
        yield
    except MemoryError as error:
        raise CandidateError(FailureKind.OUT_OF_MEMORY, f"{precision}: {error or 'out of host memory'}") from error
    # The converters check little and fail with whatever comes first: KeyError, AssertionError, IndexError,
    # ...
    except Exception as error:
        words = f"the model cannot be converted to {precision}: {type(error).__name__}: {error}"
        raise CandidateError(FailureKind.BUILD_FAILED, words) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The converters print, warn, and log in a way that configures logging for the whole process."""
    silent = logging.NullHandler()
    disabled_before = logging.root.manager.disable
    logging.root.addHandler(silent)
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled_before)
        logging.root.removeHandler(silent)


def _require_change(sources: tuple[Any, ...], after: Any, precision: str) -> None:
    """Compare the variant with `sources`, the model as given and as prepared.

    Raises: CandidateError of kind `fallback` if `after` is not in the precision that was asked for.
    """
    wanted = (_HALF,) if precision.startswith("fp16") else _EIGHT_BIT
    words = ""
    if _weights(after, wanted) <= max(_weights(source, wanted) for source in sources):
        words = "the converter found no weight to convert and left them all unchanged"
    elif precision == "int8-per-channel" and _channel_scales(after) <= _channel_scales(sources[-1]):
        words = "no weight could be quantized per channel, the result is the same as int8"
    elif precision.endswith(MIXED) and not SENSITIVE & set(op_types(sources[-1])):
        words = "the model has nothing to leave as it is, the result is the same as fp16"
    elif precision == "int8-matmul" and "Conv" not in op_types(sources[-1]):
        words = "the model has no convolution to leave out, the result is the same as int8"
    if words:
        raise CandidateError(FailureKind.FALLBACK, f"{precision}: {words}")


def _weights(model: Any, types: tuple[int, ...]) -> int:
    return sum(tensor.data_type in types for tensor in (*initializers(model), *constants(model)))


def _channel_scales(model: Any) -> int:
    """Scales with more than one value; the quantizer calls a weight's scale `<weight>_scale`."""
    return sum(tensor.name.endswith("_scale") and max(tensor.dims, default=1) > 1 for tensor in initializers(model))
