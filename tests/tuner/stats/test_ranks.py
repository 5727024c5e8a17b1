"""Rank estimates: Hollander and Wolfe's worked example, properties, coverage under heavy tails."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.stats.errors import PlanError
from tuner.stats.ranks import hodges_lehmann, rank_standard_error, signed_rank_interval

# Hollander, Wolfe and Chicken, example 3.1 (Hamilton depression scale, differences): estimate -0.46, and the
# 96.1 % interval (-0.786, -0.010).
HAMILTON = [-0.952, 0.147, -1.022, -0.430, -0.620, -0.590, -0.490, 0.080, -0.010]


def test_hamilton_depression_scale() -> None:
    centre = signed_rank_interval(HAMILTON, 0.0196)
    assert centre.estimate == pytest.approx(-0.46, abs=1e-9)
    assert centre.low == pytest.approx(-0.786, abs=1e-9)
    assert centre.high == pytest.approx(-0.010, abs=1e-9)


def test_few_values_prove_nothing() -> None:
    centre = signed_rank_interval([0.1, 0.2, 0.3, 0.4], 0.025)
    assert (centre.low, centre.high) == (-math.inf, math.inf)
    assert rank_standard_error([0.1, 0.2, 0.3, 0.4]) == math.inf
    # Six values that agree are just enough at 2.5 % on each side: 2^-6 = 1.6 %.
    assert signed_rank_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 0.025).low == 1.0


@given(values=st.lists(st.floats(-1, 1), min_size=1, max_size=30), shift=st.floats(-1, 1))
def test_centre_moves_with_the_values(values: list[float], shift: float) -> None:
    one, other = signed_rank_interval(values, 0.02), signed_rank_interval([v + shift for v in values], 0.02)
    assert other.estimate == pytest.approx(one.estimate + shift, abs=1e-12)
    assert one.low <= one.estimate <= one.high
    assert hodges_lehmann([-v for v in values]) == pytest.approx(-one.estimate, abs=1e-12)


@pytest.mark.parametrize("kind", ["normal", "cauchy", "two states"])
def test_interval_is_exact_for_any_symmetric_noise(kind: str) -> None:
    rng = np.random.default_rng(2)
    drawn = {
        "normal": rng.normal(size=(3000, 15)),
        "cauchy": rng.standard_cauchy((3000, 15)),
        "two states": rng.normal(size=(3000, 15)) + rng.choice([-9.0, 0.0, 9.0], (3000, 15)),
    }[kind]
    missed = [not (c.low <= 0.0 <= c.high) for c in (signed_rank_interval(row, 0.025) for row in drawn)]
    assert 0.035 <= np.mean(missed) <= 0.06  # nominal 4.8 %


def test_standard_error_is_close_to_the_truth() -> None:
    rng = np.random.default_rng(3)
    drawn = rng.normal(size=(1500, 30))
    told = np.mean([rank_standard_error(row) for row in drawn])
    assert told == pytest.approx(np.std([hodges_lehmann(row) for row in drawn]), rel=0.08)


def test_no_centre_of_nothing() -> None:
    with pytest.raises(PlanError):
        hodges_lehmann([])
