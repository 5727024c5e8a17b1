"""Summaries of raw samples that timing itself needs to know when to stop.

Flow: timing.py asks HERE after each round; the statistics of a verdict stand on the same functions.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np

from objectives.distributions import median_rank, student_quantile

HOPELESS_MARGIN = 0.10  # several times the 0.9 to 2.4 % that two sessions of identical bytes were seen to differ
HOPELESS_ALPHA = 0.001
_FEWEST = 2  # one slow inference is an accident


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Distribution-free confidence interval of the median from order statistics; None if there are too few samples.

    Source: the sign-test interval, e.g. Conover, Practical Nonparametric Statistics, 3rd ed., section 3.2.
    """
    rank = median_rank(len(samples), (1 - confidence) / 2)
    if not rank:
        return None
    ordered = np.sort(np.asarray(samples, dtype=float))
    return float(ordered[rank - 1]), float(ordered[-rank])


def relative_half_width(samples: Sequence[float], confidence: float = 0.95) -> float:
    """Half the width of the median's interval as a share of the median; infinite if there are too few samples."""
    interval = median_interval(samples, confidence)
    if interval is None:
        return math.inf
    return (interval[1] - interval[0]) / 2 / float(np.median(samples))


def is_hopeless(
    candidate_ms: Sequence[float],
    incumbent_ms: Sequence[float],
    margin: float = HOPELESS_MARGIN,
    alpha: float = HOPELESS_ALPHA,
) -> bool:
    """True if the candidate is slower than (1 + margin) times the incumbent beyond any doubt.

    A wrong yes costs a good candidate, a wrong no costs some rounds: the test is one-sided and strict. It compares
    log latencies, the candidate's lower median against the incumbent's median, in units of the pooled standard
    deviation, by Student's t. Two candidate samples are enough for a gross loss: the lower median of two is the faster
    one, so a single outlier cannot stop a candidate, and outliers widen the deviation. False while either side has
    fewer than two samples.
    Source: Student's two-sample t with a non-inferiority margin, Wellek (2010), Testing Statistical Hypotheses of
    Equivalence and Noninferiority, section 6; stopping losers early follows irace, Lopez-Ibanez et al. (2016).
    """
    m, n = len(candidate_ms), len(incumbent_ms)
    if min(m, n) < _FEWEST:
        return False
    ours, theirs = np.log(candidate_ms), np.log(incumbent_ms)
    gap = math.log(statistics.median_low(candidate_ms)) - float(np.median(theirs)) - math.log1p(margin)
    squares = float(((ours - ours.mean()) ** 2).sum() + ((theirs - theirs.mean()) ** 2).sum())
    deviation = math.sqrt(squares / (m + n - 2) * (1.0 / m + 1.0 / n))
    return gap > student_quantile(1.0 - alpha, float(m + n - 2)) * deviation
