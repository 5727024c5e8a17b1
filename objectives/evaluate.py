"""Evaluate: one candidate from values to outcome, inside the child process.

Flow: worker.py -> build -> open -> check every pair -> time -> Measured, Rejected or Failed. Outputs are judged before
anything is timed: how fast a wrong answer comes is of no use. A confirmation takes the same steps one by one.
An engine that measures itself (a Reporter) is asked for its losses and samples instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from objectives.accuracy import MetricFunction, compare, merge, violations
from objectives.backends.base import Backend, BuildTerms, OpenEngine, Reporter, Session, tensor_session
from objectives.conditions import Watch
from objectives.errors import CandidateError, HarnessError
from objectives.outcome import (
    Accuracy,
    Built,
    EngineFile,
    Failed,
    FailureKind,
    Measured,
    Outcome,
    Rejected,
    Samples,
    Stage,
    Trace,
    require_intact,
)
from objectives.reported import ReportTimer, accuracy_of, require_losses
from objectives.requests import BuildRequest, CheckRequest, EvaluateRequest
from objectives.tensors import Array
from objectives.timing import TimingPlan, plan_for, time_session

_DETAIL_CHARS = 2000  # a library's message can hold a whole graph; the head says what went wrong
_KIND_OF_STAGE = {
    Stage.BUILD: FailureKind.BUILD_FAILED,
    Stage.OPEN: FailureKind.BUILD_FAILED,
    Stage.CHECK: FailureKind.RUN_FAILED,
    Stage.TIME: FailureKind.RUN_FAILED,
}
OnStage = Callable[[Stage, str], None]  # the stage entered or, with words, how far it is
Result = TypeVar("Result")


class LoadedPair(msgspec.Struct, frozen=True):
    """One pair in memory: inputs and reference outputs by name."""

    label: str
    inputs: dict[str, Array]
    expected: dict[str, Array]


class Progress:
    """Where an evaluation is, how long each stage took, and what has taken effect so far."""

    def __init__(self, asked: Mapping[str, str], on_stage: OnStage) -> None:
        self.asked = dict(asked)
        self.effective: dict[str, str] = {}
        self.stage_s: dict[str, float] = {}
        self.stage = Stage.BUILD
        self._on_stage = on_stage

    @contextmanager
    def enter(self, stage: Stage) -> Iterator[None]:
        self.stage = stage
        self._on_stage(stage, "")
        start = time.perf_counter()
        try:
            yield
        finally:
            self.stage_s[stage] = time.perf_counter() - start

    def step(self, words: str) -> None:
        """Say how far the present stage is."""
        self._on_stage(self.stage, words)

    def trace(self) -> Trace:
        return Trace(self.asked, self.effective, self.stage_s)

    def failed(self, kind: FailureKind, detail: str) -> Failed:
        # A library's words may hold bytes that are no text.
        words = detail[:_DETAIL_CHARS].encode(errors="replace").decode()
        return Failed(self.trace(), self.stage, kind, words)


def evaluate(
    backend: Backend,
    request: EvaluateRequest,
    pairs: tuple[LoadedPair, ...],
    functions: Mapping[str, MetricFunction],
    on_stage: OnStage,
) -> Outcome:
    """Evaluate one candidate. Whatever the candidate does wrong is an outcome.

    Raises: HarnessError only; it says nothing about the candidate.
    """
    progress = Progress(request.values, on_stage)

    def steps() -> Outcome:
        engine = _build(backend, request, progress)
        if request.until is Stage.BUILD:
            return Built(progress.trace(), None, engine)
        with _open(backend, request, engine, progress) as opened:
            progress.effective.update(opened.effective)
            if isinstance(opened, Reporter):
                return _reported(opened, request, engine, progress)
            session = tensor_session(opened)
            accuracy, rejected = _check(session, request, pairs, functions, progress)
            if rejected is None and request.until is Stage.TIME:
                return _timed(session, request, pairs[0], accuracy, engine, progress)
            return rejected or Built(progress.trace(), accuracy, engine)

    return guarded(progress, steps)


def build(
    backend: Backend,
    request: BuildRequest,
    pairs: tuple[LoadedPair, ...],
    functions: Mapping[str, MetricFunction],
    on_stage: OnStage,
) -> Built | Rejected | Failed:
    """Build and check one candidate without timing it. Raises: HarnessError only."""
    progress = Progress(request.values, on_stage)

    def steps() -> Built | Rejected | Failed:
        engine = _build(backend, request, progress)
        return _opened_and_checked(backend, request, engine, pairs, functions, progress)

    return guarded(progress, steps)


def check(
    backend: Backend,
    request: CheckRequest,
    pairs: tuple[LoadedPair, ...],
    functions: Mapping[str, MetricFunction],
    on_stage: OnStage,
) -> Built | Rejected | Failed:
    """Compare an engine that is there with the references. Raises: HarnessError; EngineFileError if it was changed."""
    require_intact(request.engine)
    progress = Progress(request.values, on_stage)

    def steps() -> Built | Rejected | Failed:
        return _opened_and_checked(backend, request, request.engine, pairs, functions, progress)

    return guarded(progress, steps)


def guarded(progress: Progress, steps: Callable[[], Result]) -> Result | Failed:
    """Carry out `steps`; what the candidate's library raises becomes a Failed outcome. Raises: HarnessError."""
    try:
        return steps()
    except HarnessError:
        raise
    except CandidateError as error:
        known = error.kind in FailureKind.__members__.values()
        return progress.failed(FailureKind(error.kind) if known else _KIND_OF_STAGE[progress.stage], str(error))
    except MemoryError as error:
        return progress.failed(FailureKind.OUT_OF_MEMORY, str(error) or "out of host memory")
    except Exception as error:  # a third-party runtime may raise anything; for this candidate it is a fact, not a bug
        detail = f"{type(error).__name__}: {error}"
        return progress.failed(_KIND_OF_STAGE[progress.stage], detail)


