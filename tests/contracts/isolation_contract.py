"""The contract of an isolation: what the docstrings of objectives/isolation.py promise, as tests.

Subclass IsolationContract and give it the fixture `isolation`, of any scope: a test leaves it usable. The child must be
able to import `tests`. The backend is the synthetic one; what only a real process can survive is not asked for here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import msgspec
import numpy as np
import pytest

from objectives.accuracy import Limit
from objectives.backends.synthetic import SyntheticBackend
from objectives.checks.result import Status
from objectives.digest import digest_of_file
from objectives.errors import (
    BackendUnavailableError,
    EngineFileError,
    HarnessError,
    InputError,
    MetricError,
    ModelError,
    WorkloadError,
)
from objectives.isolation import Isolation
from objectives.landscape import Fault, Interaction, Landscape, SimulatedKnob
from objectives.outcome import Built, EngineFile, Failed, FailureKind, Measured, Rejected, Round, Samples, Stage
from objectives.requests import (
    BuildRequest,
    CheckRequest,
    DescribeRequest,
    EvaluateRequest,
    Judging,
    Opened,
    OpenRequest,
    PairFiles,
    ReferenceRequest,
    SelfChecked,
    SelfCheckRequest,
    TimeRequest,
)
from objectives.tensors import load_tensors, save_tensors
from objectives.timing import TimingPlan
from tests.stages import entered

FUNCTIONS = "tests.contracts.metric_functions"
X = np.linspace(-1, 1, 8).astype(np.float32)
QUICK = TimingPlan(round_ms=1.0, min_samples=3, budget_ms=30.0)
STAGES = [Stage.BUILD, Stage.OPEN, Stage.CHECK, Stage.TIME]
LATENCY_MS = {"none": 1.0, "fast": 0.5}


def knob(*more: str) -> SimulatedKnob:
    return SimulatedKnob("mode", ("none", "fast", *more), "none", {"fast": float(np.log(0.5))})


@dataclass
class Task:
    """A model in a folder with its input files, and requests about it."""

    folder: Path
    model: Path
    backend: str = "synthetic"

    def __post_init__(self) -> None:
        self._numbers = count()

    def workdir(self) -> str:
        path = self.folder / f"work {next(self._numbers)}"
        path.mkdir()
        return str(path)

    def pair(self, label: str = "ordinary", reference: bool = True, factor: float = 1.0, width: int = 8) -> PairFiles:
        files = PairFiles(label, str(self.folder / f"{label}-in"), str(self.folder / f"{label}-ref"))
        save_tensors(Path(files.inputs), {"x": (X * factor)[:width]})
        if reference:
            save_tensors(Path(files.reference), {"y": (X * factor * 2 + 1)})
        return files

    def pairs(self) -> tuple[PairFiles, ...]:
        return self.pair(), self.pair("hard", factor=100.0)

    def evaluation(self, judging: Judging = Judging(), **values: str) -> EvaluateRequest:  # noqa: B008 - frozen
        return EvaluateRequest(self.backend, str(self.model), values, self.pairs(), judging, QUICK, self.workdir())

    def building(self, **values: str) -> BuildRequest:
        return BuildRequest(self.backend, str(self.model), values, self.pairs(), Judging(), self.workdir())

    def referencing(
        self, *pairs: PairFiles, optional: bool = False, functions: tuple[str, ...] = ()
    ) -> ReferenceRequest:
        required = tuple(not optional for _ in pairs)
        return ReferenceRequest(self.backend, str(self.model), pairs, required, Judging(functions=functions))

    def opening(self, engine: EngineFile, **values: str) -> OpenRequest:
        return OpenRequest(self.backend, engine, values, self.pair(), QUICK)

    def checking(self, engine: EngineFile, **values: str) -> CheckRequest:
        return CheckRequest(self.backend, engine, values, self.pairs(), Judging())

    def timing(self, engine: EngineFile, **values: str) -> TimeRequest:
        return TimeRequest(self.backend, engine, values, self.pair(), QUICK)


class IsolationContract:
    @pytest.fixture
    def isolation(self) -> Isolation:
        raise NotImplementedError("give the isolation under test")

    @pytest.fixture
    def task(self, tmp_path: Path) -> Task:
        faults = tuple(Interaction({"mode": fault.value}, fault=fault) for fault in Fault)
        off = Interaction({"mode": "off"}, loss=0.5)
        simulated = Landscape((knob("off", *(fault.value for fault in Fault)),), noise=0.0, interactions=(*faults, off))
        return Task(tmp_path, simulated.save(tmp_path / "landschaft ü.json"))

    @pytest.fixture
    def engine(self, isolation: Isolation, task: Task) -> EngineFile:
        built = isolation.build(task.building(mode="fast"))
        assert isinstance(built, Built)
        return built.engine

    def test_describes_the_environment(self, isolation: Isolation) -> None:
        found = isolation.describe(DescribeRequest("synthetic"))
        assert found.environment.digest == SyntheticBackend().environment().digest
        assert SyntheticBackend().environment().details.items() <= found.environment.details.items()
        assert {"host", "container"} <= found.environment.details.keys()
        assert (found.model, found.knobs) == (None, None)

    def test_describes_a_model_and_its_knobs(self, isolation: Isolation, task: Task) -> None:
        found, backend = isolation.describe(DescribeRequest("synthetic", str(task.model))), SyntheticBackend()
        assert found.model == backend.describe(task.model)
        assert found.knobs == backend.knobs(task.model, backend.describe(task.model))

    def test_user_errors_come_back_as_themselves_with_their_hints(self, isolation: Isolation, task: Task) -> None:
        (task.folder / "damaged.json").write_text("{")
        requests: list[tuple[DescribeRequest, type[InputError]]] = [
            (DescribeRequest("no such backend"), BackendUnavailableError),
            (DescribeRequest("synthetic", str(task.folder / "missing.json")), ModelError),
            (DescribeRequest("synthetic", str(task.folder / "damaged.json")), ModelError),
        ]
        for request, kind in requests:
            with pytest.raises(InputError) as error:
                isolation.describe(request)
            assert type(error.value) is kind
            assert str(error.value)
            assert error.value.hint
        assert isolation.describe(DescribeRequest("synthetic"))

    def test_references_are_computed_into_their_files(self, isolation: Isolation, task: Task) -> None:
        pairs = task.pair("a", reference=False), task.pair("b", reference=False, factor=3.0)
        assert isolation.reference(task.referencing(*pairs)).dropped == ()
        assert load_tensors(Path(pairs[1].reference))["y"].tolist() == (X * 3 * 2 + 1).tolist()

    def test_a_given_reference_is_left_alone(self, isolation: Isolation, task: Task) -> None:
        pair = task.pair()
        save_tensors(Path(pair.reference), {"y": X})
        isolation.reference(task.referencing(pair))
        assert load_tensors(Path(pair.reference))["y"].tolist() == X.tolist()

    def test_an_ordinary_pair_that_the_model_refuses(self, isolation: Isolation, task: Task) -> None:
        with pytest.raises(WorkloadError, match="one input"):
            isolation.reference(task.referencing(task.pair(reference=False, width=4)))

    def test_a_hard_pair_that_the_model_refuses_is_dropped(self, isolation: Isolation, task: Task) -> None:
        bad, good = task.pair("bad", reference=False, width=4), task.pair("good", reference=False)
        ((label, reason),) = isolation.reference(task.referencing(bad, good, optional=True)).dropped
        assert label == "bad"
        assert "one input" in reason
        assert Path(good.reference).exists()
        assert not Path(bad.reference).exists()

    def test_metric_functions_are_tried_on_the_references(self, isolation: Isolation, task: Task) -> None:
        pair = task.pair()
        isolation.reference(task.referencing(pair, functions=(f"{FUNCTIONS}:distance",)))
        for name, words in {
            f"{FUNCTIONS}:raising": "LookupError",
            f"{FUNCTIONS}:no_number": "no finite loss",
            f"{FUNCTIONS}:missing": "missing",
            f"{FUNCTIONS}:NOT_A_FUNCTION": "not a function",
            "no_such_module_anywhere:f": "no_such_module_anywhere",
        }.items():
            with pytest.raises(MetricError, match=words):
                isolation.reference(task.referencing(pair, functions=(name,)))

    @pytest.mark.parametrize("name", ["tests.contracts.broken_module:f", ":f", ".relative:f", f"{FUNCTIONS}:"])
    def test_a_metric_function_that_cannot_be_imported(self, isolation: Isolation, task: Task, name: str) -> None:
        with pytest.raises(MetricError):
            isolation.reference(task.referencing(task.pair(), functions=(name,)))

    @pytest.mark.parametrize("mode", ["none", "fast"])
    def test_a_good_candidate_is_measured(self, isolation: Isolation, task: Task, mode: str) -> None:
        stages: list[Stage] = []
        request = task.evaluation(mode=mode)
        outcome = isolation.evaluate(request, entered(stages))
        assert isinstance(outcome, Measured)
        assert stages == STAGES
        assert outcome.samples.median_ms == pytest.approx(LATENCY_MS[mode])
        assert outcome.samples.clock == "simulated"
        assert [one.pair for one in outcome.accuracy.losses] == ["ordinary", "hard"]
        assert outcome.trace.asked == {"mode": mode}
        assert outcome.trace.effective["mode"] == mode
        assert set(outcome.trace.stage_s) == set(STAGES)
        assert outcome.trace.attempts == 1
        assert outcome.engine is not None
        assert Path(outcome.engine.path).parent == Path(request.workdir)

    def test_stages_need_not_be_listened_to(self, isolation: Isolation, task: Task) -> None:
        assert isinstance(isolation.evaluate(task.evaluation()), Measured)

    def test_a_metric_function_judges(self, isolation: Isolation, task: Task) -> None:
        name = f"{FUNCTIONS}:distance"
        good, bad = (
            isolation.evaluate(task.evaluation(Judging((Limit(name, 0.1),), functions=(name,)), mode=mode))
            for mode in ("fast", "off")
        )
        assert isinstance(good, Measured)
        assert isinstance(bad, Rejected)
        assert name in bad.reason

    @pytest.mark.parametrize(
        ("mode", "words"),
        [
            ("off", "rel_l2 0.5 is over"),
            (Fault.NAN, "not finite"),
            (Fault.WRONG_SHAPE, "shape [7]"),
            (Fault.WRONG_TYPE, "type float64"),
            (Fault.MISSING_OUTPUT, "missing"),
        ],
    )
    def test_a_wrong_answer_is_rejected_before_timing(
        self, isolation: Isolation, task: Task, mode: str, words: str
    ) -> None:
        stages: list[Stage] = []
        outcome = isolation.evaluate(task.evaluation(mode=mode), entered(stages))
        assert isinstance(outcome, Rejected)
        assert words in outcome.reason
        assert "'y'" in outcome.reason
        assert stages == STAGES[:3]

    def test_nan_is_rejected_whatever_a_function_says(self, isolation: Isolation, task: Task) -> None:
        name = f"{FUNCTIONS}:forgiving"
        judging = Judging((Limit(name, 1e9),), functions=(name,))
        assert isinstance(isolation.evaluate(task.evaluation(judging, mode=Fault.NAN)), Rejected)

    @pytest.mark.parametrize(
        ("fault", "stage", "kind"),
        [
            (Fault.UNSUPPORTED, Stage.BUILD, FailureKind.UNSUPPORTED),
            (Fault.BUILD_FAILED, Stage.BUILD, FailureKind.BUILD_FAILED),
            (Fault.FALLBACK, Stage.OPEN, FailureKind.FALLBACK),
            (Fault.RUN_FAILED, Stage.CHECK, FailureKind.RUN_FAILED),
            (Fault.MEMORY_ERROR, Stage.CHECK, FailureKind.OUT_OF_MEMORY),
        ],
    )
    def test_a_candidate_that_raises_fails(
        self, isolation: Isolation, task: Task, fault: Fault, stage: Stage, kind: FailureKind
    ) -> None:
        outcome = isolation.evaluate(task.evaluation(mode=fault))
        assert isinstance(outcome, Failed)
        assert (outcome.stage, outcome.kind) == (stage, kind)
        assert "simulated" in outcome.detail
        assert outcome.signal is None
        assert outcome.trace.asked == {"mode": fault}
        assert isinstance(isolation.evaluate(task.evaluation()), Measured)

    def test_missing_data_are_not_the_candidates_fault(self, isolation: Isolation, task: Task) -> None:
        request = task.evaluation()
        (task.folder / "hard-ref").unlink()
        with pytest.raises((WorkloadError, HarnessError), match="hard-ref"):
            isolation.evaluate(request)

    def test_an_interruption_comes_through(self, isolation: Isolation, task: Task) -> None:
        def interrupt(stage: Stage, detail: str) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            isolation.evaluate(task.evaluation(), interrupt)
        assert isinstance(isolation.evaluate(task.evaluation()), Measured)

    def test_a_build_is_checked_and_not_timed(self, isolation: Isolation, task: Task) -> None:
        stages: list[Stage] = []
        built = isolation.build(task.building(mode="fast"), entered(stages))
        assert isinstance(built, Built)
        assert stages == STAGES[:3]
        assert Path(built.engine.path).is_file()
        assert isinstance(isolation.build(task.building(mode="off")), Rejected)
        failed = isolation.build(task.building(mode=Fault.UNSUPPORTED))
        assert isinstance(failed, Failed)
        assert failed.kind is FailureKind.UNSUPPORTED

    def test_an_engine_that_is_there_is_checked(self, isolation: Isolation, task: Task, engine: EngineFile) -> None:
        checked = isolation.check(task.checking(engine, mode="fast"))
        assert isinstance(checked, Built)
        assert checked.accuracy is not None
        assert checked.engine == engine
        other = task.pair("other")
        save_tensors(Path(other.reference), {"y": X})
        request = msgspec.structs.replace(task.checking(engine, mode="fast"), pairs=(other,))
        assert isinstance(isolation.check(request), Rejected)

    def test_an_engine_that_was_changed_is_not_loaded(
        self, isolation: Isolation, task: Task, engine: EngineFile
    ) -> None:
        path = Path(engine.path)
        before = path.read_bytes()
        for content in (before + b" ", None):
            path.unlink()
            if content is not None:
                path.write_bytes(content)
            for ask in (
                lambda: isolation.check(task.checking(engine, mode="fast")),
                lambda: isolation.time(task.timing(engine, mode="fast")),
                lambda: isolation.open(task.opening(engine, mode="fast")),
            ):
                with pytest.raises(EngineFileError) as caught:
                    ask()
                assert caught.value.hint
            path.write_bytes(before)
        missing = msgspec.structs.replace(engine, sidecars={"beside": "0" * 64})
        with pytest.raises(EngineFileError, match="beside"):
            isolation.time(task.timing(missing, mode="fast"))
        assert isinstance(isolation.time(task.timing(engine, mode="fast")), Samples)

    def test_an_engine_is_timed(self, isolation: Isolation, task: Task, engine: EngineFile) -> None:
        samples = isolation.time(task.timing(engine, mode="fast"))
        assert isinstance(samples, Samples)
        assert samples.median_ms == pytest.approx(0.5)

    def test_rounds_of_an_open_engine(self, isolation: Isolation, task: Task, engine: EngineFile) -> None:
        opened = isolation.open(task.opening(engine, mode="fast"))
        assert isinstance(opened, Opened)
        assert opened.warmup_ms[0] == pytest.approx(0.5)
        for _ in range(2):
            round_ = isolation.round()
            assert isinstance(round_, Round)
            assert round_.samples_ms == pytest.approx([0.5] * len(round_.samples_ms))

    def test_the_last_opened_engine_is_the_one(self, isolation: Isolation, task: Task, engine: EngineFile) -> None:
        default = isolation.build(task.building())
        assert isinstance(default, Built)
        isolation.open(task.opening(engine, mode="fast"))
        isolation.open(task.opening(default.engine))
        round_ = isolation.round()
        assert isinstance(round_, Round)
        assert round_.samples_ms[0] == pytest.approx(1.0)

    def test_an_open_engine_survives_other_work(self, isolation: Isolation, task: Task, engine: EngineFile) -> None:
        isolation.open(task.opening(engine, mode="fast"))
        assert isinstance(isolation.evaluate(task.evaluation()), Measured)
        round_ = isolation.round()
        assert isinstance(round_, Round)
        assert round_.samples_ms[0] == pytest.approx(0.5)

    def test_an_engine_that_does_not_load_fails(self, isolation: Isolation, task: Task, engine: EngineFile) -> None:
        engine = _broken(engine)
        for result in (isolation.open(task.opening(engine)), isolation.time(task.timing(engine))):
            assert isinstance(result, Failed)
            assert result.stage is Stage.OPEN

    def test_no_round_without_an_open_engine(self, isolation: Isolation, task: Task, engine: EngineFile) -> None:
        isolation.open(task.opening(engine, mode="fast"))
        isolation.open(task.opening(_broken(engine), mode="fast"))
        with pytest.raises(HarnessError, match="no engine is open"):
            isolation.round()

    def test_no_round_after_closing(self, isolation: Isolation, task: Task, engine: EngineFile) -> None:
        isolation.open(task.opening(engine, mode="fast"))
        isolation.close()
        with pytest.raises(HarnessError, match="no engine is open"):
            isolation.round()

    def test_takes_a_step_of_a_self_check(self, isolation: Isolation, task: Task) -> None:
        heard: list[Stage] = []
        good = SelfCheckRequest("synthetic", "values", task.workdir(), {"tiles": "16"})
        assert isolation.self_check(good, entered(heard)) == SelfChecked(Status.PASS, "works")
        assert heard == [Stage.BUILD, Stage.OPEN, Stage.CHECK]
        bad = isolation.self_check(SelfCheckRequest("synthetic", "values", task.workdir(), {"tiles": "no such"}))
        assert isinstance(bad, Failed)
        with pytest.raises(HarnessError, match="no such step"):
            isolation.self_check(SelfCheckRequest("synthetic", "no such step", task.workdir()))
        with pytest.raises(BackendUnavailableError):
            isolation.self_check(SelfCheckRequest("no such backend", "model", task.workdir()))

    def test_it_can_be_prepared_for_the_first_request(self, isolation: Isolation, task: Task) -> None:
        isolation.close()
        isolation.prepare()
        isolation.prepare()
        assert isinstance(isolation.evaluate(task.evaluation()), Measured)

    def test_closing_twice_is_closing(self, isolation: Isolation, task: Task) -> None:
        assert isinstance(isolation.evaluate(task.evaluation()), Measured)
        isolation.close()
        isolation.close()

    def test_a_context_closes(self, isolation: Isolation, monkeypatch: pytest.MonkeyPatch) -> None:
        closed: list[str] = []
        close: Callable[[], None] = isolation.close
        monkeypatch.setattr(isolation, "close", lambda: (closed.append("closed"), close()))
        with isolation as same:
            assert same is isolation
            assert closed == []
        assert closed == ["closed"]


def _broken(engine: EngineFile) -> EngineFile:
    """An engine that was built like this: its bytes are those that were recorded."""
    path = Path(engine.path)
    path.write_text("{")
    return msgspec.structs.replace(engine, digest=digest_of_file(path))
