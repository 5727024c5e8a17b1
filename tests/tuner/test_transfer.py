"""Transfer and carrying: what is taken over, in which order, and when it is given up."""

from __future__ import annotations

import msgspec
import pytest

from objectives.knobs import BASELINE, Candidate, Knob, KnobKind, KnobSpace
from tuner.carried import Carried, CarriedCandidate, figures
from tuner.carrying import Carrying
from tuner.search.auto.teaching import Taught
from tuner.search.observation import Observation
from tuner.transfer import BEST, WINNER, Lesson, Parent, carry, effects_of, failure_rates


def _space(n_knobs: int = 4) -> KnobSpace:
    return KnobSpace(tuple(Knob(f"k{i}", ("0", "1", "2"), "0", KnobKind.ROUTE, "") for i in range(n_knobs)))


def _set(**values: int) -> Candidate:
    return _space().candidate({name: str(value) for name, value in values.items()})


GAINS = [
    Lesson(0, BASELINE, 0.0),
    Lesson(1, _set(k0=1, k1=1), 0.20),
    Lesson(2, _set(k0=1, k1=2), 0.19),  # one knob from the best: not another candidate
    Lesson(3, _set(k2=1, k3=1), 0.10),
    Lesson(4, _set(k0=2, k3=2), -0.05),
    Lesson(5, _set(k1=1, k2=2), 0.05, feasible=False),
    Lesson(6, _set(k3=2), None, feasible=False, failed=True),
    Lesson(7, _set(k1=1, k3=1), 0.07),
    Lesson(8, _set(k0=1), 0.15),
]


def test_winners_come_first_then_the_fastest_feasible_that_differ() -> None:
    carried = carry("", [Parent(1, "near", _space(), GAINS, winner=7)], _space())
    first, *others = carried.candidates
    assert (first.trial, first.why, first.gain) == (7, WINNER, 0.07)
    numbers = [one.trial for one in others]
    assert 4 not in numbers  # slower than the default
    assert 5 not in numbers  # over a limit
    assert 0 not in numbers
    gains = [one.gain or 0.0 for one in others]
    assert gains == sorted(gains, reverse=True)


def test_the_winners_of_all_parents_before_the_rest_and_the_nearest_parents_effects() -> None:
    far = Parent(1, "far", _space(), [Lesson(0, BASELINE, 0.0), Lesson(9, _set(k3=2, k2=2), 0.3)], winner=9)
    near = Parent(2, "near", _space(), GAINS)
    carried = carry("", [near, far], _space())
    assert (carried.candidates[0].context, carried.candidates[0].trial) == (1, 9)
    assert [one.number for one in carried.parents] == [2, 1]
    assert effects_of(near).effects.keys() == {(one.knob, one.value) for one in carried.effects}


def test_too_little_teaches_no_effects_and_failures_are_shared_among_suspects() -> None:
    assert effects_of(Parent(1, "", _space(), GAINS[:4])) == Taught({}, {})
    rates = failure_rates(Parent(1, "", _space(), [*GAINS, Lesson(9, _set(k2=2, k3=2), failed=True, feasible=False)]))
    assert rates["k0", "1"] == 0.0  # it ran
    assert rates["k3", "2"] == 0.0  # it ran as well, in #4: what failed is something else
    assert failure_rates(Parent(1, "", _space(), GAINS[:4])) == {}


def test_a_parent_without_trials_teaches_nothing_and_is_named() -> None:
    carried = carry("because", [Parent(3, "near", _space())], _space())
    assert [one.number for one in carried.parents] == [3]
    assert carried.candidates == carried.effects == carried.failure_rates == ()
    assert carried.prior() is None


def test_what_is_carried_survives_its_json_form() -> None:
    carried = carry("x", [Parent(1, "near", _space(), GAINS, winner=1)], _space(3))
    assert msgspec.convert(carried.to_json(), Carried) == carried
    assert carried.dropped


# ---- carrying


def _carried(*gains: float | None) -> Carried:
    some = [CarriedCandidate(_set(k0=1, k1=i % 3).changes, 1, i, BEST, gain) for i, gain in enumerate(gains)]
    return Carried("", candidates=tuple(some), effects=figures({("k0", "1"): 0.2}, _space()))


def _seen(candidate: Candidate, value: float, failure: float = -1.0, accuracy: float = -1.0) -> Observation:
    return Observation(candidate, value, failure, accuracy, timed=failure < 0 and accuracy <= 0)


def _run(carrying: Carrying, *values: float) -> list[str]:
    """What is measured when each carried candidate comes out as `values`, the default at 1."""
    tried = {BASELINE.digest}
    carrying.learn(_seen(BASELINE, 1.0))
    order = []
    for value in values:
        candidate = carrying.next(tried)
        if candidate is None:
            break
        tried.add(candidate.digest)
        order.append(str(candidate))
        carrying.learn(_seen(candidate, value))
    return order


def test_carried_candidates_are_measured_while_they_hold() -> None:
    carrying = Carrying(_carried(0.2, 0.1, 0.1), _space())
    assert _run(carrying, 1.2, 1.1, 1.1) == ["k0=1", "k0=1 k1=1", "k0=1 k1=2"]
    assert carrying.holds
    assert carrying.prior is not None


@pytest.mark.parametrize("value", [1.0, 0.8, 1.04])
def test_a_parent_that_misleads_is_left_after_one_trial(value: float) -> None:
    carrying = Carrying(_carried(0.2, 0.1, 0.1), _space())
    assert _run(carrying, value, 1.0, 1.0) == ["k0=1"]
    assert carrying.prior is None


def test_what_fails_or_breaks_a_limit_has_gained_nothing() -> None:
    for broken in ({"failure": 1.0}, {"accuracy": 0.5}):
        carrying = Carrying(_carried(0.2, 0.1), _space())
        carrying.learn(_seen(BASELINE, 1.0))
        carrying.learn(_seen(_set(k0=1), 1.5, **broken))
        assert not carrying.holds


def test_what_was_carried_for_another_reason_is_always_measured() -> None:
    carrying = Carrying(_carried(0.2, None, 0.1), _space())
    assert _run(carrying, 0.9, 0.9, 0.9) == ["k0=1", "k0=1 k1=1"]


def test_own_trials_that_contradict_the_prior_end_it() -> None:
    carrying = Carrying(_carried(), _space())
    for value, candidate in [(1.0, BASELINE), (1.0, _set(k1=1)), (0.9, _set(k0=1)), (0.91, _set(k0=1, k1=1))]:
        assert carrying.prior is not None
        carrying.learn(_seen(candidate, value))
    assert carrying.prior is None
    carrying.forget()
    assert carrying.prior is not None


def test_candidates_of_another_space_are_passed_over() -> None:
    assert Carrying(_carried(0.2, 0.1), _space(1)).next({BASELINE.digest}) == Candidate((("k0", "1"),))
    assert Carrying(None, _space()).next(()) is None
