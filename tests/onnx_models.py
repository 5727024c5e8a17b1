"""Small ONNX files for tests, made on the spot: every kind of model that a backend must take.

Each maker writes into `folder` and returns the file's path; weights come from a fixed seed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper, numpy_helper

Dims = tuple[int | str, ...]

OPSET, IR_VERSION = 17, 8
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = ("float16", "float32", "float64", "bfloat16", *_INTEGERS, "bool", "string")
_ELEMENT = {
    "float16": T.FLOAT16,
    "float32": T.FLOAT,
    "float64": T.DOUBLE,
    "bfloat16": T.BFLOAT16,
    "bool": T.BOOL,
    "string": T.STRING,
    **{name: T.DataType.Value(name.upper()) for name in _INTEGERS},
}


def value(name: str, dtype: str, dims: Dims) -> Any:
    return helper.make_tensor_value_info(name, _ELEMENT[dtype], dims)


def weight(name: str, *dims: int, seed: int = 0) -> Any:
    array = np.random.default_rng([seed, *name.encode()]).standard_normal(dims) / np.sqrt(dims[0])
    return numpy_helper.from_array(array.astype(np.float32), name)


def constant(name: str, content: Any, dtype: Any = np.float32) -> Any:
    return numpy_helper.from_array(np.array(content, dtype), name)


def write(
    path: Path,
    nodes: list[Any],
    inputs: list[Any],
    outputs: list[Any],
    initializers: tuple[Any, ...] = (),
    **save: Any,
) -> Path:
    graph = helper.make_graph(nodes, "graph", inputs, outputs, list(initializers))
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="tests"
    )
    onnx.save(model, str(path), **save)
    return path


def sample(dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Values that survive in every type: zeros, ones and twos; words for strings."""
    numbers = np.arange(int(np.prod(shape))).reshape(shape) % 3
    if dtype == "string":
        return np.array([["", "größe", "a b"][number] for number in numbers.flat], object).reshape(shape)
    return numbers.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def mlp(folder: Path, width: int = 64, name: str = "mlp.onnx", **save: Any) -> Path:
    """`x` (n, width) -> two matrix products with a GELU between -> `y` (n, 8)."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"]),
        helper.make_node("Div", ["h", "root2"], ["scaled"]),
        helper.make_node("Erf", ["scaled"], ["erf"]),
        helper.make_node("Add", ["erf", "one"], ["shifted"]),
        helper.make_node("Mul", ["h", "shifted"], ["twice"]),
        helper.make_node("Mul", ["twice", "half"], ["gelu"]),
        helper.make_node("MatMul", ["gelu", "w2"], ["y"]),
    ]
    weights = (
        weight("w1", width, width),
        weight("w2", width, 8),
        constant("root2", 2**0.5),
        constant("one", 1.0),
        constant("half", 0.5),
    )
    inputs, outputs = [value("x", "float32", ("n", width))], [value("y", "float32", ("n", 8))]
    return write(folder / name, nodes, inputs, outputs, weights, **save)


def normalized(folder: Path, width: int = 64) -> Path:
    """`x` (n, width) -> matrix product, softmax, product with the logits -> `y` (n, 8)."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"]),
        helper.make_node("Softmax", ["h"], ["share"], axis=-1),
        helper.make_node("Mul", ["share", "h"], ["weighted"]),
        helper.make_node("MatMul", ["weighted", "w2"], ["y"]),
    ]
    inputs, outputs = [value("x", "float32", ("n", width))], [value("y", "float32", ("n", 8))]
    return write(
        folder / "normalized.onnx", nodes, inputs, outputs, (weight("w1", width, width), weight("w2", width, 8))
    )


def external(folder: Path) -> Path:
    """The MLP with its weights in a file of their own, with a non-ASCII name."""
    return mlp(folder, name="external.onnx", save_as_external_data=True, location="gewichte ü.bin", size_threshold=0)


