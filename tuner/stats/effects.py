"""Effects: what each knob does by itself, estimated from the trials of a study.

Flow: candidates and their gains -> HERE -> knobs in the order of what they matter (presets, reports). A linear model of
log gains with one coefficient for every value that differs from the default, each drawn to zero by a normal prior whose
width is fitted to the data, so that the many that do nothing vanish and the few that matter keep their size (automatic
relevance determination; Tipping, Sparse Bayesian learning, JMLR 2001). Pairs that only pay together are not seen: their
parts share what they gain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_STEPS = 60
_TINY = 1e-9
_LEAST_NOISE = 1e-4  # variance, of gains of unit spread: nothing is known to better than a hundredth of it
_FLOOR = 0.01


@dataclass(frozen=True, slots=True)
class Effect:
    """One value of one knob against the default: log gain, posterior mean and standard deviation."""

    knob: str
    value: str
    gain: float
    error: float

    @property
    def weight(self) -> float:
        """How much it matters, for an order: its size beyond its error."""
        return max(abs(self.gain) - self.error, 0.0) + 1e-3 * abs(self.gain)


def effects(changes: Sequence[Mapping[str, str]], gains: Sequence[float]) -> list[Effect]:
    """Effects of every (knob, value) that was tried, the weightiest first.

    `changes`: what each candidate changes; `gains`: log(default's cost / its cost), as many. Empty without changes.
    """
    columns = sorted({pair for change in changes for pair in change.items()})
    y = np.asarray(gains, dtype=np.float64)
    spread = float(np.std(y)) if len(y) else 0.0
    if not columns or spread == 0.0:
        return [Effect(knob, value, 0.0, 0.0) for knob, value in columns]
    x = np.array([[float(change.get(knob) == value) for knob, value in columns] for change in changes])
    mean, error = _posterior(x, y / spread)
    found = [
        Effect(*column, float(m * spread), float(e * spread)) for column, m, e in zip(columns, mean, error, strict=True)
    ]
    return sorted(found, key=lambda one: (-one.weight, one.knob, one.value))


def top_knobs(found: Sequence[Effect], count: int) -> list[str]:
    """Names of the knobs with the weightiest values, at most `count`."""
    return list(dict.fromkeys(one.knob for one in found))[:count]


def _posterior(x: Array, y: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of each coefficient. `x`: trials by columns, `y`: of unit spread."""
    n, columns = x.shape
    together, seen = x.T @ x, x.T @ y  # trials come in here alone: hundreds of them cost no more than a few
    width, noise = np.full(columns, 1.0 / columns), 0.1  # variances: of each coefficient, of a measurement
    for _ in range(_STEPS):
        root = np.sqrt(width)
        told = root[:, None] * together * root / noise
        inverse = np.linalg.inv(np.eye(columns) + told)
        mean = root * (inverse @ (root * seen)) / noise
        known = (inverse * told).sum(axis=0)  # share of each coefficient that the data determine
        width = np.maximum(mean**2 / np.maximum(known, _TINY), _TINY)
        left = y - x @ mean
        noise = max(float(left @ left) / max(n - float(known.sum()), 1.0), _LEAST_NOISE)
    variance = np.maximum(width * (1.0 - known), 0.0)
    return mean, np.sqrt(np.maximum(variance, noise / np.maximum((x**2).sum(axis=0), 1.0) * _FLOOR))
