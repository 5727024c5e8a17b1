"""Early stop on replayed clocks: a hopeless candidate costs a few inferences, a good one is never given up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from objectives.summary import is_hopeless
from objectives.timing import TimingPlan, time_session

INCUMBENT_MS = tuple(10.0 + 0.05 * (i % 5 - 2) for i in range(40))
PLAN = TimingPlan()


class Clock:
    """A session whose inferences take `latency_ms(number)`; counts them and their time."""

    def __init__(self, latency_ms: Callable[[int], float]) -> None:
        self._latency_ms = latency_ms
        self.inferences = 0
        self.total_ms = 0.0

    def __call__(self, repeats: int) -> float:
        spent = 0.0
        for _ in range(repeats):
            spent += self._latency_ms(self.inferences)
            self.inferences += 1
        self.total_ms += spent
        return spent * 1e-3


def wobbling(latency_ms: float, share: float = 0.005) -> Callable[[int], float]:
    return lambda number: latency_ms * (1.0 + share * (number % 5 - 2) / 2)


def test_forty_times_slower_costs_three_inferences_warm_up_included() -> None:
    clock = Clock(wobbling(400.0))
    samples = time_session(clock, PLAN, incumbent_ms=INCUMBENT_MS)
    assert clock.inferences == 3
    assert samples.flags == ("stopped_early",)
    assert samples.warmup_reason == "hopeless"
    assert samples.median_ms == pytest.approx(400.0, rel=0.02)


def test_without_an_incumbent_it_is_timed_in_full() -> None:
    clock = Clock(wobbling(400.0))
    samples = time_session(clock, PLAN)
    assert clock.inferences > 10
    assert clock.total_ms > PLAN.budget_ms
    assert "stopped_early" not in samples.flags


def test_a_third_slower_stops_after_its_first_round() -> None:
    samples = time_session(Clock(wobbling(13.0)), PLAN, incumbent_ms=INCUMBENT_MS)
    assert len(samples.rounds) == 1
    assert len(samples.all_ms) >= PLAN.min_samples
    assert samples.flags == ("stopped_early",)


@pytest.mark.parametrize("latency_ms", [7.0, 10.0, 10.9])
def test_what_is_within_the_margin_is_timed_in_full(latency_ms: float) -> None:
    samples = time_session(Clock(wobbling(latency_ms)), PLAN, incumbent_ms=INCUMBENT_MS)
    assert len(samples.rounds) >= PLAN.min_rounds
    assert "stopped_early" not in samples.flags


def test_a_slow_first_call_alone_stops_nobody() -> None:
    def lazy(number: int) -> float:
        return 2000.0 if number == 0 else wobbling(9.0)(number)

    samples = time_session(Clock(lazy), PLAN, incumbent_ms=INCUMBENT_MS)
    assert "stopped_early" not in samples.flags
    assert samples.median_ms == pytest.approx(9.0, rel=0.02)
    assert samples.warmup_ms[0] == pytest.approx(2000.0)


def test_a_slow_call_in_the_first_round_stops_nobody() -> None:
    def hiccup(number: int) -> float:
        return 200.0 if number % 20 == 19 else wobbling(9.5)(number)

    samples = time_session(Clock(hiccup), PLAN, incumbent_ms=INCUMBENT_MS)
    assert "stopped_early" not in samples.flags
    assert max(samples.all_ms) > 100  # and the slow ones are kept


def test_total_time_of_a_study_with_hopeless_candidates_falls_by_a_factor() -> None:
    """A fifth of 60 candidates is 10 to 40 times slower: the same winner for a third of the time at most."""
    plan = TimingPlan(budget_ms=10_000.0, warmup_ms=5_000.0)  # nobody is cut short by time alone
    latencies = [10.0 * (1.0 + 0.01 * (i % 7)) if i % 5 else 10.0 * (10 + i % 31) for i in range(1, 61)]
    spent = {}
    for guarded in (True, False):
        total, best, incumbent = 0.0, (float("inf"), -1), INCUMBENT_MS
        for index, latency in enumerate(latencies):
            clock = Clock(wobbling(latency))
            samples = time_session(clock, plan, incumbent_ms=incumbent if guarded else ())
            total += clock.total_ms
            if samples.median_ms < best[0]:
                best, incumbent = (samples.median_ms, index), samples.all_ms
        spent[guarded] = (total, best[1])
    assert spent[True][1] == spent[False][1]
    assert spent[False][0] > 3 * spent[True][0]


def test_two_samples_are_enough_for_a_gross_loss_and_one_is_not() -> None:
    assert is_hopeless((400.0, 410.0), INCUMBENT_MS)
    assert not is_hopeless((400.0,), INCUMBENT_MS)
    assert not is_hopeless((400.0, 9.0), INCUMBENT_MS)
    assert not is_hopeless((400.0, 410.0), ())
