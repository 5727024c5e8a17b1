"""Noise levels: a textbook table, recovery of known levels, and whether the promised power is kept."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.tuner.stats.worlds import ELSEWHERE, HERE, World, samples
from tuner.stats import (
    REPRODUCIBLE,
    ConfirmationPlan,
    Level,
    MixedSamplesError,
    Noise,
    PlanError,
    VerdictKind,
    detectable_gain,
    estimate_noise,
    pairs_needed,
)

ONE_PERCENT = Noise(Level(0.01, 90), Level(0.0, 8), Level(0.0, 3))  # a pair of A B B A has 1 %


def test_balanced_table_by_hand() -> None:
    # Logs 1..8 in two builds of two sessions of two rounds. By hand: run MS 0.5; load MS 4, so (4 - 0.5) / 2 = 1.75;
    # build MS 32, so (32 - 4) / 4 = 7.
    logs = np.exp(np.arange(1.0, 9.0)).reshape(2, 2, 2)
    noise = estimate_noise([[samples(session) for session in build] for build in logs])
    assert noise.run.sd**2 == pytest.approx(0.5)
    assert noise.load.sd**2 == pytest.approx(1.75)
    assert noise.build.sd**2 == pytest.approx(7.0)
    assert (noise.run.df, noise.load.df, noise.build.df) == (4, 2, 1)
    assert noise.build.floor**2 == pytest.approx(1.0)  # what sessions alone put into a build's mean: 4 / 4


def test_levels_are_recovered_from_uneven_samples() -> None:
    rng = np.random.default_rng(5)
    found = []
    for _ in range(200):
        builds = []
        for _ in range(6):
            luck = rng.normal(0.0, 0.02)
            sessions = [luck + rng.normal(0.0, 0.01) + rng.normal(0.0, 0.005, n) for n in rng.integers(2, 9, 4)]
            builds.append([samples(np.exp(session)) for session in sessions])
        noise = estimate_noise(builds)
        found.append((noise.run.sd**2, noise.load.sd**2, noise.build.sd**2))
    assert np.sqrt(np.mean(found, axis=0)) == pytest.approx([0.005, 0.01, 0.02], rel=0.06)


def test_levels_that_cannot_be_seen_say_so() -> None:
    noise = estimate_noise([[samples([5.0, 5.1, 5.2])]])
    assert noise.run.sd > 0
    assert noise.run.df == 2
    assert noise.load == noise.build == Level(0.0, 0)


def test_noise_refuses_mixed_and_empty_samples() -> None:
    for other in ELSEWHERE:
        with pytest.raises(MixedSamplesError):
            estimate_noise([[samples([5.0, 5.1])], [samples([5.0, 5.1], other)]])
    for empty in ([], [[]], [[samples([])]]):
        with pytest.raises(PlanError):
            estimate_noise(empty)


def test_detectable_gain_by_hand() -> None:
    bare = ConfirmationPlan(min_gain=0.0)
    # n large: (1.960 + 0.842) * 1 % / sqrt(10000) * sqrt(pi / 3)
    assert detectable_gain(ONE_PERCENT, 10_000, plan=bare) == pytest.approx(2.867e-4, rel=1e-3)
    assert detectable_gain(ONE_PERCENT, 10_000) == pytest.approx(0.01 + 1.01 * 2.867e-4, rel=1e-3)


def test_builds_put_a_floor_under_what_can_be_seen() -> None:
    lucky = Noise(ONE_PERCENT.run, ONE_PERCENT.load, Level(0.01, 3))
    assert detectable_gain(lucky, 100_000) > detectable_gain(ONE_PERCENT, 40)
    assert pairs_needed(lucky, 0.015) is None
    assert pairs_needed(ONE_PERCENT, 0.01) is None  # no larger than min_gain


@pytest.mark.parametrize("gain", [0.013, 0.02, 0.05])
def test_pairs_needed_is_the_smallest_number(gain: float) -> None:
    n = pairs_needed(ONE_PERCENT, gain, finalists=5)
    assert n is not None
    assert detectable_gain(ONE_PERCENT, n, finalists=5) <= gain
    assert n == 2 or detectable_gain(ONE_PERCENT, n - 1, finalists=5) > gain


def test_the_promised_power_is_about_kept() -> None:
    plan = ConfirmationPlan(looks=(24,))
    gain = detectable_gain(ONE_PERCENT, 24, plan=plan)
    rng = np.random.default_rng(6)
    runs = [World(rng, [gain], plan, sd=0.01).confirm(REPRODUCIBLE)[0].verdicts[0].kind for _ in range(400)]
    assert np.mean([kind is VerdictKind.FASTER for kind in runs]) == pytest.approx(0.8, abs=0.07)


@pytest.mark.parametrize(("n", "finalists", "power"), [(1, 1, 0.8), (10, 0, 0.8), (10, 1, 1.0), (10, 1, 0.2)])
def test_impossible_questions(n: int, finalists: int, power: float) -> None:
    with pytest.raises(PlanError):
        detectable_gain(ONE_PERCENT, n, finalists=finalists, power=power)


def test_latencies_have_logarithms() -> None:
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(PlanError):
            samples([1.0, wrong])
    assert samples([1.0]).provenance == HERE
