"""The contract of a backend: what the docstrings of objectives/backends/base.py promise, as tests.

Subclass BackendContract as `TestMine`, give it the fixtures `backend`, `model_path` and `inputs`, and run it. The model
must build and run with every knob at its default; it should be small, since each knob value is built once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from objectives.backends.base import Backend, Session
from objectives.digest import digest_of_file
from objectives.errors import CandidateError, ModelError, ObjectiveError
from objectives.knobs import BASELINE, KnobSpace
from objectives.outcome import EngineFile, FailureKind
from objectives.tensors import Array, name_of


class BackendContract:
    @pytest.fixture
    def backend(self) -> Backend:
        raise NotImplementedError("give the backend under test")

    @pytest.fixture
    def model_path(self, tmp_path: Path) -> Path:
        raise NotImplementedError("give a model that the backend builds and runs with default values")

    @pytest.fixture
    def inputs(self) -> dict[str, Array]:
        raise NotImplementedError("give an array for every input of the model")

    @pytest.fixture
    def space(self, backend: Backend, model_path: Path) -> KnobSpace:
        return backend.knobs(model_path, backend.describe(model_path))

    @pytest.fixture
    def workdir(self, tmp_path: Path) -> Path:
        folder = tmp_path / "work dir ü"
        folder.mkdir()
        return folder

    @pytest.fixture
    def engine(self, backend: Backend, model_path: Path, space: KnobSpace, workdir: Path) -> EngineFile:
        return backend.build(model_path, space.values(BASELINE), workdir)

    @pytest.fixture
    def session(self, backend: Backend, engine: EngineFile, space: KnobSpace) -> Iterator[Session]:
        with backend.open(engine, space.values(BASELINE)) as session:
            yield session

    def test_the_environment_is_stable(self, backend: Backend) -> None:
        first, second = backend.environment(), type(backend)().environment()
        assert first == second
        assert first.digest == second.digest
        assert first.backend == backend.name
        assert first.backend_version

    def test_the_description_names_inputs_and_outputs(
        self, backend: Backend, model_path: Path, inputs: dict[str, Array]
    ) -> None:
        model = backend.describe(model_path)
        assert {spec.name for spec in model.inputs} == set(inputs)
        assert model.outputs
        assert model.files[0] == model_path.name
        assert model == backend.describe(model_path)

    def test_a_missing_model_is_a_model_error(self, backend: Backend, tmp_path: Path) -> None:
        with pytest.raises(ModelError):
            backend.describe(tmp_path / "missing")

    def test_the_knob_space_is_valid_and_stable(self, backend: Backend, model_path: Path, space: KnobSpace) -> None:
        assert space.knobs
        for knob in space.knobs:
            assert len(knob.values) > 1, f"{knob.name} leaves nothing to choose"
            assert knob.help, f"{knob.name} explains nothing"
        assert space.digest == backend.knobs(model_path, backend.describe(model_path)).digest

    def test_the_build_writes_a_file_into_its_folder(self, backend: Backend, engine: EngineFile, workdir: Path) -> None:
        path = Path(engine.path)
        assert path.is_file()
        assert path.resolve().is_relative_to(workdir.resolve())
        assert engine.digest == digest_of_file(path)
        assert engine.size_bytes >= path.stat().st_size
        assert engine.format
        assert {entry.name for entry in workdir.iterdir()} == {path.name, *engine.sidecars}

    def test_no_values_at_all_is_the_baseline(
        self, backend: Backend, model_path: Path, inputs: dict[str, Array], workdir: Path
    ) -> None:
        with backend.open(backend.build(model_path, {}, workdir), {}) as session:
            _require_same_form(session.run(inputs), backend.reference(model_path, inputs))

    def test_the_model_and_its_folder_are_not_touched(
        self, backend: Backend, model_path: Path, space: KnobSpace, workdir: Path
    ) -> None:
        before = _files(model_path.parent, workdir)
        for index, values in enumerate((space.values(BASELINE), *_single_changes(space))):
            folder = workdir / str(index)
            folder.mkdir()
            with suppress(CandidateError):
                backend.build(model_path, values, folder)
        assert _files(model_path.parent, workdir) == before

    def test_outputs_are_those_of_the_reference(
        self, backend: Backend, session: Session, model_path: Path, inputs: dict[str, Array]
    ) -> None:
        expected = backend.reference(model_path, inputs)
        assert list(expected) == [spec.name for spec in backend.describe(model_path).outputs]
        _require_same_form(session.run(inputs), expected)

    def test_outputs_are_fresh(self, session: Session, inputs: dict[str, Array]) -> None:
        first = session.run(inputs)
        before = {name: array.copy() for name, array in first.items()}
        second = session.run(inputs)
        for name, array in first.items():
            assert np.array_equal(array, before[name])
            assert array.flags.writeable, "the caller owns its outputs"
            assert not np.shares_memory(array, second[name])
            assert not any(np.shares_memory(array, given) for given in inputs.values())

    def test_inputs_are_only_read(self, session: Session, inputs: dict[str, Array]) -> None:
        before = {name: array.copy() for name, array in inputs.items()}
        frozen = {name: _frozen(array) for name, array in inputs.items()}
        session.run(frozen)
        session.bind(frozen)
        session.measure(1)
        assert all(np.array_equal(inputs[name], before[name]) for name in inputs)

    def test_measure_gives_seconds(self, session: Session, inputs: dict[str, Array]) -> None:
        session.bind(inputs)
        for repeats in (1, 3):
            seconds = session.measure(repeats)
            assert math.isfinite(seconds)
            assert seconds > 0

    def test_run_and_bind_mix(self, session: Session, inputs: dict[str, Array]) -> None:
        before = session.run(inputs)
        session.bind(inputs)
        session.measure(2)
        session.bind(inputs)
        session.measure(1)
        _require_same_form(session.run(inputs), before)

    def test_an_engine_opens_more_than_once(
        self, backend: Backend, engine: EngineFile, space: KnobSpace, inputs: dict[str, Array]
    ) -> None:
        values = space.values(BASELINE)
        with backend.open(engine, values) as first, backend.open(engine, values) as second:
            _require_same_form(first.run(inputs), second.run(inputs))
        with backend.open(engine, values) as third:
            assert third.run(inputs)

    def test_a_closed_session_does_not_run(
        self, backend: Backend, engine: EngineFile, space: KnobSpace, inputs: dict[str, Array]
    ) -> None:
        with backend.open(engine, space.values(BASELINE)) as session:
            assert session.run(inputs)
        with pytest.raises(ObjectiveError):
            session.run(inputs)

    def test_unknown_knobs_and_values_are_refused(
        self, backend: Backend, model_path: Path, space: KnobSpace, workdir: Path
    ) -> None:
        for values in ({"no such knob": "on"}, {space.knobs[0].name: "no such value"}):
            with pytest.raises(ObjectiveError):
                backend.build(model_path, values, workdir)

    def test_every_value_works_or_says_why_not(
        self,
        backend: Backend,
        model_path: Path,
        inputs: dict[str, Array],
        space: KnobSpace,
        workdir: Path,
    ) -> None:
        expected = backend.reference(model_path, inputs)
        for index, values in enumerate(_single_changes(space)):
            folder = workdir / str(index)
            folder.mkdir()
            refusal = None
            try:
                with backend.open(backend.build(model_path, values, folder), values) as session:
                    _require_same_form(session.run(inputs), expected)
                    effective = session.effective
                assert {name: effective.get(name, value) for name, value in values.items()} == values
            except CandidateError as error:
                refusal = error
            if refusal is not None:
                assert refusal.kind in set(FailureKind), values
                assert str(refusal), values


def _single_changes(space: KnobSpace) -> Iterator[dict[str, str]]:
    """Every value that is no default, alone."""
    for knob in space.knobs:
        for value in knob.values:
            if value != knob.default:
                yield {**space.values(BASELINE), knob.name: value}


def _files(folder: Path, apart_from: Path) -> dict[Path, str]:
    found = (path for path in folder.rglob("*") if path.is_file() and apart_from not in path.parents)
    return {path: digest_of_file(path) for path in found}


def _require_same_form(outputs: dict[str, Array], expected: dict[str, Array]) -> None:
    """Names, order, types and shapes agree; how close the numbers are is for the accuracy check to say."""
    assert list(outputs) == list(expected)
    for name, array in outputs.items():
        assert isinstance(array, np.ndarray)
        assert name_of(array.dtype) == name_of(expected[name].dtype)
        assert array.shape == expected[name].shape


def _frozen(array: Array) -> Array:
    copy = array.copy()
    copy.flags.writeable = False
    return copy
