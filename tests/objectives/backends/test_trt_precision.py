"""Precision: model variants where the library takes types as given (REAL RTX), flags where it does not (FAKE)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from objectives.backends.trt_precision import choose, precision_knob
from objectives.errors import CandidateError
from objectives.outcome import FailureKind
from tests import onnx_models
from tests.objectives.backends import modelopt
from tests.objectives.backends.fake_tensorrt import FakeTensorRT
from tests.objectives.backends.rtx import LIBRARY, NETWORKS, build, network


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_trained_networks_build_in_16_bit(name: str, precision: str, tmp_path: Path) -> None:
    path, shapes = network(name)
    if (name, precision) == ("detector", "bf16"):  # RTX 1.7 has no transposed convolution of that type
        with pytest.raises(CandidateError, match="Could not infer output types") as caught:
            build(path, tmp_path, shapes, None, precision=precision)
        assert caught.value.kind == FailureKind.BUILD_FAILED
        return
    smaller = build(path, tmp_path, shapes, None, precision=precision)
    assert smaller.size_bytes < build(path, tmp_path, shapes).size_bytes


@pytest.mark.parametrize("maker", [onnx_models.mlp, onnx_models.external, onnx_models.control_flow])
def test_a_variant_keeps_its_interface_and_nearly_its_values(maker: Callable[[Path], Path], tmp_path: Path) -> None:
    path = maker(tmp_path)
    for precision, kind in (("fp16", TensorProto.FLOAT16), ("bf16", TensorProto.BFLOAT16)):
        folder = tmp_path / precision
        folder.mkdir()
        choice = choose(LIBRARY, path, precision, folder)
        assert (choice.strongly_typed, choice.flags) == (True, ())
        model = onnx.load(str(choice.model))
        assert {value.type.tensor_type.elem_type for value in model.graph.input} == {
            value.type.tensor_type.elem_type for value in onnx.load(str(path)).graph.input
        }
        weights = {tensor.name: tensor for tensor in model.graph.initializer if tensor.data_type == kind}
        assert weights
        assert precision != "bf16" or TensorProto.FLOAT16 not in {t.data_type for t in model.graph.initializer}
        for name, original in ((t.name, t) for t in onnx.load(str(path)).graph.initializer if t.name in weights):
            expected = onnx.numpy_helper.to_array(original).astype(np.float64)
            found = onnx.numpy_helper.to_array(weights[name]).astype(np.float64)
            assert np.allclose(found, expected, rtol=1e-2, atol=1e-3)


def test_a_model_of_16_bit_is_not_turned_into_the_other_kind(tmp_path: Path) -> None:
    with pytest.raises(CandidateError, match="already holds float16") as caught:
        build(onnx_models.identity(tmp_path, "float16", (2,)), tmp_path, {}, None, precision="bf16")
    assert caught.value.kind == FailureKind.UNSUPPORTED


def test_nothing_to_convert_is_a_fallback(tmp_path: Path) -> None:
    with pytest.raises(CandidateError, match="found no weight") as caught:
        build(onnx_models.identity(tmp_path, "int32", (2,)), tmp_path, {}, None, precision="fp16")
    assert caught.value.kind == FailureKind.FALLBACK


@pytest.mark.parametrize(
    ("version", "values"),
    [
        ("8.6.1", ("as-given", "fp16")),
        ("10.9.0", ("as-given", "fp16", "bf16", "strongly-typed")),
        ("11.1.0", ("as-given", "fp16", "fp16-mixed", "bf16", "bf16-mixed")),
    ],
)
def test_what_each_version_offers(version: str, values: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    modelopt.remove(monkeypatch)
    assert precision_knob(FakeTensorRT(version)).values == values


def test_weakly_typed_versions_get_flags_and_the_model_as_it_is(tmp_path: Path) -> None:
    library, path = FakeTensorRT("10.9.0"), onnx_models.mlp(tmp_path)
    for precision, flags in (("as-given", []), ("fp16", ["FP16"]), ("bf16", ["BF16"])):
        choice = choose(library, path, precision, tmp_path)
        assert (choice.model, choice.strongly_typed) == (path, False)
        assert [flag.flag.name for flag in choice.flags] == flags
    assert choose(library, path, "strongly-typed", tmp_path).strongly_typed


def test_explicit_quantization_needs_its_flag_where_networks_are_weakly_typed(tmp_path: Path) -> None:
    helper = onnx_models.helper
    node = helper.make_node("QuantizeLinear", ["x", "scale"], ["y"])
    scale = onnx_models.constant("scale", 0.1)
    inputs, outputs = [onnx_models.value("x", "float32", (2,))], [onnx_models.value("y", "uint8", (2,))]
    path = onnx_models.write(tmp_path / "quantized.onnx", [node], inputs, outputs, (scale,))
    flags = choose(FakeTensorRT("8.6.1"), path, "fp16", tmp_path).flags
    assert [flag.flag.name for flag in flags] == ["FP16", "INT8"]
    assert choose(FakeTensorRT("11.1.0"), path, "as-given", tmp_path).flags == ()
