"""The auto search: never twice the same, the same again from the same state, and better than chance."""

from __future__ import annotations

import statistics
from dataclasses import replace

import numpy as np
import pytest

from objectives.knobs import BASELINE, Candidate, Knob, KnobKind, KnobSpace
from tests.tuner.search.worlds import Planted, drive, failure, measured, shuffled, space
from tuner.search.auto import AutoConfig, AutoProposer, Prior, Seen


def values(candidate: Candidate) -> dict[str, int]:
    return {name: int(value) for name, value in candidate.changes}


@pytest.mark.parametrize("sizes", [(2, 3, 4), (1, 2, 2, 1, 3)])
def test_a_small_space_is_tried_whole_and_nothing_twice(sizes: tuple[int, ...]) -> None:
    of = space(*sizes)
    proposed = drive(AutoProposer(of, 1), lambda c: measured(c, 0.01 * len(c.changes)), 100)
    assert len(proposed) == len({candidate.digest for candidate in proposed}) == of.size
    assert proposed[0] == BASELINE


@pytest.mark.parametrize("of", [space(), space(1, 1)], ids=["no knobs", "no choice"])
def test_a_space_of_the_default_alone_has_nothing_more_to_propose(of: object) -> None:
    proposer = AutoProposer(of, 0)  # type: ignore[arg-type]
    assert proposer.propose(0, {}) == BASELINE
    proposer.learn(measured(BASELINE, 0.0))
    assert proposer.propose(1, {BASELINE.digest: 0}) is None
    assert not proposer.advice({BASELINE.digest: 0}).worth_it


def test_a_space_in_which_everything_fails_is_still_searched_without_repeats() -> None:
    proposed = drive(AutoProposer(space(2, 3, 3), 0), failure, 50)
    assert len(set(proposed)) == 18


def test_the_same_state_gives_the_same_proposal() -> None:
    of = space(*[3] * 12)
    world = Planted(of, seed=2)
    first = drive(AutoProposer(of, 5), world.evaluate, 36)
    assert first == drive(AutoProposer(of, 5), world.evaluate, 36)
    # A process that takes over learns what there is and proposes what the first would have.
    for start in (3, 20, 35):
        late = AutoProposer(of, 5)
        for candidate in first[:start]:
            late.learn(world.evaluate(candidate))
        assert late.propose(start, {candidate.digest for candidate in first[:start]}) == first[start]


def test_asking_and_advising_leave_no_trace() -> None:
    of = space(*[3] * 12)
    world = Planted(of, seed=2)
    asked, fresh = AutoProposer(of, 5), AutoProposer(of, 5)
    tried = {candidate.digest for candidate in drive(asked, world.evaluate, 30)}
    drive(fresh, world.evaluate, 30)
    for number in (40, 41, 42):
        asked.propose(number, tried)
    asked.advice(tried)
    asked.ranking()
    assert asked.propose(30, tried) == fresh.propose(30, tried)


def test_seeds_and_numbers_give_different_proposals() -> None:
    of = space(*[4] * 20)
    tried = {BASELINE.digest}
    assert len({AutoProposer(of, seed).propose(1, tried) for seed in range(8)}) == 8
    assert len({AutoProposer(of, 0).propose(number, tried) for number in range(1, 9)}) == 8


def test_workers_do_not_get_in_each_others_way() -> None:
    of = space(*[3] * 15)
    world = Planted(of, seed=1)
    proposer = AutoProposer(of, 0)
    tried = {candidate.digest for candidate in drive(proposer, world.evaluate, 25)}
    pending: list[Candidate] = []
    for number in range(25, 29):
        candidate = proposer.propose(number, tried, pending)
        assert candidate is not None
        assert candidate.digest not in tried
        assert candidate not in pending
        pending.append(candidate)


@pytest.mark.parametrize("sizes", [(2, 3, 2, 3, 2, 3, 2), (3,) * 20], ids=["small", "large"])
def test_a_planted_best_is_found_sooner_than_by_chance(sizes: tuple[int, ...]) -> None:
    of = space(*sizes)
    ours, chance = [], []
    for seed in range(5):
        world = Planted(of, seed)
        ours.append(world.best - max(map(world.speed, drive(AutoProposer(of, seed), world.evaluate, 40))))
        chance.append(world.best - max(map(world.speed, shuffled(of, seed, 40))))
    assert statistics.median(ours) < 0.01
    assert statistics.mean(ours) < 0.5 * statistics.mean(chance)


def test_a_value_that_crashes_is_found_out_and_left_alone() -> None:
    of = space(*[3] * 14)
    world = Planted(of, seed=3)

    def evaluate(candidate: Candidate) -> Seen:
        return failure(candidate) if values(candidate).get("k4") == 2 else world.evaluate(candidate)

    proposed = drive(AutoProposer(of, 0), evaluate, 60)
    assert sum(values(candidate).get("k4") == 2 for candidate in proposed[20:]) <= 1


