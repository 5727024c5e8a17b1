"""Summaries: fixed numbers, properties, coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.stats import PlanError, median_interval, median_log_variance, summarize

finite = st.lists(st.floats(0.01, 1e6), min_size=1, max_size=60)


def test_summary_of_recorded_samples() -> None:
    summary = summarize([5.0, 5.1, 4.9, 5.2, 5.0, 4.8, 5.1, 70.0])
    assert summary.n == 8
    assert summary.median == pytest.approx(5.05)
    assert summary.mad == pytest.approx(0.1)
    assert summary.outliers == 1
    assert (summary.ci_low, summary.ci_high) == (4.8, 70.0)  # n = 8: smallest and largest, 99.2 %


def test_interval_lies_between_the_order_statistics_of_the_sign_test() -> None:
    assert median_interval([float(i) for i in range(1, 21)]) == (6.0, 15.0)


def test_few_samples_have_no_interval() -> None:
    summary = summarize([5.0, 5.1, 4.9, 5.2, 5.0])
    assert (summary.ci_low, summary.ci_high) == (-math.inf, math.inf)
    assert summary.relative_half_width == math.inf


def test_relative_half_width() -> None:
    assert summarize([float(i) for i in range(1, 21)]).relative_half_width == pytest.approx(4.5 / 10.5)
    assert summarize([5.0] * 6).relative_half_width == 0.0


@given(values=finite, factor=st.floats(0.1, 100.0))
def test_summary_scales_and_ignores_order(values: list[float], factor: float) -> None:
    one, other = summarize(values), summarize([factor * v for v in reversed(values)])
    assert other.median == pytest.approx(factor * one.median)
    assert other.mad == pytest.approx(factor * one.mad, rel=1e-6, abs=1e-6)
    assert one.ci_low <= one.median <= one.ci_high
    assert 0 <= one.outliers <= one.n // 2


@given(values=st.lists(st.floats(0.01, 1e6), min_size=6, max_size=60))
def test_more_confidence_is_a_wider_interval(values: list[float]) -> None:
    low, high = median_interval(values, 0.8)
    wide_low, wide_high = median_interval(values, 0.95)
    assert wide_low <= low <= high <= wide_high


def test_interval_covers_the_median_of_a_skewed_distribution() -> None:
    rng = np.random.default_rng(1)
    drawn = rng.exponential(1.0, (2000, 25))
    covered = [low <= math.log(2) <= high for low, high in (median_interval(row) for row in drawn.tolist())]
    assert 0.95 <= np.mean(covered) <= 0.99


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_no_summary_of_nothing_or_nonsense(values: list[float]) -> None:
    with pytest.raises(PlanError):
        summarize(values)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0])
def test_confidence_is_a_share(confidence: float) -> None:
    with pytest.raises(PlanError):
        median_interval([1.0, 2.0], confidence)


def test_the_variance_of_a_median_is_what_repeated_sessions_show() -> None:
    rng = np.random.default_rng(0)
    sessions = [
        [np.exp(offset + rng.normal(0, 0.01, 20)) for offset in rng.normal(0, 0.03, 8)]  # rounds differ, and samples
        for _ in range(800)
    ]
    seen = np.var([np.log(np.median(np.concatenate(rounds))) for rounds in sessions])
    said = np.mean([median_log_variance(rounds) for rounds in sessions])  # type: ignore[arg-type]
    assert 0.7 < said / seen < 1.7


def test_one_round_has_its_samples_and_one_sample_has_nothing() -> None:
    assert median_log_variance([(1.0, 1.1, 0.9)]) == pytest.approx(np.pi / 6 * np.var(np.log([1.0, 1.1, 0.9]), ddof=1))
    assert median_log_variance([(1.0,), (1.1,)]) is not None
    assert median_log_variance([(1.0,)]) is median_log_variance([]) is None
