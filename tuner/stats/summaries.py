"""Summaries of the samples of one session: centre, spread, outliers, and how sure the centre is.

Flow: raw samples of a timing -> HERE -> the timing asks `relative_half_width` whether it may stop; reports
show the rest. Nothing is dropped: a slow sample may be the truth, so outliers are counted and stay in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from objectives.distributions import Floats, median_rank
from tuner.stats.errors import PlanError

MAD_TO_SD = 1.4826  # a normal distribution's standard deviation over its MAD
_OUTLIER_Z = 3.5  # Iglewicz and Hoaglin (1993), modified z-score


class Summary(msgspec.Struct, frozen=True):
    """What samples say, in the samples' own unit. Bounds are infinite while the samples are too few."""

    n: int
    median: float
    mad: float  # median absolute deviation from the median, not rescaled
    ci_low: float
    ci_high: float
    confidence: float
    outliers: int  # samples further than 3.5 robust standard deviations from the median; they stay in

    @property
    def relative_half_width(self) -> float:
        """Half the interval's length over the median; infinite while the samples are too few."""
        return 0.5 * (self.ci_high - self.ci_low) / abs(self.median) if self.median else math.inf


def summarize(values: Sequence[float], confidence: float = 0.95) -> Summary:
    """Median, MAD, outliers, and the interval of the median.

    Raises: PlanError without values, for a value that is not finite, and for a confidence outside (0, 1).
    Source: MAD, Hampel (1974); outliers, Iglewicz and Hoaglin (1993), How to Detect and Handle Outliers.
    """
    ordered = _ordered(values)
    median = float(np.median(ordered))
    deviations = np.abs(ordered - median)
    mad = float(np.median(deviations))
    low, high = _interval(ordered, confidence)
    outliers = int(np.count_nonzero(deviations > _OUTLIER_Z * MAD_TO_SD * mad))
    return Summary(ordered.size, median, mad, low, high, confidence, outliers)


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Distribution-free interval of the median between two order statistics.

    Infinite while the samples are too few: below 6 at 95 %. Valid for independent samples of any continuous
    distribution. Inferences inside one round are not independent: give it one value per round.
    Raises: PlanError as `summarize`.
    Source: David and Nagaraja (2003), Order Statistics, section 7.1 (binomial interval).
    """
    return _interval(_ordered(values), confidence)


def median_log_variance(rounds: Sequence[Sequence[float]]) -> float | None:
    """Variance of the log of a session's median, from what its rounds differ; None where nothing differs from anything.

    `rounds`: samples of each round, in one unit, above zero. Rounds are the units, because samples inside one are not
    independent; a single round has only its samples.
    Source: a median of n normal values has pi / 2 times the variance of their mean; Kendall and Stuart (1977), The
    Advanced Theory of Statistics, section 10.11.
    """
    units = [float(np.median(one)) for one in rounds if len(one)]
    if len(units) == 1:
        units = list(rounds[0]) if len(rounds) == 1 else units
    if len(units) < 2:
        return None
    return math.pi / 2 * float(np.var(np.log(units), ddof=1)) / len(units)


def _interval(ordered: Floats, confidence: float) -> tuple[float, float]:
    if not 0.0 < confidence < 1.0:
        raise PlanError(f"a confidence lies between 0 and 1, not at {confidence}")
    rank = median_rank(ordered.size, 0.5 * (1.0 - confidence))
    return (float(ordered[rank - 1]), float(ordered[-rank])) if rank else (-math.inf, math.inf)


def _ordered(values: Sequence[float]) -> Floats:
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    if not ordered.size or not np.all(np.isfinite(ordered)):
        raise PlanError("a summary needs at least one sample, and finite ones only")
    return ordered
