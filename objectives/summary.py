"""Summaries of raw samples that timing itself needs to know when to stop.

Flow: timing.py asks HERE after each round; the statistics of a verdict stand on the same functions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Distribution-free confidence interval of the median from order statistics; None if there are too few samples.

    Source: the sign-test interval, e.g. Conover, Practical Nonparametric Statistics, 3rd ed., section 3.2.
    """
    rank = _rank(len(samples), confidence)
    if rank is None:
        return None
    ordered = np.sort(np.asarray(samples, dtype=float))
    return float(ordered[rank]), float(ordered[-1 - rank])


def relative_half_width(samples: Sequence[float], confidence: float = 0.95) -> float:
    """Half the width of the median's interval as a share of the median; infinite if there are too few samples."""
    interval = median_interval(samples, confidence)
    if interval is None:
        return math.inf
    return (interval[1] - interval[0]) / 2 / float(np.median(samples))


@lru_cache(maxsize=4096)
def _rank(count: int, confidence: float) -> int | None:
    """The largest r for which the r-th smallest and r-th largest (from 0) still cover the median often enough."""
    tail = 2.0**-count if count < 1000 else 0.0
    if count < 1 or 2 * tail > 1 - confidence:
        return None
    if count >= 1000:  # the binomial is normal by then, and its terms would underflow
        return max(0, math.floor(count / 2 - 1.96 * math.sqrt(count) / 2) - 1)
    rank, probability = 0, tail
    while True:
        tail *= (count - rank) / (rank + 1)
        if 2 * (probability + tail) > 1 - confidence:
            return rank
        probability += tail
        rank += 1
