"""Drift: corrected where the machine drifts, left alone where it does not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.tuner.stats.worlds import ELSEWHERE, timing
from tuner.stats import MixedSamplesError, PlanError, fit_drift


def test_a_steady_slowdown_is_taken_back() -> None:
    model = fit_drift([timing(t, 10.0 * math.exp(0.01 * t)) for t in range(11)])
    assert model.coefficient > 0.95
    assert model.range == pytest.approx(math.expm1(0.1), rel=0.05)
    early, late = (model.corrected_ms(timing(t, 8.0 * math.exp(0.01 * t))) for t in (1.5, 8.5))
    assert late / early == pytest.approx(1.0, abs=0.005)


def test_order_and_single_accidents_do_not_matter() -> None:
    baseline = [timing(t, 10.0) for t in range(12)]
    accident = [*baseline[:5], timing(5, 25.0), *baseline[6:]]
    assert fit_drift(accident[::-1]) == fit_drift(accident)
    assert fit_drift(accident).corrected_ms(timing(5.0, 8.0)) == pytest.approx(8.0)


def test_noise_is_not_taken_for_drift() -> None:
    rng = np.random.default_rng(8)
    coefficients, added = [], []
    for _ in range(300):
        baseline = 10.0 * np.exp(rng.normal(0.0, 0.01, 13))
        model = fit_drift([timing(t, ms) for t, ms in enumerate(baseline)])
        coefficients.append(model.coefficient)
        added.append([model.at(t) for t in np.linspace(0, 12, 50)])
    assert np.mean(coefficients) < 0.1
    # Dividing by the interpolated baseline would add 0.8 % to every candidate.
    assert np.std(added) < 0.0025


def test_drift_under_noise_is_found() -> None:
    rng = np.random.default_rng(9)
    left = []
    for _ in range(200):
        t = np.arange(13.0)
        slow = 0.1 * t / 12
        model = fit_drift(
            [timing(a, b) for a, b in zip(t, 10.0 * np.exp(slow + rng.normal(0, 0.005, 13)), strict=True)]
        )
        assert model.coefficient > 0.8
        left.append([0.1 * x / 12 - model.at(x) for x in np.linspace(0, 12, 50)])
    assert np.std(left, axis=1).mean() < 0.007


@given(st.lists(st.tuples(st.floats(0, 1e5), st.floats(1.0, 100.0)), min_size=1, max_size=20))
@example([(0.0, 1.0), (0.0, 1.0), (2.2250738585e-313, 1.0), (2.225073858507203e-309, 2.0)])  # slopes beyond a float
def test_the_coefficient_is_a_share(points: list[tuple[float, float]]) -> None:
    model = fit_drift([timing(t, ms) for t, ms in points])
    assert 0.0 <= model.coefficient <= 1.0
    assert model.range >= 0.0
    assert math.isfinite(model.corrected_ms(timing(50.0, 5.0)))


def test_few_baselines_correct_nothing() -> None:
    model = fit_drift([timing(0, 10.0), timing(1, 11.0), timing(2, 12.0)])
    assert model.coefficient == 0.0
    assert model.corrected_ms(timing(1.5, 8.0)) == 8.0


def test_refusals() -> None:
    with pytest.raises(PlanError):
        fit_drift([])
    with pytest.raises(PlanError):
        timing(math.nan, 1.0)
    for other in ELSEWHERE:
        with pytest.raises(MixedSamplesError):
            fit_drift([timing(0, 10.0), timing(1, 10.0, other)])
        with pytest.raises(MixedSamplesError):
            fit_drift([timing(0, 10.0)]).corrected_ms(timing(1, 10.0, other))
