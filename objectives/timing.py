"""Timing: an open session becomes raw samples.

Flow: evaluate.py opens and checks a Session, binds its inputs -> time_session HERE -> Samples -> statistics judge.
Knows no backend and no database. The stopwatch is an argument (`Session.measure`), so tests replay recorded times.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import numpy as np

from objectives.outcome import Round, Samples
from objectives.summary import median_interval, relative_half_width

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
    steady: float = 0.03  # two adjacent windows agree when their medians differ by less than this share


_WINDOW = 5  # samples per warm-up window; medians, so that one preempted sample does not decide


def time_session(measure: Stopwatch, plan: TimingPlan, clock: str = "host") -> Samples:
    """Warm up until steady, then take rounds of samples until the median is known well enough or the budget is spent.

    Nothing is dropped: outliers stay in the samples, what is odd about them is said in `flags`.
    """
    first_ms = measure(1) * 1e3
    repeats = _repeats(first_ms, plan)
    warmup, reason = _warm_up(measure, repeats, plan)
    # The first call pays for lazy set-up; what comes after tells how many inferences a sample needs.
    typical_ms = float(np.median(warmup[-_WINDOW:])) if warmup else first_ms
    repeats = _repeats(typical_ms, plan)
    rounds = _rounds(measure, repeats, _per_round(typical_ms * repeats, plan), plan)
    return Samples(
        rounds=tuple(rounds),
        warmup_ms=(first_ms, *warmup),
        warmup_reason=reason,
        clock=clock,
        flags=_flags(rounds, reason, plan),
    )


def _warm_up(measure: Stopwatch, repeats: int, plan: TimingPlan) -> tuple[list[float], str]:
    taken: list[float] = []
    spent_ms = 0.0
    while spent_ms < plan.warmup_ms:
        sample_ms = measure(repeats) * 1e3
        spent_ms += sample_ms
        taken.append(sample_ms / repeats)
        if len(taken) >= 2 * _WINDOW and len(taken) % _WINDOW == 0:
            before, after = np.median(taken[-2 * _WINDOW : -_WINDOW]), np.median(taken[-_WINDOW:])
            if abs(after - before) <= plan.steady * before:
                return taken, "steady"
    return taken, "cap"


def _rounds(measure: Stopwatch, repeats: int, per_round: int, plan: TimingPlan) -> list[Round]:
    rounds: list[Round] = []
    spent_ms = 0.0
    while len(rounds) < plan.max_rounds:
        samples = [measure(repeats) * 1e3 / repeats for _ in range(per_round)]
        spent_ms += math.fsum(samples) * repeats
        rounds.append(Round(repeats, tuple(samples)))
        if spent_ms >= plan.budget_ms:
            break
        if len(rounds) >= plan.min_rounds and _known(rounds, plan):
            break
    return rounds


def _known(rounds: list[Round], plan: TimingPlan) -> bool:
    return relative_half_width([s for one in rounds for s in one.samples_ms]) <= plan.half_width


def _repeats(latency_ms: float, plan: TimingPlan) -> int:
    return max(1, math.ceil(plan.sample_ms / max(latency_ms, 1e-6)))


def _per_round(sample_ms: float, plan: TimingPlan) -> int:
    wanted = math.ceil(plan.round_ms / max(sample_ms, 1e-6))
    return min(max(wanted, plan.min_samples), plan.max_samples)


def _flags(rounds: list[Round], reason: str, plan: TimingPlan) -> tuple[str, ...]:
    samples = [s for one in rounds for s in one.samples_ms]
    flags = []
    if reason != "steady":
        flags.append("unsteady")
    if len(rounds) < plan.min_rounds or median_interval(samples) is None:
        flags.append("few_samples")
    if relative_half_width(samples) > plan.half_width:
        flags.append("imprecise")
    return tuple(flags)
