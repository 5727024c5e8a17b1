"""Confirmation: the three answers, the sequence of steps, and the error rates that are promised."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tuner.stats.worlds import ELSEWHERE, World, pairs
from tuner.stats import (
    REPRODUCIBLE,
    ConfirmationPlan,
    MixedSamplesError,
    Need,
    PairBlock,
    PlanError,
    VerdictKind,
    judge,
    next_step,
    simplest_within_noise,
)

PLAN = ConfirmationPlan()
NOISE = np.random.default_rng(16).normal(0.0, 0.003, 40)


def test_three_answers() -> None:
    blocks = [*pairs("fast", 0.05 + NOISE, PLAN), *pairs("same", NOISE, PLAN), *pairs("near", 0.01 + NOISE, PLAN)]
    fast, same, near = judge(blocks, ["fast", "same", "near"], PLAN)
    assert fast.kind is VerdictKind.FASTER
    assert fast.speedup == pytest.approx(math.exp(0.05), rel=0.002)
    assert 1.01 < fast.ci_low < fast.speedup < fast.ci_high
    assert fast.n_pairs == 16
    assert fast.reason == "the whole interval is above +1.00%"
    assert same.kind is VerdictKind.NOT_FASTER
    assert same.ci_high < 1.01
    assert near.kind is VerdictKind.UNDECIDED
    assert near.ci_low < 1.01 < near.ci_high


def test_steps_follow_the_looks() -> None:
    names = ["fast", "near"]
    start = next_step([], names, PLAN)
    assert start.needs == (Need("fast", 0, 16), Need("near", 0, 16))
    assert start.verdicts[0].kind is VerdictKind.UNDECIDED
    assert (start.verdicts[0].ci_low, start.verdicts[0].ci_high) == (0.0, math.inf)
    begun = pairs("fast", 0.05 + NOISE[:5], PLAN)
    assert next_step(begun, names, PLAN).needs == (Need("fast", 5, 11), Need("near", 0, 16))
    looked = [*pairs("fast", 0.012 + NOISE[:16], PLAN), *pairs("near", 0.01 + NOISE[:17], PLAN)]
    assert next_step(looked, names, PLAN).needs == (Need("fast", 16, 8), Need("near", 17, 7))
    spent = [*pairs("fast", 0.05 + NOISE[:16], PLAN), *pairs("near", 0.01 + NOISE, PLAN)]
    assert next_step(spent, names, PLAN).needs == ()


def test_a_verdict_stays_whatever_comes_later() -> None:
    late = np.concatenate((0.05 + NOISE[:16], -0.5 + NOISE[16:]))
    verdict = judge(pairs("a", late, PLAN), ["a"], PLAN)[0]
    assert verdict.kind is VerdictKind.FASTER
    assert verdict.n_pairs == 16


def test_pairs_between_looks_wait() -> None:
    verdict = judge(pairs("a", 0.01 + NOISE[:23], PLAN), ["a"], PLAN)[0]
    assert verdict.n_pairs == 16


def test_who_cannot_win_any_more_leaves() -> None:
    blocks = [*pairs("best", 0.30 + NOISE[:16], PLAN), *pairs("near", 0.01 + NOISE[:16], PLAN)]
    step = next_step(blocks, ["best", "near"], PLAN)
    assert step.needs == ()
    assert step.verdicts[1].kind is VerdictKind.UNDECIDED
    assert "cannot win" in step.verdicts[1].reason


def test_order_of_blocks_does_not_matter() -> None:
    blocks = [*pairs("a", 0.02 + NOISE, PLAN), *pairs("b", NOISE, PLAN)]
    shuffled = random.Random(1).sample(blocks, len(blocks))
    assert judge(shuffled, ["a", "b"], PLAN) == judge(blocks, ["a", "b"], PLAN)


def test_one_build_proves_no_route() -> None:
    blocks = [PairBlock("a", 0, 0, b.pair_index, b.log_ratio, b.provenance) for b in pairs("a", 0.05 + NOISE, PLAN)]
    verdict = judge(blocks, ["a"], PLAN)[0]
    assert verdict.kind is VerdictKind.UNDECIDED
    assert "two builds" in verdict.reason


def test_a_lucky_build_is_not_a_fast_route() -> None:
    # One build of four is 8 % faster, the others are as the default: 2 % on average, and no promise for the next build.
    ratios = [0.08 * (PLAN.builds_of(i)[0] == 2) + noise for i, noise in enumerate(NOISE)]
    assert judge(pairs("a", ratios, PLAN), ["a"], PLAN)[0].kind is not VerdictKind.FASTER


def test_verdicts_can_be_chosen_from() -> None:
    blocks = [*pairs("a", 0.05 + NOISE, PLAN), *pairs("b", 0.0499 + NOISE, PLAN)]
    a, b = judge(blocks, ["a", "b"], PLAN)
    assert simplest_within_noise([a.estimate(5), b.estimate(1)]).candidate_id == "b"
    with pytest.raises(PlanError):
        next_step([], ["a"], PLAN).verdicts[0].estimate(1)


@settings(max_examples=25, deadline=None)
@given(shift=st.floats(-0.2, 0.2), scale=st.floats(0.1, 10.0))
def test_verdict_follows_its_interval(shift: float, scale: float) -> None:
    verdict = judge(pairs("a", shift + scale * NOISE, PLAN), ["a"], PLAN)[0]
    assert verdict.ci_low <= verdict.speedup <= verdict.ci_high
    assert (verdict.kind is VerdictKind.FASTER) == (verdict.ci_low > 1.01)
    assert (verdict.kind is VerdictKind.NOT_FASTER) == (verdict.ci_high < 1.01)


@pytest.mark.parametrize("finalists", [1, 5])
def test_no_gain_is_hardly_ever_faster(finalists: int) -> None:
    rng = np.random.default_rng(17)
    runs = [World(rng, [0.0] * finalists, PLAN, sd=0.02, luck=0.005).confirm()[0] for _ in range(100)]
    assert sum(any(v.kind is VerdictKind.FASTER for v in step.verdicts) for step in runs) <= 1


@pytest.mark.parametrize(("known", "luck"), [(REPRODUCIBLE, 0.0), (None, 0.0), (None, 0.003)])
def test_error_rate_at_exactly_the_minimum_gain(known: object, luck: float) -> None:
    rng = np.random.default_rng(18)
    runs = [World(rng, [0.01], PLAN, sd=0.01, luck=luck).confirm(known)[0] for _ in range(500)]  # type: ignore[arg-type]
    # Nominal 2.5 %; on top three standard errors of 500 runs, and what estimating the luck of four builds costs.
    assert np.mean([step.verdicts[0].kind is VerdictKind.FASTER for step in runs]) <= 0.05


@pytest.mark.parametrize(("gain", "finalists", "wanted"), [(0.02, 1, 0.95), (0.02, 5, 0.93)])
def test_power(gain: float, finalists: int, wanted: float) -> None:
    rng = np.random.default_rng(19)
    runs = [World(rng, [gain] + [0.0] * (finalists - 1), PLAN, sd=0.01).confirm() for _ in range(200 // finalists)]
    assert np.mean([step.verdicts[0].kind is VerdictKind.FASTER for step, _ in runs]) >= wanted
    assert all(len(blocks) <= 40 * finalists for _, blocks in runs)


def test_intervals_hold_together_at_the_confidence() -> None:
    rng = np.random.default_rng(20)
    gains = [0.0, 0.01, 0.03]
    missed = 0
    for _ in range(150):
        step, _ = World(rng, gains, PLAN, sd=0.01, luck=0.002).confirm()
        missed += any(not v.ci_low <= 1 + g <= v.ci_high for v, g in zip(step.verdicts, gains, strict=True))
    assert missed / 150 <= 0.09


def test_mixed_samples_are_refused() -> None:
    for other in ELSEWHERE:
        blocks = [*pairs("a", NOISE, PLAN), *pairs("b", NOISE, PLAN, other)]
        with pytest.raises(MixedSamplesError) as caught:
            judge(blocks, ["a", "b"], PLAN)
        assert caught.value.exit_code == 1
        assert "other" in str(caught.value)
        assert caught.value.hint


def test_foreign_double_and_missing_are_refused() -> None:
    blocks = pairs("a", NOISE[:16], PLAN)
    for wrong_blocks, finalists in ((blocks, ["b"]), (blocks, []), (blocks, ["a", "a"]), ([*blocks, blocks[3]], ["a"])):
        with pytest.raises(PlanError):
            judge(wrong_blocks, finalists, PLAN)
