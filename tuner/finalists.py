"""Finalists: who enters a confirmation, and the fresh builds that each brings.

Flow: the trials of a context -> choose HERE (shrunken, distinct) -> rebuild and check again HERE -> confirm.py times.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from objectives.knobs import Candidate
from objectives.outcome import Built, EngineFile, Measured, Rejected
from tuner.ask import fresh_build
from tuner.context import Context
from tuner.engines import CONFIRM_KIND
from tuner.home import Home
from tuner.ledger import Trial
from tuner.noise import NewIsolation
from tuner.results import Summary, is_feasible
from tuner.spec import StudySpec
from tuner.stats import Estimate, Noise, choose_finalists

BASELINE = "baseline"
_SHARE_OF_BEST = 0.5  # of the best's gain that a finalist must show: each further one costs pairs and certainty
_DISTANCE = 2  # knobs in which two finalists differ at least: closer ones would spend pairs on the same question
_UNKNOWN_ERROR = 0.02  # of a search measurement where no noise floor was measured: sessions were seen 2.4 % apart


class Finalist(msgspec.Struct, frozen=True):
    """A candidate with its rebuilt engines. `dropped` says why it left before it had a verdict."""

    trial_uid: str
    number: int
    candidate: Candidate
    builds: tuple[EngineFile, ...] = ()
    dropped: str = ""

    @property
    def id(self) -> str:
        """Identity within the confirmation."""
        return BASELINE if self.candidate.is_baseline else self.candidate.digest

    def to_json(self) -> dict[str, Any]:
        stored: dict[str, Any] = msgspec.to_builtins(self)
        return stored


def choose(trials: Sequence[Trial], summary: Summary, noise: Noise | None, spec: StudySpec, count: int) -> list[Trial]:
    """The most promising feasible candidates, at most `count`, best first, distinct; none that does not look faster."""
    limits = spec.judging.limits
    feasible = {t.candidate.digest: t for t in trials if is_feasible(t, limits) and not t.candidate.is_baseline}
    estimates = [_estimate(trial, summary, noise) for trial in feasible.values()]
    if not estimates:
        return []
    seen = {estimate.candidate_id: estimate.log_gain for estimate in estimates}
    ranked = choose_finalists(estimates, len(estimates))
    chosen: list[Trial] = []
    for one in ranked:
        trial = feasible[one.candidate_id]
        # Shrinking orders them; whether one looked faster at all is asked of what was seen: where the noise is large
        # every estimate is drawn to the common median, which is slower than the default.
        promising = seen[one.candidate_id] > max(0.0, _SHARE_OF_BEST * seen[ranked[0].candidate_id])
        if len(chosen) < count and promising and _is_distinct(trial.candidate, (t.candidate for t in chosen)):
            chosen.append(trial)
    return chosen


def rebuild(
    home: Home, spec: StudySpec, context: Context, fresh: NewIsolation, finalist: Finalist, builds: int
) -> Finalist:
    """Build a candidate afresh, each time in a process of its own, check every build, and keep the files.

    A build that fails or is rejected drops the finalist: a route that is right only sometimes is no winner.
    """
    made = list(finalist.builds)
    while len(made) < builds:
        with home.artifacts.scratch() as folder, fresh() as isolation:
            built = isolation.build(fresh_build(home, spec, context, finalist.candidate, folder))
            if not isinstance(built, Built):
                word = "rejected" if isinstance(built, Rejected) else "failed"
                reason = f"rebuild {len(made) + 1} {word}: {built.reason}"
                return msgspec.structs.replace(finalist, builds=tuple(made), dropped=reason)
            made.append(_keep(home, built.engine))
    return msgspec.structs.replace(finalist, builds=tuple(made))


def discard(home: Home, finalists: Iterable[Finalist]) -> None:
    """Remove the builds of a confirmation that is over."""
    for digest in {engine.digest for finalist in finalists for engine in finalist.builds}:
        home.artifacts.remove(CONFIRM_KIND, digest)


def _keep(home: Home, engine: EngineFile) -> EngineFile:
    path = Path(engine.path)
    folder = home.artifacts.put_group(CONFIRM_KIND, engine.digest, path.parent, (path.name, *engine.sidecars))
    return msgspec.structs.replace(engine, path=str(folder / path.name))


def _estimate(trial: Trial, summary: Summary, noise: Noise | None) -> Estimate:
    assert isinstance(trial.outcome, Measured), "only feasible trials are estimated"
    ratio = summary.ratio(trial)
    assert ratio is not None, "a feasible trial and a measured default have a ratio"
    rounds = len(trial.outcome.samples.rounds)
    error = _UNKNOWN_ERROR if noise is None else math.hypot(noise.load.sd, noise.run.sd / math.sqrt(rounds))
    return Estimate(trial.candidate.digest, math.log(ratio), max(error, 1e-6), len(trial.candidate.changes))


def _is_distinct(candidate: Candidate, others: Iterable[Candidate]) -> bool:
    ours = dict(candidate.changes)
    for other in others:
        theirs = dict(other.changes)
        if sum(ours.get(name) != theirs.get(name) for name in {*ours, *theirs}) < _DISTANCE:
            return False
    return True