def test_a_combination_that_crashes_is_avoided_more_than_by_chance() -> None:
    of = space(*[2] * 14)
    world = Planted(of, seed=3)

    def crashes(candidate: Candidate) -> bool:
        return values(candidate).get("k4") == values(candidate).get("k9") == 1

    def evaluate(candidate: Candidate) -> Seen:
        return failure(candidate) if crashes(candidate) else world.evaluate(candidate)

    proposed = drive(AutoProposer(of, 0), evaluate, 60)
    assert sum(map(crashes, proposed[20:])) < 0.15 * 40


@pytest.mark.parametrize("loss", [{1: 3.0}, {1: 0.3}], ids=["step", "near"])
def test_a_fast_value_over_the_limit_is_left_alone(loss: dict[int, float]) -> None:
    of = space(*[2] * 12)
    world = Planted(of, seed=4)

    def evaluate(candidate: Candidate) -> Seen:
        too_much = loss.get(values(candidate).get("k0", 0), -2.0)
        bonus = 0.3 if too_much > 0 else 0.0
        return measured(candidate, world.speed(candidate) + bonus, too_much)

    proposed = drive(AutoProposer(of, 1), evaluate, 45)
    assert sum("k0" in values(candidate) for candidate in proposed[20:]) <= 3


def test_what_pays_only_together_is_found() -> None:
    # Three changes that hurt alone: each known effect points away from them.
    of = space(*[2, 3] * 5)
    group = {"k0": 1, "k1": 2, "k6": 1}
    found = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)

        def evaluate(candidate: Candidate, rng: np.random.Generator = rng) -> Seen:
            held = sum(values(candidate).get(name) == value for name, value in group.items())
            return measured(candidate, (0.2 if held == 3 else -0.02 * held) + float(rng.normal(0, 0.005)))

        proposed = drive(AutoProposer(of, seed), evaluate, 60)
        found += any(all(values(c).get(name) == value for name, value in group.items()) for c in proposed)
    assert found >= 6


def test_a_search_that_has_just_gained_is_not_told_to_stop() -> None:
    of = space(*[3] * 15)
    rng = np.random.default_rng(0)
    proposer = AutoProposer(of, 0)
    proposed = drive(proposer, lambda c: measured(c, float(rng.normal(0, 0.002))), 60)
    tried = {candidate.digest for candidate in proposed}
    assert not proposer.advice(tried).worth_it
    other = proposer.propose(60, tried)
    assert other is not None
    proposer.learn(measured(other, 0.1))
    assert proposer.advice({*tried, other.digest}).worth_it
    # The proposal is the same whether advice was asked for or not: see `test_asking_and_advising_leave_no_trace`.


def test_results_that_come_late_change_nothing_in_the_end() -> None:
    of = space(*[3] * 12)
    world = Planted(of, seed=2)
    first = drive(AutoProposer(of, 5), world.evaluate, 30)
    seen = [replace(world.evaluate(candidate), number=number) for number, candidate in enumerate(first)]
    tried = {candidate.digest for candidate in first}
    proposals = set()
    for order in (range(30), [*range(10, 30), *range(10)], [1, 0, *range(29, 1, -1)]):
        proposer = AutoProposer(of, 5)
        for index in order:
            proposer.learn(seen[index])
        proposals.add(proposer.propose(30, tried))
    assert len(proposals) == 1


def test_a_world_without_effects_is_not_worth_a_search() -> None:
    of = space(*[3] * 15)
    stopped = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        proposer = AutoProposer(of, seed)
        proposed = drive(proposer, lambda c, rng=rng: measured(c, float(rng.normal(0, 0.01))), 50)  # type: ignore[misc]
        advice = proposer.advice({candidate.digest for candidate in proposed})
        assert advice.expected_gain is not None
        stopped += not advice.worth_it
    assert stopped >= 4


def test_advice_waits_for_evidence_and_sees_a_gain_that_is_left() -> None:
    of = space(*[3] * 20)
    world = Planted(of, seed=0)
    proposer = AutoProposer(of, 0)
    early = {candidate.digest for candidate in drive(proposer, world.evaluate, 5)}
    assert proposer.advice(early).worth_it
    assert proposer.advice(early).expected_gain is None
    # Two changes that help were never seen together: what they gain together is still to come.
    proposer = AutoProposer(of, 0, AutoConfig(min_trials=10))
    rng = np.random.default_rng(0)
    for _ in range(40):
        row = {f"k{k}": str(rng.integers(3)) for k in range(20)}
        row["k0"], row["k1"] = [("1", "0"), ("0", "1"), ("0", "0")][rng.integers(3)]
        speed = 0.1 * (row["k0"] == "1") + 0.1 * (row["k1"] == "1") + 0.05 * (row["k2"] == "1")
        proposer.learn(measured(of.candidate(row), speed + float(rng.normal(0, 0.005))))
    advice = proposer.advice(set())
    assert advice.worth_it
    assert advice.expected_gain is not None
    assert advice.expected_gain > 0.02


