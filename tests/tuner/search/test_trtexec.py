"""trtexec's searches: order and counts against worked examples, and each switch."""

from __future__ import annotations

from itertools import islice

import pytest

from objectives.knobs import BASELINE, Candidate, Knob, KnobKind, KnobSpace
from tests.tuner.search.worlds import failure, measured, space
from tuner.search.auto import Seen
from tuner.search.trtexec import TRTEXEC_CAP, Deviations, TrtexecProposer, count, fast, full


def text(candidate: Candidate, of: KnobSpace) -> str:
    return "".join(of.values(candidate).values())


def drive(proposer: TrtexecProposer, of: KnobSpace, gains: dict[str, float], bad: dict[str, str]) -> list[str]:
    """Everything proposed, as value strings. `gains`: of single values; `bad`: "crash" or "loss" by single value."""
    tried: dict[str, int] = {}
    result = []
    for number in range(200):
        candidate = proposer.propose(number, tried)
        if candidate is None:
            return result
        tried[candidate.digest] = number
        result.append(text(candidate, of))
        names = [f"{name}={value}" for name, value in candidate.changes]
        speed = sum(gains.get(name, -0.1) for name in names)
        kinds = {bad[name] for name in names if name in bad}
        proposer.learn(one(candidate, speed, kinds))
    return result


def one(candidate: Candidate, speed: float, kinds: set[str]) -> Seen:
    if "crash" in kinds:
        return failure(candidate)
    # trtexec times also what breaks a limit.
    return Seen(candidate, speed, log_losses={"accuracy": 1.0 if "loss" in kinds else -1.0})


def test_counts_of_the_worked_example() -> None:
    of = space(2, 3, 4)
    assert (count(of, "full"), count(of, "fast")) == (24, 7)
    assert len(list(full(of.knobs, of))) == len(set(full(of.knobs, of))) == 24
    assert len(list(fast(of))) == 7
    assert (count(space(2, 2, 2), "full"), count(space(2, 2, 2), "fast")) == (8, 4)


def test_full_varies_the_last_knob_fastest() -> None:
    of = space(2, 3)
    assert [text(candidate, of) for candidate in full(of.knobs, of)] == ["00", "01", "02", "10", "11", "12"]


def test_fast_goes_from_the_last_knob_to_the_first() -> None:
    of = space(2, 3, 4)
    assert [text(candidate, of) for candidate in fast(of)] == ["000", "001", "002", "003", "010", "020", "100"]


def test_a_default_that_is_not_listed_first_is_left_out_by_value() -> None:
    of = KnobSpace((Knob("a", ("x", "y", "z"), "y", KnobKind.ROUTE, ""),))
    assert [text(candidate, of) for candidate in fast(of)] == ["y", "x", "z"]
    assert [text(candidate, of) for candidate in full(of.knobs, of)] == ["x", "y", "z"]


def test_mixed_lists_all_values_of_the_positive_knobs() -> None:
    of = space(2, 3, 2)
    gains = {"k0=1": 0.1, "k1=2": 0.1}
    proposed = drive(TrtexecProposer(of, "mixed", repeats=True), of, gains, {})
    assert proposed[:5] == ["000", "001", "010", "020", "100"]
    assert proposed[5:] == ["000", "010", "020", "100", "110", "120"]
    once = drive(TrtexecProposer(of, "mixed"), of, gains, {})
    assert once == ["000", "001", "010", "020", "100", "110", "120"]


def test_two_good_values_of_one_knob_are_enough_for_phase_two_and_one_is_not() -> None:
    of = space(3, 2)
    two = drive(TrtexecProposer(of, "mixed", repeats=True), of, {"k0=1": 0.1, "k0=2": 0.1}, {})
    assert two[4:] == ["00", "10", "20"]
    assert len(drive(TrtexecProposer(of, "mixed", repeats=True), of, {"k0=1": 0.1}, {})) == 4


def test_a_crash_is_not_positive_but_a_broken_limit_is() -> None:
    of = space(2, 2, 2)
    gains = {"k0=1": 0.1, "k1=1": 0.1, "k2=1": 0.1}
    bad = {"k0=1": "loss", "k1=1": "crash"}
    assert drive(TrtexecProposer(of, "mixed", repeats=True), of, gains, bad)[4:] == ["000", "001", "100", "101"]
    strict = TrtexecProposer(of, "mixed", how=Deviations(feasible_only=True), repeats=True)
    assert drive(strict, of, gains, bad)[4:] == []


def test_nothing_is_positive_beside_a_default_that_failed() -> None:
    of = space(2, 2)
    assert len(drive(TrtexecProposer(of, "mixed"), of, {"k0=1": 0.1, "k1=1": 0.1}, {})) == 4
    proposer = TrtexecProposer(of, "mixed")
    tried = set()
    for number in range(10):
        candidate = proposer.propose(number, tried)
        if candidate is None:
            break
        tried.add(candidate.digest)
        proposer.learn(failure(candidate) if candidate == BASELINE else measured(candidate, 0.5))
    assert len(tried) == 3


def test_the_cap_keeps_the_fastest_and_the_margin_drops_the_slight() -> None:
    of = space(*[2] * 14)
    gains = {f"k{index}=1": 0.01 * (index + 1) for index in range(14)}
    capped = drive(TrtexecProposer(of, "mixed", how=Deviations(cap=2), repeats=True), of, gains, {})
    assert [proposed[-2:] for proposed in capped[15:]] == ["00", "01", "10", "11"]
    wary = drive(TrtexecProposer(of, "mixed", how=Deviations(margin=0.125), repeats=True), of, gains, {})
    assert wary[15:] == capped[15:]
    assert TRTEXEC_CAP == 10


def test_shuffled_is_the_same_set_in_another_order() -> None:
    of = space(3, 3, 2)
    gains = {"k0=1": 0.1, "k1=1": 0.1, "k2=1": 0.1}
    plain = drive(TrtexecProposer(of, "mixed", repeats=True), of, gains, {})[6:]
    mixed_up = [
        drive(TrtexecProposer(of, "mixed", seed, Deviations(shuffle=True), True), of, gains, {})[6:] for seed in (0, 1)
    ]
    assert all(sorted(one) == sorted(plain) for one in mixed_up)
    assert mixed_up[0] != plain
    assert mixed_up[0] != mixed_up[1]


def test_a_large_space_is_not_listed() -> None:
    of = space(*[4] * 200)
    assert count(of, "full") == 4**200
    assert len(list(islice(full(of.knobs, of), 5))) == 5
    assert TrtexecProposer(of, "full").propose(0, {}) == BASELINE


def test_a_resumed_search_goes_on_where_it_was() -> None:
    of = space(2, 3, 2)
    gains = {"k0=1": 0.1, "k1=2": 0.1}
    whole = drive(TrtexecProposer(of, "mixed"), of, gains, {})
    late = TrtexecProposer(of, "mixed")
    tried = set()
    for values in whole[:6]:
        candidate = of.candidate(dict(zip(["k0", "k1", "k2"], values, strict=True)))
        tried.add(candidate.digest)
        speed = sum(gains.get(f"{name}={value}", -0.1) for name, value in candidate.changes)
        late.learn(measured(candidate, speed))
    following = late.propose(6, tried)
    assert following is not None
    assert text(following, of) == whole[6]


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown strategy 'best'"):
        TrtexecProposer(space(2), "best")
