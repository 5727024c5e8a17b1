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
_MANY_FAILURES = 10
_ITERATIONS = 60
_DAMPING = 0.3
_MOST_PAIRS = 1500  # of one failure; beyond that, pairs share too little blame to matter
_MOST_FAILURES = 150  # the last ones


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
        times = hot_failed.sum(axis=0)
        # Values that failed and never ran; after so many failures it is no matter of company any more.
        self.accused = (times > 0) & (times <= _MANY_FAILURES) & (self._prior > 0)
        self._together = (hot_ran.T @ hot_ran) > 0
        self.single = self._prior.copy()
        self.pair = np.zeros((encoding.width, encoding.width))
        if len(failed):
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
        """Mean-field iterations over suspects: values, and pairs of values that no value explains.

        Damped, because without it all suspects of a failure would rise and fall together for ever.
        """
        trial, suspect = self._suspicions(failures[-_MOST_FAILURES:])
        width = self._encoding.width
        ids, index = np.unique(suspect, return_inverse=True)
        prior = np.where(ids < width, self._prior[np.minimum(ids, width - 1)], _PAIR)
        guilt = prior.copy()
        for _ in range(_ITERATIONS):
            innocent = np.log1p(-np.minimum(guilt, 0.9999))[index]
            nobody = np.bincount(trial, innocent)[trial]
            others = 1.0 - np.exp(nobody - innocent) * (1.0 - _BY_ITSELF)
            log_odds = np.bincount(index, -np.log(others)).astype(np.float64)
            guilt = (1 - _DAMPING) * guilt + _DAMPING * _posterior(prior, log_odds)
        self.single[ids[ids < width]] = guilt[ids < width]
        pairs = ids[ids >= width] - width
        self.pair[pairs // width, pairs % width] = guilt[ids >= width]
        self.pair = np.maximum(self.pair, self.pair.T)

    def _suspicions(self, failures: Floats) -> tuple[Codes, Codes]:
        """Trial and suspect of each suspicion; a suspect is a column, or the width plus left * width + right."""
        width = self._encoding.width
        trials, suspects = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for number, row in enumerate(failures):
            singles = np.flatnonzero(row * (self._prior > 0))
            left, right = self._suspect_pairs(row)
            own = np.concatenate([singles, width + left * width + right])
            trials.append(np.full(len(own), number))
            suspects.append(own)
        return np.concatenate(trials), np.concatenate(suspects)

    def _suspect_pairs(self, row: Floats) -> tuple[Codes, Codes]:
        on = np.flatnonzero(row)
        left, right = np.triu_indices(len(on), 1)
        left, right = on[left], on[right]
        # A value that never ran is itself the simpler explanation of all its pairs.
        known = (self._prior[left] == 0) & (self._prior[right] == 0) & ~self._together[left, right]
        left, right = left[known], right[known]
        return (left, right) if len(left) <= _MOST_PAIRS else (left[:0], right[:0])


def _posterior(prior: Floats, log_odds: Floats) -> Floats:
    logit = np.log(prior) - np.log1p(-prior) + log_odds
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(logit, -500, 500))))
