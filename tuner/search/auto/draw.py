"""Draw: one function from the posterior of a model, exact at any candidate: Thompson sampling without a grid.

Matheron's rule: a function drawn from the prior, plus what the data say about the difference. Each part of the prior
can be drawn: effects of values and of pairs of values are normal, and the residual is a sum of cosines whose phases are
normal by value with variance l_i, because E cos(a - b) = exp(-l_i) is just the kernel of two different values.

Sources: Thompson 1933, Wilson et al. 2020 (pathwise conditioning), Rahimi and Recht 2007 (random features).
"""

from __future__ import annotations

import numpy as np

from tuner.search.auto.history import Codes, Encoding, Floats
from tuner.search.auto.kernel import CONSTANT, Kernel, contrasts

_FEATURES = 192


class PriorDraw:
    """One function from the prior that a kernel stands for, in its standardized units."""

    def __init__(self, encoding: Encoding, kernel: Kernel, rng: np.random.Generator) -> None:
        self._encoding = encoding
        h, knob_of = kernel.hyper, encoding.knob_of
        slope, _ = contrasts(encoding)
        self._level = float(rng.normal(0, np.sqrt(CONSTANT)))
        spread = np.sqrt(h.additive * h.relevance * slope)[knob_of]
        self._effects = self._centered(rng.normal(size=encoding.width)) * spread
        self._pairs: Floats | None = None
        if h.pair:
            by_column = np.sqrt(h.bounded * slope)[knob_of]
            raw = rng.normal(size=(encoding.width, encoding.width))
            raw = np.triu(self._centered(self._centered(raw).T).T, 1) * (knob_of[:, None] != knob_of)
            self._pairs = np.sqrt(h.pair) * (raw + raw.T) * by_column[:, None] * by_column
        spread = np.sqrt(h.reach * h.bounded)[knob_of]
        self._phases = rng.normal(size=(_FEATURES, encoding.width)) * spread
        self._starts = rng.uniform(0, 2 * np.pi, _FEATURES)
        self._weights = rng.normal(size=_FEATURES) * np.sqrt(2 * h.residual / _FEATURES)

    def at(self, hot: Floats) -> Floats:
        """Values at one-hot rows."""
        value = self._level + hot @ self._effects
        if self._pairs is not None:
            value = value + 0.5 * ((hot @ self._pairs) * hot).sum(axis=1)
        return np.asarray(value + np.cos(hot @ self._phases.T + self._starts) @ self._weights)

    def around(self, row: Codes) -> Floats:
        """Values at all one-knob changes of `row`, by column."""
        columns, knob_of = self._encoding.columns(row), self._encoding.knob_of
        current = columns[knob_of]
        value = self._level + self._effects[columns].sum() + self._effects - self._effects[current]
        if self._pairs is not None:
            with_row = self._pairs[:, columns].sum(axis=1)
            inside = with_row[columns]
            mutual = self._pairs[current, np.arange(self._encoding.width)]
            value = value + 0.5 * inside.sum() - inside[knob_of] + with_row - mutual
        base = self._phases[:, columns].sum(axis=1) + self._starts
        phases = base[:, None] + self._phases - self._phases[:, current]
        return np.asarray(value + self._weights @ np.cos(phases))

    def _centered(self, by_column: Floats) -> Floats:
        """Along the last axis: minus the mean over the values of each knob."""
        starts, sizes, knob_of = self._encoding.starts, self._encoding.sizes, self._encoding.knob_of
        means = np.add.reduceat(by_column, starts, axis=-1) / sizes
        return np.asarray(by_column - means[..., knob_of])
