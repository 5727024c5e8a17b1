"""Distributions against printed tables."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from objectives.distributions import median_rank, normal_tail, signed_rank_cdf, student_cdf, student_quantile


@pytest.mark.parametrize(
    ("p", "df", "quantile"),
    [
        (0.975, 1, 12.706),
        (0.975, 2, 4.303),
        (0.975, 9, 2.262),
        (0.95, 5, 2.015),
        (0.995, 30, 2.750),
        (0.999, 10, 4.144),
        (0.9995, 4, 8.610),
        (0.975, 120, 1.980),
        (0.975, 1e6, 1.960),
    ],
)
def test_student_quantile_matches_the_tables(p: float, df: float, quantile: float) -> None:
    assert student_quantile(p, df) == pytest.approx(quantile, abs=6e-4)
    assert student_quantile(1 - p, df) == pytest.approx(-quantile, abs=6e-4)


@given(p=st.floats(1e-6, 1 - 1e-6), df=st.floats(0.6, 1e4))
def test_student_quantile_inverts_the_cdf(p: float, df: float) -> None:
    assert student_cdf(student_quantile(p, df), df) == pytest.approx(p, rel=1e-6, abs=1e-9)


def test_student_with_one_degree_is_cauchy() -> None:
    assert student_cdf(1.7, 1.0) == pytest.approx(0.5 + math.atan(1.7) / math.pi, abs=1e-12)


def test_signed_rank_distribution_matches_wilcoxon() -> None:
    # n = 3: subsets of {1, 2, 3} by sum: 0, 1, 2, 3 (twice), 4, 5, 6.
    np.testing.assert_allclose(signed_rank_cdf(3) * 8, [1, 2, 3, 5, 6, 7, 8])
    # Wilcoxon's table: n = 10, P(T <= 8) = 0.0244, P(T <= 9) = 0.0322; n = 20, P(T <= 52) = 0.0242.
    assert signed_rank_cdf(10)[8] == pytest.approx(0.0244, abs=5e-5)
    assert signed_rank_cdf(10)[9] == pytest.approx(0.0322, abs=5e-5)
    assert signed_rank_cdf(20)[52] == pytest.approx(0.0242, abs=5e-5)


@pytest.mark.parametrize(("n", "rank"), [(5, 0), (6, 1), (10, 2), (20, 6), (25, 8), (50, 18), (100, 40)])
def test_median_rank_matches_the_sign_test_table(n: int, rank: int) -> None:
    assert median_rank(n, 0.025) == rank


def test_median_rank_is_continuous_where_the_approximation_begins() -> None:
    assert abs(median_rank(1001, 0.025) - median_rank(1000, 0.025)) <= 1
    assert median_rank(100_000, 0.025) == pytest.approx(50_000 - 0.98 * math.sqrt(100_000), abs=2)


def test_normal_tail() -> None:
    assert normal_tail(1.959964) == pytest.approx(0.025, abs=1e-7)
    assert normal_tail(6.0) == pytest.approx(9.8659e-10, rel=1e-4)
