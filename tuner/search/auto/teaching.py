"""Teaching: what finished trials say of values and of pairs of values, as a prior for other contexts.

Flow: tuner/transfer.py hands over a parent's trials -> HERE -> effects against the default. The model is that of the
search: what it learnt is its posterior mean at the default with one value changed, and with two, so that what the data
could not settle is drawn to zero.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from objectives.knobs import Candidate, KnobSpace
from tuner.search.auto.config import Value
from tuner.search.auto.fit import Parts
from tuner.search.auto.history import Encoding
from tuner.search.auto.model import Model, fitted

_NOISE = 0.01
_MOST_ROWS = 240
_MOST_KNOBS = 12  # of which pairs are told: those that matter most
_LEAST = 0.002  # log units: a smaller effect of a pair is not worth telling


@dataclass(frozen=True, slots=True)
class Taught:
    """`effects`: log gain of a value against its knob's default. `pairs`: what two gain beyond the sum of both."""

    effects: dict[Value, float]
    pairs: dict[tuple[Value, Value], float]


def teach(space: KnobSpace, trials: Sequence[tuple[Candidate, float]]) -> Taught:
    """What timed trials, with their log gain over the default, say of the values that stood in them."""
    encoding = Encoding(space)
    trials = sorted(trials, key=lambda one: -one[1])[:_MOST_ROWS]
    codes = encoding.codes(candidate for candidate, _ in trials)
    gains = np.array([gain for _, gain in trials])
    unknown = np.zeros(len(gains))
    hyper = fitted(encoding, codes, gains, unknown, Parts(noise=_NOISE))
    model = Model(encoding, codes, gains, unknown, hyper)
    seen = np.zeros(encoding.width, dtype=bool)
    for row in codes:
        seen[encoding.columns(row)] = True
    default = encoding.default
    base, single = float(model.at(default[None])[0][0]), model.around(default)[0]
    changed = [c for c in range(encoding.width) if seen[c] and encoding.value_of[c] != default[encoding.knob_of[c]]]
    effects = {_value(space, encoding, c): float(single[c]) - base for c in changed}
    strongest = set(np.argsort(-hyper.relevance, kind="stable")[:_MOST_KNOBS].tolist())
    pairs = {}
    matter = [c for c in changed if int(encoding.knob_of[c]) in strongest]
    for one, other in itertools.combinations(matter, 2):
        if encoding.knob_of[one] == encoding.knob_of[other]:
            continue
        row = default.copy()
        for column in (one, other):
            row[encoding.knob_of[column]] = encoding.value_of[column]
        both = float(model.at(row[None])[0][0]) - float(single[one]) - float(single[other]) + base
        if abs(both) >= _LEAST:
            pairs[_value(space, encoding, one), _value(space, encoding, other)] = both
    return Taught(effects, pairs)


def _value(space: KnobSpace, encoding: Encoding, column: int) -> Value:
    knob = encoding.knobs[int(encoding.knob_of[column])]
    return knob.name, knob.values[int(encoding.value_of[column])]
