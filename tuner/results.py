"""Results: what the finished trials of a context say, as values. Pure.

Flow: ledger.Trial rows -> HERE -> progress lines, `study show`, `study best`, the Python API.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from objectives.accuracy import Limit, violations
from objectives.outcome import Built, Failed, Measured
from tuner.controls import Standard
from tuner.ledger import Trial
from tuner.objective import Objective


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts and the two trials that matter. `best` is the fastest feasible trial; it may be the baseline itself."""

    n_trials: int
    feasible: int
    rejected: int
    failed: Counter[str]  # by kind
    baseline: Trial | None
    best: Trial | None
    spent_s: float
    standard: Standard | None = None  # what latencies are compared with; None until the default is measured

    @property
    def objective(self) -> Objective:
        """What candidates are compared by, as far as anything has been measured."""
        return Objective.THROUGHPUT if self.standard is None else self.standard.objective

    @property
    def n_failed(self) -> int:
        return sum(self.failed.values())

    @property
    def speedup(self) -> float | None:
        """How much better the best looks than the default: the best of many noisy numbers, so not a claim."""
        return None if self.best is None or self.standard is None else self.ratio(self.best)

    def ratio(self, trial: Trial) -> float | None:
        """How much better a trial is than the default, as a multiple: speed with the drift taken out, or smallness."""
        return None if self.standard is None else self.standard.ratio(trial)


def is_feasible(trial: Trial, limits: Iterable[Limit]) -> bool:
    """Measured, or built where that is all that was asked for, and within the limits.

    Asked of the raw losses, whatever was decided when they were measured.
    """
    if not isinstance(trial.outcome, Measured | Built):
        return False
    return trial.outcome.accuracy is None or not violations(trial.outcome.accuracy, limits)


def baseline_of(trials: Iterable[Trial]) -> Trial | None:
    """The trial of the default, None if it is not finished."""
    return next((trial for trial in trials if trial.candidate.is_baseline), None)


def summarize(trials: Sequence[Trial], limits: Sequence[Limit], standard: Standard | None = None) -> Summary:
    """Summary of the trials of one context; the best is the one that is fastest after the drift is taken out."""
    feasible = [trial for trial in trials if is_feasible(trial, limits)]
    failed = Counter(trial.outcome.kind.value for trial in trials if isinstance(trial.outcome, Failed))
    n_failed = sum(failed.values())
    return Summary(
        n_trials=len(trials),
        feasible=len(feasible),
        rejected=len(trials) - len(feasible) - n_failed,  # also what was measured under wider limits
        failed=failed,
        baseline=baseline_of(trials),
        best=max(feasible, key=lambda trial: _speed(trial, standard), default=None),
        spent_s=sum(trial.spent_s for trial in trials),
        standard=standard,
    )


def _speed(trial: Trial, standard: Standard | None) -> float:
    """Larger is better: one over the cost, drift taken out where it is known."""
    corrected = None if standard is None else standard.corrected_cost(trial)
    return 1e3 / corrected if corrected else trial.throughput or 0.0
