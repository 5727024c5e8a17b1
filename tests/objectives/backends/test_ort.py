"""ONNX Runtime backend: engines, what takes effect, and the environment, on made and on trained models."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from objectives.backends import ort, ort_graph, ort_session
from objectives.errors import CandidateError
from objectives.outcome import EngineFile, FailureKind
from tests import onnx_models
from tests.objectives.backends.evaluation import BACKEND, evaluate, trained


@pytest.fixture(scope="module")
def magika() -> Path:
    return trained("magika", "models/standard_v3_3/model.onnx")


@pytest.fixture(scope="module")
def classifier() -> Path:
    return trained("rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx")


def test_the_engine_is_one_file_even_for_external_weights(tmp_path: Path) -> None:
    source, target = tmp_path / "quelle", tmp_path / "ziel ü"
    source.mkdir(), target.mkdir()
    path = onnx_models.external(source)
    assert len(BACKEND.describe(path).files) == 2
    engine = BACKEND.build(path, {}, target)
    for file in source.iterdir():
        file.unlink()  # the engine stands alone
    assert engine.sidecars == {}
    with BACKEND.open(engine, {}) as session:
        assert session.run({"x": np.ones((1, 64), np.float32)})["y"].shape == (1, 8)


def test_weights_of_a_large_model_are_sidecars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort_graph, "SINGLE_FILE_BYTES", 1000)
    path, inputs = onnx_models.mlp(tmp_path), {"x": np.ones((1, 64), np.float32)}
    target = tmp_path / "target"
    target.mkdir()
    engine = BACKEND.build(path, {}, target)
    assert list(engine.sidecars) == ["engine.onnx.data"]
    assert {file.name for file in target.iterdir()} == {"engine.onnx", "engine.onnx.data"}
    assert engine.size_bytes == sum(file.stat().st_size for file in target.iterdir())
    moved = tmp_path / "moved ü"
    target.rename(moved)
    there = EngineFile(str(moved / "engine.onnx"), engine.digest, engine.size_bytes, engine.format, engine.sidecars)
    with BACKEND.open(there, {}) as session:
        assert np.allclose(session.run(inputs)["y"], BACKEND.reference(path, inputs)["y"], atol=1e-5)


def test_the_engine_holds_the_optimized_graph(tmp_path: Path) -> None:
    path = onnx_models.mlp(tmp_path)
    fused = onnx.load(BACKEND.build(path, {}, tmp_path).path)
    assert "Gelu" in ort_graph.op_types(fused)
    plain = onnx.load(BACKEND.build(path, {"graph_optimization_level": "disable_all"}, tmp_path).path)
    assert "Erf" in ort_graph.op_types(plain)
    approximate = onnx.load(BACKEND.build(path, {"gelu_approximation": "on"}, tmp_path).path)
    assert "FastGelu" in ort_graph.op_types(approximate)


@pytest.mark.parametrize("level", ["disable_all", "enable_basic", "enable_extended", "enable_all"])
def test_the_engine_computes_what_the_optimizing_session_computes(tmp_path: Path, classifier: Path, level: str) -> None:
    inputs = {"x": np.random.default_rng(0).random((1, 3, 48, 192)).astype(np.float32)}
    options = ort_graph.new_options()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level.upper()}")
    direct = ort_graph.new_session(classifier, options).run(None, inputs)
    found, effective = evaluate(classifier, inputs, tmp_path, graph_optimization_level=level)
    assert all(np.array_equal(a, b) for a, b in zip(direct, found.values(), strict=True))
    assert effective["graph_optimization_level"] == level


def test_an_engine_opened_as_what_it_is_not_is_a_fallback(tmp_path: Path) -> None:
    engine = BACKEND.build(onnx_models.mlp(tmp_path), {}, tmp_path)
    with pytest.raises(CandidateError, match="gelu_approximation=on") as caught:
        BACKEND.open(engine, {"gelu_approximation": "on"})
    assert caught.value.kind == FailureKind.FALLBACK


def test_an_engine_can_be_the_model_of_another_build(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir(), second.mkdir()
    values = {"graph_optimization_level": "enable_basic"}
    engine = BACKEND.build(onnx_models.mlp(tmp_path), values, first)
    _, effective = evaluate(Path(engine.path), {"x": np.ones((1, 64), np.float32)}, second)
    assert effective["graph_optimization_level"] == "enable_all"


def test_a_foreign_file_is_no_engine(tmp_path: Path) -> None:
    path = onnx_models.mlp(tmp_path)
    with pytest.raises(CandidateError, match="not built by this backend"):
        BACKEND.open(EngineFile(str(path), "", 0, "onnx"), {})


def test_a_trained_network_keeps_its_answers(tmp_path: Path, magika: Path) -> None:
    inputs = {"bytes": np.random.default_rng(0).integers(0, 256, (2, 2048)).astype(np.int32)}
    expected = BACKEND.reference(magika, inputs)["target_label"]
    found, _ = evaluate(magika, inputs, tmp_path)
    assert np.allclose(found["target_label"], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("values", "started"),
    [
        ({"intra_op_threads": "1"}, 0),
        ({"intra_op_threads": "2"}, 1),
        ({"intra_op_threads": "1", "inter_op": "parallel-2"}, 1),
        ({"intra_op_threads": "2", "inter_op": "parallel-2"}, 2),
    ],
)
def test_threads_are_counted(
    tmp_path: Path, values: dict[str, str], started: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ort.ort_knobs, "usable_cores", lambda: 4)
    _, effective = evaluate(onnx_models.mlp(tmp_path), {"x": np.ones((1, 64), np.float32)}, tmp_path, **values)
    assert effective["threads_started"] == str(started)
    assert effective["providers"] == "CPUExecutionProvider"


def test_python_threads_do_not_count() -> None:
    created: list[int] = []
    stop = threading.Event()
    with ort_session.new_threads(created):
        thread = threading.Thread(target=stop.wait)
        thread.start()
    stop.set()
    thread.join()
    assert created == [0]


def test_too_few_threads_are_a_fallback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = BACKEND.build(onnx_models.mlp(tmp_path), {}, tmp_path)
    monkeypatch.setattr(ort_session, "_native_threads", lambda: {1})
    with pytest.raises(CandidateError, match="1 new threads expected, found 0") as caught:
        BACKEND.open(engine, {"intra_op_threads": "2"})
    assert caught.value.kind == FailureKind.FALLBACK


def test_a_setting_that_did_not_take_is_a_fallback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = BACKEND.build(onnx_models.mlp(tmp_path), {}, tmp_path)
    monkeypatch.setattr(ort, "apply_settings", lambda options, chosen: None)
    with pytest.raises(CandidateError, match="mem_pattern") as caught:
        BACKEND.open(engine, {"mem_pattern": "off"})
    assert caught.value.kind == FailureKind.FALLBACK


def test_another_provider_is_a_fallback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = BACKEND.build(onnx_models.mlp(tmp_path), {}, tmp_path)
    monkeypatch.setattr(ort, "PROVIDERS", ("OtherExecutionProvider",))
    with pytest.raises(CandidateError, match="OtherExecutionProvider") as caught:
        BACKEND.open(engine, {})
    assert caught.value.kind == FailureKind.FALLBACK


def test_fewer_usable_cores_are_another_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    before = BACKEND.environment()
    monkeypatch.setattr(ort.ort_knobs, "usable_cores", lambda: 1000)
    after = BACKEND.environment()
    assert before.device == after.device == "cpu"
    assert before.digest != after.digest


def test_an_environment_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda self: False)
    assert BACKEND.environment().identity["cpu"]
