"""Fit: relevances and variances from data, by the mode of their posterior.

Priors, on data in units of their own standard deviation: the square root of each knob's relevance is half-Cauchy (the
horseshoe's local scale: most knobs near nothing, some far out); variances and noise are log-normal around values that
let the data decide. The mode is taken over logarithms, so that it stays where the prior is until data speak.

Sources: Carvalho et al. 2010 (horseshoe), Eriksson and Jankowiak 2021 (sparse axis-aligned subspaces), Rasmussen and
Williams 2006, chapter 5 (gradients), Riedmiller and Braun 1993 (Rprop).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.search.auto.history import Encoding, Floats
from tuner.search.auto.kernel import CONSTANT, Hyper, Kernel, contrasts

_STEPS = 30
_JITTER = 1e-6


@dataclass(frozen=True, slots=True)
class Parts:
    """Which parts of the kernel there are, and where the noise is expected (standard deviation, log units)."""

    additive: bool = True
    pairs: bool = True
    residual: bool = True
    sparse: bool = True
    noise: float = 0.01
    noise_width: float = 1.0


def fit(encoding: Encoding, hot: Floats, y: Floats, variance: Floats, parts: Parts) -> Hyper:
    """Parameters for rows `hot` (n, width) with standardized values `y` whose known error is `variance`, in y's units.

    `parts.noise` too is in y's units here.
    """
    objective = _Objective(encoding, hot, y, variance, parts)
    return objective.hyper(_rprop(objective, objective.center.copy()))


class _Objective:
    """Negative log posterior over logarithms: relevance by knob, then additive, pair, residual, reach, noise."""

    def __init__(self, encoding: Encoding, hot: Floats, y: Floats, variance: Floats, parts: Parts) -> None:
        self._encoding, self._hot, self._y, self._variance = encoding, hot, y, variance
        self._slope, self._level = contrasts(encoding)
        n = self._n = len(encoding.knobs)
        self._parts = parts
        scales = [0.5 / n, min(0.05, 1.0 / n), min(0.2, 4.0 / n), 12.0 / n, max(parts.noise, 1e-4) ** 2]
        self.center = np.concatenate([np.zeros(n), np.log(scales)])
        self.width = np.array([1.5, 1.5, 1.0, 0.7, parts.noise_width])
        self._free = np.concatenate(
            [np.full(n, parts.sparse), [parts.additive, parts.pairs, parts.residual, parts.residual, True]]
        )

    def hyper(self, p: Floats) -> Hyper:
        n, parts = self._n, self._parts
        additive, pair, residual, reach, noise = np.exp(p[n:])
        return Hyper(
            relevance=np.exp(p[:n]),
            additive=float(additive) * parts.additive,
            pair=float(pair) * parts.pairs,
            residual=float(residual) * parts.residual,
            reach=float(reach),
            noise=float(noise),
        )

    def gradient(self, p: Floats) -> Floats:
        """Gradient of the negative log posterior at `p`; zero for what is switched off."""
        n, h, hot = self._n, self.hyper(p), self._hot
        u, c = h.relevance, h.bounded
        additive = self._weighted(u * self._slope) + (u * self._level).sum()
        total = self._weighted(c * self._slope) + (c * self._level).sum()
        square = c**2 * (self._slope**2 + 2 * self._slope * self._level)
        pairs = 0.5 * (total**2 - self._weighted(square) - (c**2 * self._level**2).sum())
        residual = np.exp(-np.maximum(h.reach * (c.sum() - self._weighted(c)), 0.0))
        k = CONSTANT + h.additive * additive + h.pair * pairs + h.residual * residual
        k[np.diag_indices(len(k))] += self._variance + h.noise + _JITTER
        inverse = np.linalg.inv(k)
        alpha = inverse @ self._y
        g = 0.5 * (inverse - np.outer(alpha, alpha))
        plain, with_total, with_residual = (self._by_knob(m) for m in (g, g * total, g * residual))
        all_plain, all_total, all_residual = g.sum(), (g * total).sum(), (g * residual).sum()
        by_u = h.additive * (self._slope * plain + self._level * all_plain)
        by_c = h.pair * (self._slope * with_total + self._level * all_total)
        by_c -= h.pair * (square / np.maximum(c, 1e-12) * plain + c * self._level**2 * all_plain)
        by_reach = -h.residual * (all_residual - with_residual)
        by_c += h.reach * by_reach
        result = np.empty_like(p)
        result[:n] = by_u * u + by_c * c * (1 - c) + (c - 0.5)  # the last: half-Cauchy on the square root
        result[n:] = [
            h.additive * (g * additive).sum(),
            h.pair * (g * pairs).sum(),
            h.residual * all_residual,
            h.reach * float(c @ by_reach),
            h.noise * float(np.trace(g)),
        ]
        result[n:] += (p[n:] - self.center[n:]) / self.width**2
        assert hot.shape[0] == len(k)
        return np.where(self._free, result, 0.0)

    def _weighted(self, by_knob: Floats) -> Floats:
        return np.asarray((self._hot * by_knob[self._encoding.knob_of]) @ self._hot.T)

    def _by_knob(self, matrix: Floats) -> Floats:
        """Sum of `matrix` over the pairs of rows that agree, by knob."""
        by_column = ((matrix @ self._hot) * self._hot).sum(axis=0)
        return np.asarray(np.add.reduceat(by_column, self._encoding.starts))


def gradient_of(encoding: Encoding, hot: Floats, y: Floats, variance: Floats, parts: Parts, p: Floats) -> Floats:
    """Gradient of the negative log posterior at logarithms `p` (relevances, then five scales); for tests."""
    return _Objective(encoding, hot, y, variance, parts).gradient(p)


def log_posterior_of(encoding: Encoding, hot: Floats, y: Floats, variance: Floats, parts: Parts, p: Floats) -> float:
    """The negative log posterior itself, up to a constant; the slow and plain way, for tests."""
    objective = _Objective(encoding, hot, y, variance, parts)
    kernel = Kernel(encoding, objective.hyper(p))
    k = kernel.of(kernel.forms(hot, hot))
    k[np.diag_indices(len(k))] += variance + kernel.hyper.noise + _JITTER
    _, log_determinant = np.linalg.slogdet(k)
    fit_of_data = 0.5 * (float(y @ np.linalg.solve(k, y)) + float(log_determinant))
    n = len(encoding.knobs)
    relevance = float((0.5 * p[:n] - np.log1p(np.exp(p[:n]))).sum())
    return fit_of_data - relevance + 0.5 * float((((p[n:] - objective.center[n:]) / objective.width) ** 2).sum())


def _rprop(objective: _Objective, p: Floats) -> Floats:
    """A few sign-based steps: scale-free, no line search, the same on every machine."""
    step, before = np.full(len(p), 0.25), np.zeros(len(p))
    for _ in range(_STEPS):
        gradient = objective.gradient(p)
        same = gradient * before
        step = np.clip(np.where(same > 0, step * 1.3, np.where(same < 0, step * 0.5, step)), 1e-3, 1.0)
        gradient = np.where(same < 0, 0.0, gradient)
        p = np.clip(p - np.sign(gradient) * step, objective.center - 9.0, objective.center + 9.0)
        before = gradient
    return p
