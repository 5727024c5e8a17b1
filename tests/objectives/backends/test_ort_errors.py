"""ONNX Runtime's errors arrive as outcomes or as input errors, in the library's words, and nothing is printed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as library

from objectives.backends import ort_errors
from objectives.backends.base import Session
from objectives.errors import CandidateError, HarnessError, KnobError, ModelError, WorkloadError
from objectives.outcome import FailureKind
from tests import onnx_models
from tests.objectives.backends.evaluation import BACKEND


def test_every_exception_class_of_the_library_is_mapped() -> None:
    found = {
        name
        for name, one in vars(library).items()
        if isinstance(one, type) and issubclass(one, BaseException) and not name.startswith("_")
    }
    assert found
    assert found <= set(ort_errors.CLASSES)


@pytest.mark.parametrize("name", [one.__name__ for one in ort_errors.exception_classes()])
def test_library_errors_become_candidate_errors(name: str) -> None:
    with (
        pytest.raises(CandidateError, match="its own words") as caught,
        ort_errors.translate_errors(FailureKind.RUN_FAILED),
    ):
        raise getattr(library, name)("its own words")
    assert caught.value.kind in set(FailureKind)
    assert caught.value.kind == (ort_errors.CLASSES[name] or FailureKind.RUN_FAILED)


def _time(session: Session, inputs: Any) -> None:
    session.bind(inputs)
    session.measure(1)


@pytest.mark.parametrize("arena", ["on", "off"])
def test_lack_of_memory_is_told_apart(tmp_path: Path, arena: str) -> None:
    path = onnx_models.expand(tmp_path)
    inputs = {"x": np.ones(1, np.float32), "shape": np.array([2**46], np.int64)}  # 256 TiB
    values = {"cpu_mem_arena": arena}
    with BACKEND.open(BACKEND.build(path, values, tmp_path), values) as session:
        for attempt in (session.run, partial(_time, session)):
            with pytest.raises(CandidateError) as caught:
                attempt(inputs)
            assert caught.value.kind == FailureKind.OUT_OF_MEMORY


def test_a_python_memory_error_is_one_too() -> None:
    with (
        pytest.raises(CandidateError, match="out of host memory") as caught,
        ort_errors.translate_errors(FailureKind.RUN_FAILED),
    ):
        raise MemoryError
    assert caught.value.kind == FailureKind.OUT_OF_MEMORY


def test_a_model_the_library_does_not_know(tmp_path: Path) -> None:
    path = onnx_models.unknown_operator(tmp_path)
    with pytest.raises(ModelError, match="nowhere") as caught:
        BACKEND.reference(path, {"x": np.ones(1, np.float32)})
    assert caught.value.hint
    with pytest.raises(CandidateError):
        BACKEND.build(path, {}, tmp_path)


@pytest.mark.parametrize(
    "inputs",
    [
        {},
        {"x": np.ones((2, 63), np.float32)},
        {"x": np.ones(64, np.float32)},
        {"x": np.ones((2, 64), np.float64)},
        {"x": np.ones((2, 64), np.float32), "other": np.ones(1, np.float32)},
        {"x": onnx_models.sample("bfloat16", (2, 64))},
        {"x": onnx_models.sample("string", (2, 64))},
    ],
    ids=["missing", "size", "rank", "type", "unknown", "bfloat16", "string"],
)
def test_inputs_that_do_not_fit(tmp_path: Path, inputs: dict[str, Any]) -> None:
    path = onnx_models.mlp(tmp_path)
    with pytest.raises(WorkloadError) as refused:
        BACKEND.reference(path, inputs)
    assert refused.value.hint
    with BACKEND.open(BACKEND.build(path, {}, tmp_path), {}) as session:
        with pytest.raises(CandidateError):
            session.run(inputs)
        with pytest.raises(CandidateError):
            _time(session, inputs)


def test_a_float_array_is_never_read_as_bfloat16(tmp_path: Path) -> None:
    path = onnx_models.identity(tmp_path, "bfloat16")
    with pytest.raises(WorkloadError):
        BACKEND.reference(path, {"x": np.ones(3, np.float32)})


def test_measuring_without_bound_inputs_is_our_mistake(tmp_path: Path) -> None:
    engine = BACKEND.build(onnx_models.mlp(tmp_path), {}, tmp_path)
    with BACKEND.open(engine, {}) as session, pytest.raises(HarnessError, match="bind"):
        session.measure(1)


def test_unknown_values_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    with pytest.raises(KnobError, match="fp3"):
        BACKEND.build(onnx_models.mlp(tmp_path), {"precision": "fp3"}, target)
    assert not list(target.iterdir())


def test_errors_are_raised_not_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = onnx_models.mlp(tmp_path)
    with BACKEND.open(BACKEND.build(path, {}, tmp_path), {}) as session, pytest.raises(CandidateError):
        session.run({"x": np.ones((2, 63), np.float32)})
    with pytest.raises(CandidateError):
        BACKEND.build(onnx_models.unknown_operator(tmp_path), {}, tmp_path)
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""
