"""Pairs: interleaving cancels drift, builds meet, plans that cannot work are refused."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.stats.worlds import HERE
from tuner.stats import ConfirmationPlan, PairBlock, PlanError, Side, interleaved_log_ratio, interleaved_order

A, B = Side.BASELINE, Side.CANDIDATE


def test_order_alternates_by_pair_and_evenly_within_builds() -> None:
    assert interleaved_order(0) == (A, B, B, A)
    assert interleaved_order(1, cycles=2) == (B, A, A, B) * 2
    plan = ConfirmationPlan()
    first = Counter((plan.builds_of(i)[0], interleaved_order(i)[0]) for i in range(16))
    assert set(first.values()) == {2}


@given(gain=st.floats(-0.5, 0.5), slope=st.floats(-0.05, 0.05), index=st.integers(0, 50), cycles=st.integers(1, 4))
def test_steady_drift_cancels(gain: float, slope: float, index: int, cycles: int) -> None:
    order = interleaved_order(index, cycles)
    latencies = [math.exp(1.0 + slope * i - (gain if side is B else 0.0)) for i, side in enumerate(order)]
    assert interleaved_log_ratio(order, latencies) == pytest.approx(gain, abs=1e-9)


def test_log_ratio_of_recorded_rounds() -> None:
    assert interleaved_log_ratio((A, B, B, A), (10.0, 8.0, 8.0, 10.0)) == pytest.approx(math.log(1.25))
    # Three blocks, one of them hit by an accident: the median of blocks does not see it.
    order = (A, B, B, A) * 3
    assert interleaved_log_ratio(order, (10, 8, 8, 10, 10, 80, 8, 10, 10, 8, 8, 10)) == pytest.approx(math.log(1.25))


@pytest.mark.parametrize(
    ("order", "latencies"),
    [
        ((), ()),
        ((A, B, B), (1.0, 1.0, 1.0)),
        ((A, B, B, A), (1.0, 1.0, 1.0)),
        ((A, B, A, B), (1.0, 1.0, 1.0, 1.0)),
        ((A, A, A, A), (1.0, 1.0, 1.0, 1.0)),
        ((A, B, B, A), (1.0, 0.0, 1.0, 1.0)),
    ],
)
def test_rounds_that_are_no_block(order: tuple[Side, ...], latencies: tuple[float, ...]) -> None:
    with pytest.raises(PlanError):
        interleaved_log_ratio(order, latencies)


@pytest.mark.parametrize("builds", [2, 4, 8])
def test_every_build_has_its_share_and_meets_every_other(builds: int) -> None:
    plan = ConfirmationPlan(builds=builds)
    for look in plan.looks:
        met = [plan.builds_of(i) for i in range(look)]
        assert set(Counter(b for b, _ in met).values()) == set(Counter(b for _, b in met).values()) == {look // builds}
    assert len({plan.builds_of(i) for i in range(builds**2)}) == builds**2


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_gain": -0.1},
        {"confidence": 1.0},
        {"confidence": 0.3},
        {"builds": 1},
        {"looks": ()},
        {"looks": (16, 16)},
        {"looks": (10, 20)},
    ],
)
def test_plans_that_cannot_work(wrong: dict[str, object]) -> None:
    with pytest.raises(PlanError) as caught:
        ConfirmationPlan(**wrong)  # type: ignore[arg-type]
    assert caught.value.exit_code == 2


def test_a_pair_needs_a_finite_ratio() -> None:
    with pytest.raises(PlanError):
        PairBlock("a", 0, 0, 0, math.nan, HERE)
