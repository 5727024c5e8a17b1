"""Precision: a flag where the installed TensorRT chooses types itself, another model where it takes them as given.

Flow: trt_build.py -> choose HERE -> a model file, network flags and builder flags. Up to 10.x networks are weakly typed
unless asked otherwise and BuilderFlag has FP16 and its like; from 11.0 on, and in TensorRT-RTX, the types in the model
count, so fp16 and bf16 are conversions of the model (inputs and outputs keep their types).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from ml_dtypes import bfloat16
from onnx import TensorProto, helper, numpy_helper

from objectives.backends.ort_graph import constants, graphs, initializers, load_graph, op_types
from objectives.backends.ort_variants import write_variant
from objectives.backends.trt_settings import Flag
from objectives.errors import CandidateError
from objectives.knobs import Knob, KnobKind
from objectives.outcome import FailureKind

NAME = "precision"
_FLAGGED = {"fp16": "FP16", "bf16": "BF16"}


@dataclass(frozen=True, slots=True)
class Choice:
    """What a precision means for one build: the model to parse, flags of its network, flags of its builder."""

    model: Path
    strongly_typed: bool
    flags: tuple[Flag, ...]


def is_weakly_typed(library: Any) -> bool:
    """Whether the installed version chooses types itself when told to by flags."""
    return hasattr(library.BuilderFlag, "FP16")


def precision_knob(library: Any) -> Knob:
    """`as-given` first: the model's own types, nothing set."""
    strong = is_weakly_typed(library) and hasattr(library.NetworkDefinitionCreationFlag, "STRONGLY_TYPED")
    values = ("as-given", *_offered(library), *(("strongly-typed",) if strong else ()))
    text = "Number format: as given, 16 bit where the library (flag) or a conversion of the model allows it."
    return Knob(NAME, values, "as-given", KnobKind.PRECISION, text)


def _offered(library: Any) -> tuple[str, ...]:
    if not is_weakly_typed(library):
        return tuple(_FLAGGED)
    return tuple(name for name, flag in _FLAGGED.items() if hasattr(library.BuilderFlag, flag))


def choose(library: Any, model: Path, precision: str, folder: Path) -> Choice:
    """What to build for `precision`; a converted model is written into `folder`. Raises: CandidateError."""
    if not is_weakly_typed(library):
        return Choice(_variant(model, precision, folder), True, ())
    if precision == "strongly-typed":
        return Choice(model, True, ())
    names = [_FLAGGED[precision]] if precision in _FLAGGED else []
    # Weakly typed networks with explicit quantization are refused without this flag.
    if "QuantizeLinear" in op_types(load_graph(model)) and hasattr(library.BuilderFlag, "INT8"):
        names.append("INT8")
    return Choice(model, False, tuple(Flag(getattr(library.BuilderFlag, name), True) for name in names))


def _variant(model: Path, precision: str, folder: Path) -> Path:
    if precision == "as-given":
        return model
    if precision == "bf16" and _holds_half(load_graph(model)):
        words = "bf16: the model already holds float16 values, which a conversion would change too"
        raise CandidateError(FailureKind.UNSUPPORTED, words)
    half = write_variant(model, "fp16", folder)
    return half if precision == "fp16" else _half_to_bfloat(half, folder / "bf16.onnx")


def _half_to_bfloat(half: Path, target: Path) -> Path:
    """The fp16 variant with every float16 turned into bfloat16.

    Weights have been through float16 first, whose mantissa is the longer one: nothing is lost but values beyond its
    range (65504), which the converter clamps.
    """
    model = onnx.load(str(half))
    for tensor in (*initializers(model), *constants(model)):
        if tensor.data_type == TensorProto.FLOAT16:
            array = numpy_helper.to_array(tensor).astype(np.float32).astype(bfloat16)
            raw = helper.make_tensor(tensor.name, TensorProto.BFLOAT16, array.shape, array.tobytes(), raw=True)
            tensor.CopyFrom(raw)
    for graph in graphs(model):
        _retype_nodes(graph)
        for value in (*getattr(graph, "value_info", ()), *getattr(graph, "input", ()), *getattr(graph, "output", ())):
            if not isinstance(value, str) and value.type.tensor_type.elem_type == TensorProto.FLOAT16:
                value.type.tensor_type.elem_type = TensorProto.BFLOAT16
    onnx.save(model, str(target), save_as_external_data=model.ByteSize() > 1 << 30, location=target.name + ".data")
    return target


def _retype_nodes(graph: Any) -> None:
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        if attribute.name in ("to", "dtype") and attribute.i == TensorProto.FLOAT16:
            attribute.i = TensorProto.BFLOAT16


def _holds_half(model: Any) -> bool:
    tensors = (*initializers(model), *constants(model))
    values = (*model.graph.input, *model.graph.output)
    return any(tensor.data_type == TensorProto.FLOAT16 for tensor in tensors) or any(
        value.type.tensor_type.elem_type == TensorProto.FLOAT16 for value in values
    )
