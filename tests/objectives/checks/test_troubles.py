"""Each trouble is said when it is there, and only then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import numpy as np
import pytest

from objectives.backends.base import Environment, Session
from objectives.backends.synthetic import SyntheticBackend
from objectives.checks import troubles
from objectives.digest import digest_of_file
from objectives.knobs import Knob, KnobKind, KnobSpace
from objectives.landscape import tiny_landscape
from objectives.model import ModelSpec, TensorSpec
from objectives.outcome import EngineFile
from objectives.tensors import Array, Tensors

HERE = Environment("b", "1", "cpu", {"cpu": "x"}, {"os": "y"})
MODEL = ModelSpec("d", "m", "onnx", (), (TensorSpec("y", "float32", (8,)),), ("m.onnx",), 1)
KNOB = Knob("a", ("1", "2"), "1", KnobKind.BUILDER, "help")
X = {"x": np.arange(8, dtype=np.float32)}
Y = {"y": np.ones(3, np.float32)}
replace = msgspec.structs.replace


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (HERE, ""),
        (replace(HERE, details={"os": "z"}), "os: y and z"),
        (replace(HERE, backend_version="2"), "version: 1 and 2"),
    ],
)
def test_an_environment_that_changes(second: Environment, words: str) -> None:
    found = troubles.of_environment(HERE, second, "b")
    assert found.endswith(words)
    assert bool(found) is bool(words)


def test_an_environment_without_a_name_or_version() -> None:
    assert "instead of 'c'" in troubles.of_environment(HERE, HERE, "c")
    nameless = replace(HERE, backend_version="")
    assert "no version" in troubles.of_environment(nameless, nameless, "b")


def test_a_description() -> None:
    path = Path("/somewhere/m.onnx")
    assert troubles.of_description(MODEL, MODEL, path) == ""
    assert "differs" in troubles.of_description(MODEL, replace(MODEL, digest="e"), path)
    assert "'m.onnx', not 'n.onnx'" in troubles.of_description(MODEL, MODEL, path.with_name("n.onnx"))
    empty = replace(MODEL, outputs=())
    assert "no outputs" in troubles.of_description(empty, empty, path)


def test_a_knob_space() -> None:
    space = KnobSpace((KNOB,))
    assert troubles.of_space(space, space) == ""
    assert "no knobs" in troubles.of_space(KnobSpace(()), space)
    assert "differ" in troubles.of_space(space, KnobSpace((replace(KNOB, default="2"),)))
    assert "nothing to choose" in troubles.of_space(KnobSpace((replace(KNOB, values=("1",)),)), space)
    assert "explains nothing" in troubles.of_space(KnobSpace((replace(KNOB, help=""),)), space)


def test_an_engine_and_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "engine"
    file.write_text("abc")
    engine = EngineFile(str(file), digest_of_file(file), 3, "plan")
    assert troubles.of_engine(engine, tmp_path) == ""
    (tmp_path / "other").mkdir()
    wrong: dict[str, Callable[[], str]] = {
        "no engine file": lambda: troubles.of_engine(replace(engine, path=str(tmp_path / "none")), tmp_path),
        "outside": lambda: troubles.of_engine(engine, tmp_path / "other"),
        "digest": lambda: troubles.of_engine(replace(engine, digest="d"), tmp_path),
        "2 bytes": lambda: troubles.of_engine(replace(engine, size_bytes=2), tmp_path),
        "the folder holds 'engine', 'other', the engine names 'engine'": lambda: troubles.of_engine(engine, tmp_path),
    }
    assert [words for words, ask in wrong.items() if words not in ask()] == []
    (tmp_path / "other").rmdir()
    assert "no format" in troubles.of_engine(replace(engine, format=""), tmp_path)


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        (Y, ""),
        ({}, "outputs are nothing, the reference has 'y'"),
        ({"y": [1.0, 1.0, 1.0]}, "type list"),
        ({"y": np.ones(3)}, "type float64, the reference float32"),
        ({"y": np.ones(2, np.float32)}, "shape [2], the reference [3]"),
    ],
)
def test_the_form_of_outputs(outputs: Mapping[str, object], words: str) -> None:
    found = troubles.of_form(outputs, Y)
    assert words in found
    assert bool(found) is bool(words)


class _Session(Session):
    """Gives what `answer` gives."""

    clock = "fake"

    def __init__(self, answer: Callable[[Tensors], Array], seconds: float = 1.0) -> None:
        self._answer, self._seconds = answer, seconds

    @property
    def effective(self) -> Mapping[str, str]:
        return {}

    def run(self, inputs: Tensors) -> dict[str, Array]:
        return {"y": self._answer(inputs)}

    def bind(self, inputs: Tensors) -> None:
        return

    def _execute(self, repeats: int) -> None:
        return

    def measure(self, repeats: int) -> float:
        return self._seconds


def _frozen(inputs: Tensors) -> Array:
    answer = inputs["x"].copy()
    answer.flags.writeable = False
    return answer


def test_outputs_that_are_not_fresh() -> None:
    shared = np.zeros(8, np.float32)
    counted = iter(range(9))

    def count(_: Tensors) -> Array:
        shared[:] = next(counted)
        return shared

    cases: tuple[tuple[Callable[[Tensors], Array], str], ...] = (
        (lambda inputs: inputs["x"] + 1, ""),
        (lambda inputs: inputs["x"] * np.nan, ""),
        (count, "changed by the next"),
        (lambda _: shared, "the same memory"),
        (_frozen, "cannot be written to"),
        (lambda inputs: inputs["x"], "the same memory"),
    )
    for answer, words in cases:
        found = troubles.of_freshness(_Session(answer), X)
        assert words in found
        assert bool(found) is bool(words)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_clock_that_cannot_be(seconds: float) -> None:
    assert "says the clock" in troubles.of_timing(_Session(lambda inputs: inputs["x"], seconds), X)


def test_a_clock_without_a_name() -> None:
    session = _Session(lambda inputs: inputs["x"])
    assert troubles.of_timing(session, X) == ""
    session.clock = ""  # type: ignore[misc]
    assert "no name" in troubles.of_timing(session, X)


def test_values_that_did_not_take_effect() -> None:
    assert troubles.of_effect({"a": "1", "b": "2"}, {"a": "1"}) == ""
    assert troubles.of_effect({"a": "1"}, {"a": "2"}) == "a=1 was asked for, 2 took effect"


def test_unknown_values_and_two_sessions(tmp_path: Path) -> None:
    path, backend = tiny_landscape().save(tmp_path / "tiny.json"), SyntheticBackend()
    (tmp_path / "work").mkdir()
    space = backend.knobs(path, backend.describe(path))
    assert troubles.of_unknown_values(backend, path, space, tmp_path / "work") == ""
    engine = backend.build(path, {}, tmp_path / "work")
    assert troubles.of_two_sessions(backend, engine, {}, X) == ""
