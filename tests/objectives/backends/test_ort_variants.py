"""Precision variants: close to the original, honest when nothing was converted, and quiet."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from objectives.backends import ort_graph, ort_variants
from objectives.backends.ort import OnnxRuntimeBackend
from objectives.backends.ort_variants import PRECISION, write_variant
from objectives.errors import CandidateError, InputError
from objectives.outcome import FailureKind
from tests import onnx_models
from tests.objectives.backends.evaluation import BACKEND, evaluate, trained

OTHERS = tuple(value for value in PRECISION.values if value != PRECISION.default)
# What a model with matrix products and nothing else takes.
MATMUL = tuple(value for value in OTHERS if value not in ("int8-matmul", "fp16-mixed"))


@pytest.fixture
def x() -> dict[str, Any]:
    return {"x": np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)}


def relative(found: Any, expected: Any) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def test_every_value_has_a_writer() -> None:
    assert set(ort_variants._WRITERS) == set(OTHERS)


def test_the_default_is_the_model_itself(tmp_path: Path) -> None:
    path = onnx_models.mlp(tmp_path)
    assert write_variant(path, "fp32", tmp_path) is path


@pytest.mark.parametrize("precision", MATMUL)
def test_a_variant_is_close_but_not_equal(tmp_path: Path, x: dict[str, Any], precision: str) -> None:
    folder = tmp_path / "größe"
    folder.mkdir()
    path = onnx_models.mlp(folder)
    expected = BACKEND.reference(path, x)["y"]
    found, effective = evaluate(path, x, tmp_path, precision=precision)
    assert effective["precision"] == precision
    assert found["y"].dtype == np.float32
    assert 0 < relative(found["y"], expected) < 0.05


@pytest.mark.parametrize(
    ("precision", "operator"),
    [("int8", "ConvInteger"), ("uint8", "ConvInteger"), ("int8-matmul", "Conv"), ("fp16", "Cast")],
)
def test_what_becomes_of_convolutions(tmp_path: Path, precision: str, operator: str) -> None:
    variant = onnx.load(write_variant(onnx_models.conv(tmp_path), precision, tmp_path))
    assert operator in ort_graph.op_types(variant)
    assert ("MatMulInteger" in ort_graph.op_types(variant)) == (precision != "fp16")


def test_the_weights_of_the_engine_are_told(tmp_path: Path, x: dict[str, Any]) -> None:
    path = onnx_models.mlp(tmp_path)
    _, as_given = evaluate(path, x, tmp_path)
    assert as_given["weights"].startswith("float32 4608")
    _, eight_bit = evaluate(path, x, tmp_path, precision="int8")
    assert eight_bit["weights"].startswith("int8 4610")
    values = {"precision": "fp16", "graph_optimization_level": "disable_all"}
    _, half = evaluate(path, x, tmp_path, **values)
    assert half["weights"] == "float16 4611"


def test_external_weights(tmp_path: Path, x: dict[str, Any]) -> None:
    path = onnx_models.external(tmp_path)
    for precision in MATMUL:
        target = tmp_path / precision
        target.mkdir()
        found, _ = evaluate(path, x, target, precision=precision)
        assert relative(found["y"], BACKEND.reference(path, x)["y"]) < 0.05


@pytest.mark.parametrize("precision", MATMUL)
def test_large_models_go_through_files(
    tmp_path: Path, x: dict[str, Any], precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ort_graph, "SINGLE_FILE_BYTES", 1000)
    monkeypatch.setattr(ort_variants, "SINGLE_FILE_BYTES", 1000)
    path, target = onnx_models.external(tmp_path), tmp_path / "target"
    target.mkdir()
    found, _ = evaluate(path, x, target, precision=precision)
    assert relative(found["y"], BACKEND.reference(path, x)["y"]) < 0.05
    assert {file.name for file in target.iterdir()} == {"engine.onnx", "engine.onnx.data"}


@pytest.mark.parametrize("precision", OTHERS)
def test_a_model_without_floats_is_a_fallback(tmp_path: Path, precision: str) -> None:
    with pytest.raises(CandidateError, match="unchanged") as caught:
        BACKEND.build(onnx_models.identity(tmp_path, "int32"), {"precision": precision}, tmp_path)
    assert caught.value.kind == FailureKind.FALLBACK


def test_eight_bit_without_weights_is_a_fallback(tmp_path: Path) -> None:
    with pytest.raises(CandidateError, match="unchanged") as caught:
        BACKEND.build(onnx_models.identity(tmp_path, "float32"), {"precision": "int8"}, tmp_path)
    assert caught.value.kind == FailureKind.FALLBACK


def test_a_half_model_made_half_again_is_a_fallback(tmp_path: Path, x: dict[str, Any]) -> None:
    half = write_variant(onnx_models.mlp(tmp_path), "fp16", tmp_path)
    again = tmp_path / "again"
    again.mkdir()
    with pytest.raises(CandidateError) as caught:
        write_variant(half, "fp16", again)
    assert caught.value.kind == FailureKind.FALLBACK


def test_leaving_out_convolutions_where_there_are_none_is_a_fallback(tmp_path: Path) -> None:
    with pytest.raises(CandidateError, match="the same as int8") as caught:
        BACKEND.build(onnx_models.mlp(tmp_path), {"precision": "int8-matmul"}, tmp_path)
    assert caught.value.kind == FailureKind.FALLBACK


def test_per_channel_where_only_convolutions_are_is_a_fallback(tmp_path: Path) -> None:
    # The quantizer knows no dynamic convolution per channel and quietly takes one scale per tensor.
    detector = trained("rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx")
    with pytest.raises(CandidateError, match="per channel") as caught:
        BACKEND.build(detector, {"precision": "int8-per-channel"}, tmp_path)
    assert caught.value.kind == FailureKind.FALLBACK


def test_weights_inside_loops_are_converted(tmp_path: Path) -> None:
    inputs = {
        "x": np.random.default_rng(0).standard_normal((2, 16)).astype(np.float32),
        "steps": np.array(2, np.int64),
        "flip": np.array(False),
    }
    path = onnx_models.control_flow(tmp_path)
    found, _ = evaluate(path, inputs, tmp_path, precision="fp16")
    assert 0 < relative(found["y"], BACKEND.reference(path, inputs)["y"]) < 0.05


def test_a_converter_that_breaks_is_a_failed_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(prepared: Path, target: Path, kept: list[str]) -> None:
        raise KeyError("some_tensor")

    monkeypatch.setitem(ort_variants._WRITERS, "int8", broken)
    with pytest.raises(CandidateError, match="KeyError: 'some_tensor'") as caught:
        BACKEND.build(onnx_models.mlp(tmp_path), {"precision": "int8"}, tmp_path)
    assert caught.value.kind == FailureKind.BUILD_FAILED


def test_a_model_that_the_quantizer_refuses_says_so(tmp_path: Path) -> None:
    path = trained("silero_vad", "data/silero_vad_op18_ifless.onnx")
    with pytest.raises(CandidateError, match="to be an initializer") as caught:
        BACKEND.build(path, {"precision": "int8"}, tmp_path)
    assert caught.value.kind == FailureKind.BUILD_FAILED
    assert not list(tmp_path.iterdir())


def test_converters_are_silent_and_leave_logging_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in a fresh process: without a handler, the first logging call of a library would install one.
    monkeypatch.setattr(logging.root, "handlers", [])
    before = (list(logging.root.handlers), logging.root.manager.disable)
    for precision in OTHERS:
        target = tmp_path / precision
        target.mkdir()
        BACKEND.build(onnx_models.conv(tmp_path), {"precision": precision}, target)
    assert (list(logging.root.handlers), logging.root.manager.disable) == before
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


@pytest.mark.parametrize("precision", OTHERS)
def test_magika(tmp_path: Path, precision: str) -> None:
    path = trained("magika", "models/standard_v3_3/model.onnx")
    inputs = {"bytes": np.random.default_rng(0).integers(0, 256, (2, 2048)).astype(np.int32)}
    found, _ = evaluate(path, inputs, tmp_path, precision=precision)
    expected = BACKEND.reference(path, inputs)["target_label"]
    assert relative(found["target_label"], expected) < 0.05


@pytest.mark.parametrize("precision", OTHERS)
def test_text_recognition(tmp_path: Path, precision: str) -> None:
    path = trained("rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx")
    inputs = {"x": np.random.default_rng(0).random((1, 3, 48, 64)).astype(np.float32)}
    found, _ = evaluate(path, inputs, tmp_path, precision=precision)
    (output,) = found.values()
    assert np.isfinite(output).all()


def test_mixed_leaves_what_is_sensitive_as_it_is(tmp_path: Path) -> None:
    path = onnx_models.normalized(tmp_path)
    inputs = {"x": np.random.default_rng(0).normal(0, 30, (4, 64)).astype(np.float32)}
    losses = {}
    for precision in ("fp16", "fp16-mixed"):
        folder = tmp_path / precision
        folder.mkdir()
        variant = onnx.load(write_variant(path, precision, folder))
        kept = {node.op_type for node in variant.graph.node if _reads(variant, node, onnx.TensorProto.FLOAT)}
        assert ("Softmax" in kept) == (precision == "fp16-mixed"), kept
        (found,) = BACKEND.reference(folder / "variant.onnx", inputs).values()
        losses[precision] = relative(found, BACKEND.reference(path, inputs)["y"])
    assert 0 < losses["fp16-mixed"] < losses["fp16"]


def test_mixed_without_anything_sensitive_is_a_fallback(tmp_path: Path) -> None:
    with pytest.raises(CandidateError, match="the same as fp16") as caught:
        write_variant(onnx_models.mlp(tmp_path), "fp16-mixed", tmp_path)
    assert caught.value.kind == FailureKind.FALLBACK


def _reads(model: Any, node: Any, kind: int) -> bool:
    """Whether a node reads something that a cast has just made `kind`."""
    casts = {
        one.output[0] for one in model.graph.node if one.op_type == "Cast" and any(a.i == kind for a in one.attribute)
    }
    return bool(casts & set(node.input))


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_nodes_on_the_keep_list_keep_their_type(tmp_path: Path, precision: str) -> None:
    path = onnx_models.conv(tmp_path)
    sizes = {}
    for name, keep in (("all", ()), ("kept", ("Con?",))):
        (tmp_path / name).mkdir()
        model = onnx.load(write_variant(path, precision, tmp_path / name, keep))
        floats = [one for one in ort_graph.initializers(model) if one.data_type == onnx.TensorProto.FLOAT]
        sizes[name] = max((len(one.dims) for one in floats), default=0)
    assert sizes == {"all": sizes["all"], "kept": 4}  # the weights of a convolution have four dimensions
    assert sizes["all"] < 4
    with pytest.raises(CandidateError, match="unchanged"):
        write_variant(onnx_models.mlp(tmp_path), precision, tmp_path, ["*"])


def test_the_keep_list_is_an_option_of_the_backend(tmp_path: Path, x: dict[str, Any]) -> None:
    backend = OnnxRuntimeBackend()
    backend.configure({"keep-fp32": "Erf, D*"})
    path = onnx_models.mlp(tmp_path)
    assert backend.build(path, {"precision": "fp16"}, tmp_path).size_bytes
    for words in ("", " , "):
        with pytest.raises(InputError, match="names nothing"):
            OnnxRuntimeBackend().configure({"keep-fp32": words})
    wrong = OnnxRuntimeBackend()
    wrong.configure({"keep-fp32": "NoSuchNode"})
    with pytest.raises(CandidateError, match="no node has such a name or type") as caught:
        wrong.build(path, {"precision": "fp16"}, tmp_path)
    assert caught.value.kind == FailureKind.UNSUPPORTED