def conv(folder: Path) -> Path:
    """`image` (n, 3, 16, 16) -> convolution, ReLU, pooling, matrix product -> `logits` (n, 10)."""
    nodes = [
        helper.make_node("Conv", ["image", "kernel", "bias"], ["map"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["map"], ["active"]),
        helper.make_node("GlobalAveragePool", ["active"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "head"], ["logits"]),
    ]
    weights = (weight("kernel", 16, 3, 3, 3), weight("bias", 16), weight("head", 16, 10))
    inputs = [value("image", "float32", ("n", 3, 16, 16))]
    return write(folder / "conv.onnx", nodes, inputs, [value("logits", "float32", ("n", 10))], weights)


def identity(folder: Path, dtype: str, shape: Dims = ("n",)) -> Path:
    """`x` -> `y`, of any type and rank."""
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    path = folder / f"identity-{dtype}-{len(shape)}.onnx"
    return write(path, nodes, [value("x", dtype, shape)], [value("y", dtype, shape)])


def mixed(folder: Path) -> Path:
    """Odd names, several types, a scalar, and outputs of a shape that depends on the data."""
    nodes = [
        helper.make_node("Mul", ["in/put:0", "a scale"], ["größe/out:0"]),
        helper.make_node("Identity", ["текст"], ["text out"]),
        helper.make_node("NonZero", ["ids"], ["where"]),
        helper.make_node("Cast", ["ids"], ["as:float"], to=T.FLOAT),
    ]
    inputs = [
        value("in/put:0", "float32", ("batch size", 3)),
        value("a scale", "float32", ()),
        value("текст", "string", ("n",)),
        value("ids", "int64", ("m",)),
    ]
    outputs = [
        value("größe/out:0", "float32", ("batch size", 3)),
        value("text out", "string", ("n",)),
        value("where", "int64", (1, "k")),
        value("as:float", "float32", ("m",)),
    ]
    return write(folder / "mixed names ü.onnx", nodes, inputs, outputs)


def mixed_inputs() -> dict[str, np.ndarray[Any, Any]]:
    return {
        "in/put:0": np.arange(6, dtype=np.float32).reshape(2, 3),
        "a scale": np.array(0.5, np.float32),
        "текст": sample("string", (3,)),
        "ids": np.array([0, 3, 0, 4], np.int64),
    }


def control_flow(folder: Path) -> Path:
    """`steps` times `x @ w` in a Loop, then an If on `flip` negates; weights of the outer graph used inside."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["state", "w"], ["next"]),
            helper.make_node("Identity", ["go"], ["go_on"]),
        ],
        "body",
        [value("i", "int64", ()), value("go", "bool", ()), value("state", "float32", ("n", 16))],
        [value("go_on", "bool", ()), value("next", "float32", ("n", 16))],
    )
    negated = helper.make_graph(
        [helper.make_node("Neg", ["last"], ["negated"])], "then", [], [value("negated", "float32", ("n", 16))]
    )
    kept = helper.make_graph(
        [helper.make_node("Identity", ["last"], ["kept"])], "else", [], [value("kept", "float32", ("n", 16))]
    )
    nodes = [
        helper.make_node("Loop", ["steps", "yes", "x"], ["last"], body=body),
        helper.make_node("If", ["flip"], ["y"], then_branch=negated, else_branch=kept),
    ]
    inputs = [value("x", "float32", ("n", 16)), value("steps", "int64", ()), value("flip", "bool", ())]
    weights = (weight("w", 16, 16), constant("yes", True, np.bool_))
    return write(folder / "control.onnx", nodes, inputs, [value("y", "float32", ("n", 16))], weights)


def scaled(folder: Path, factor: float) -> Path:
    """`x` (n) times a constant -> `y`: shows what becomes of denormal numbers."""
    nodes = [helper.make_node("Mul", ["x", "factor"], ["y"])]
    weights = (constant("factor", factor),)
    inputs, outputs = [value("x", "float32", ("n",))], [value("y", "float32", ("n",))]
    return write(folder / "scaled.onnx", nodes, inputs, outputs, weights)


def expand(folder: Path) -> Path:
    """`x` (1) repeated `shape` times: asks for as much memory as its input says."""
    nodes = [helper.make_node("Expand", ["x", "shape"], ["y"])]
    inputs = [value("x", "float32", (1,)), value("shape", "int64", (1,))]
    return write(folder / "expand.onnx", nodes, inputs, [value("y", "float32", ("n",))])


def unknown_operator(folder: Path) -> Path:
    """A model with an operator that no runtime has."""
    node = helper.make_node("Nonsense", ["x"], ["y"], domain="nowhere")
    graph = helper.make_graph([node], "graph", [value("x", "float32", (1,))], [value("y", "float32", (1,))])
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("nowhere", 1)]
    path = folder / "unknown.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION), str(path))
    return path
