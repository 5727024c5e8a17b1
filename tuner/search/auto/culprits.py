"""Culprits: which values, and which pairs of values, make candidates fail.

Flow: rows that failed and rows that did not -> HERE -> log probability that a candidate does not fail.

Model: a value that is not the default, or a pair of them, is a culprit or is not; a candidate fails when it holds one,
or by itself with a small probability. What stood in a candidate that ran is cleared. What is left under suspicion
shares the failures that nothing else explains: each failure multiplies the odds of a suspect by one over the
probability that the others would have explained it. This is noisy group testing, decoded by mean-field iterations.

Sources: Dorfman 1943 (group testing), Pearl 1988 (noisy or), Atia and Saligrama 2012 (noisy group testing).
"""

from __future__ import annotations

import numpy as np

from tuner.search.auto.history import Codes, Encoding, Floats

_PAIR = 0.0005  # prior probability that a pair is a culprit
_BY_ITSELF = 0.005
_ITERATIONS = 12
_MOST_PAIRS = 600  # of one failure; beyond that, pairs share too little blame to matter


class Culprits:
    """Posterior of the culprits. `rates` (width,): probability that a value fails, from elsewhere; nan: unknown."""

    def __init__(self, encoding: Encoding, ran: Codes, failed: Codes, rates: Floats | None = None) -> None:
        self._encoding = encoding
        active = ~encoding.is_default
        hot_ran = encoding.one_hot(ran) * active
        hot_failed = encoding.one_hot(failed) * active
        cleared = hot_ran.any(axis=0)
        base = min(0.1, (0.5 + len(failed)) / (25.0 + len(failed) + cleared.sum()))
        single = np.full(encoding.width, base)
        if rates is not None:
            single = np.where(np.isnan(rates), single, np.clip(rates, 0.002, 0.5))
        self._prior = np.where(active & ~cleared, single, 0.0)
        self._together = (hot_ran.T @ hot_ran) > 0
        self.single = self._prior.copy()
        self.pair = np.zeros((encoding.width, encoding.width))
        self._blame(hot_failed)
        self._log_single = np.log1p(-np.minimum(self.single, 0.999))
        self._log_pair = np.log1p(-np.minimum(self.pair, 0.999)) if self.pair.any() else None

    def log_runs(self, codes: Codes) -> Floats:
        """Log probability that each row does not fail."""
        hot = self._encoding.one_hot(codes)
        result = hot @ self._log_single
        if self._log_pair is not None:
            result = result + 0.5 * ((hot @ self._log_pair) * hot).sum(axis=1)
        return np.asarray(result)

    def log_runs_around(self, row: Codes) -> Floats:
        """The same for all one-knob changes of `row`, by column."""
        columns, knob_of = self._encoding.columns(row), self._encoding.knob_of
        own = self._log_single[columns]
        result = own.sum() + self._log_single - own[knob_of]
        if self._log_pair is not None:
            with_row = self._log_pair[:, columns].sum(axis=1)
            inside = with_row[columns]
            mutual = self._log_pair[columns[knob_of], np.arange(self._encoding.width)]
            result = result + 0.5 * inside.sum() - inside[knob_of] + with_row - mutual
        return np.asarray(result)

    def _blame(self, failures: Floats) -> None:
        """Mean-field iterations over suspects: values, then pairs of values that no value explains."""
        singles = [np.flatnonzero(row * (self._prior > 0)) for row in failures]
        pairs = [self._suspect_pairs(row) for row in failures]
        if not singles:
            return
        for _ in range(_ITERATIONS):
            odds_single = np.zeros(self._encoding.width)
            odds_pair = np.zeros_like(self.pair)
            for own, (left, right) in zip(singles, pairs, strict=True):
                p, q = self.single[own], np.maximum(self.pair[left, right], _PAIR)
                innocent = np.log1p(-np.minimum(p, 0.9999)).sum() + np.log1p(-np.minimum(q, 0.9999)).sum()
                others = 1 - np.exp(innocent - np.log1p(-np.minimum(p, 0.9999))) * (1 - _BY_ITSELF)
                odds_single[own] -= np.log(np.maximum(others, _BY_ITSELF))
                others = 1 - np.exp(innocent - np.log1p(-np.minimum(q, 0.9999))) * (1 - _BY_ITSELF)
                odds_pair[left, right] -= np.log(np.maximum(others, _BY_ITSELF))
            self.single = np.where(self._prior > 0, _posterior(self._prior, odds_single), 0.0)
            pair = np.where(odds_pair != 0, _posterior(np.full_like(odds_pair, _PAIR), odds_pair), 0.0)
            self.pair = np.maximum(pair, pair.T)

    def _suspect_pairs(self, row: Floats) -> tuple[Codes, Codes]:
        on = np.flatnonzero(row)
        left, right = np.triu_indices(len(on), 1)
        left, right = on[left], on[right]
        suspect = ~self._together[left, right]
        left, right = left[suspect], right[suspect]
        # A value that never ran is itself the simpler explanation of all its pairs.
        known = (self._prior[left] == 0) & (self._prior[right] == 0)
        left, right = left[known], right[known]
        return (left, right) if len(left) <= _MOST_PAIRS else (left[:0], right[:0])


def _posterior(prior: Floats, log_odds: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        logit = np.log(prior) - np.log1p(-prior) + log_odds
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(logit, -500, 500))))
