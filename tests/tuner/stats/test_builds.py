"""Build luck: the spread is found, the figures are honest about the file, the route and the control."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.tuner.stats.worlds import ELSEWHERE, World, pairs
from tuner.stats import (
    REPRODUCIBLE,
    ConfirmationPlan,
    Level,
    MixedSamplesError,
    PlanError,
    figures,
    fit_builds,
    grouped,
)

PLAN = ConfirmationPlan()


def full(world: World) -> dict[str, list[object]]:
    blocks = [world.pair(name, i) for name in world.gains for i in range(world.plan.looks[-1])]
    return grouped(blocks, list(world.gains))  # type: ignore[return-value]


def test_luck_without_noise_is_found_exactly() -> None:
    candidate, baseline = (0.02, -0.01, -0.02, 0.01), (0.005, -0.005, 0.015, -0.015)
    ratios = [0.04 + candidate[a] - baseline[b] for a, b in (PLAN.builds_of(i) for i in range(16))]
    told = figures(fit_builds({"a": pairs("a", ratios, PLAN)}), "a")
    assert told.shipped_build == 0
    assert told.control_build == 2
    assert told.route.speedup == pytest.approx(math.exp(0.04), rel=1e-4)
    assert told.shipped.speedup == pytest.approx(math.exp(0.06), rel=1e-3)
    assert told.over_control.speedup == pytest.approx(math.exp(0.045), rel=1e-3)
    assert told.beats_control


@pytest.mark.parametrize("spread", [0.0, 0.01])
def test_spread_is_found(spread: float) -> None:
    rng = np.random.default_rng(12)
    found = [fit_builds(full(World(rng, [0.0] * 5, PLAN, sd=0.01, luck=spread))).spread for _ in range(60)]
    assert np.sqrt(np.mean([level.sd**2 for level in found])) == pytest.approx(spread, abs=0.0015)
    assert found[0].df == 5 * 3 + 3


def test_what_is_known_of_builds_counts() -> None:
    world = World(np.random.default_rng(13), [0.0], PLAN, sd=0.01, luck=0.01)
    found = full(world)
    assert fit_builds(found, REPRODUCIBLE).spread.sd < 1e-6
    strong, weak = (fit_builds(found, Level(0.05, df)).spread for df in (500, 1))
    assert strong.sd == pytest.approx(0.05, rel=0.3)
    assert weak.sd < 0.03
    assert (strong.df, weak.df) == (506, 7)


def test_figures_cover_the_truth_although_the_best_build_is_picked() -> None:
    rng = np.random.default_rng(14)
    covered, errors = [], []
    for _ in range(150):
        world = World(rng, [0.02, 0.0], PLAN, sd=0.01, luck=0.005)
        told = figures(fit_builds(full(world)), "finalist 0")
        file = 1.02 * math.exp(world.luck["finalist 0"][told.shipped_build])
        control = math.exp(world.luck[""][told.control_build])
        truths = (
            (told.route, 1.02),
            (told.shipped, file),
            (told.control, control),
            (told.over_control, file / control),
        )
        covered.append([figure.ci_low <= truth <= figure.ci_high for figure, truth in truths])
        errors.append(told.shipped.speedup - file)
    assert np.all(np.mean(covered, axis=0) > 0.91)
    assert abs(np.mean(errors)) < 0.001


def test_an_accident_is_not_a_bad_build() -> None:
    rng = np.random.default_rng(15)
    ratios = rng.normal(0.0, 0.005, 40)
    ratios[7] = -0.8
    assert fit_builds({"a": pairs("a", ratios, PLAN)}).spread.sd < 0.004


def test_constant_ratios_are_no_problem() -> None:
    told = figures(fit_builds({"a": pairs("a", [0.03] * 16, PLAN)}), "a")
    assert told.route.speedup == pytest.approx(math.exp(0.03))
    assert told.shipped.ci_low <= told.shipped.speedup <= told.shipped.ci_high


def test_refusals() -> None:
    with pytest.raises(PlanError):
        fit_builds({"a": []})
    with pytest.raises(PlanError):
        figures(fit_builds({"a": pairs("a", [0.0] * 16, PLAN)}), "b")
    for other in ELSEWHERE:
        with pytest.raises(MixedSamplesError):
            fit_builds({"a": pairs("a", [0.0] * 16, PLAN), "b": pairs("b", [0.0] * 16, PLAN, other)})
