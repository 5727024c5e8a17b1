"""Strategies as the loop uses them: the same contract for each."""

from __future__ import annotations

import math

import pytest

from objectives.accuracy import Limit
from objectives.knobs import Candidate, Knob, KnobKind, KnobSpace
from objectives.outcome import (
    Accuracy,
    Failed,
    FailureKind,
    Measured,
    PairLoss,
    Rejected,
    Round,
    Samples,
    Stage,
    Trace,
)
from tuner.search.observation import observe
from tuner.search.strategies import make_strategy, to_seen
from tuner.spec import SEARCHES

SPACE = KnobSpace(tuple(Knob(name, ("0", "1", "2"), "0", KnobKind.ROUTE, "") for name in "abc"))
LIMITS = (Limit("rel_l2", 0.01),)
ONE = SPACE.candidate({"a": "1"})


def accuracy(loss: float) -> Accuracy:
    return Accuracy((PairLoss("p", "y", {"rel_l2": loss}),))


def measured(latency_ms: float) -> Measured:
    return Measured(Trace(), accuracy(0.001), Samples((Round(1, (latency_ms,) * 5),), (), "steady", "host"))


@pytest.mark.parametrize("search", SEARCHES)
def test_every_candidate_is_proposed_once_and_then_there_is_none(search: str) -> None:
    strategy = make_strategy(search, SPACE, seed=1)
    tried: dict[str, int] = {}
    while (candidate := strategy.propose(len(tried), tried)) is not None:
        assert candidate.digest not in tried
        tried[candidate.digest] = len(tried)
        strategy.learn(observe(candidate, measured(5.0 - 0.1 * len(candidate.changes)), LIMITS, 5.0))
    assert len(tried) == SPACE.size


@pytest.mark.parametrize("search", SEARCHES)
def test_the_same_past_gives_the_same_proposal(search: str) -> None:
    def after_five() -> Candidate | None:
        strategy, tried = make_strategy(search, SPACE, seed=7), {}
        for number in range(5):
            candidate = strategy.propose(number, tried)
            assert candidate is not None
            tried[candidate.digest] = number
            strategy.learn(observe(candidate, measured(5.0), LIMITS, 5.0 + number))
        return strategy.propose(5, tried)

    assert after_five() == after_five()


def test_what_was_not_measured_is_not_made_up() -> None:
    failed = to_seen(observe(ONE, Failed(Trace(), Stage.BUILD, FailureKind.CRASHED, "x"), LIMITS, 5.0))
    assert (failed.failed, failed.log_throughput) == ("crashed", None)
    rejected = to_seen(observe(ONE, Rejected(Trace(), accuracy(0.02), "x"), LIMITS, 5.0))
    assert rejected.log_throughput is None
    assert rejected.log_losses["accuracy"] == pytest.approx(math.log(2.0))
    good = to_seen(observe(ONE, measured(4.0), LIMITS, 4.0))
    assert good.is_feasible
    assert good.log_throughput == pytest.approx(math.log(250.0))
    assert good.log_losses["accuracy"] == pytest.approx(math.log(0.1))
