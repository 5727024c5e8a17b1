"""Evaluate: one candidate from values to outcome, inside the child process.

Flow: worker.py -> build -> open -> check every pair -> time -> Measured, Rejected or Failed. Outputs are judged before
anything is timed: how fast a wrong answer comes is of no use.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from objectives.accuracy import MetricFunction, compare, merge, violations
from objectives.backends.base import Backend, Session
from objectives.errors import CandidateError, HarnessError
from objectives.outcome import (
    Accuracy,
    EngineFile,
    Failed,
    FailureKind,
    Measured,
    Outcome,
    Rejected,
    Stage,
    Trace,
)
from objectives.requests import EvaluateRequest
from objectives.tensors import Array
from objectives.timing import time_session

_DETAIL_CHARS = 2000  # a library's message can hold a whole graph; the head says what went wrong
_KIND_OF_STAGE = {
    Stage.BUILD: FailureKind.BUILD_FAILED,
    Stage.OPEN: FailureKind.BUILD_FAILED,
    Stage.CHECK: FailureKind.RUN_FAILED,
    Stage.TIME: FailureKind.RUN_FAILED,
}


class LoadedPair(msgspec.Struct, frozen=True):
    """One pair in memory: inputs and reference outputs by name."""

    label: str
    inputs: dict[str, Array]
    expected: dict[str, Array]


class _Progress:
    """Where an evaluation is, how long each stage took, and what has taken effect so far."""

    def __init__(self, asked: Mapping[str, str], on_stage: Callable[[Stage], None]) -> None:
        self.asked = dict(asked)
        self.effective: dict[str, str] = {}
        self.stage_s: dict[str, float] = {}
        self.stage = Stage.BUILD
        self._on_stage = on_stage

    @contextmanager
    def enter(self, stage: Stage) -> Iterator[None]:
        self.stage = stage
        self._on_stage(stage)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.stage_s[stage] = time.perf_counter() - start

    def trace(self) -> Trace:
        return Trace(self.asked, self.effective, self.stage_s)

    def failed(self, kind: FailureKind, detail: str) -> Failed:
        return Failed(self.trace(), self.stage, kind, detail[:_DETAIL_CHARS])


def evaluate(
    backend: Backend,
    request: EvaluateRequest,
    pairs: tuple[LoadedPair, ...],
    functions: Mapping[str, MetricFunction],
    on_stage: Callable[[Stage], None],
) -> Outcome:
    """Evaluate one candidate. Whatever the candidate does wrong is an outcome.

    Raises: HarnessError only; it says nothing about the candidate.
    """
    progress = _Progress(request.values, on_stage)
    try:
        return _stages(backend, request, pairs, functions, progress)
    except HarnessError:
        raise
    except CandidateError as error:
        return progress.failed(FailureKind(error.kind), str(error))
    except MemoryError as error:
        return progress.failed(FailureKind.OUT_OF_MEMORY, str(error) or "out of host memory")
    except Exception as error:  # a third-party runtime may raise anything; for this candidate it is a fact, not a bug
        detail = f"{type(error).__name__}: {error}"
        return progress.failed(_KIND_OF_STAGE[progress.stage], detail)


def _stages(
    backend: Backend,
    request: EvaluateRequest,
    pairs: tuple[LoadedPair, ...],
    functions: Mapping[str, MetricFunction],
    progress: _Progress,
) -> Outcome:
    with progress.enter(Stage.BUILD):
        engine = backend.build(Path(request.model), request.values, Path(request.workdir))
    with progress.enter(Stage.OPEN):
        session = backend.open(engine, request.values)
    with session:
        progress.effective.update(session.effective)
        with progress.enter(Stage.CHECK):
            accuracy = merge(_judge(session, pair, request, functions) for pair in pairs)
        if wrong := violations(accuracy, request.judging.limits):
            return Rejected(progress.trace(), accuracy, wrong[0])
        return _timed(session, request, pairs[0], accuracy, engine, progress)


def _judge(
    session: Session, pair: LoadedPair, request: EvaluateRequest, functions: Mapping[str, MetricFunction]
) -> Accuracy:
    outputs = session.run(pair.inputs)
    return compare(pair.label, outputs, pair.expected, request.judging.tolerance, functions)


def _timed(
    session: Session,
    request: EvaluateRequest,
    pair: LoadedPair,
    accuracy: Accuracy,
    engine: EngineFile,
    progress: _Progress,
) -> Outcome:
    with progress.enter(Stage.TIME):
        session.bind(pair.inputs)
        samples = time_session(session.measure, request.timing, session.clock)
    # Some settings show only once inferences have run: a graph that was not captured, a provider that fell back.
    progress.effective.update(session.effective)
    return Measured(progress.trace(), accuracy, samples, engine)
