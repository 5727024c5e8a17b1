"""Model: a Gaussian process over candidates, conditioned on what was seen.

Flow: rows and numbers -> fit.py for the parameters -> HERE -> means and variances for the acquisition.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tuner.search.auto.draw import PriorDraw
from tuner.search.auto.fit import Parts, fit
from tuner.search.auto.history import Codes, Encoding, Floats
from tuner.search.auto.kernel import Hyper, Kernel
from tuner.search.auto.offset import Offset


@dataclass(frozen=True, slots=True)
class Draw:
    """A function from the posterior of `model`: one from the prior, and what the data change about it."""

    model: Model
    prior: PriorDraw
    weight: float  # of the prior mean
    update: Floats

    def at(self, codes: Codes) -> Floats:
        """Values at each row."""
        return self.model.drawn_at(self, codes)

    def around(self, row: Codes) -> Floats:
        """Values at all one-knob changes of `row`, by column."""
        return self.model.drawn_around(self, row)


class Model:
    """Posterior of one quantity. In the quantity's own units outside, standardized inside.

    `variance` is the known error of each value, 0 where it is not known. `offset` is a prior mean; its scale is
    uncertain by half.
    """

    def __init__(
        self, encoding: Encoding, codes: Codes, y: Floats, variance: Floats, hyper: Hyper, offset: Offset | None = None
    ) -> None:
        self._encoding, self.hyper, self._offset = encoding, hyper, offset
        self._data = (codes, y, variance)
        self._kernel = Kernel(encoding, hyper)
        self._hot = encoding.one_hot(codes)
        self._shift = np.zeros(len(y)) if offset is None else offset.at(self._hot)
        self._mean, self._scale = standard(y - self._shift)
        self._z = (y - self._shift - self._mean) / self._scale
        k = self._kernel.of(self._kernel.forms(self._hot, self._hot)) + self._prior(self._shift, self._shift)
        self._noise = variance / self._scale**2 + hyper.noise + 1e-6
        k[np.diag_indices(len(k))] += self._noise
        self._inverse = np.linalg.inv(k)
        self._alpha = self._inverse @ self._z

    def doubted(self) -> Model:
        """The same data under a prior in which every knob matters and combinations matter more."""
        h = self.hyper
        wide = replace(h, relevance=np.maximum(h.relevance, 1.0), pair=max(h.pair, 0.05), residual=max(h.residual, 0.3))
        return Model(self._encoding, *self._data, wide, self._offset)

    @property
    def n_rows(self) -> int:
        """Number of trials that it is conditioned on."""
        return len(self._z)

    @property
    def scale(self) -> float:
        """What a variance of 1 in the parameters means."""
        return self._scale

    def at(self, codes: Codes) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the true quantity at each row."""
        hot = self._encoding.one_hot(codes)
        shift = np.zeros(len(hot)) if self._offset is None else self._offset.at(hot)
        return self._predict(self._kernel.of(self._kernel.forms(hot, self._hot)), shift)

    def around(self, row: Codes) -> tuple[Floats, Floats]:
        """Mean and standard deviation at all one-knob changes of `row`, by column; at a column that it has: its own."""
        return self._predict(*self._around(row))

    def draw(self, rng: np.random.Generator) -> Draw:
        """One function from the posterior."""
        prior = PriorDraw(self._encoding, self._kernel, rng)
        weight = 0.0 if self._offset is None else float(rng.normal(0, np.sqrt(self._prior_variance())))
        noise = rng.normal(size=len(self._z)) * np.sqrt(self._noise)
        rest = self._z - prior.at(self._hot) - weight * self._shift - noise
        return Draw(self, prior, weight, self._inverse @ rest)

    def drawn_at(self, draw: Draw, codes: Codes) -> Floats:
        """Values of a drawn function at each row."""
        hot = self._encoding.one_hot(codes)
        shift = np.zeros(len(hot)) if self._offset is None else self._offset.at(hot)
        return self._drawn(draw, draw.prior.at(hot), self._kernel.of(self._kernel.forms(hot, self._hot)), shift)

    def drawn_around(self, draw: Draw, row: Codes) -> Floats:
        """Values of a drawn function at all one-knob changes of `row`, by column."""
        return self._drawn(draw, draw.prior.around(row), *self._around(row))

    def _drawn(self, draw: Draw, prior: Floats, k: Floats, shift: Floats) -> Floats:
        k = k + self._prior(shift, self._shift)
        return np.asarray(shift + self._mean + self._scale * (prior + draw.weight * shift + k @ draw.update))

    def _around(self, row: Codes) -> tuple[Floats, Floats]:
        """Kernel values and prior means of all one-knob changes."""
        shift = np.zeros(self._encoding.width) if self._offset is None else self._offset.around(row)
        return self._kernel.around(row, self._hot), shift

    def _predict(self, k: Floats, shift: Floats) -> tuple[Floats, Floats]:
        k = k + self._prior(shift, self._shift)
        mean = k @ self._alpha
        own = self._kernel.diagonal + (0.0 if self._offset is None else self._prior_variance() * shift**2)
        variance = own - ((k @ self._inverse) * k).sum(axis=1)
        deviation = np.sqrt(np.maximum(variance, 1e-10))
        return shift + self._mean + self._scale * mean, self._scale * deviation

    def _prior(self, left: Floats, right: Floats) -> Floats | float:
        return 0.0 if self._offset is None else self._prior_variance() * np.outer(left, right)

    def _prior_variance(self) -> float:
        return 0.25 / self._scale**2


def fitted(
    encoding: Encoding, codes: Codes, y: Floats, variance: Floats, parts: Parts, offset: Offset | None = None
) -> Hyper:
    """Parameters fitted to values in their own units; `parts.noise` is in the same units."""
    hot = encoding.one_hot(codes)
    rest = y if offset is None else y - offset.at(hot)
    mean, scale = standard(rest)
    scaled = Parts(parts.additive, parts.pairs, parts.residual, parts.sparse, parts.noise / scale, parts.noise_width)
    return fit(encoding, hot, (rest - mean) / scale, variance / scale**2, scaled)


def standard(y: Floats) -> tuple[float, float]:
    """Center and scale; the scale of values that are all the same is tiny but not nothing."""
    return float(np.mean(y)), max(float(np.std(y)), 1e-4)
