"""Carried: what a context took over when it was opened, as values; stored with it, so that a resumed run does the same.

Flow: tuner/transfer.py makes it from the parents -> the database -> tuner/carrying.py uses it, `study show` tells it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from objectives.knobs import Candidate, KnobSpace
from storage.records import ContextRecord
from tuner.migration import SpaceChange
from tuner.search.auto.config import Prior

FORMAT = 1


class ParentLink(msgspec.Struct, frozen=True):
    """A context that something was taken from: its number, how near it is in words, how many trials it had then."""

    number: int
    relation: str
    n_trials: int = 0


class CarriedCandidate(msgspec.Struct, frozen=True):
    """A candidate to be measured here before the search proposes any; `gain`: log speed-up that it showed there."""

    changes: tuple[tuple[str, str], ...]
    context: int
    trial: int
    why: str
    gain: float | None = None

    @property
    def candidate(self) -> Candidate:
        return Candidate(self.changes)


class Dropped(msgspec.Struct, frozen=True):
    """A candidate that would have been carried, in the words of its own space, and why it was not."""

    candidate: str
    context: int
    trial: int
    why: str
    reason: str


class Figure(msgspec.Struct, frozen=True):
    """Something known of one value of one knob."""

    knob: str
    value: str
    figure: float


class PairFigure(msgspec.Struct, frozen=True):
    """Something known of two values of two knobs together."""

    one: tuple[str, str]
    other: tuple[str, str]
    figure: float


class Carried(msgspec.Struct, frozen=True):
    """`because`: why the context was opened. `changes`: how its knob space differs from its nearest parent's.

    `effects`: log gain of a value against its knob's default; `pairs`: what two gain beyond the sum of both;
    `failure_rates`: how likely a value by itself fails.
    `adopted_from`: number of the context whose trials were copied, since only the limits differ; None: none were.
    """

    because: str
    parents: tuple[ParentLink, ...] = ()
    changes: tuple[SpaceChange, ...] = ()
    candidates: tuple[CarriedCandidate, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    effects: tuple[Figure, ...] = ()
    failure_rates: tuple[Figure, ...] = ()
    adopted_from: int | None = None
    switched_off: bool = False
    pairs: tuple[PairFigure, ...] = ()
    format: int = FORMAT

    def prior(self) -> Prior | None:
        """What the search is told beforehand; None if there is nothing."""
        if not self.effects and not self.failure_rates:
            return None
        pairs = {(one.one, one.other): one.figure for one in self.pairs}
        return Prior(_by_value(self.effects), _by_value(self.failure_rates), pairs=pairs)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        result: dict[str, Any] = msgspec.to_builtins(self)
        return result


def figures(by_value: Mapping[tuple[str, str], float], space: KnobSpace) -> tuple[Figure, ...]:
    """Figures in the order of the space's knobs and values."""
    order = [(knob.name, value) for knob in space.knobs for value in knob.values]
    return tuple(Figure(*key, by_value[key]) for key in order if key in by_value)


def read_carried(record: ContextRecord) -> Carried | None:
    """What a context took over; None if it is the first of its study, or older than such notes."""
    if record.carried is None or record.carried.get("format") != FORMAT:
        return None  # notes of a newer version: what they say is not known here, and nothing depends on it but a start
    return msgspec.convert(dict(record.carried), Carried)


def _by_value(found: tuple[Figure, ...]) -> dict[tuple[str, str], float]:
    return {(one.knob, one.value): one.figure for one in found}
