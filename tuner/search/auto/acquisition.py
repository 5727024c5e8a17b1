"""Acquisition: which candidate promises most, and the search for it.

Expected improvement of the true log throughput over the best posterior mean among feasible trials, times the
probability to run and to be within every limit, as logarithms (so that tiny promises still rank). Small spaces are
listed; large ones are climbed by one-knob changes inside a Hamming ball around the incumbent.

Sources: Mockus 1975, Jones et al. 1998 (expected improvement), Gardner et al. 2014 (constraints), Ament et al. 2023
(logarithms), Wan et al. 2021 (Hamming trust regions and interleaved local search).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tuner.search.auto.culprits import Culprits
from tuner.search.auto.history import Codes, Encoding, Floats
from tuner.search.auto.model import Draw, Model

NDBool = NDArray[np.bool_]

_CLIMB_STEPS = 16
_CLIMB_WORK = 4_000_000  # kernel values that one climb may compute: what bounds its time in very large spaces
_erfc = np.vectorize(math.erfc, otypes=[float])


@dataclass(frozen=True, slots=True)
class Promise:
    """Everything that is needed to say what a candidate promises. `best`: posterior mean of the incumbent."""

    encoding: Encoding
    gain: Model
    limits: tuple[Model, ...]
    culprits: Culprits | None
    best: float
    cost: Model | None = None
    cost_weight: float = 0.0
    boldness: float = 1.0
    drawn: Draw | None = None  # instead of the model's mean and deviation

    def at(self, codes: Codes) -> Floats:
        """Log of the promise of each row."""
        gain = self._improvement(*self.gain.at(codes)) if self.drawn is None else self._advantage(self.drawn.at(codes))
        value = gain + self.log_feasible(codes)
        if self.cost is not None:
            value = value - self.cost_weight * self.cost.at(codes)[0]
        return np.asarray(value)

    def sampled(self, rng: np.random.Generator) -> Promise:
        """The same for one function drawn from the posterior: its own improvement takes the place of the expected."""
        return replace(self, drawn=self.gain.draw(rng))

    def _advantage(self, value: Floats) -> Floats:
        """Log of the improvement of a drawn function, made smooth so that what is worse still ranks."""
        width = 0.1 * self.gain.scale
        return np.asarray(np.log(np.logaddexp(0.0, np.clip((value - self.best) / width, -600.0, None))))

    def _improvement(self, mean: Floats, deviation: Floats) -> Floats:
        return log_improvement(mean, self.boldness * deviation, self.best)

    def log_feasible(self, codes: Codes) -> Floats:
        """Log probability of each row to run and to be within every limit."""
        value = np.zeros(len(codes))
        for limit in self.limits:
            value = value + _log_within(*limit.at(codes))
        if self.culprits is not None:
            value = value + self.culprits.log_runs(codes)
        return value

    def doubted(self) -> Promise:
        """The same with a throughput model that takes no knob for irrelevant."""
        return replace(self, gain=self.gain.doubted())

    def around(self, row: Codes) -> Floats:
        """Log of the promise of all one-knob changes of `row`, by column."""
        value = (
            self._improvement(*self.gain.around(row)) if self.drawn is None else self._advantage(self.drawn.around(row))
        )
        for limit in self.limits:
            value = value + _log_within(*limit.around(row))
        if self.culprits is not None:
            value = value + self.culprits.log_runs_around(row)
        if self.cost is not None:
            value = value - self.cost_weight * self.cost.around(row)[0]
        return np.asarray(value)


def log_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """Log of the expected improvement over `best`."""
    z = (mean - best) / deviation
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    plain = np.log(np.maximum(density + z * _normal(z), 1e-300))
    # Far below the incumbent the difference cancels: there, improvement is density / z**2.
    far = -0.5 * z**2 - 0.5 * math.log(2 * math.pi) - 2 * np.log(np.maximum(-z, 1.0))
    return np.asarray(np.log(deviation) + np.where(z < -6, far, plain))


def _log_within(mean: Floats, deviation: Floats) -> Floats:
    return np.asarray(np.log(np.maximum(_normal(-mean / deviation), 1e-12)))


def _normal(z: Floats) -> Floats:
    return np.asarray(0.5 * _erfc(-z / math.sqrt(2)))


def listed(encoding: Encoding) -> Codes:
    """Every row of a small space."""
    return np.array(list(itertools.product(*[range(size) for size in encoding.sizes])), dtype=np.int64)


def climb(
    promise: Promise, starts: Sequence[Codes], center: Codes, radius: int, is_tried: Callable[[Codes], bool]
) -> tuple[Codes, float] | None:
    """The most promising untried row on the way up from `starts`, at most `radius` knobs away from `center`."""
    encoding = promise.encoding
    best: tuple[Codes, float] | None = None
    visited: set[bytes] = set()
    sweeps = max(8, _CLIMB_WORK // (encoding.width * promise.gain.n_rows))
    for start in starts:
        row, value = start.copy(), -np.inf
        for _ in range(_CLIMB_STEPS):
            if row.tobytes() in visited or len(visited) >= sweeps:
                break
            visited.add(row.tobytes())
            values = np.where(_inside(encoding, row, center, radius), promise.around(row), -np.inf)
            values[encoding.columns(row)] = -np.inf
            best = _better(encoding, row, values, best, is_tried)
            top = int(np.argmax(values))
            if values[top] <= value:
                break
            value = float(values[top])
            row = row.copy()
            row[encoding.knob_of[top]] = encoding.value_of[top]
    return best


def _inside(encoding: Encoding, row: Codes, center: Codes, radius: int) -> NDBool:
    """Which one-knob changes of `row` stay in the ball."""
    away = row != center
    after = away.sum() - away[encoding.knob_of] + (encoding.value_of != center[encoding.knob_of])
    return np.asarray(after <= max(radius, int(away.sum()) - 1))


def _better(
    encoding: Encoding,
    row: Codes,
    values: Floats,
    best: tuple[Codes, float] | None,
    is_tried: Callable[[Codes], bool],
) -> tuple[Codes, float] | None:
    floor = -np.inf if best is None else best[1]
    for column in np.argsort(-values, kind="stable"):
        if not values[column] > floor:
            return best
        other = row.copy()
        other[encoding.knob_of[column]] = encoding.value_of[column]
        if not is_tried(other):
            return other, float(values[column])
    return best
