"""The proposer: never twice the same, the same again from the same state, and away from what fails."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from objectives.accuracy import DEFAULT_LIMITS
from objectives.knobs import BASELINE, Candidate, Knob, KnobKind, KnobSpace
from objectives.outcome import (
    Accuracy,
    Failed,
    FailureKind,
    Measured,
    Outcome,
    PairLoss,
    Rejected,
    Round,
    Samples,
    Stage,
    Trace,
)
from tuner.objective import Objective
from tuner.search.observation import Observation, observe
from tuner.search.proposer import Proposer

SEARCHES = ("tpe", "random")
BASE = 1000.0  # throughput of the default, inferences per second
World = Callable[[dict[str, int]], Outcome]


def space(*sizes: int) -> KnobSpace:
    """Knobs k0, k1, ... with so many values each, named 0, 1, ...; 0 is the default."""
    return KnobSpace(
        tuple(
            Knob(f"k{index}", tuple(map(str, range(size))), "0", KnobKind.ROUTE, "") for index, size in enumerate(sizes)
        )
    )


def measured(throughput: float, loss: float = 0.0) -> Measured:
    samples = Samples((Round(1, (1e3 / throughput,)),), (), "steady", "simulated")
    return Measured(Trace(), Accuracy((PairLoss("p", "y", {"rel_l2": loss}),)), samples)


FAILED = Failed(Trace(), Stage.BUILD, FailureKind.BUILD_FAILED, "no")


def seen(candidate: Candidate, outcome: Outcome) -> Observation:
    """What the loop makes of an outcome: a candidate that was not timed is given the default's latency."""
    latency_ms = outcome.samples.median_ms if isinstance(outcome, Measured) else 1e3 / BASE
    return observe(candidate, outcome, DEFAULT_LIMITS, 1e3 / latency_ms)


def drive(proposer: Proposer, of: KnobSpace, trials: int, world: World) -> list[Candidate]:
    """Propose and learn as the loop does, the default first; `world` gives the outcome of all knob values."""
    tried: dict[str, int] = {}
    proposed: list[Candidate] = []
    for number in range(trials):
        candidate = BASELINE if number == 0 else proposer.propose(number, tried)
        if candidate is None:
            break
        proposed.append(candidate)
        tried[candidate.digest] = number
        outcome = world({name: int(value) for name, value in of.values(candidate).items()})
        proposer.learn(seen(candidate, outcome))
    return proposed


def slope(values: dict[str, int]) -> Outcome:
    """The higher every value, the faster."""
    return measured(BASE * (1 + sum(values.values())))


@pytest.mark.parametrize("search", SEARCHES)
def test_a_small_space_is_tried_whole_and_nothing_twice(search: str) -> None:
    of = space(2, 3, 4)
    proposed = drive(Proposer(of, search, seed=1), of, trials=100, world=slope)
    assert len(proposed) == of.size == 24
    assert len({candidate.digest for candidate in proposed}) == 24


@pytest.mark.parametrize("search", SEARCHES)
def test_a_space_of_the_default_alone_has_nothing_to_propose(search: str) -> None:
    of = space()
    assert Proposer(of, search, 0).propose(1, {BASELINE.digest: 0}) is None
    assert Proposer(space(1, 1), search, 0).propose(1, {BASELINE.digest: 0}) is None


@pytest.mark.parametrize("search", SEARCHES)
def test_in_a_space_too_large_to_list_the_untried_is_found(search: str) -> None:
    # The sampler is sure of one point, and that point and all its neighbours in one knob were tried already.
    of = space(*[30] * 4)
    best = {f"k{index}": "29" for index in range(4)}
    near = [of.candidate({**best, name: str(value)}) for name in best for value in range(30)]
    proposer = Proposer(of, search, seed=3)
    for candidate in near:
        values = of.values(candidate)
        proposer.learn(seen(candidate, measured(BASE + sum(map(int, values.values())))))
    tried = {candidate.digest: index for index, candidate in enumerate(near)}
    for number in range(len(tried), len(tried) + 20):
        candidate = proposer.propose(number, tried)
        assert candidate is not None
        assert candidate.digest not in tried
        of.values(candidate)  # raises unless it belongs to the space
        tried[candidate.digest] = number


