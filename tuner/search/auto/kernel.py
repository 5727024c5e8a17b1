"""Kernel: how alike two candidates are. Additive, pairwise and residual parts that share one relevance per knob.

For knob i with V values let z_i(x, x') = (1[x_i = x'_i] - 1/V) / (1 - 1/V), the zero-sum contrast kernel with unit
variance. With relevance u_i > 0 and its bounded form c_i = u_i / (1 + u_i):

    k(x, x') = const + s_a sum_i u_i z_i + s_2 sum_{i<j} c_i c_j z_i z_j + s_r exp(-g sum_i c_i 1[x_i != x'_i])

The first sum is a Bayesian linear model with one variance per knob, the second has all pair terms, each as likely as
its two knobs are relevant (strong heredity), the last is a Gaussian process on the weighted Hamming distance for
whatever is left. All four are functions of linear forms in 1[x_i = x'_i], so that a kernel matrix costs a few matrix
products, the kernel of all one-knob changes of a candidate is an update, and pairs cost nothing extra (Newton-Girard).

Sources: Durrande et al. 2012 (ANOVA kernels), Duvenaud et al. 2011 (additive Gaussian processes), Hutter et al. 2011
and Wan et al. 2021 (weighted Hamming kernels for categorical optimization), Baptista and Poloczek 2018 (sparse pairs).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.search.auto.history import Codes, Encoding, Floats

CONSTANT = 1.0  # prior variance of the level, in units of the data's variance


@dataclass(frozen=True, slots=True)
class Hyper:
    """Parameters of one kernel. `relevance`: (knobs,). Variances in units of the data's variance."""

    relevance: Floats
    additive: float
    pair: float
    residual: float
    reach: float  # g: how fast the residual forgets
    noise: float

    @property
    def bounded(self) -> Floats:
        return self.relevance / (1.0 + self.relevance)


class Kernel:
    """A kernel with fixed parameters on a space.

    A *form* is one linear function of which knobs agree; `forms` are (4, n, m) arrays: additive, sum and sum of
    squares of the pair terms, distance.
    """

    def __init__(self, encoding: Encoding, hyper: Hyper) -> None:
        self._encoding = encoding
        self.hyper = hyper
        slope, level = contrasts(encoding)
        u, c = hyper.relevance, hyper.bounded
        # Rows: weight of agreement in each form, by knob; and what is there without any agreement.
        self._weights = np.stack([u * slope, c * slope, c**2 * (slope**2 + 2 * slope * level), -hyper.reach * c])
        self._levels = np.array([(u * level).sum(), (c * level).sum(), (c**2 * level**2).sum(), hyper.reach * c.sum()])
        self.diagonal = float(self.of(np.array([u.sum(), c.sum(), (c**2).sum(), 0.0]).reshape(4, 1))[0])

    def forms(self, left: Floats, right: Floats) -> Floats:
        """Forms of one-hot rows: (4, n, m)."""
        by_column = self._weights[:, self._encoding.knob_of]
        return np.stack([(left * w) @ right.T + level for w, level in zip(by_column, self._levels, strict=True)])

    def around(self, row: Codes, right: Floats) -> Floats:
        """Kernel values between all one-knob changes of `row` and one-hot rows: (width, m).

        A change adds d in {-1, 0, 1} to one agreement, so that each part is a polynomial of degree two in d: the square
        of the pair terms is one, and exp(w d) = 1 + d sinh w + d^2 (cosh w - 1). Two thin products instead of
        exponentials.
        """
        h, knob_of = self.hyper, self._encoding.knob_of
        additive, total, square, away = self.forms(self._encoding.one_hot(row[None]), right)[:, 0]
        decay = h.residual * np.exp(-np.maximum(away, 0.0))
        base = CONSTANT + h.additive * additive + 0.5 * h.pair * (total**2 - square) + decay
        w = self._weights
        ones = np.ones_like(base)
        first = np.stack([h.additive * w[0] - 0.5 * h.pair * w[2], h.pair * w[1], np.sinh(-w[3])], axis=1)
        second = np.stack([0.5 * h.pair * w[1] ** 2, np.cosh(w[3]) - 1.0], axis=1)
        agree = right.T
        d = agree - agree[self._encoding.columns(row)[knob_of]]
        value = d * (second[knob_of] @ np.stack([ones, decay]))
        value += first[knob_of] @ np.stack([ones, total, decay])
        value *= d
        return np.asarray(value + base)

    def of(self, forms: Floats) -> Floats:
        """Kernel values of forms."""
        h = self.hyper
        value = CONSTANT + h.additive * forms[0]
        if h.pair:
            value = value + h.pair * 0.5 * (forms[1] ** 2 - forms[2])
        if h.residual:
            value = value + h.residual * np.exp(-np.maximum(forms[3], 0.0))
        return np.asarray(value)


def contrasts(encoding: Encoding) -> tuple[Floats, Floats]:
    """Slope and level by knob: z_i = slope * [agree] + level."""
    share = 1.0 / encoding.sizes
    return 1.0 / (1.0 - share), -share / (1.0 - share)
