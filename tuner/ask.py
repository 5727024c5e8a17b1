"""Requests: what the child process is asked on behalf of a study.

Flow: the loop, the controls and the confirmation name a candidate or an engine -> HERE -> a request with everything
that the study says about model, data, judging and backend.
"""

from __future__ import annotations

from pathlib import Path

from objectives.knobs import Candidate
from objectives.outcome import EngineFile, Stage
from objectives.requests import (
    BuildRequest,
    CheckRequest,
    DescribeRequest,
    EvaluateRequest,
    PairFiles,
    TimeRequest,
)
from objectives.timing import TimingPlan
from tuner.context import Context
from tuner.home import Home
from tuner.spec import StudySpec
from tuner.workload import KIND as TENSORS

MODELS = "models"  # kind of artifact


def model_path(home: Home, spec: StudySpec) -> Path:
    """Where the study's own copy of its model lies: what happens to the user's file later does not matter."""
    return home.artifacts.path(MODELS, spec.model_digest, spec.model_file)


def pair_files(home: Home, spec: StudySpec) -> tuple[PairFiles, ...]:
    """The study's pairs as files; the first is the one that is timed."""
    path = home.artifacts.path
    return tuple(
        PairFiles(one.label, str(path(TENSORS, one.inputs)), str(path(TENSORS, one.reference))) for one in spec.pairs
    )


def timed_pair(home: Home, spec: StudySpec) -> PairFiles | None:
    """The pair that is timed; None where the model brings its own inputs."""
    return next(iter(pair_files(home, spec)), None)


def describe(home: Home, spec: StudySpec) -> DescribeRequest:
    """What is here for the study's model."""
    return DescribeRequest(spec.backend, str(model_path(home, spec)), dict(spec.backend_options))


def evaluation(
    home: Home,
    spec: StudySpec,
    context: Context,
    candidate: Candidate,
    workdir: Path,
    *,
    cache: Path | None = None,
    incumbent_ms: tuple[float, ...] = (),
) -> EvaluateRequest:
    """A trial of the search. `cache`: what an earlier build left for others."""
    return EvaluateRequest(
        backend=spec.backend,
        model=str(model_path(home, spec)),
        values=context.space.values(candidate),
        pairs=pair_files(home, spec),
        judging=spec.judging,
        timing=spec.timing,
        workdir=str(workdir),
        until=_until(spec),
        shapes=dict(spec.ranges),
        calibration=_calibration(home, spec),
        cache=str(cache or ""),
        incumbent_ms=incumbent_ms,
        options=dict(spec.backend_options),
    )


def fresh_build(home: Home, spec: StudySpec, context: Context, candidate: Candidate, workdir: Path) -> BuildRequest:
    """A build that starts from nothing that another build left: what a confirmation and the noise floor are made of."""
    return BuildRequest(
        backend=spec.backend,
        model=str(model_path(home, spec)),
        values=context.space.values(candidate),
        pairs=pair_files(home, spec),
        judging=spec.judging,
        workdir=str(workdir),
        shapes=dict(spec.ranges),
        calibration=_calibration(home, spec),
        options=dict(spec.backend_options),
    )


def check(home: Home, spec: StudySpec, context: Context, engine: EngineFile, candidate: Candidate) -> CheckRequest:
    """A comparison of an engine that is there with the references."""
    values, options = context.space.values(candidate), dict(spec.backend_options)
    return CheckRequest(spec.backend, engine, values, pair_files(home, spec), spec.judging, options)


def timing(
    home: Home, spec: StudySpec, context: Context, engine: EngineFile, candidate: Candidate, plan: TimingPlan
) -> TimeRequest:
    """A timing of an engine, on the pair that is timed."""
    values, options = context.space.values(candidate), dict(spec.backend_options)
    return TimeRequest(spec.backend, engine, values, timed_pair(home, spec), plan, options)


def _until(spec: StudySpec) -> Stage:
    if spec.build_only:
        return Stage.BUILD
    return Stage.TIME if spec.objective.is_timed else Stage.CHECK


def _calibration(home: Home, spec: StudySpec) -> tuple[str, ...]:
    return tuple(str(home.artifacts.path(TENSORS, digest)) for digest in spec.calibration)
