"""The contract of a backend: what the docstrings of objectives/backends/base.py promise, as tests.

Subclass BackendContract as `TestMine`, give it the fixtures `backend`, `model_path` and `inputs`, and run it. The model
must build and run with every knob at its default; it should be small, since each knob value is built once. What can be
asked on a user's machine too stands in objectives/checks/troubles.py, for `env --check`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from objectives.backends.base import Backend, Session
from objectives.checks import troubles
from objectives.digest import digest_of_file
from objectives.errors import CandidateError, ModelError, ObjectiveError
from objectives.knobs import BASELINE, KnobSpace
from objectives.outcome import EngineFile, FailureKind
from objectives.tensors import Array


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
        assert troubles.of_environment(first, second, backend.name) == ""

    def test_the_description_names_inputs_and_outputs(
        self, backend: Backend, model_path: Path, inputs: dict[str, Array]
    ) -> None:
        model = backend.describe(model_path)
        assert {spec.name for spec in model.inputs} == set(inputs)
        assert troubles.of_description(model, backend.describe(model_path), model_path) == ""

    def test_a_missing_model_is_a_model_error(self, backend: Backend, tmp_path: Path) -> None:
        with pytest.raises(ModelError):
            backend.describe(tmp_path / "missing")

    def test_the_knob_space_is_valid_and_stable(self, backend: Backend, model_path: Path, space: KnobSpace) -> None:
        assert troubles.of_space(space, backend.knobs(model_path, backend.describe(model_path))) == ""

    def test_the_build_writes_a_file_into_its_folder(self, backend: Backend, engine: EngineFile, workdir: Path) -> None:
        assert troubles.of_engine(engine, workdir) == ""

    def test_no_values_at_all_is_the_baseline(
        self, backend: Backend, model_path: Path, inputs: dict[str, Array], workdir: Path
    ) -> None:
        with backend.open(backend.build(model_path, {}, workdir), {}) as session:
            assert troubles.of_form(session.run(inputs), backend.reference(model_path, inputs)) == ""

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
        assert troubles.of_form(session.run(inputs), expected) == ""

    def test_outputs_are_fresh(self, session: Session, inputs: dict[str, Array]) -> None:
        assert troubles.of_freshness(session, inputs) == ""

    def test_inputs_are_only_read(self, session: Session, inputs: dict[str, Array]) -> None:
        assert troubles.of_reading(session, inputs) == ""

    def test_measure_gives_seconds(self, session: Session, inputs: dict[str, Array]) -> None:
        assert troubles.of_timing(session, inputs) == ""

    def test_run_and_bind_mix(self, session: Session, inputs: dict[str, Array]) -> None:
        before = session.run(inputs)
        session.bind(inputs)
        session.measure(2)
        session.bind(inputs)
        session.measure(1)
        assert troubles.of_form(session.run(inputs), before) == ""

    def test_an_engine_opens_more_than_once(
        self, backend: Backend, engine: EngineFile, space: KnobSpace, inputs: dict[str, Array]
    ) -> None:
        assert troubles.of_two_sessions(backend, engine, space.values(BASELINE), inputs) == ""

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
        assert troubles.of_unknown_values(backend, model_path, space, workdir) == ""

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
                    assert troubles.of_form(session.run(inputs), expected) == ""
                    effective = session.effective
                assert troubles.of_effect(values, effective) == ""
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
