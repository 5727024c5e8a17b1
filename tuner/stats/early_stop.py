"""Early stop: is a candidate so slow that further rounds are a waste?

Flow: the first round of a candidate and the incumbent's samples -> HERE -> the timing stops, or goes on.
A wrong yes costs a good candidate, a wrong no costs some rounds: the test is one-sided, strict, and has a
margin that covers what it cannot see (two sessions of the same bytes differ by a few per cent).
"""

from __future__ import annotations

import math
import statistics

import numpy as np

from tuner.stats.distributions import student_quantile
from tuner.stats.errors import PlanError
from tuner.stats.samples import Samples, require_alike

DEFAULT_MARGIN = 0.10  # several times the load level of 0.9 to 2.4 % seen between sessions of identical bytes
DEFAULT_ALPHA = 0.001
_FEWEST = 2  # one slow inference is an accident


def is_hopeless(
    candidate: Samples, incumbent: Samples, margin: float = DEFAULT_MARGIN, alpha: float = DEFAULT_ALPHA
) -> bool:
    """True if the candidate is slower than (1 + margin) times the incumbent beyond any doubt.

    Compares log latencies: the candidate's lower median against the incumbent's median, in units of the
    pooled standard deviation, by Student's t. Two candidate samples are enough for a gross loss: the lower
    median of two is the faster one, so that a single outlier cannot stop a candidate, and outliers widen the
    pooled deviation. False while either side has fewer than two samples.
    Raises: MixedSamplesError; PlanError for a negative margin or an alpha outside (0, 0.5).
    Source: Student's two-sample t with a non-inferiority margin, Wellek (2010), Testing Statistical
    Hypotheses of Equivalence and Noninferiority, section 6; stopping losers early follows irace, Lopez-Ibanez
    et al. (2016).
    """
    if margin < 0 or not 0.0 < alpha < 0.5:
        raise PlanError(f"a margin of at least 0 and an alpha in (0, 0.5), not {margin} and {alpha}")
    require_alike((candidate.provenance, incumbent.provenance))
    m, n = len(candidate.latencies_ms), len(incumbent.latencies_ms)
    if min(m, n) < _FEWEST:
        return False
    ours, theirs = np.log(candidate.latencies_ms), np.log(incumbent.latencies_ms)
    gap = math.log(statistics.median_low(candidate.latencies_ms)) - float(np.median(theirs)) - math.log1p(margin)
    squares = float(((ours - ours.mean()) ** 2).sum() + ((theirs - theirs.mean()) ** 2).sum())
    deviation = math.sqrt(squares / (m + n - 2) * (1.0 / m + 1.0 / n))
    return gap > student_quantile(1.0 - alpha, float(m + n - 2)) * deviation
