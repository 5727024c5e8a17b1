"""bfloat16 as a variant of the model, for runtimes that take the types in it as given.

Flow: trt_precision.py and ort_cuda.py -> write_bfloat HERE -> the fp16 variant (ort_variants.py) -> every float16 in it
turned into bfloat16. Inputs and outputs keep their types.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from ml_dtypes import bfloat16
from onnx import TensorProto, defs, helper, numpy_helper

from objectives.backends.ort_graph import constants, graphs, initializers, load_graph, op_types
from objectives.backends.ort_variants import MIXED, write_variant
from objectives.errors import CandidateError
from objectives.outcome import FailureKind


def write_bfloat(
    model: Path, folder: Path, keep: Sequence[str] = (), *, is_mixed: bool = False, is_strict: bool = False
) -> Path:
    """`model` in bfloat16, written into `folder`; mixed: but for what `ort_variants.SENSITIVE` names.

    The nodes that the patterns `keep` match keep their types; strict: so do those of operators that take no bfloat16
    in the model's version of ONNX, for runtimes that refuse them.

    Raises: CandidateError: `unsupported` for a model with float16 of its own, else as `write_variant` does.
    """
    if _holds_half(load_graph(model)):
        words = "bf16: the model already holds float16 values, which a conversion would change too"
        raise CandidateError(FailureKind.UNSUPPORTED, words)
    precision = f"fp16{MIXED}" if is_mixed else "fp16"
    half = write_variant(model, precision, folder, keep, without_bfloat if is_strict else None)
    return _half_to_bfloat(half, folder / "bf16.onnx")


def without_bfloat(model: Any) -> list[str]:
    """Operator types of a ModelProto that take floating-point numbers and no bfloat16, as ONNX declares the version
    that the model asks for: a convolution takes them from opset 22 on. Other people's operators are not judged."""
    version = next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), 0)
    return sorted(name for name in op_types(model) if defs.has(name) and not _takes_bfloat(name, version))


def _takes_bfloat(name: str, version: int) -> bool:
    try:
        schema = defs.get_schema(name, version)
    except defs.SchemaError:
        return True  # not in that version: whoever reads the model knows better
    allowed = [set(one.allowed_type_strs) for one in schema.type_constraints]
    return all("tensor(bfloat16)" in types for types in allowed if "tensor(float)" in types)


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
