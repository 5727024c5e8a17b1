"""Summaries: the interval of the median against binomial tables, and when a candidate is hopeless."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectives.summary import is_hopeless, median_interval, relative_half_width

# Ranks (from 1) of the 95 % sign-test interval of a median, from published tables of binomial confidence limits.
TABLE = {6: 1, 8: 1, 9: 2, 10: 2, 12: 3, 15: 4, 20: 6, 25: 8, 30: 10, 40: 14, 50: 18, 60: 22, 70: 27, 80: 31, 100: 40}


def ranks(count: int, confidence: float = 0.95) -> tuple[int, int] | None:
    interval = median_interval(range(1, count + 1), confidence)
    return None if interval is None else (int(interval[0]), int(interval[1]))


def coverage(count: int, rank: int) -> Fraction:
    """Exact probability that the rank-th smallest and the rank-th largest of `count` hold the median between them."""
    return 1 - Fraction(2 * sum(math.comb(count, below) for below in range(rank)), 2**count)


@pytest.mark.parametrize(("count", "rank"), TABLE.items())
def test_the_ranks_are_those_of_the_tables(count: int, rank: int) -> None:
    assert ranks(count) == (rank, count + 1 - rank)


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_too_few_samples_have_no_interval(count: int) -> None:
    assert ranks(count) is None
    assert relative_half_width(range(1, count + 1)) == math.inf


@pytest.mark.parametrize(("confidence", "first"), [(0.5, 2), (0.9, 5), (0.95, 6), (0.99, 8), (0.999, 11)])
def test_the_fewest_samples_that_have_one(confidence: float, first: int) -> None:
    # The whole range of n samples holds the median with probability 1 - 2^(1-n).
    assert ranks(first - 1, confidence) is None
    assert ranks(first, confidence) == (1, first)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("count", [11, 37, 101, 500, 999, 1000, 1001, 1500, 2500])
def test_it_covers_often_enough_and_is_as_narrow_as_that_allows(count: int, confidence: float) -> None:
    found = ranks(count, confidence)
    assert found is not None
    rank, last = found
    assert last == count + 1 - rank
    assert coverage(count, rank) >= Fraction(confidence) - Fraction(1, 10**12)
    slack = 1 if count <= 1000 else 3  # beyond, a normal approximation may be two ranks on the safe side
    assert coverage(count, rank + slack) < confidence


def test_the_order_of_samples_does_not_count() -> None:
    shuffled = np.random.default_rng(0).permutation(np.arange(1, 51)).tolist()
    assert median_interval(shuffled) == (18.0, 33.0)
    assert shuffled != sorted(shuffled)


def test_half_the_width_as_a_share_of_the_median() -> None:
    samples = list(range(91, 111))  # median 100.5, interval 96..105
    assert relative_half_width(samples) == pytest.approx(4.5 / 100.5)
    assert relative_half_width([2.0] * 6) == 0.0


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 10), min_size=6, max_size=60), st.floats(0.5, 100))
def test_the_share_has_no_unit(samples: list[float], scale: float) -> None:
    scaled = [scale * one for one in samples]
    assert relative_half_width(scaled) == pytest.approx(relative_half_width(samples), rel=1e-9, abs=1e-12)
    interval = median_interval(samples)
    assert interval is not None
    assert interval[0] <= float(np.median(samples)) <= interval[1]


class TestHopeless:
    def noisy(self, factor: float, count: int, seed: int, noise: float = 0.01) -> list[float]:
        return (factor * np.exp(np.random.default_rng(seed).normal(0, noise, count))).tolist()

    def test_far_slower_is_hopeless_from_two_samples_on(self) -> None:
        incumbent = self.noisy(1.0, 50, 0)
        assert is_hopeless([5.0, 5.1], incumbent)
        assert not is_hopeless([5.0], incumbent)
        assert not is_hopeless([5.0, 5.1], [1.0])
        assert not is_hopeless([], incumbent)
        assert not is_hopeless([5.0, 5.1], [])

    def test_one_slow_inference_is_an_accident(self) -> None:
        assert not is_hopeless([1.0, 50.0], self.noisy(1.0, 50, 0))

    def test_faster_and_equal_are_never(self) -> None:
        for seed in range(200):
            for factor in (0.5, 1.0, 1.09):
                assert not is_hopeless(self.noisy(factor, 20, seed), self.noisy(1.0, 60, seed + 1000))

    def test_the_error_at_the_margin_is_as_rare_as_said(self) -> None:
        # Exactly at the margin at most one in a thousand is given up; twice that in 2000 draws is beyond chance.
        wrong = sum(is_hopeless(self.noisy(1.1, 20, s), self.noisy(1.0, 60, s + 5000)) for s in range(2000))
        assert wrong <= 8

    def test_the_margin_is_the_callers(self) -> None:
        candidate, incumbent = self.noisy(2.0, 20, 1), self.noisy(1.0, 60, 2)
        assert is_hopeless(candidate, incumbent)
        assert not is_hopeless(candidate, incumbent, margin=2.0)

    def test_samples_that_do_not_vary(self) -> None:
        assert is_hopeless([2.0] * 3, [1.0] * 3)
        assert not is_hopeless([1.0] * 3, [1.0] * 3)
