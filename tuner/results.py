"""Results: what the finished trials of a context say, as values. Pure.

Flow: ledger.Trial rows -> HERE -> progress lines, `study show`, `study best`, the Python API.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from objectives.accuracy import Limit, violations
from objectives.outcome import Failed, Measured
from tuner.ledger import Trial


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

    @property
    def n_failed(self) -> int:
        return sum(self.failed.values())

    @property
    def speedup(self) -> float | None:
        """Observed throughput of the best over the default's: the best of many noisy numbers, so not a claim."""
        if self.best is None or self.baseline is None:
            return None
        best, base = self.best.throughput, self.baseline.throughput
        return best / base if best and base else None


def is_feasible(trial: Trial, limits: Iterable[Limit]) -> bool:
    """Measured, and within the limits: asked of the raw losses, whatever was decided when it was measured."""
    return isinstance(trial.outcome, Measured) and not violations(trial.outcome.accuracy, limits)


def summarize(trials: Sequence[Trial], limits: Sequence[Limit]) -> Summary:
    """Summary of the trials of one context."""
    feasible = [trial for trial in trials if is_feasible(trial, limits)]
    failed = Counter(trial.outcome.kind.value for trial in trials if isinstance(trial.outcome, Failed))
    n_failed = sum(failed.values())
    return Summary(
        n_trials=len(trials),
        feasible=len(feasible),
        rejected=len(trials) - len(feasible) - n_failed,  # also what was measured under wider limits
        failed=failed,
        baseline=next((trial for trial in trials if trial.candidate.is_baseline), None),
        best=max(feasible, key=lambda trial: trial.throughput or 0.0, default=None),
        spent_s=sum(trial.spent_s for trial in trials),
    )
