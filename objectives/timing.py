"""Timing: an open session becomes raw samples.

Flow: evaluate.py opens and checks a Session, binds its inputs -> time_session HERE -> Samples -> statistics judge.
Knows no backend and no database. The stopwatch is an argument (`Session.measure`), so tests replay recorded times.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from objectives.outcome import Round, Samples
from objectives.summary import is_hopeless, median_interval, relative_half_width

Stopwatch = Callable[[int], float]  # repeats -> seconds for that many inferences back to back


class TimingPlan(msgspec.Struct, frozen=True):
    """How long and how exactly to time one candidate."""

    sample_ms: float = 1.0  # one sample lasts at least this long: far above the resolution of any clock used here
    round_ms: float = 60.0  # one round lasts about this long
    min_samples: int = 7  # per round, however slow the candidate
    max_samples: int = 60
    min_rounds: int = 3
    max_rounds: int = 40
    half_width: float = 0.005  # stop when the 95 % interval of the median is +- this share of it
    budget_ms: float = 2000.0  # stop timing after this, warm-up not counted
    warmup_ms: float = 1000.0  # stop warming up after this
    settle_ms: float = 60.0  # in a confirmation, run this long before each round: see `Timer.settle`
    steady: float = 0.03  # two adjacent windows agree when their medians differ by less than this share


_WALL = 4.0  # times the budgets: instances that wait for one another may take long to be measured for a moment
_WINDOW = 5  # samples per warm-up window; medians, so that one preempted sample does not decide
_GROSS = 3.0  # a first call this many times slower than the incumbent is looked at before any warm-up


class Timer:
    """Times one session: warm up once, then take rounds. `incumbent_ms`: samples to give up against, empty: never."""

    def __init__(self, measure: Stopwatch, plan: TimingPlan, incumbent_ms: Sequence[float] = ()) -> None:
        self._measure = measure
        self._plan = plan
        self._incumbent_ms = incumbent_ms
        self._repeats = 1
        self._per_round = plan.min_samples
        self.warmup_ms: list[float] = []
        self.warmup_reason = "none"
        self.rounds: list[Round] = []

    @property
    def samples_ms(self) -> list[float]:
        return [sample for one in self.rounds for sample in one.samples_ms]

    def warm_up(self) -> bool:
        """Run until two adjacent windows agree, or the cap; False if the session is hopelessly slow, then timed.

        A session that is many times slower than the incumbent would spend many times longer here than it is worth: its
        first two calls after the very first are its whole timing.
        """
        first_ms = self._measure(1) * 1e3
        self.warmup_ms.append(first_ms)
        if self._incumbent_ms and first_ms > _GROSS * float(np.median(self._incumbent_ms)):
            early = Round(1, (self._measure(1) * 1e3, self._measure(1) * 1e3))
            if is_hopeless(early.samples_ms, self._incumbent_ms, margin=_GROSS - 1):
                self.warmup_reason = "hopeless"
                self.rounds.append(early)
                return False
            self.warmup_ms += early.samples_ms
        self._repeats = _repeats(min(self.warmup_ms), self._plan)
        self._until_steady()
        # The first calls pay for lazy set-up; what comes after tells how many inferences a sample needs.
        typical_ms = float(np.median(self.warmup_ms[-_WINDOW:]))
        self._repeats = _repeats(typical_ms, self._plan)
        self._per_round = _per_round(typical_ms * self._repeats, self._plan)
        return True

    def settle(self) -> None:
        """Run for a while without looking, before a round that follows somebody else's.

        The other process has left its data in the caches, and its idle threads may still spin on the cores we use
        (ONNX Runtime's were seen to spin for 34 ms after an inference).
        """
        spent_ms = 0.0
        while spent_ms < self._plan.settle_ms:
            spent_ms += self._measure(self._repeats) * 1e3

    def round(self) -> Round:
        """One more round; call `warm_up` before."""
        repeats = self._repeats
        one = Round(repeats, tuple(self._measure(repeats) * 1e3 / repeats for _ in range(self._per_round)))
        self.rounds.append(one)
        return one

    def run(self) -> None:
        """Rounds until the median is known well enough, the budget is spent, or the candidate is hopeless."""
        plan, spent_ms, end_s = self._plan, 0.0, _end_s(self._plan.budget_ms)
        while len(self.rounds) < plan.max_rounds:
            one = self.round()
            spent_ms += math.fsum(one.samples_ms) * one.repeats
            if spent_ms >= plan.budget_ms or is_hopeless(self.samples_ms, self._incumbent_ms):
                return
            if time.monotonic() >= end_s:
                return
            if len(self.rounds) >= plan.min_rounds and relative_half_width(self.samples_ms) <= plan.half_width:
                return

    def flags(self) -> tuple[str, ...]:
        """What is odd about the samples; they are all kept."""
        if is_hopeless(self.samples_ms, self._incumbent_ms):
            return ("stopped_early",)
        flags = ["unsteady"] if self.warmup_reason != "steady" else []
        if len(self.rounds) < self._plan.min_rounds or median_interval(self.samples_ms) is None:
            flags.append("few_samples")
        if relative_half_width(self.samples_ms) > self._plan.half_width:
            flags.append("imprecise")
        return tuple(flags)

    def _until_steady(self) -> None:
        taken: list[float] = []
        spent_ms, end_s = 0.0, _end_s(self._plan.warmup_ms)
        self.warmup_reason = "cap"
        while spent_ms < self._plan.warmup_ms and time.monotonic() < end_s:
            sample_ms = self._measure(self._repeats) * 1e3
            spent_ms += sample_ms
            taken.append(sample_ms / self._repeats)
            if len(taken) >= 2 * _WINDOW and len(taken) % _WINDOW == 0:
                before, after = np.median(taken[-2 * _WINDOW : -_WINDOW]), np.median(taken[-_WINDOW:])
                if abs(after - before) <= self._plan.steady * before:
                    self.warmup_reason = "steady"
                    break
        self.warmup_ms += taken


def time_session(
    measure: Stopwatch, plan: TimingPlan, clock: str = "host", incumbent_ms: Sequence[float] = ()
) -> Samples:
    """Warm up, then take rounds until the median is known well enough, the budget is spent, or all hope is lost.

    `incumbent_ms`: samples of the best candidate so far, to give up against. Nothing is dropped: outliers stay in the
    samples, what is odd about them is said in `flags`.
    """
    timer = Timer(measure, plan, incumbent_ms)
    if timer.warm_up():
        timer.run()
    return Samples(
        rounds=tuple(timer.rounds),
        warmup_ms=tuple(timer.warmup_ms),
        warmup_reason=timer.warmup_reason,
        clock=clock,
        flags=timer.flags(),
    )


def plan_for(plan: TimingPlan, least_sample_ms: float) -> TimingPlan:
    """The same plan with samples that last at least so long."""
    return msgspec.structs.replace(plan, sample_ms=max(plan.sample_ms, least_sample_ms))


def _end_s(budget_ms: float) -> float:
    return time.monotonic() + _WALL * budget_ms * 1e-3


def _repeats(latency_ms: float, plan: TimingPlan) -> int:
    return max(1, math.ceil(plan.sample_ms / max(latency_ms, 1e-6)))


def _per_round(sample_ms: float, plan: TimingPlan) -> int:
    wanted = math.ceil(plan.round_ms / max(sample_ms, 1e-6))
    return min(max(wanted, plan.min_samples), plan.max_samples)