def _build(backend: Backend, request: EvaluateRequest | BuildRequest, progress: Progress) -> EngineFile:
    with progress.enter(Stage.BUILD):
        terms = BuildTerms(
            shapes=request.shapes,
            calibration=tuple(Path(one) for one in request.calibration),
            cache=Path(request.cache) if request.cache else None,
            on_step=progress.step,
        )
        return backend.build(Path(request.model), request.values, Path(request.workdir), terms)


def _open(
    backend: Backend, request: EvaluateRequest | BuildRequest | CheckRequest, engine: EngineFile, progress: Progress
) -> OpenEngine:
    with progress.enter(Stage.OPEN):
        return backend.open(engine, request.values)


def _opened_and_checked(
    backend: Backend,
    request: BuildRequest | CheckRequest,
    engine: EngineFile,
    pairs: tuple[LoadedPair, ...],
    functions: Mapping[str, MetricFunction],
    progress: Progress,
) -> Built | Rejected:
    with _open(backend, request, engine, progress) as opened:
        progress.effective.update(opened.effective)
        if isinstance(opened, Reporter):
            accuracy, rejected = _first_report(ReportTimer(opened, TimingPlan()), opened, request, progress)
        else:
            accuracy, rejected = _check(tensor_session(opened), request, pairs, functions, progress)
        return rejected or Built(progress.trace(), accuracy, engine)


def _check(
    session: Session,
    request: EvaluateRequest | BuildRequest | CheckRequest,
    pairs: tuple[LoadedPair, ...],
    functions: Mapping[str, MetricFunction],
    progress: Progress,
) -> tuple[Accuracy, Rejected | None]:
    judging = request.judging
    with progress.enter(Stage.CHECK):
        accuracy = merge(
            compare(pair.label, session.run(pair.inputs), pair.expected, judging.tolerance, functions) for pair in pairs
        )
    return accuracy, _rejected(accuracy, request, progress)


def _rejected(
    accuracy: Accuracy, request: EvaluateRequest | BuildRequest | CheckRequest, progress: Progress
) -> Rejected | None:
    wrong = violations(accuracy, request.judging.limits)
    return Rejected(progress.trace(), accuracy, wrong[0]) if wrong else None


def _first_report(
    timer: ReportTimer,
    reporter: Reporter,
    request: EvaluateRequest | BuildRequest | CheckRequest,
    progress: Progress,
) -> tuple[Accuracy, Rejected | None]:
    """Take the first round and judge its losses. Raises: CandidateError if a limit is on a loss that is not there."""
    with progress.enter(Stage.CHECK):
        timer.round()
        require_losses(timer.losses, request.judging.limits)
    progress.effective.update(reporter.effective)
    accuracy = accuracy_of(timer.losses)
    return accuracy, _rejected(accuracy, request, progress)


def _reported(reporter: Reporter, request: EvaluateRequest, engine: EngineFile, progress: Progress) -> Outcome:
    """Check and time an engine that does both itself: its first report tells losses and is the first round too."""
    timer = ReportTimer(reporter, request.timing, request.incumbent_ms)
    watch = reporter.watch()
    accuracy, rejected = _first_report(timer, reporter, request, progress)
    if rejected is not None or request.until is not Stage.TIME:
        return rejected or Built(progress.trace(), accuracy, engine)
    with progress.enter(Stage.TIME):
        timer.run()
    progress.effective.update(reporter.effective)
    # Later rounds report losses too, where the program checks each of them.
    accuracy = accuracy_of(timer.losses)
    samples = _with_conditions(timer.samples(), watch)
    return _rejected(accuracy, request, progress) or Measured(progress.trace(), accuracy, samples, engine)


def _timed(
    session: Session,
    request: EvaluateRequest,
    pair: LoadedPair,
    accuracy: Accuracy,
    engine: EngineFile,
    progress: Progress,
) -> Outcome:
    with progress.enter(Stage.TIME):
        session.bind(pair.inputs)
        samples = watched(session, request.timing, request.incumbent_ms)
    # Some settings show only once inferences have run: a graph that was not captured, a provider that fell back.
    progress.effective.update(session.effective)
    return Measured(progress.trace(), accuracy, samples, engine)


def watched(session: Session, plan: TimingPlan, incumbent_ms: tuple[float, ...] = ()) -> Samples:
    """Time a session with bound inputs, and say what the machine did meanwhile."""
    watch = session.watch()
    plan = plan_for(plan, session.least_sample_ms)
    return _with_conditions(time_session(session.measure, plan, session.clock, incumbent_ms), watch)


def watched_reports(reporter: Reporter, plan: TimingPlan) -> Samples:
    """Rounds of an engine that measures itself, and what the machine did meanwhile."""
    watch = reporter.watch()
    timer = ReportTimer(reporter, plan)
    timer.run()
    return _with_conditions(timer.samples(), watch)


def _with_conditions(samples: Samples, watch: Watch) -> Samples:
    conditions, flags = watch.stop()
    return msgspec.structs.replace(samples, flags=(*samples.flags, *flags), conditions=conditions)
