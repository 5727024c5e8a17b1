"""Evaluate, with small backends made for it: each stage's errors become outcomes, in order, with what took effect."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from objectives.accuracy import Limit
from objectives.backends.base import NO_TERMS, Backend, BuildTerms, Environment, Session, Values
from objectives.conditions import Watch
from objectives.errors import CandidateError, HarnessError, InputError, WorkloadError
from objectives.evaluate import LoadedPair, build, evaluate
from objectives.knobs import KnobSpace
from objectives.metrics import Tolerance
from objectives.model import ModelSpec
from objectives.outcome import Built, EngineFile, Failed, FailureKind, Measured, Outcome, Rejected, Stage
from objectives.requests import BuildRequest, Evaluated, EvaluateRequest, Judging, decode_message, encode
from objectives.tensors import Array, Tensors
from objectives.timing import TimingPlan
from tests.stages import entered

Hook = Callable[[], None]
PLACES = {"build": Stage.BUILD, "open": Stage.OPEN, "run": Stage.CHECK, "bind": Stage.TIME, "measure": Stage.TIME}
X = np.arange(4, dtype=np.float32)
PAIRS = (LoadedPair("ordinary", {"x": X}, {"y": X + 1}), LoadedPair("hard", {"x": X * 100}, {"y": X * 100 + 1}))


def nothing() -> None:
    return


class World:
    """What the fake runtime does: `hooks` run where they are named; `log` says what was called."""

    def __init__(self, **hooks: Hook) -> None:
        self.hooks = hooks
        self.log: list[str] = []
        self.error = 0.0  # of every output
        self.effective: dict[str, str] = {"opened": "yes"}

    def at(self, place: str) -> None:
        self.log.append(place)
        self.hooks.get(place, nothing)()


class FakeSession(Session):
    clock = "fake"

    def __init__(self, world: World) -> None:
        self._world = world
        self._times = itertools.cycle([1e-3])

    @property
    def effective(self) -> Values:
        self._world.hooks.get("effective", nothing)()
        return self._world.effective

    def run(self, inputs: Tensors) -> dict[str, Array]:
        self._world.at("run")
        return {"y": (inputs["x"] + 1 + self._world.error).astype(np.float32)}

    def bind(self, inputs: Tensors) -> None:
        self._world.at(f"bind {float(inputs['x'][1]):g}" if "bind" not in self._world.hooks else "bind")

    def _execute(self, repeats: int) -> None:
        raise AssertionError("measure is replaced")

    def measure(self, repeats: int) -> float:
        self._world.at("measure")
        self._world.effective = {"opened": "yes", "captured": "no"}
        return next(self._times) * repeats

    def watch(self) -> Watch:
        self._world.at("watch")
        return Watched(self._world)

    def close(self) -> None:
        self._world.at("close")


class Watched:
    def __init__(self, world: World) -> None:
        self._world = world

    def stop(self) -> tuple[dict[str, float], tuple[str, ...]]:
        self._world.at("stop")
        return {"temperature_c": 40.0}, ("other_load",)


class FakeBackend(Backend):
    name = "fake"

    def __init__(self, world: World) -> None:
        self._world = world

    def environment(self) -> Environment:
        raise NotImplementedError

    def describe(self, path: Path) -> ModelSpec:
        raise NotImplementedError

    def knobs(self, path: Path, model: ModelSpec) -> KnobSpace:
        raise NotImplementedError

    def reference(self, path: Path, inputs: Tensors) -> dict[str, Array]:
        raise NotImplementedError

    def build(self, path: Path, values: Values, workdir: Path, terms: BuildTerms = NO_TERMS) -> EngineFile:
        self._world.at("build")
        return EngineFile(str(workdir / "engine"), "digest", 1, "fake")

    def open(self, engine: EngineFile, values: Values) -> Session:
        self._world.at("open")
        return FakeSession(self._world)


ASKED = {"knob": "value"}
JUDGING = Judging((Limit("linf", 0.5),), Tolerance())
Verdict = Outcome | Built


def evaluated(world: World, judging: Judging = JUDGING, **options: Any) -> tuple[Outcome, list[Stage]]:
    stages: list[Stage] = []
    incumbent_ms = options.get("incumbent_ms", ())
    request = EvaluateRequest("fake", "/m", ASKED, (), judging, TimingPlan(), "/w", incumbent_ms=incumbent_ms)
    outcome = evaluate(FakeBackend(world), request, PAIRS, options.get("functions", {}), entered(stages))
    return outcome, stages


def built(world: World) -> tuple[Verdict, list[Stage]]:
    stages: list[Stage] = []
    request = BuildRequest("fake", "/m", ASKED, (), JUDGING, "/w")
    return build(FakeBackend(world), request, PAIRS, {}, entered(stages)), stages


def raising(error: BaseException) -> Hook:
    def hook() -> None:
        raise error

    return hook


class TestMeasured:
    def test_all_stages_in_order(self) -> None:
        outcome, stages = evaluated(World())
        assert isinstance(outcome, Measured)
        assert stages == [Stage.BUILD, Stage.OPEN, Stage.CHECK, Stage.TIME]
        assert list(outcome.trace.stage_s) == [stage.value for stage in stages]
        assert all(seconds >= 0 for seconds in outcome.trace.stage_s.values())
        assert outcome.engine == EngineFile("/w/engine", "digest", 1, "fake")
        assert (outcome.samples.clock, outcome.samples.median_ms) == ("fake", pytest.approx(1.0))
        assert outcome.trace.attempts == 1

    def test_every_pair_is_judged_and_the_first_is_timed(self) -> None:
        world = World()
        outcome, _ = evaluated(world)
        assert isinstance(outcome, Measured)
        assert [loss.pair for loss in outcome.accuracy.losses] == ["ordinary", "hard"]
        assert world.log[:6] == ["build", "open", "run", "run", "bind 1", "watch"]
        assert world.log[-2:] == ["stop", "close"]
        assert world.log.count("close") == 1

    def test_what_was_asked_and_what_took_effect_are_both_there(self) -> None:
        outcome, _ = evaluated(World())
        assert outcome.trace.asked == ASKED
        # Read again after timing: some settings show only once inferences have run.
        assert outcome.trace.effective == {"opened": "yes", "captured": "no"}

    def test_the_machines_conditions_are_kept(self) -> None:
        outcome, _ = evaluated(World())
        assert isinstance(outcome, Measured)
        assert outcome.samples.conditions == {"temperature_c": 40.0}
        assert outcome.samples.flags == ("other_load",)

    def test_a_hopeless_candidate_stops_early(self) -> None:
        outcome, _ = evaluated(World(), incumbent_ms=(0.01,) * 50)
        assert isinstance(outcome, Measured)
        assert "stopped_early" in outcome.samples.flags

    def test_functions_judge_too(self) -> None:
        functions = {"m:f": lambda actual, expected: float(actual["y"][0] - expected["y"][0]) + 0.25}
        outcome, _ = evaluated(World(), Judging((Limit("m:f", 0.5),), functions=("m:f",)), functions=functions)
        assert isinstance(outcome, Measured)
        assert [one.losses["m:f"] for one in outcome.accuracy.losses if "m:f" in one.losses] == [0.25, 0.25]


class TestRejected:
    def test_a_wrong_answer_is_not_timed(self) -> None:
        world = World()
        world.error = 0.75
        outcome, stages = evaluated(world)
        assert isinstance(outcome, Rejected)
        assert stages == [Stage.BUILD, Stage.OPEN, Stage.CHECK]
        assert not {"bind 1", "measure", "watch"} & set(world.log)
        assert world.log[-1] == "close"
        assert "output 'y'" in outcome.reason
        assert "linf 0.75 is over 0.5" in outcome.reason
        assert len(outcome.accuracy.losses) == 2
        assert outcome.trace.effective == {"opened": "yes"}

    def test_a_loss_at_the_limit_passes(self) -> None:
        world = World()
        world.error = 0.5
        assert isinstance(evaluated(world)[0], Measured)

    def test_nan_is_wrong_under_any_limit(self) -> None:
        world = World()
        world.error = float("nan")
        outcome, _ = evaluated(world, Judging((Limit("cos", 1e9),)))
        assert isinstance(outcome, Rejected)
        assert "not finite" in outcome.reason

    def test_a_hard_pair_alone_is_enough(self) -> None:
        world = World()
        world.hooks["run"] = lambda: setattr(world, "error", world.log.count("run") - 1)
        outcome, _ = evaluated(world)
        assert isinstance(outcome, Rejected)
        assert "'hard'" in outcome.reason


class TestFailed:
    @pytest.mark.parametrize(("place", "stage"), PLACES.items())
    @pytest.mark.parametrize("kind", FailureKind)
    def test_a_candidate_error_says_its_kind(self, kind: FailureKind, place: str, stage: Stage) -> None:
        outcome, stages = evaluated(World(**{place: raising(CandidateError(kind, "in its words"))}))
        assert isinstance(outcome, Failed)
        assert (outcome.stage, outcome.kind, outcome.detail) == (stage, kind, "in its words")
        assert stages[-1] is stage
        assert outcome.signal is None

    @pytest.mark.parametrize(
        ("place", "kind"),
        [
            ("build", FailureKind.BUILD_FAILED),
            ("open", FailureKind.BUILD_FAILED),
            ("run", FailureKind.RUN_FAILED),
            ("bind", FailureKind.RUN_FAILED),
            ("measure", FailureKind.RUN_FAILED),
        ],
    )
    def test_any_other_exception_is_told_by_its_stage(self, place: str, kind: FailureKind) -> None:
        outcome, _ = evaluated(World(**{place: raising(ZeroDivisionError("by its own words"))}))
        assert isinstance(outcome, Failed)
        assert (outcome.stage, outcome.kind) == (PLACES[place], kind)
        assert outcome.detail == "ZeroDivisionError: by its own words"
        assert PLACES[place].value in outcome.trace.stage_s

    @pytest.mark.parametrize("place", PLACES)
    def test_memory_errors(self, place: str) -> None:
        outcome, _ = evaluated(World(**{place: raising(MemoryError("cannot allocate"))}))
        assert isinstance(outcome, Failed)
        assert (outcome.kind, outcome.detail) == (FailureKind.OUT_OF_MEMORY, "cannot allocate")

    def test_a_memory_error_without_words(self) -> None:
        outcome, _ = evaluated(World(run=raising(MemoryError())))
        assert isinstance(outcome, Failed)
        assert outcome.detail

    @pytest.mark.parametrize("error", [WorkloadError("w"), InputError("i")])
    def test_a_user_error_in_the_middle_is_the_candidates(self, error: InputError) -> None:
        outcome, _ = evaluated(World(build=raising(error)))
        assert isinstance(outcome, Failed)
        assert outcome.kind is FailureKind.BUILD_FAILED

    @pytest.mark.parametrize("place", ["run", "bind", "measure"])
    def test_the_session_is_closed(self, place: str) -> None:
        world = World(**{place: raising(RuntimeError("x"))})
        evaluated(world)
        assert world.log[-1] == "close"

    def test_the_session_is_closed_when_it_cannot_say_what_took_effect(self) -> None:
        world = World(effective=raising(RuntimeError("x")))
        outcome, _ = evaluated(world)
        assert isinstance(outcome, Failed)
        assert world.log[-1] == "close"

    def test_what_took_effect_before_is_kept(self) -> None:
        outcome, _ = evaluated(World(measure=raising(RuntimeError("x"))))
        assert outcome.trace.effective == {"opened": "yes"}
        assert outcome.trace.asked == ASKED

    def test_a_function_that_raises_is_told(self) -> None:
        functions = {"m:f": lambda actual, expected: 1 / 0}
        outcome, _ = evaluated(World(), Judging((Limit("m:f", 0.5),)), functions=functions)
        assert isinstance(outcome, Failed)
        assert (outcome.stage, outcome.kind) == (Stage.CHECK, FailureKind.RUN_FAILED)

    def test_a_long_message_is_cut_to_its_head(self) -> None:
        outcome, _ = evaluated(World(build=raising(RuntimeError("first words " + "x" * 100_000))))
        assert isinstance(outcome, Failed)
        assert "first words" in outcome.detail
        assert len(outcome.detail) <= 5000

    def test_any_message_can_be_sent(self) -> None:
        # Text of a C library that is no UTF-8 arrives as lone surrogates.
        outcome, _ = evaluated(World(build=raising(RuntimeError(b"gr\xfcn".decode(errors="surrogateescape")))))
        assert isinstance(outcome, Failed)
        again = decode_message(encode(Evaluated(outcome)))
        assert isinstance(again, Evaluated)
        assert isinstance(again.outcome, Failed)
        assert "gr" in again.outcome.detail


class TestHarness:
    @pytest.mark.parametrize("place", PLACES)
    def test_its_errors_come_through(self, place: str) -> None:
        with pytest.raises(HarnessError, match="broken"):
            evaluated(World(**{place: raising(HarnessError("broken"))}))

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)])
    def test_an_interruption_is_no_outcome(self, error: BaseException) -> None:
        world = World(run=raising(error))
        with pytest.raises(type(error)):
            evaluated(world)
        assert world.log[-1] == "close"


class TestBuild:
    def test_built_and_checked_but_not_timed(self) -> None:
        world = World()
        outcome, stages = built(world)
        assert isinstance(outcome, Built)
        assert stages == [Stage.BUILD, Stage.OPEN, Stage.CHECK]
        assert world.log == ["build", "open", "run", "run", "close"]
        assert outcome.engine.path == "/w/engine"
        assert (outcome.trace.asked, outcome.trace.effective) == (ASKED, {"opened": "yes"})

    def test_a_wrong_answer_and_an_error(self) -> None:
        world = World()
        world.error = 9.0
        assert isinstance(built(world)[0], Rejected)
        failed, _ = built(World(open=raising(CandidateError(FailureKind.FALLBACK, "f"))))
        assert isinstance(failed, Failed)
        assert (failed.kind, failed.stage) == (FailureKind.FALLBACK, Stage.OPEN)


def test_traces_do_not_change_afterwards() -> None:
    world = World()
    first, _ = evaluated(world)
    before: Mapping[str, str] = dict(first.trace.effective)
    evaluated(world)
    assert first.trace.effective == before
