"""The contract of a backend whose engines measure themselves: what base.Reporter promises, as tests.

Subclass ReporterContract as `TestMine` and give it the fixtures `backend` and `model_path`. The model must run with
every knob at its default and report at least one loss.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from objectives.backends.base import Backend, Reporter
from objectives.checks import troubles
from objectives.errors import CandidateError, ModelError, ObjectiveError
from objectives.knobs import BASELINE, KnobSpace
from objectives.outcome import EngineFile, FailureKind


class ReporterContract:
    @pytest.fixture
    def backend(self) -> Backend:
        raise NotImplementedError("give the backend under test")

    @pytest.fixture
    def model_path(self, tmp_path: Path) -> Path:
        raise NotImplementedError("give a model that runs with default values")

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

    def opened(self, backend: Backend, engine: EngineFile, space: KnobSpace) -> Reporter:
        reporter = backend.open(engine, space.values(BASELINE))
        assert isinstance(reporter, Reporter)
        return reporter

    def test_the_environment_is_stable(self, backend: Backend, model_path: Path) -> None:
        first, second = (one.environment_for(model_path) for one in (backend, type(backend)()))
        assert troubles.of_environment(first, second, backend.name) == ""

    def test_the_description_says_that_there_are_no_tensors(self, backend: Backend, model_path: Path) -> None:
        model = backend.describe(model_path)
        assert model.measures_itself
        assert model.inputs == model.outputs == ()
        assert model == backend.describe(model_path)

    def test_a_missing_model_is_a_model_error(self, backend: Backend, tmp_path: Path) -> None:
        with pytest.raises(ModelError):
            backend.describe(tmp_path / "missing")

    def test_the_knob_space_is_valid_and_stable(self, backend: Backend, model_path: Path, space: KnobSpace) -> None:
        assert troubles.of_space(space, backend.knobs(model_path, backend.describe(model_path))) == ""

    def test_the_build_writes_files_into_its_folder(self, engine: EngineFile, workdir: Path) -> None:
        assert troubles.of_engine(engine, workdir) == ""

    def test_builds_of_the_same_values_are_the_same(
        self, backend: Backend, model_path: Path, engine: EngineFile, tmp_path: Path
    ) -> None:
        (tmp_path / "again").mkdir()
        again = backend.build(model_path, {}, tmp_path / "again")
        assert (again.digest, again.sidecars) == (engine.digest, engine.sidecars)

    def test_reports_hold_samples_and_losses(self, backend: Backend, engine: EngineFile, space: KnobSpace) -> None:
        with self.opened(backend, engine, space) as reporter:
            first, second = reporter.report(), reporter.report()
            effective = reporter.effective
        assert first.losses
        for report in (first, second):
            assert report.samples_ms
            assert all(math.isfinite(one) and one > 0 for one in report.samples_ms)
        assert troubles.of_effect(space.values(BASELINE), effective) == ""

    def test_two_at_a_time(self, backend: Backend, engine: EngineFile, space: KnobSpace) -> None:
        one = self.opened(backend, engine, space)
        with self.opened(backend, engine, space) as other:
            with one:
                assert list(one.report().losses) == list(other.report().losses)
                assert one.report().samples_ms
            assert other.report().samples_ms  # the end of the first is no end of the second

    def test_a_closed_one_reports_no_more(self, backend: Backend, engine: EngineFile, space: KnobSpace) -> None:
        with self.opened(backend, engine, space) as reporter:
            reporter.report()
        with pytest.raises(ObjectiveError):
            reporter.report()

    def test_unknown_knobs_and_values_are_refused(
        self, backend: Backend, model_path: Path, space: KnobSpace, workdir: Path
    ) -> None:
        assert troubles.of_unknown_values(backend, model_path, space, workdir) == ""

    def test_every_value_works_or_says_why_not(
        self, backend: Backend, model_path: Path, space: KnobSpace, tmp_path: Path
    ) -> None:
        changes = [(knob.name, value) for knob in space.knobs for value in knob.values if value != knob.default]
        for index, (name, value) in enumerate(changes):
            values = {**space.values(BASELINE), name: value}
            (tmp_path / f"build-{index}").mkdir()
            refusal = None
            try:
                opened = backend.open(backend.build(model_path, values, tmp_path / f"build-{index}"), values)
                assert isinstance(opened, Reporter)
                with opened:
                    assert opened.report().samples_ms
                    assert troubles.of_effect(values, opened.effective) == ""
            except CandidateError as error:
                refusal = error
            if refusal is not None:
                assert refusal.kind in set(FailureKind), values
                assert str(refusal), values
