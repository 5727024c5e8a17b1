"""Looks: published boundaries, and the error over all looks by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectives.distributions import normal_quantile
from tuner.stats.errors import PlanError
from tuner.stats.sequential import _advance, look_levels, spent


def test_one_look_spends_everything() -> None:
    assert look_levels((40,), 0.025)[0] == pytest.approx(0.025, abs=1e-9)


@pytest.mark.parametrize(
    ("bounds", "error"),
    [
        ([2.178] * 2, 0.025),  # Pocock's constants for two and five looks, two-sided 5 %
        ([2.413] * 5, 0.025),
        ([2.040 * (5 / k) ** 0.5 for k in range(1, 6)], 0.025),  # O'Brien and Fleming's for five
    ],
)
def test_crossing_probability_of_published_boundaries(bounds: list[float], error: float) -> None:
    # Jennison and Turnbull (2000), tables 2.1 and 2.3.
    nodes, mass = np.zeros(1), np.ones(1)
    for k, z in enumerate(bounds, start=1):
        nodes, mass = _advance(nodes, mass, len(bounds) ** -0.5, z * (k / len(bounds)) ** 0.5)
    assert 1 - mass.sum() == pytest.approx(error, abs=2e-4)


def test_all_looks_together_err_as_promised() -> None:
    looks, alpha = (16, 24, 32, 40), 0.025
    rng = np.random.default_rng(4)
    walks = np.cumsum(rng.normal(size=(60_000, 40)), axis=1)[:, [look - 1 for look in looks]]
    bounds = [
        normal_quantile(1 - level) * look**0.5 for look, level in zip(looks, look_levels(looks, alpha), strict=True)
    ]
    assert np.mean(np.any(walks > bounds, axis=1)) == pytest.approx(alpha, abs=0.002)


@settings(max_examples=15)
@given(looks=st.sets(st.integers(1, 60), min_size=1, max_size=4), alpha=st.floats(0.001, 0.05))
def test_levels_stay_within_the_error(looks: set[int], alpha: float) -> None:
    levels = look_levels(tuple(sorted(looks)), alpha)
    assert all(0 < level <= alpha * (1 + 1e-6) for level in levels)


def test_spending_ends_at_the_whole_error() -> None:
    assert spent(0.0, 0.025) == 0.0
    assert spent(1.0, 0.025) == spent(2.0, 0.025) == 0.025


@pytest.mark.parametrize("looks", [(), (0, 4), (8, 8), (16, 8)])
def test_looks_must_grow(looks: tuple[int, ...]) -> None:
    with pytest.raises(PlanError):
        look_levels(looks, 0.025)
