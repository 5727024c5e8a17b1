"""bfloat16 variants: what a strict runtime takes, what stays as it is, and which models are offered the format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from objectives.backends import ort_cuda_knobs
from objectives.backends.ort_bfloat import without_bfloat, write_bfloat
from objectives.backends.ort_errors import exception_classes
from objectives.backends.ort_graph import initializers
from objectives.backends.ort_variants import merge_casts, write_variant
from tests import onnx_models

FIRST_WITH_CONVOLUTIONS = 22  # version of ONNX


def _with_opset(path: Path, version: int) -> Any:
    model = onnx.load(path)
    model.opset_import[0].version = version
    return model


def _types(model: Any) -> dict[str, int]:
    """Type of each weight with more than one dimension; constants that a library folds have other names."""
    return {one.name: one.data_type for one in initializers(model) if len(one.dims) > 1}


def _refusal(path: Path) -> str:
    """What the library says of a model when it has read it; a CPU has no kernels for bfloat16, but it checks types."""
    try:
        ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except exception_classes() as error:
        return str(error)
    return ""


def test_a_strict_variant_leaves_what_takes_no_bfloat_as_it_is(tmp_path: Path) -> None:
    path = onnx_models.conv(tmp_path)
    assert without_bfloat(onnx.load(path)) == ["Conv", "GlobalAveragePool"]
    found = {}
    for is_strict in (False, True):
        folder = tmp_path / str(is_strict)
        folder.mkdir()
        variant = write_bfloat(path, folder, is_strict=is_strict)
        found[is_strict] = (_types(onnx.load(variant)), "Type Error" in _refusal(variant))
    assert found[False] == ({"kernel": TensorProto.BFLOAT16, "head": TensorProto.BFLOAT16}, True)
    assert found[True] == ({"kernel": TensorProto.FLOAT, "head": TensorProto.BFLOAT16}, False)


def test_the_users_keep_list_counts_beside_that(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["h"]), helper.make_node("Gemm", ["h", "w2"], ["y"])]
    ends = [onnx_models.value(name, "float32", (4, 8)) for name in "xy"]
    weights = (onnx_models.weight("w1", 8, 8), onnx_models.weight("w2", 8, 8))
    path = onnx_models.write(tmp_path / "two.onnx", nodes, ends[:1], ends[1:], weights)
    variant = write_bfloat(path, tmp_path, ("MatMul",), is_strict=True)
    assert _types(onnx.load(variant)) == {"w1": TensorProto.FLOAT, "w2": TensorProto.BFLOAT16}


@pytest.mark.parametrize(
    ("model", "opset", "names"),
    [
        ("conv", FIRST_WITH_CONVOLUTIONS, []),
        ("conv", FIRST_WITH_CONVOLUTIONS - 1, ["Conv", "GlobalAveragePool"]),
        ("normalized", 13, []),
        ("normalized", 12, ["MatMul", "Mul", "Softmax"]),
    ],
)
def test_which_operators_take_bfloat_is_a_matter_of_the_opset(
    tmp_path: Path, model: str, opset: int, names: list[str]
) -> None:
    assert without_bfloat(_with_opset(getattr(onnx_models, model)(tmp_path), opset)) == names


def test_operators_of_others_are_not_judged() -> None:
    node = helper.make_node("Mystery", ["x"], ["y"], domain="com.example")
    graph = helper.make_graph([node], "g", [], [])
    assert without_bfloat(helper.make_model(graph)) == []


@pytest.mark.parametrize(("opset", "is_offered"), [(21, False), (22, True)])
def test_bfloat_is_offered_where_something_with_weights_takes_it(tmp_path: Path, opset: int, is_offered: bool) -> None:
    model = _with_opset(onnx_models.conv(tmp_path), opset)
    knobs = (ort_cuda_knobs.CudaKnob(ort_cuda_knobs.PRECISION, {}, {}),)
    assert "bf16" in ort_cuda_knobs.knob_space(knobs, model).knobs[0].values  # its matrix product does
    del model.graph.node[4]
    (knob,) = ort_cuda_knobs.knob_space(knobs, model).knobs
    assert ("bf16" in knob.values, "bf16-mixed" in knob.values) == (is_offered, is_offered)
    assert {"fp32", "fp16", "fp16-mixed"} <= set(knob.values)


def test_a_value_that_two_kept_nodes_read_is_cast_once(tmp_path: Path) -> None:
    # As converters up to 1.31 write it: one cast for each of the two, of the same name and output.
    casts = [helper.make_node("Cast", ["x"], ["c"], to=TensorProto.FLOAT16, name="cast") for _ in range(2)]
    nodes = [*casts, helper.make_node("Add", ["c", "c"], ["s"]), helper.make_node("Cast", ["s"], ["y"], to=1)]
    ends = [onnx_models.value(name, "float32", (4,)) for name in "xy"]
    path = onnx_models.write(tmp_path / "twice.onnx", nodes, ends[:1], ends[1:])
    assert "same node name" in _refusal(path)
    model = onnx.load(path)
    merge_casts(model)
    onnx.save(model, str(path))
    assert [node.op_type for node in model.graph.node] == ["Cast", "Add", "Cast"]
    assert _refusal(path) == ""


def test_a_mixed_variant_whose_kept_nodes_share_an_input_is_valid(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Softmax", ["h"], ["share"], axis=-1),
        helper.make_node("Exp", ["h"], ["grown"]),
        helper.make_node("Add", ["share", "grown"], ["y"]),
    ]
    ends = [onnx_models.value(name, "float32", (4, 8)) for name in "xy"]
    path = onnx_models.write(tmp_path / "shared.onnx", nodes, ends[:1], ends[1:], (onnx_models.weight("w", 8, 8),))
    assert _refusal(write_variant(path, "fp16-mixed", tmp_path)) == ""