@pytest.mark.parametrize("search", SEARCHES)
def test_the_same_state_gives_the_same_proposal(search: str) -> None:
    of = space(4, 4, 4)
    first = drive(Proposer(of, search, seed=5), of, trials=25, world=slope)
    again = drive(Proposer(of, search, seed=5), of, trials=25, world=slope)
    assert first == again
    # A process that takes over at trial 15 learns what there is and proposes what the first would have.
    late = Proposer(of, search, seed=5)
    for candidate in first[:15]:
        values = {name: int(value) for name, value in of.values(candidate).items()}
        late.learn(seen(candidate, slope(values)))
    tried = {candidate.digest: index for index, candidate in enumerate(first[:15])}
    assert late.propose(15, tried) == first[15]


@pytest.mark.parametrize("search", SEARCHES)
def test_seeds_and_numbers_give_different_proposals(search: str) -> None:
    of = space(*[8] * 6)
    by_seed = {Proposer(of, search, seed).propose(1, {}) for seed in range(8)}
    by_number = {Proposer(of, search, 0).propose(number, {}) for number in range(1, 9)}
    assert len(by_seed) > 1
    assert len(by_number) > 1


def test_asking_leaves_no_trace_in_what_was_learned() -> None:
    # A question that stayed open would push the sampler away from where it points.
    of = space(5, 5, 5)
    asked, fresh = Proposer(of, "tpe", 2), Proposer(of, "tpe", 2)
    start = drive(fresh, of, trials=20, world=slope)
    drive(asked, of, trials=20, world=slope)
    tried = {candidate.digest: index for index, candidate in enumerate(start)}
    for number in range(100, 130):
        asked.propose(number, tried)
    assert asked.propose(20, tried) == fresh.propose(20, tried)


def faulty_half(values: dict[str, int]) -> Outcome:
    """Whatever has k0 above 1 fails; the rest differs a little."""
    return FAILED if values["k0"] > 1 else measured(BASE * (1 + 0.1 * values["k1"]))


def inaccurate_half(values: dict[str, int]) -> Outcome:
    """Whatever has k0 above 1 gives wrong numbers."""
    return Rejected(Trace(), measured(BASE, loss=0.5).accuracy, "off") if values["k0"] > 1 else faulty_half(values)


@pytest.mark.parametrize("of", [space(4, 6, 6), space(4, 12, 12)], ids=["small", "large"])
@pytest.mark.parametrize("world", [faulty_half, inaccurate_half])
def test_a_bad_region_is_avoided_more_than_by_chance(world: World, of: KnobSpace) -> None:
    # Half of the space is bad, and neither slower nor faster: only the constraint tells. Random search spends half of
    # its 225 trials there; a search that learns from a failure does so in its first, random, trials only.
    visits = {
        search: sum(
            int(of.values(candidate)["k0"]) > 1
            for seed in range(5)
            for candidate in drive(Proposer(of, search, seed), of, trials=45, world=world)
        )
        for search in SEARCHES
    }
    assert visits["tpe"] < 0.65 * visits["random"]


def test_fast_candidates_are_found_sooner_than_by_chance() -> None:
    of = space(*[6] * 4)

    def best(search: str, seed: int) -> int:
        proposed = drive(Proposer(of, search, seed), of, trials=50, world=slope)
        return max(sum(map(int, of.values(candidate).values())) for candidate in proposed)

    assert sum(best("tpe", seed) for seed in range(5)) > sum(best("random", seed) for seed in range(5))


def test_observations_say_feasible_or_not_in_finite_numbers() -> None:
    # The limit is rel_l2 <= 0.01.
    of: dict[str, Observation] = {
        "good": seen(BASELINE, measured(2000.0, 0.005)),
        "at the limit": seen(BASELINE, measured(2000.0, 0.01)),
        "failed": seen(BASELINE, FAILED),
        "off": seen(BASELINE, Rejected(Trace(), measured(1.0, 0.02).accuracy, "")),
        "wrong": seen(BASELINE, Rejected(Trace(), Accuracy(faults=("shape",)), "")),
        "nan": seen(BASELINE, Rejected(Trace(), Accuracy((PairLoss("p", "y", {"rel_l2": None}),)), "")),
    }
    feasible = {name for name, one in of.items() if all(value <= 0 for value in one.constraints.values())}
    assert feasible == {"good", "at the limit"}
    assert {tuple(one.constraints) for one in of.values()} == {("accuracy", "failure")}
    assert all(abs(value) < 1e9 for one in of.values() for value in (one.value, *one.constraints.values()))
    assert of["good"].value == pytest.approx(2000.0)
    assert of["failed"].value == pytest.approx(BASE)
    assert of["off"].accuracy == pytest.approx(1.0)  # twice the limit


def test_a_default_that_was_never_timed_leaves_a_finite_value() -> None:
    assert observe(BASELINE, FAILED, DEFAULT_LIMITS, Objective.THROUGHPUT.merit(math.inf)).value == 0.0
