"""Migration: from one knob space to another, by the names of knobs and values, never by position. Pure.

Flow: a context's candidates and its knob space -> HERE, with the space of another version or machine -> candidates
that mean the same there, or why there are none. Nothing is guessed: a knob under a new name is one knob gone and
another one new. A knob at its default is a knob that nobody touched; so a knob that is gone or new and stands at its
default changes nothing, while a default that is another one now has to be asked for by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from objectives.knobs import Candidate, Knob, KnobSpace
from tuner.search.auto.config import Value


class ChangeKind(StrEnum):
    """What can happen to a knob between two spaces."""

    KNOB_REMOVED = "knob removed"
    KNOB_ADDED = "knob added"
    KIND_CHANGED = "kind changed"
    DEFAULT_CHANGED = "default changed"
    VALUES_REMOVED = "values removed"
    VALUES_ADDED = "values added"
    VALUES_REORDERED = "values reordered"


class SpaceChange(msgspec.Struct, frozen=True):
    """One difference. `detail`: the values that it is about; of a default or kind: before and after."""

    what: ChangeKind
    knob: str
    detail: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.what in (ChangeKind.DEFAULT_CHANGED, ChangeKind.KIND_CHANGED):
            return f"{self.knob}: {self.what}, {self.detail[0]} became {self.detail[1]}"
        return f"{self.knob}: {self.what}" + (f" ({', '.join(self.detail)})" if self.detail else "")


class Translation(msgspec.Struct, frozen=True):
    """A candidate in the other space; None with the reason where nothing there means the same."""

    candidate: Candidate | None
    reason: str = ""


def differences(old: KnobSpace, new: KnobSpace) -> tuple[SpaceChange, ...]:
    """Everything in which `new` differs from `old`, in the order of knobs; texts and that order itself do not count."""
    before, after = _by_name(old), _by_name(new)
    found: list[SpaceChange] = []
    for name, knob in before.items():
        found += _changes(knob, after[name]) if name in after else [SpaceChange(ChangeKind.KNOB_REMOVED, name)]
    found += [
        SpaceChange(ChangeKind.KNOB_ADDED, name, knob.values) for name, knob in after.items() if name not in before
    ]
    return tuple(found)


def translate(candidate: Candidate, old: KnobSpace, new: KnobSpace) -> Translation:
    """What `candidate`, of the space `old`, is in `new`: every knob that both have keeps its value, by name.

    Raises: KnobError if the candidate does not belong to `old`.
    """
    assignment, lost = _assigned(candidate, old, new)
    reasons = "; ".join(_why_lost(knob, value, now) for knob, value, now in lost)
    return Translation(None, reasons) if lost else Translation(new.candidate(assignment))


def translate_partly(candidate: Candidate, old: KnobSpace, new: KnobSpace) -> tuple[Candidate, tuple[str, ...]]:
    """As much of `candidate` as there is in `new`, and what is left out, as `name=value`: another candidate then.

    Raises: KnobError if the candidate does not belong to `old`.
    """
    assignment, lost = _assigned(candidate, old, new)
    return new.candidate(assignment), tuple(f"{knob.name}={value}" for knob, value, _ in lost)


def _assigned(
    candidate: Candidate, old: KnobSpace, new: KnobSpace
) -> tuple[dict[str, str], list[tuple[Knob, str, Knob | None]]]:
    after, changed = _by_name(new), dict(candidate.changes)
    values = old.values(candidate)
    assignment, lost = {}, []
    for knob in old.knobs:
        value, now = values[knob.name], after.get(knob.name)
        if now is not None and now.kind is knob.kind and value in now.values:
            assignment[knob.name] = value
        elif now is None and knob.name not in changed:
            continue  # it is gone, and nobody had touched it
        elif now is not None and now.kind is not knob.kind and knob.name not in changed and now.default == value:
            continue  # it acts elsewhere now, and nobody had touched it
        else:
            lost.append((knob, value, now))
    return assignment, lost


def translate_effects(
    effects: Mapping[tuple[str, str], float], old: KnobSpace, new: KnobSpace
) -> dict[tuple[str, str], float]:
    """Effects of values against their knob's default in `old`, as effects against the default in `new`.

    A knob whose new default was never tried has no effects there: what they would be measured from is not known.
    """
    found: dict[tuple[str, str], float] = {}
    for knob, now in _common(old, new):
        known = {value: effects[knob.name, value] for value in knob.values if (knob.name, value) in effects}
        known[knob.default] = 0.0
        if now.default not in known:
            continue
        base = known[now.default]
        found |= {(now.name, v): known[v] - base for v in now.values if v in known and v != now.default}
    return found


def translate_pairs(
    pairs: Mapping[tuple[Value, Value], float], old: KnobSpace, new: KnobSpace
) -> dict[tuple[Value, Value], float]:
    """What two values gain beyond the sum of both, where both knobs have the default and the values that they had.

    Where a default has changed, what the two would be measured from is not known, and they are left out.
    """
    kept = {
        (now.name, value)
        for knob, now in _common(old, new)
        if knob.default == now.default
        for value in now.values
        if value in knob.values and value != now.default
    }
    return {pair: figure for pair, figure in pairs.items() if kept.issuperset(pair)}


def translate_rates(
    rates: Mapping[tuple[str, str], float], old: KnobSpace, new: KnobSpace
) -> dict[tuple[str, str], float]:
    """Figures of values by themselves (how often each fails), for the values that both spaces have."""
    return {
        (now.name, value): rates[knob.name, value]
        for knob, now in _common(old, new)
        for value in now.values
        if (knob.name, value) in rates and value in knob.values and value != now.default
    }


def _common(old: KnobSpace, new: KnobSpace) -> list[tuple[Knob, Knob]]:
    before = _by_name(old)
    pairs = [(before[now.name], now) for now in new.knobs if now.name in before]
    return [(knob, now) for knob, now in pairs if knob.kind is now.kind]


def _by_name(space: KnobSpace) -> dict[str, Knob]:
    return {knob.name: knob for knob in space.knobs}


def _changes(knob: Knob, now: Knob) -> list[SpaceChange]:
    found = []
    if knob.kind is not now.kind:
        found.append(SpaceChange(ChangeKind.KIND_CHANGED, knob.name, (knob.kind.value, now.kind.value)))
    if knob.default != now.default:
        found.append(SpaceChange(ChangeKind.DEFAULT_CHANGED, knob.name, (knob.default, now.default)))
    removed = tuple(value for value in knob.values if value not in now.values)
    added = tuple(value for value in now.values if value not in knob.values)
    found += [SpaceChange(ChangeKind.VALUES_REMOVED, knob.name, removed)] if removed else []
    found += [SpaceChange(ChangeKind.VALUES_ADDED, knob.name, added)] if added else []
    if [v for v in knob.values if v in now.values] != [v for v in now.values if v in knob.values]:
        found.append(SpaceChange(ChangeKind.VALUES_REORDERED, knob.name, now.values))
    return found


def _why_lost(knob: Knob, value: str, now: Knob | None) -> str:
    if now is None:
        return f"knob {knob.name} (set to {value}) is not there"
    if now.kind is not knob.kind:
        return f"knob {knob.name} ({value}) is of kind {now.kind.value} there, not {knob.kind.value}"
    stood = "its default before" if value == knob.default else "as it was set"
    return f"knob {knob.name} has no value {value} ({stood}) there"
