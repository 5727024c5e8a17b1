"""How often one may look: group-sequential levels with a bounded error rate.

Flow: a plan's looks and the error that it may spend -> HERE -> the level of each look's interval in
confirmation. Looking four times at a 2.5 % level errs in 6 % of cases; these levels err in 2.5 % over all
looks together.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import numpy as np

from objectives.distributions import Floats, normal_tail
from tuner.stats.errors import PlanError

# Close to O'Brien-Fleming: early looks get little, so that the last look is nearly as strong as an only one.
_RHO = 3.0
_GRID = 401  # nodes of the integral; doubling them moves a level by less than 1e-6
_FAR = 8.0  # standard deviations that the grid reaches down


def spent(fraction: float, alpha: float) -> float:
    """Error spent when `fraction` of the information is there.

    Source: Kim and DeMets (1987), Biometrika 74, power family with rho = 3.
    """
    return float(alpha * min(1.0, fraction) ** _RHO)


@lru_cache(maxsize=256)
def look_levels(looks: tuple[int, ...], alpha: float) -> tuple[float, ...]:
    """One-sided level for each look, so that all looks together err with probability `alpha`.

    `looks` are cumulative sample sizes, the last one is the maximum. An interval at each look with its level
    is a repeated confidence interval: it may be read at any look, and it may be ignored, without loss of
    validity.
    Raises: PlanError for looks that do not grow.
    Source: Armitage, McPherson and Rowe (1969); Lan and DeMets (1983); Jennison and Turnbull (1989, 2000).
    """
    if not looks or looks[0] < 1 or any(b <= a for a, b in itertools.pairwise(looks)):
        raise PlanError(f"looks must be positive and grow, not {looks}")
    nodes, mass = np.zeros(1), np.ones(1)  # the process starts at zero
    levels, before, paid = [], 0.0, 0.0
    for look in looks:
        time = look / looks[-1]
        step = math.sqrt(time - before)
        bound = _bound(nodes, mass, step, spent(time, alpha) - paid)
        levels.append(normal_tail(bound / math.sqrt(time)))
        nodes, mass = _advance(nodes, mass, step, bound)
        before, paid = time, spent(time, alpha)
    return tuple(levels)


def _bound(nodes: Floats, mass: Floats, step: float, error: float) -> float:
    """The height that the process, not stopped before, passes at this look with probability `error`."""
    low, high = -_FAR, 2.0 * _FAR
    for _ in range(60):
        middle = 0.5 * (low + high)
        crossing = sum(m * normal_tail((middle - x) / step) for x, m in zip(nodes, mass, strict=True))
        low, high = (middle, high) if crossing > error else (low, middle)
    return 0.5 * (low + high)


def _advance(nodes: Floats, mass: Floats, step: float, bound: float) -> tuple[Floats, Floats]:
    """Distribution of the process below `bound` after one more look, as Simpson nodes and their masses."""
    grid = np.linspace(-_FAR, bound, _GRID)
    simpson = np.full(_GRID, 2.0)
    simpson[1::2], simpson[0], simpson[-1] = 4.0, 1.0, 1.0
    density = np.exp(-0.5 * ((grid[:, None] - nodes[None, :]) / step) ** 2) @ mass / (step * math.sqrt(2.0 * math.pi))
    return grid, density * simpson * (grid[1] - grid[0]) / 3.0
