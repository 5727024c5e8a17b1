"""Choosing: shrinkage takes luck back, ties go to the simplest."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.stats import Estimate, PlanError, choose_finalists, shrunken, simplest_within_noise

estimates = st.lists(
    st.builds(Estimate, st.uuids().map(str), st.floats(-3, 1), st.floats(0, 0.1), st.integers(0, 9)),
    min_size=1,
    max_size=30,
)


def test_equals_are_shrunk_to_equals() -> None:
    rng = np.random.default_rng(10)
    best = []
    for _ in range(200):
        gains = rng.normal(0.0, 0.01, 60)
        moved = shrunken([Estimate(str(i), float(g), 0.01) for i, g in enumerate(gains)])
        best.append((gains.max(), max(e.log_gain for e in moved)))
    observed, told = np.mean(best, axis=0)
    assert observed > 0.02
    assert told < 0.005


def test_a_true_outlier_stays_one() -> None:
    crowd = [Estimate(str(i), 0.001 * (i % 3), 0.005) for i in range(30)]
    winner = shrunken([*crowd, Estimate("winner", 0.30, 0.005)])[-1]
    assert winner.log_gain > 0.30 - 0.005 * math.sqrt(2 * math.log(31)) - 1e-12


def test_shrunken_gains_predict_better() -> None:
    rng = np.random.default_rng(11)
    truth = rng.normal(0.0, 0.01, 400)
    errors = rng.uniform(0.002, 0.02, 400)
    seen = truth + rng.normal(0.0, errors)
    moved = np.array(
        [
            e.log_gain
            for e in shrunken(
                [Estimate(str(i), float(g), float(s)) for i, (g, s) in enumerate(zip(seen, errors, strict=True))]
            )
        ]
    )
    assert np.mean((moved - truth) ** 2) < 0.75 * np.mean((seen - truth) ** 2)


@given(estimates)
def test_shrinking_keeps_order_of_arguments_and_never_overshoots(given_estimates: list[Estimate]) -> None:
    moved = shrunken(given_estimates)
    centre = float(np.median([e.log_gain for e in given_estimates]))
    for before, after in zip(given_estimates, moved, strict=True):
        assert after.candidate_id == before.candidate_id
        assert abs(after.log_gain - centre) <= abs(before.log_gain - centre) + 1e-12
        assert after.standard_error <= before.standard_error


def test_a_noisy_leader_gives_way_to_a_sure_second() -> None:
    crowd = [Estimate(f"c{i}", 0.004 * (i - 5), 0.002) for i in range(11)]
    field = [*crowd, Estimate("sure", 0.030, 0.001), Estimate("noisy", 0.034, 0.03)]
    assert choose_finalists(field, 1)[0].candidate_id == "sure"
    assert len(choose_finalists(field, 99)) == len(field)


def test_ties_go_to_the_fewest_changes() -> None:
    field = [Estimate("a", 0.050, 0.004, 7), Estimate("b", 0.047, 0.004, 2), Estimate("c", 0.030, 0.004, 1)]
    assert simplest_within_noise(field).candidate_id == "b"
    assert simplest_within_noise(field, negligible=0.021).candidate_id == "c"
    sharp = [Estimate("a", 0.050, 0.0001, 7), Estimate("b", 0.047, 0.0001, 2)]
    assert simplest_within_noise(sharp).candidate_id == "a"


@given(estimates)
def test_the_choice_is_never_more_complex_than_the_best(given_estimates: list[Estimate]) -> None:
    best = max(given_estimates, key=lambda e: e.log_gain)
    assert simplest_within_noise(given_estimates).changes <= best.changes


def test_refusals() -> None:
    with pytest.raises(PlanError):
        simplest_within_noise([])
    with pytest.raises(PlanError):
        choose_finalists([Estimate("a", 0.0, 0.0)], 0)
    for gain, error in ((math.nan, 0.1), (0.0, math.inf), (0.0, -1.0)):
        with pytest.raises(PlanError):
            Estimate("a", gain, error)
