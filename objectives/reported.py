"""Reported: samples and losses of an engine that measures itself.

Flow: evaluate.py opens a Reporter -> rounds HERE, as many as the plan asks for -> Samples, and losses as an Accuracy.
What timing.py does with a stopwatch is done here with reports: warming up and repeating are the program's own business.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from objectives.accuracy import ALL_OUTPUTS, PROGRAM, Limit
from objectives.backends.base import Report, Reporter
from objectives.errors import CandidateError
from objectives.outcome import Accuracy, FailureKind, PairLoss, Round, Samples
from objectives.summary import is_hopeless, median_interval, relative_half_width
from objectives.timing import TimingPlan

_WARMUP_REASON = "program"  # it warms up by itself


class ReportTimer:
    """Takes rounds from a reporter. `incumbent_ms`: samples to give up against, empty: never."""

    def __init__(
        self,
        reporter: Reporter,
        plan: TimingPlan,
        incumbent_ms: Sequence[float] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reporter = reporter
        self._plan = plan
        self._incumbent_ms = incumbent_ms
        self._clock = clock
        self._spent_s = 0.0
        self.warmup_ms: list[float] = []
        self.warmup_reason = _WARMUP_REASON
        self.rounds: list[Round] = []
        self.losses: dict[str, float | None] = {}  # the worst of every report

    @property
    def samples_ms(self) -> list[float]:
        return [sample for one in self.rounds for sample in one.samples_ms]

    def warm_up(self) -> None:
        """Have the first report behind us, where that makes the next ones cheaper; its samples are thrown away."""
        if self._reporter.stays_open:
            self.warmup_ms += self._report().samples_ms

    def settle(self) -> None:
        """Nothing: a program that stays open warms up at the beginning of each round."""

    def round(self) -> Round:
        """One more round."""
        start = self._clock()
        one = Round(1, self._report().samples_ms)
        # The first round of a program that stays open pays for its start.
        if self.rounds or not self._reporter.stays_open:
            self._spent_s += self._clock() - start
        self.rounds.append(one)
        return one

    def run(self) -> None:
        """Rounds until the median is known well enough, the budget is spent, or the candidate is hopeless."""
        plan = self._plan
        while len(self.rounds) < plan.max_rounds and not self._is_enough():
            self.round()

    def samples(self) -> Samples:
        """Everything that was timed."""
        clock = self._reporter.clock
        return Samples(tuple(self.rounds), tuple(self.warmup_ms), self.warmup_reason, clock, self._flags())

    def _report(self) -> Report:
        report = self._reporter.report()
        for name, value in report.losses.items():
            self.losses[name] = _worse(self.losses.get(name, 0.0), value)
        return report

    def _is_enough(self) -> bool:
        if not self.rounds:
            return False
        if self._spent_s * 1e3 >= self._plan.budget_ms or is_hopeless(self.samples_ms, self._incumbent_ms):
            return True
        is_precise = relative_half_width(self.samples_ms) <= self._plan.half_width
        return len(self.rounds) >= self._plan.min_rounds and is_precise

    def _flags(self) -> tuple[str, ...]:
        if is_hopeless(self.samples_ms, self._incumbent_ms):
            return ("stopped_early",)
        flags = ["few_samples"] if median_interval(self.samples_ms) is None else []
        if relative_half_width(self.samples_ms) > self._plan.half_width:
            flags.append("imprecise")
        return tuple(flags)


def accuracy_of(losses: Mapping[str, float | None]) -> Accuracy:
    """Reported losses as an Accuracy; one that is not finite is a fault, whatever the limits are."""
    if not losses:
        return Accuracy()
    faults = tuple(f"the program reports a loss {name} that is not finite" for name, v in losses.items() if v is None)
    return Accuracy((PairLoss(PROGRAM, ALL_OUTPUTS, dict(losses)),), faults)


def require_losses(losses: Mapping[str, float | None], limits: Iterable[Limit]) -> None:
    """Raises: CandidateError if a limit is on a loss that was not reported: nobody would check it."""
    for limit in limits:
        if limit.metric not in losses:
            reported = ", ".join(losses) or "none"
            words = (
                f"the program reports no loss {limit.metric}, on which there is a limit; losses it reports: {reported}"
            )
            raise CandidateError(FailureKind.RUN_FAILED, words)


def _worse(one: float | None, other: float | None) -> float | None:
    if one is None or other is None or not math.isfinite(other):
        return None
    return max(one, other)
