"""Tiny models for a self-check: a backend proves itself on them, on a machine where there is no model yet.

Flow: `env --check` -> a backend's `tiny_models` -> HERE, unless its models are no ONNX files -> checks/steps.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from objectives.shapes import ShapeRange

# Old enough for every runtime that has a backend here.
_OPSET, _IR_VERSION = 17, 8
_BATCH, _SMALLEST, _LARGEST = 4, 1, 8
_CHANNELS, _SIZE, _FEATURES, _CLASSES = 3, 16, 16, 10


class TinyModel(msgspec.Struct, frozen=True):
    """A model file, and the shapes between which its engine has to work; empty where they are fixed."""

    path: Path
    shapes: Mapping[str, ShapeRange] = {}


class TinyModels(msgspec.Struct, frozen=True):
    """One model of fixed shapes; one with a range of shapes, None for a format that has no such models."""

    fixed: TinyModel
    ranged: TinyModel | None = None


def write_onnx(folder: Path) -> TinyModels:
    """A small image classifier as ONNX files in `folder`: once for a batch of 4, once for any batch, to be 1 to 8."""
    image = (_CHANNELS, _SIZE, _SIZE)
    shape = ShapeRange((_SMALLEST, *image), (_BATCH, *image), (_LARGEST, *image))
    return TinyModels(
        TinyModel(_write(folder / "tiny-fixed.onnx", _BATCH)),
        TinyModel(_write(folder / "tiny-ranged.onnx", "batch"), {"image": shape}),
    )


def _write(path: Path, batch: int | str) -> Path:
    nodes = [
        helper.make_node("Conv", ["image", "kernel", "bias"], ["map"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["map"], ["active"]),
        helper.make_node("GlobalAveragePool", ["active"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "head"], ["logits"]),
    ]
    shape = (_FEATURES, _CHANNELS, 3, 3)
    weights = [_weight("kernel", *shape), _weight("bias", _FEATURES), _weight("head", _FEATURES, _CLASSES)]
    given = helper.make_tensor_value_info("image", TensorProto.FLOAT, (batch, _CHANNELS, _SIZE, _SIZE))
    result = helper.make_tensor_value_info("logits", TensorProto.FLOAT, (batch, _CLASSES))
    graph = helper.make_graph(nodes, "tiny", [given], [result], weights)
    opsets = [helper.make_opsetid("", _OPSET)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION), str(path))
    return path


def _weight(name: str, *shape: int) -> Any:
    random = np.random.default_rng([*name.encode()])
    return numpy_helper.from_array((random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32), name)
