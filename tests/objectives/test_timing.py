"""Timing, on replayed clocks: how many inferences a sample holds, when the warm-up and the rounds end, what is kept."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectives.outcome import Samples
from objectives.summary import relative_half_width
from objectives.timing import Timer, TimingPlan, time_session

PLAN = TimingPlan()


class Clock:
    """A stopwatch that replays latencies (milliseconds per inference, one for each call) and notes what was asked."""

    def __init__(self, latencies_ms: Iterable[float]) -> None:
        self._latencies_ms: Iterator[float] = iter(latencies_ms)
        self.calls: list[tuple[int, float]] = []

    def __call__(self, repeats: int) -> float:
        self.calls.append((repeats, next(self._latencies_ms)))
        return self.calls[-1][1] * repeats / 1e3

    @property
    def told_ms(self) -> list[float]:
        return [latency for _, latency in self.calls]


def steady(latency_ms: float) -> Clock:
    return Clock(itertools.repeat(latency_ms))


def noisy(latency_ms: float, noise: float, seed: int = 0) -> Clock:
    random = np.random.default_rng(seed)
    return Clock(latency_ms * math.exp(random.normal(0, noise)) for _ in itertools.count())


def kept(samples: Samples) -> list[float]:
    return [*samples.warmup_ms, *samples.all_ms]


class TestRepeats:
    @pytest.mark.parametrize(
        ("latency_ms", "repeats"),
        [(1e-4, 10_000), (1e-3, 1000), (0.3, 4), (0.999, 2), (1.0, 1), (1.5, 1), (400.0, 1)],
    )
    def test_a_sample_lasts_as_long_as_the_clock_needs(self, latency_ms: float, repeats: int) -> None:
        found = time_session(steady(latency_ms), PLAN)
        assert {one.repeats for one in found.rounds} == {repeats}
        assert repeats * latency_ms >= PLAN.sample_ms
        assert found.median_ms == pytest.approx(latency_ms)

    def test_the_first_call_pays_for_lazy_set_up(self) -> None:
        clock = Clock(itertools.chain([500.0], itertools.repeat(0.01)))
        found = time_session(clock, PLAN)
        assert found.rounds[0].repeats == 100
        assert found.warmup_ms[0] == pytest.approx(500.0)
        assert found.median_ms == pytest.approx(0.01)

    @pytest.mark.parametrize(
        ("latency_ms", "count"),
        [(0.01, 60), (1.0, 60), (2.0, 30), (7.0, 9), (10.0, 7), (100.0, 7), (2000.0, 7)],
    )
    def test_a_round_is_about_as_long_as_planned(self, latency_ms: float, count: int) -> None:
        # 60 ms of samples that last at least 1 ms each, but never fewer than 7 nor more than 60.
        found = time_session(steady(latency_ms), PLAN)
        assert {len(one.samples_ms) for one in found.rounds} == {count}

    def test_the_longest_round_is_capped(self) -> None:
        found = time_session(steady(0.5), TimingPlan(round_ms=1e6, max_samples=11))
        assert {len(one.samples_ms) for one in found.rounds} == {11}


class TestWarmUp:
    def test_it_ends_when_two_windows_agree(self) -> None:
        cold = [10.0 * 0.8**step for step in range(15)]
        clock = Clock(itertools.chain([20.0], cold, itertools.repeat(1.0)))
        found = time_session(clock, TimingPlan(warmup_ms=1e6))
        assert found.warmup_reason == "steady"
        before, after = found.warmup_ms[-10:-5], found.warmup_ms[-5:]
        assert abs(np.median(after) - np.median(before)) <= PLAN.steady * np.median(before)
        assert found.warmup_ms[:6] == pytest.approx([20.0, *cold[:5]])
        assert "unsteady" not in found.flags
        assert found.all_ms == pytest.approx([1.0] * len(found.all_ms))

    def test_it_takes_no_longer_than_that(self) -> None:
        # The call that is always made, then two windows of five.
        assert len(time_session(steady(1.0), PLAN).warmup_ms) == 11

    def test_one_preempted_sample_does_not_decide(self) -> None:
        clock = Clock(itertools.chain([1.0] * 8, [50.0], itertools.repeat(1.0)))
        found = time_session(clock, PLAN)
        assert found.warmup_reason == "steady"
        assert len(found.warmup_ms) == 11

    def test_at_the_cap_the_samples_are_unsteady(self) -> None:
        clock = Clock(1.2**step for step in itertools.count())
        found = time_session(clock, TimingPlan(warmup_ms=50.0, budget_ms=1.0))
        assert found.warmup_reason == "cap"
        assert "unsteady" in found.flags
        assert sum(found.warmup_ms[1:-1]) < 50 <= sum(found.warmup_ms[1:])

    def test_a_candidate_slower_than_the_cap_is_timed_all_the_same(self) -> None:
        found = time_session(steady(5000.0), PLAN)
        assert found.warmup_ms == pytest.approx((5000.0, 5000.0))
        assert found.warmup_reason == "cap"
        assert len(found.rounds) == 1
        assert set(found.flags) == {"unsteady", "few_samples"}

    def test_without_any_warm_up(self) -> None:
        found = time_session(steady(1.0), TimingPlan(warmup_ms=0.0))
        assert found.warmup_ms == pytest.approx((1.0,))
        assert found.warmup_reason == "cap"
        assert found.median_ms == pytest.approx(1.0)


class TestEnd:
    def test_a_quiet_candidate_needs_the_fewest_rounds(self) -> None:
        found = time_session(steady(1.0), PLAN)
        assert len(found.rounds) == PLAN.min_rounds
        assert found.flags == ()

    @pytest.mark.parametrize("noise", [0.005, 0.02, 0.05])
    def test_it_stops_when_the_median_is_known(self, noise: float) -> None:
        plan = TimingPlan(budget_ms=1e9)
        found = time_session(noisy(1.0, noise), plan)
        assert PLAN.min_rounds <= len(found.rounds) < plan.max_rounds
        ends = list(itertools.accumulate(len(one.samples_ms) for one in found.rounds))
        widths = [relative_half_width(found.all_ms[:end]) for end in ends]
        assert widths[-1] <= plan.half_width
        assert all(width > plan.half_width for width in widths[plan.min_rounds - 1 : -1])
        assert "imprecise" not in found.flags

    @pytest.mark.parametrize("latency_ms", [2.0, 0.01])
    def test_it_stops_at_the_budget(self, latency_ms: float) -> None:
        plan = TimingPlan(budget_ms=300.0)
        found = time_session(noisy(latency_ms, 0.3), plan)
        spent = [sum(one.samples_ms) * one.repeats for one in found.rounds]
        assert sum(spent[:-1]) < 300 <= sum(spent)
        assert "imprecise" in found.flags

    def test_the_warm_up_is_not_in_the_budget(self) -> None:
        clock = Clock(itertools.chain([250.0] * 2, itertools.repeat(1.0)))
        assert len(time_session(clock, TimingPlan(budget_ms=300.0)).rounds) == PLAN.min_rounds

    def test_it_stops_at_the_largest_number_of_rounds(self) -> None:
        plan = TimingPlan(budget_ms=1e9, max_rounds=5, half_width=1e-9)
        found = time_session(noisy(1.0, 0.1), plan)
        assert len(found.rounds) == 5
        assert found.flags == ("imprecise",)

    def test_too_few_rounds_are_told(self) -> None:
        found = time_session(steady(10.0), TimingPlan(budget_ms=100.0))
        assert len(found.rounds) == 2
        assert found.flags == ("few_samples",)


class TestRaw:
    @settings(deadline=None, max_examples=60)
    @given(st.floats(1e-4, 1e3), st.floats(0, 0.5), st.integers(0, 99))
    def test_nothing_that_was_measured_is_lost(self, latency_ms: float, noise: float, seed: int) -> None:
        clock = noisy(latency_ms, noise, seed)
        found = time_session(clock, PLAN)
        assert kept(found) == pytest.approx(clock.told_ms)
        rounds = [one.repeats for one in found.rounds for _ in one.samples_ms]
        assert [repeats for repeats, _ in clock.calls[len(found.warmup_ms) :]] == rounds

    def test_outliers_stay(self) -> None:
        latencies = (100.0 if index % 20 == 19 else 1.0 for index in itertools.count())
        found = time_session(Clock(latencies), PLAN)
        assert max(found.all_ms) == pytest.approx(100.0)
        assert found.all_ms.count(pytest.approx(100.0)) >= len(found.all_ms) // 20
        assert found.median_ms == pytest.approx(1.0)

    def test_the_clock_is_named(self) -> None:
        assert time_session(steady(1.0), PLAN).clock == "host"
        assert time_session(steady(1.0), PLAN, "cuda_event").clock == "cuda_event"

    def test_what_the_stopwatch_raises_comes_through(self) -> None:
        def broken(repeats: int) -> float:
            raise RuntimeError("device lost")

        with pytest.raises(RuntimeError, match="device lost"):
            time_session(broken, PLAN)


class TestHopeless:
    INCUMBENT = tuple(np.exp(np.random.default_rng(7).normal(0, 0.01, 60)).tolist())

    def test_a_gross_loss_is_seen_before_any_warm_up(self) -> None:
        clock = steady(100.0)
        found = time_session(clock, PLAN, incumbent_ms=self.INCUMBENT)
        assert len(clock.calls) == 3  # the first call, and two more
        assert kept(found) == pytest.approx([100.0] * 3)
        assert (found.warmup_reason, found.flags) == ("hopeless", ("stopped_early",))
        assert found.median_ms == pytest.approx(100.0)

    def test_a_slow_first_call_alone_is_no_reason(self) -> None:
        clock = Clock(itertools.chain([500.0], itertools.repeat(0.9)))
        found = time_session(clock, PLAN, incumbent_ms=self.INCUMBENT)
        assert found.warmup_reason == "steady"
        assert found.flags == ()
        assert kept(found) == pytest.approx(clock.told_ms)

    def test_a_clear_loss_ends_after_a_round(self) -> None:
        found = time_session(noisy(1.5, 0.01), PLAN, incumbent_ms=self.INCUMBENT)
        assert len(found.rounds) == 1
        assert found.flags == ("stopped_early",)

    @pytest.mark.parametrize("latency_ms", [0.5, 1.0, 1.05])
    def test_whoever_may_win_is_timed_to_the_end(self, latency_ms: float) -> None:
        with_, without = (
            time_session(noisy(latency_ms, 0.005), PLAN, incumbent_ms=incumbent) for incumbent in (self.INCUMBENT, ())
        )
        assert with_ == without

    def test_nothing_is_given_up_without_an_incumbent(self) -> None:
        assert time_session(steady(100.0), PLAN).flags == ()


class TestTimer:
    def test_it_settles_after_somebody_else_and_keeps_nothing_of_it(self) -> None:
        clock = steady(0.25)
        timer = Timer(clock, TimingPlan(settle_ms=60.0))
        timer.warm_up()
        warm, before = list(timer.warmup_ms), len(clock.calls)
        timer.settle()
        spent = [repeats * latency_ms for repeats, latency_ms in clock.calls[before:]]
        assert sum(spent[:-1]) < 60 <= sum(spent)
        assert (timer.rounds, timer.warmup_ms) == ([], warm)

    def test_rounds_can_be_taken_one_by_one(self) -> None:
        clock = steady(0.25)
        timer = Timer(clock, PLAN)
        assert timer.warm_up()
        before = len(clock.calls)
        one, two = timer.round(), timer.round()
        assert timer.rounds == [one, two]
        assert one.repeats == 4
        assert [repeats for repeats, _ in clock.calls[before:]] == [4] * (len(one.samples_ms) + len(two.samples_ms))
        assert timer.samples_ms == pytest.approx([0.25] * (len(one.samples_ms) * 2))


@pytest.mark.parametrize("make", [lambda: steady(1e-9), lambda: noisy(1e-6, 0.5)])
def test_a_clock_that_can_hardly_see_anything_ends_too(make: Callable[[], Clock]) -> None:
    found = time_session(make(), PLAN)
    assert len(found.rounds) <= PLAN.max_rounds
    assert max(one.repeats for one in found.rounds) <= 10_000_000
