"""Early stop: gross losses are seen from two samples, good candidates are never stopped."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.stats.worlds import ELSEWHERE, samples
from tuner.stats import MixedSamplesError, PlanError, is_hopeless

INCUMBENT = samples([5.00, 5.05, 4.97, 5.02, 5.01, 4.99, 5.03, 4.96])


@pytest.mark.parametrize("times", [10, 40])
def test_two_samples_are_enough_for_a_gross_loss(times: float) -> None:
    assert is_hopeless(samples([5.0 * times, 5.1 * times]), INCUMBENT)


def test_one_slow_sample_is_an_accident() -> None:
    assert not is_hopeless(samples([200.0]), INCUMBENT)
    assert not is_hopeless(samples([200.0, 5.0]), INCUMBENT)
    assert not is_hopeless(samples([5.0, 200.0, 5.1, 5.0, 4.9]), INCUMBENT)
    assert not is_hopeless(samples([200.0, 201.0]), samples([5.0]))


def test_the_margin_is_part_of_the_question() -> None:
    slower = samples([5.60, 5.63, 5.58, 5.61, 5.59, 5.62])  # 12 % slower
    assert is_hopeless(slower, INCUMBENT, margin=0.05)
    assert not is_hopeless(slower, INCUMBENT, margin=0.20)


@given(values=st.lists(st.floats(4.0, 6.0), min_size=2, max_size=20))
def test_nobody_is_hopeless_against_itself(values: list[float]) -> None:
    assert not is_hopeless(samples(values), samples(values), margin=0.0)


def test_error_at_the_margin_and_power_beyond_it() -> None:
    rng = np.random.default_rng(7)

    def stopped(slower: float) -> float:
        def draw(factor: float, n: int) -> np.ndarray:
            return factor * np.exp(rng.normal(0.0, 0.03, n))

        runs = [is_hopeless(samples(draw(slower, 5)), samples(draw(1.0, 10)), alpha=0.01) for _ in range(2000)]
        return float(np.mean(runs))

    assert stopped(1.10) <= 0.02
    assert stopped(1.0) == 0.0
    assert stopped(1.30) >= 0.99


def test_refusals() -> None:
    for other in ELSEWHERE:
        with pytest.raises(MixedSamplesError):
            is_hopeless(samples([5.0, 5.1], other), INCUMBENT)
    for margin, alpha in ((-0.1, 0.01), (0.1, 0.0), (0.1, 0.5)):
        with pytest.raises(PlanError):
            is_hopeless(INCUMBENT, INCUMBENT, margin, alpha)
