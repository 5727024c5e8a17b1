"""The few distributions that the room needs, exact or to machine precision, without a further package.

Flow: timing asks HERE when its median is known well enough and when a candidate is hopeless; the statistics of a
verdict (tuner/stats) stand on the same functions.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

_NORMAL = NormalDist()
_EXACT_BINOMIAL = 1000  # above it the normal approximation is right to the last order statistic that matters


def normal_quantile(p: float) -> float:
    """Quantile of the standard normal distribution, 0 < p < 1."""
    return _NORMAL.inv_cdf(p)


def normal_tail(z: float) -> float:
    """P(Z > z), accurate far out in the tail."""
    return 0.5 * math.erfc(z / math.sqrt(2.0))


def student_cdf(t: float, df: float) -> float:
    """P(T <= t) for Student's t; `df` may be fractional.

    Source: Abramowitz and Stegun (1964), 26.7.1, through the regularized incomplete beta function.
    """
    tail = 0.5 * _incomplete_beta(0.5 * df, 0.5, df / (df + t * t))
    return 1.0 - tail if t > 0 else tail


@lru_cache(maxsize=4096)
def student_quantile(p: float, df: float) -> float:
    """Quantile of Student's t by bisection on the upper tail, 0 < p < 1, df > 0 (fractional allowed)."""
    if p == 0.5:
        return 0.0
    tail, low, high = min(p, 1.0 - p), 0.0, 1.0
    while student_cdf(-high, df) > tail:
        high *= 2.0
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if student_cdf(-middle, df) > tail else (low, middle)
    return math.copysign(0.5 * (low + high), p - 0.5)


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularized incomplete beta I_x(a, b). Source: Press et al. (2007), Numerical Recipes, 6.4."""
    if x <= 0.0 or x >= 1.0:
        return float(x >= 1.0)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1.0) / (a + b + 2.0):
        return math.exp(log_front) * _beta_fraction(a, b, x) / a
    return 1.0 - math.exp(log_front) * _beta_fraction(b, a, 1.0 - x) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    tiny = 1e-300
    c, d = 1.0, 1.0 / max(1.0 - (a + b) * x / (a + 1.0), tiny)
    result = d
    for m in range(1, 400):
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0)),
        ):
            d = 1.0 / (1.0 + factor * d or tiny)
            c = 1.0 + factor / c or tiny
            result *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return result


@lru_cache(maxsize=512)
def signed_rank_cdf(n: int) -> Floats:
    """P(T+ <= k) for k = 0 .. n(n+1)/2 of Wilcoxon's signed-rank statistic under symmetry about zero, exact.

    Source: Wilcoxon (1945); generating function in Hollander, Wolfe and Chicken (2014), section 3.1.
    """
    mass = np.ones(1)
    for rank in range(1, n + 1):
        shifted = np.zeros(mass.size + rank)
        shifted[: mass.size] += 0.5 * mass
        shifted[rank:] += 0.5 * mass
        mass = shifted
    cdf = np.cumsum(mass)
    cdf.setflags(write=False)
    return cdf


@lru_cache(maxsize=4096)
def median_rank(n: int, tail: float) -> int:
    """The largest rank k (1 = smallest) with P(Binomial(n, 1/2) < k) <= tail; 0 if there is none.

    The k-th smallest of n samples is then a lower bound of the median that fails with probability at most `tail`.
    """
    if n > _EXACT_BINOMIAL:
        return max(0, math.floor(0.5 * (n - 1) - 0.5 * math.sqrt(n) * normal_quantile(1.0 - tail)))
    total, k = 0, 0
    while total + math.comb(n, k) <= tail * 2**n:
        total += math.comb(n, k)
        k += 1
    return k
