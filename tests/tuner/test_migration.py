"""Knob-space migration: simulated releases whose truth is known; nothing that is carried means something else."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectives.knobs import BASELINE, Candidate, Knob, KnobKind, KnobSpace
from tuner.migration import ChangeKind, differences, translate, translate_effects, translate_pairs, translate_rates


def _knob(name: str, values: str, default: str = "", kind: KnobKind = KnobKind.ROUTE) -> Knob:
    names = tuple(values.split())
    return Knob(name, names, default or names[0], kind, "")


def _space(*knobs: Knob) -> KnobSpace:
    return KnobSpace(knobs)


OLD = _space(_knob("a", "off on wild"), _knob("b", "x y"), _knob("c", "1 2 4"))
SET = Candidate((("a", "on"), ("c", "4")))


def test_the_same_space_changes_nothing() -> None:
    assert differences(OLD, OLD) == ()
    assert translate(SET, OLD, OLD).candidate == SET


@pytest.mark.parametrize(
    ("new", "what", "carried", "words"),
    [
        (_space(*OLD.knobs[1:]), ChangeKind.KNOB_REMOVED, None, "knob a (set to on) is not there"),
        (_space(OLD.knobs[0], OLD.knobs[2]), ChangeKind.KNOB_REMOVED, SET, ""),  # b was not touched
        (_space(*OLD.knobs, _knob("d", "p q")), ChangeKind.KNOB_ADDED, SET, ""),
        (
            _space(_knob("a", "off wild"), *OLD.knobs[1:]),
            ChangeKind.VALUES_REMOVED,
            None,
            "no value on (as it was set)",
        ),
        (_space(OLD.knobs[0], _knob("b", "y z"), OLD.knobs[2]), ChangeKind.VALUES_REMOVED, None, "its default before"),
        (_space(_knob("a", "off enabled wild"), *OLD.knobs[1:]), ChangeKind.VALUES_ADDED, None, "no value on"),
        (_space(_knob("a", "wild on off", "off"), *OLD.knobs[1:]), ChangeKind.VALUES_REORDERED, SET, ""),
        (_space(_knob("a", "off on wild", "on"), *OLD.knobs[1:]), ChangeKind.DEFAULT_CHANGED, (("c", "4"),), ""),
        (
            _space(OLD.knobs[0], _knob("b", "x y", "y"), OLD.knobs[2]),
            ChangeKind.DEFAULT_CHANGED,
            (("a", "on"), ("b", "x"), ("c", "4")),
            "",
        ),
        (
            _space(_knob("a", "off on wild", kind=KnobKind.BUILDER), *OLD.knobs[1:]),
            ChangeKind.KIND_CHANGED,
            None,
            "is of kind builder there, not route",
        ),
        (
            _space(OLD.knobs[0], _knob("b", "x y", kind=KnobKind.BUILDER), OLD.knobs[2]),
            ChangeKind.KIND_CHANGED,
            SET,
            "",
        ),
        (
            _space(OLD.knobs[0], _knob("b", "x y", "y", KnobKind.BUILDER), OLD.knobs[2]),
            ChangeKind.KIND_CHANGED,
            None,
            "is of kind builder there",
        ),
    ],
)
def test_each_kind_of_change(new: KnobSpace, what: ChangeKind, carried: object, words: str) -> None:
    assert what in {change.what for change in differences(OLD, new)}
    found = translate(SET, OLD, new)
    expected = Candidate(carried) if isinstance(carried, tuple) else carried
    assert found.candidate == expected
    assert words in found.reason
    assert bool(found.reason) == (found.candidate is None)


def test_the_old_default_is_no_default_where_that_is_another_one() -> None:
    new = _space(_knob("a", "off on wild", "on"), *OLD.knobs[1:])
    assert translate(BASELINE, OLD, new).candidate == Candidate((("a", "off"),))
    assert translate(Candidate((("a", "on"),)), OLD, new).candidate == BASELINE


def test_another_order_of_knobs_is_another_canonical_form() -> None:
    new = _space(*reversed(OLD.knobs))
    assert differences(OLD, new) == ()
    assert translate(SET, OLD, new).candidate == Candidate((("c", "4"), ("a", "on")))


def test_differences_in_words() -> None:
    new = _space(_knob("a", "off on", "on"), _knob("c", "1 2 4 8"), _knob("n", "u v"))
    assert [str(change) for change in differences(OLD, new)] == [
        "a: default changed, off became on",
        "a: values removed (wild)",
        "b: knob removed",
        "c: values added (8)",
        "n: knob added (u, v)",
    ]


def test_effects_are_told_against_the_new_default() -> None:
    effects = {("a", "on"): 0.2, ("a", "wild"): -0.1, ("b", "y"): 0.3, ("c", "2"): 0.05}
    new = _space(_knob("a", "off on wild", "on"), _knob("b", "x y", kind=KnobKind.BUILDER), _knob("c", "1 2 4", "4"))
    found = translate_effects(effects, OLD, new)
    assert found == pytest.approx({("a", "off"): -0.2, ("a", "wild"): -0.3})  # c=4 was never tried, b is another knob
    assert translate_effects(effects, OLD, OLD) == effects
    assert translate_rates({("a", "wild"): 0.5, ("a", "on"): 0.1, ("b", "y"): 0.4}, OLD, new) == {("a", "wild"): 0.5}


def test_pairs_are_carried_where_both_knobs_have_the_default_and_the_values_they_had() -> None:
    on_x, on_4, y_4 = (("a", "on"), ("b", "y")), (("a", "on"), ("c", "4")), (("b", "y"), ("c", "4"))
    pairs = {on_x: 0.1, on_4: 0.2, y_4: 0.3}
    assert translate_pairs(pairs, OLD, OLD) == pairs
    assert translate_pairs(pairs, OLD, _space(OLD.knobs[0], _knob("b", "x y", "y"), OLD.knobs[2])) == {on_4: 0.2}
    assert translate_pairs(pairs, OLD, _space(*OLD.knobs[:2], _knob("c", "1 2"))) == {on_x: 0.1}
    assert translate_pairs(pairs, OLD, _space(_knob("b", "x y"), _knob("a", "off on"))) == {on_x: 0.1}


# Simulated histories. Every knob and every value has an identity that no release changes; names, order, defaults and
# kinds are what a release does to it. Two candidates mean the same when every knob that both spaces know has the value
# of the same identity, and every other knob is untouched.

Real = dict[
    int, tuple[str, list[tuple[int, str]], int, KnobKind]
]  # identity -> name, (identity, name) of values, default


class _History:
    def __init__(self, n_knobs: int, seed: int) -> None:
        self._chance = random.Random(seed)
        self._fresh = 0
        self.real: Real = {}
        for _ in range(n_knobs):
            self._add()

    def _id(self) -> int:
        self._fresh += 1
        return self._fresh

    def _add(self) -> None:
        values = [self._id() for _ in range(self._chance.choice([2, 2, 3, 4]))]
        kind = self._chance.choice([KnobKind.ROUTE, KnobKind.BUILDER])
        key = self._id()
        self.real[key] = (f"k{key}", [(value, f"v{value}") for value in values], values[0], kind)

    def release(self, churn: float) -> None:
        """Rename, remove, add, reorder, another default, kind; each to a share of the knobs. No name is used again."""
        for key in list(self.real):
            if self._chance.random() >= churn:
                continue
            name, values, default, kind = self.real[key]
            values = list(values)
            what = self._chance.choice(
                ["rename", "remove", "rename value", "remove value", "add value", "order", "default"]
            )
            if what == "remove":
                del self.real[key]
                self._add()
                continue
            if what == "rename":
                name = f"k{self._id()}"
            elif what == "rename value":
                at = self._chance.randrange(len(values))
                values = [(i, f"v{self._id()}") if n == at else (i, v) for n, (i, v) in enumerate(values)]
            elif what == "remove value" and len(values) > 2:
                values.remove(self._chance.choice(values))
                default = default if default in dict(values) else values[0][0]
            elif what == "add value":
                fresh = self._id()
                values = [*values, (fresh, f"v{fresh}")]
            elif what == "order":
                values = self._chance.sample(values, len(values))
            else:
                default = self._chance.choice(values)[0]
            self.real[key] = (name, values, default, kind)
        order = list(self.real)
        self._chance.shuffle(order)
        self.real = {key: self.real[key] for key in order}

    def space(self) -> KnobSpace:
        return KnobSpace(
            tuple(
                Knob(name, tuple(v for _, v in values), dict(values)[default], kind, "")
                for name, values, default, kind in self.real.values()
            )
        )

    def candidate(self) -> Candidate:
        space = self.space()
        some = self._chance.sample(space.knobs, min(len(space.knobs), self._chance.randint(0, 6)))
        return space.candidate({knob.name: self._chance.choice(knob.values) for knob in some})


def _meaning(real: Real, space: KnobSpace, candidate: Candidate) -> dict[int, tuple[int, bool]]:
    """By knob identity: the identity of its value, and whether somebody set it."""
    values, changed = space.values(candidate), dict(candidate.changes)
    return {key: ({v: i for i, v in of}[values[name]], name in changed) for key, (name, of, _, _) in real.items()}


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), n_knobs=st.sampled_from([1, 4, 12, 40]), churn=st.sampled_from([0.05, 0.15, 0.5]))
def test_what_is_carried_means_the_same_and_what_is_not_has_a_reason(seed: int, n_knobs: int, churn: float) -> None:
    _check(_History(n_knobs, seed), churn, candidates=20)


@pytest.mark.parametrize("seed", range(3))
def test_two_hundred_knobs_over_five_releases(seed: int) -> None:
    history = _History(200, seed)
    for _ in range(5):
        carried, dropped = _check(history, 0.15, candidates=100)
        assert carried + dropped == 100
        assert carried > 0 or dropped > 0


def _check(history: _History, churn: float, candidates: int) -> tuple[int, int]:
    real, old = dict(history.real), history.space()
    some = [history.candidate() for _ in range(candidates)]
    history.release(churn)
    new, carried = history.space(), 0
    reported = {change.knob for change in differences(old, new)}
    for candidate in some:
        before = _meaning(real, old, candidate)
        found = translate(candidate, old, new)
        if found.candidate is None:
            assert found.reason
            assert any(name in found.reason for name in reported)
            continue
        carried += 1
        after = _meaning(history.real, new, found.candidate)
        for key, (value, was_set) in before.items():
            if key in after and real[key][0] == history.real[key][0]:
                assert after[key][0] == value  # the same knob under the same name has the same value
            else:
                assert not was_set  # what cannot be told any more had not been touched
                assert key not in after or not after[key][1]
        fresh = set(after) - set(before)
        assert not any(after[key][1] for key in fresh)  # nobody touches what is new
    return carried, candidates - carried