def test_what_other_contexts_taught_is_tried_first_and_outvoted_later() -> None:
    of = space(*[2] * 16)
    first = of.candidate({"k1": "1", "k2": "1"})
    prior = Prior({("k3", "1"): 0.1, ("gone", "1"): 0.2}, {("k5", "1"): 0.9}, (first,))
    proposer = AutoProposer(of, 0, prior=prior)
    proposed = drive(proposer, lambda c: measured(c, -0.1 * ("k3" in values(c)) + 0.02 * ("k1" in values(c))), 40)
    assert proposed[:2] == [BASELINE, first]
    assert "k3" not in values(proposer.ranking()[0][0])


def test_cheap_candidates_come_first_when_cost_counts() -> None:
    of = space(*[2] * 12)

    def evaluate(candidate: Candidate) -> Seen:
        dear = "k0" in values(candidate)
        return Seen(candidate, 0.01 * len(candidate.changes), 1e-4, cost_s=200.0 if dear else 2.0)

    counts = {
        weight: sum(
            "k0" in values(candidate)
            for candidate in drive(AutoProposer(of, 0, AutoConfig(cost_weight=weight)), evaluate, 30)[15:]
        )
        for weight in (0.0, 1.0)
    }
    assert counts[1.0] < counts[0.0]


@pytest.mark.parametrize(
    "part", ["screen", "additive", "pairs", "residual", "sparse", "trust_region", "doubt", "thompson", "leap"]
)
def test_every_part_can_be_switched_off(part: str) -> None:
    of = space(*[3] * 14)
    world = Planted(of, seed=0)
    proposed = drive(AutoProposer(of, 0, AutoConfig(**{part: False})), world.evaluate, 25)
    assert len(set(proposed)) == 25


def test_two_hundred_knobs_and_a_thousand_trials_work() -> None:
    of = space(*[4] * 200)
    rng = np.random.default_rng(0)
    proposer = AutoProposer(of, 0)
    proposer.learn(measured(BASELINE, 0.0, -1.5))
    tried = {BASELINE.digest}
    for _ in range(1000):
        row = rng.integers(0, 4, 200) * (rng.random(200) < 0.3)
        candidate = of.candidate({f"k{k}": str(v) for k, v in enumerate(row)})
        tried.add(candidate.digest)
        if row[7] == 3:
            proposer.learn(failure(candidate))
        else:
            proposer.learn(measured(candidate, 0.05 * (row[3] == 1) + float(rng.normal(0, 0.01)), row[5] - 1.5))
    for number in (1001, 1002):
        candidate = proposer.propose(number, tried)
        assert candidate is not None
        assert candidate.digest not in tried
        assert values(candidate).get("k7") != 3
        assert candidate != BASELINE


def test_a_value_that_was_in_bad_company_is_tried_alone() -> None:
    eight = KnobSpace(tuple(Knob(f"k{i}", ("0", "1"), "0", KnobKind.ROUTE, "") for i in range(8)))
    proposer = AutoProposer(eight, 0)
    proposer.learn(Seen(eight.candidate({}), log_throughput=0.0))
    pairs = [("k0", "k1"), ("k0", "k2"), ("k0", "k3")]
    for pair in pairs:  # k0 fails with others only, but nobody has seen it run
        proposer.learn(Seen(eight.candidate(dict.fromkeys(pair, "1")), failed="crash"))
    for name in ("k1", "k2", "k3", "k4", "k5"):
        proposer.learn(Seen(eight.candidate({name: "1"}), log_throughput=0.01))
    alone = eight.candidate({"k0": "1"})
    tried = {seen.candidate.digest for seen in proposer._seen}
    proposed = []
    for number in range(len(tried), len(tried) + 2):
        candidate = proposer.propose(number, tried)
        assert candidate is not None
        proposed.append(candidate)
        tried.add(candidate.digest)
        proposer.learn(Seen(candidate, log_throughput=0.5 if candidate == alone else 0.0))
    assert alone in proposed
    guilty = AutoProposer(eight, 0, AutoConfig(probe=False))
    for seen in proposer._seen[:9]:
        guilty.learn(seen)
    assert all(guilty.propose(number, {s.candidate.digest for s in proposer._seen[:9]}) != alone for number in (9, 10))
