"""Offset: a prior mean of throughput, what a candidate gains according to other contexts: by value and by pair.

Flow: Prior (config.py) -> HERE, by column -> model.py, which fits how much of it holds and models what is left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.search.auto.config import Prior
from tuner.search.auto.history import Codes, Encoding, Floats


@dataclass(frozen=True, slots=True)
class Offset:
    """`single`: (width,), log gain of each value by itself. `pairs`: (width, width), symmetric, what two values gain
    beyond the sum of both; None if nothing is known of pairs."""

    encoding: Encoding
    single: Floats
    pairs: Floats | None = None

    def at(self, hot: Floats) -> Floats:
        """Log gain foretold for one-hot rows, (n,)."""
        value = hot @ self.single
        if self.pairs is not None:
            value = value + 0.5 * ((hot @ self.pairs) * hot).sum(axis=1)
        return np.asarray(value)

    def around(self, row: Codes) -> Floats:
        """Log gain foretold for all one-knob changes of `row`, by column, (width,)."""
        columns, knob_of = self.encoding.columns(row), self.encoding.knob_of
        own = self.single[columns]
        value = own.sum() + self.single - own[knob_of]
        if self.pairs is not None:
            with_row = self.pairs[:, columns].sum(axis=1)
            inside = with_row[columns]
            current = columns[knob_of]
            mutual = self.pairs[current, np.arange(self.encoding.width)]
            value = value + 0.5 * inside.sum() - inside[knob_of] + with_row - mutual
        return np.asarray(value)


def offset_of(encoding: Encoding, prior: Prior | None) -> Offset | None:
    """What `prior` foretells, by column; None if it foretells nothing. Values that the space lacks are passed over."""
    if prior is None or not prior.effects:
        return None
    single = np.zeros(encoding.width)
    for (knob, value), effect in prior.effects.items():
        if (column := encoding.column(knob, value)) is not None:
            single[column] = effect
    if not prior.pairs:
        return Offset(encoding, single)
    pairs = np.zeros((encoding.width, encoding.width))
    for (one, other), effect in prior.pairs.items():
        left, right = encoding.column(*one), encoding.column(*other)
        if left is not None and right is not None:
            pairs[left, right] = pairs[right, left] = effect
    return Offset(encoding, single, pairs)
