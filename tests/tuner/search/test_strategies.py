"""Strategies as the loop uses them: the same contract for each."""

from __future__ import annotations

import math
from importlib.util import find_spec

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
from tuner.errors import UsageError
from tuner.search.observation import Observation, observe
from tuner.search.strategies import make_strategy, to_seen
from tuner.searches import SEARCHES

HERE = [
    pytest.param(search, marks=pytest.mark.skipif(search == "gp" and not find_spec("torch"), reason="needs torch"))
    for search in (*SEARCHES, "mixed:cap=2,shuffle,margin=1%", "full:shuffle", "optuna:NSGAIIISampler")
]
SPACE = KnobSpace(tuple(Knob(name, ("0", "1", "2"), "0", KnobKind.ROUTE, "") for name in "abc"))
LIMITS = (Limit("rel_l2", 0.01),)
ONE = SPACE.candidate({"a": "1"})


def accuracy(loss: float) -> Accuracy:
    return Accuracy((PairLoss("p", "y", {"rel_l2": loss}),))


def measured(latency_ms: float) -> Measured:
    return Measured(Trace(), accuracy(0.001), Samples((Round(1, (latency_ms,) * 5),), (), "steady", "host"))


def drive(search: str, trials: int, numbers: bool = True) -> tuple[list[Candidate], list[Observation]]:
    """Proposals and observations of a search that is told of each trial at once."""
    strategy = make_strategy(search, SPACE, seed=7)
    proposed: list[Candidate] = []
    seen = []
    while len(proposed) < trials:
        candidate = strategy.propose(len(proposed), {one.digest for one in proposed})
        if candidate is None:
            break
        latency_ms = 5.0 - 0.1 * len(candidate.changes)
        seen.append(observe(candidate, measured(latency_ms), LIMITS, 1e3 / latency_ms, number=len(proposed)))
        proposed.append(candidate)
        strategy.learn(seen[-1])
    return proposed, seen


@pytest.mark.parametrize("search", HERE)
def test_every_candidate_is_proposed_once_and_then_there_is_none(search: str) -> None:
    proposed, _ = drive(search, 100)
    assert len({candidate.digest for candidate in proposed}) == len(proposed)
    # `fast` is the default and every single change; a cap of two knobs leaves the third at its default after that.
    assert len(proposed) == {"fast": 7, "mixed:cap=2,shuffle,margin=1%": 11}.get(search, SPACE.size)


@pytest.mark.parametrize("search", HERE)
@pytest.mark.parametrize("order", ["as proposed", "as others finished them"])
def test_the_same_past_gives_the_same_proposal(search: str, order: str) -> None:
    first, seen = drive(search, 25)
    for start in (5, 24):
        late = make_strategy(search, SPACE, seed=7)
        known = seen[:start]
        for one in known if order == "as proposed" else [known[2], known[0], *known[3:], known[1]]:
            late.learn(one)
        following = late.propose(start, {candidate.digest for candidate in first[:start]})
        assert following == (first[start] if start < len(first) else None)


@pytest.mark.parametrize("search", HERE)
def test_what_is_pending_is_not_proposed_again(search: str) -> None:
    proposed, seen = drive(search, 4)
    strategy = make_strategy(search, SPACE, seed=7)
    for one in seen:
        strategy.learn(one)
    tried = {candidate.digest for candidate in proposed}
    pending: list[Candidate] = []
    while (candidate := strategy.propose(len(tried) + len(pending), tried, pending)) is not None:
        pending.append(candidate)
    assert len({candidate.digest for candidate in pending} - tried) == len(pending)
    assert len(pending) >= 3


def test_only_auto_says_whether_to_go_on() -> None:
    advising = {
        search: make_strategy(search, SPACE, 0).advice(()) is not None
        for search in SEARCHES
        if search != "gp" or find_spec("torch")
    }
    assert {search for search, says in advising.items() if says} == {"auto"}


@pytest.mark.parametrize(
    "search", ["optuna:NoSuchSampler", "optuna:GridSampler", "optuna:BaseSampler", "optuna:BruteForceSampler"]
)
def test_a_sampler_that_cannot_be_made_is_refused(search: str) -> None:
    with pytest.raises(UsageError):
        make_strategy(search, SPACE, 0)


def test_nsgaii_breeds_after_its_first_population() -> None:
    of = KnobSpace(tuple(Knob(f"k{i}", ("0", "1", "2"), "0", KnobKind.ROUTE, "") for i in range(12)))
    strategy, tried, speeds = make_strategy("nsgaii", of, 3), set[str](), []
    for number in range(120):
        candidate = strategy.propose(number, tried)
        assert candidate is not None
        tried.add(candidate.digest)
        speeds.append(sum(value == "1" for _, value in candidate.changes))
        latency_ms = 5.0 * math.exp(-0.1 * speeds[-1])
        strategy.learn(observe(candidate, measured(latency_ms), LIMITS, 1e3 / latency_ms, number=number))
    assert sum(speeds[-20:]) > 1.4 * sum(speeds[:20])


def test_what_was_not_measured_is_not_made_up() -> None:
    failed = to_seen(observe(ONE, Failed(Trace(), Stage.BUILD, FailureKind.CRASHED, "x"), LIMITS, 1e3 / 5.0))
    assert (failed.failed, failed.log_throughput) == ("crashed", None)
    rejected = to_seen(observe(ONE, Rejected(Trace(), accuracy(0.02), "x"), LIMITS, 1e3 / 5.0))
    assert rejected.log_throughput is None
    assert rejected.log_losses["accuracy"] == pytest.approx(math.log(2.0))
    good = to_seen(observe(ONE, measured(4.0), LIMITS, 1e3 / 4.0))
    assert good.is_feasible
    assert good.log_throughput == pytest.approx(math.log(250.0))
    assert good.log_losses["accuracy"] == pytest.approx(math.log(0.1))


def test_the_error_of_a_measurement_comes_along() -> None:
    rounds = tuple(Round(1, (latency, latency)) for latency in (4.0, 4.1, 3.9, 4.05))
    timed = Measured(Trace(), accuracy(0.001), Samples(rounds, (), "steady", "host"))
    seen = observe(ONE, timed, LIMITS, 1e3 / 4.0, between=1e-3)
    assert seen.variance is not None
    assert to_seen(seen).variance == seen.variance
    assert 1e-3 < seen.variance < 2e-3
    # One sample says nothing about its error.
    single = Measured(Trace(), accuracy(0.001), Samples((Round(1, (4.0,)),), (), "steady", "host"))
    assert observe(ONE, single, LIMITS, 1e3 / 4.0, between=1e-3).variance is None
    assert observe(ONE, Rejected(Trace(), accuracy(0.02), "x"), LIMITS, 1e3 / 5.0).variance is None
