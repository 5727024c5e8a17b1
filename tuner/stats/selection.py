"""Choosing: which candidates become finalists, and which of several equals wins.

Flow: a search's noisy estimates -> HERE: `shrunken`, `choose_finalists` -> confirmation -> HERE:
`simplest_within_noise`. The best of 60 equal candidates looks 2.3 standard deviations better than it is;
shrinking takes that back before anything is believed or promised.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from tuner.stats.errors import PlanError
from tuner.stats.summaries import MAD_TO_SD


class Estimate(msgspec.Struct, frozen=True):
    """What is believed of one candidate. `log_gain` is log(baseline latency / candidate latency)."""

    candidate_id: str
    log_gain: float
    standard_error: float
    changes: int = 0  # knobs that are not at their default

    def __post_init__(self) -> None:
        if not math.isfinite(self.log_gain) or not 0.0 <= self.standard_error < math.inf:
            raise PlanError(f"candidate {self.candidate_id!r} has no finite gain and standard error")


def shrunken(estimates: Sequence[Estimate]) -> tuple[Estimate, ...]:
    """The estimates drawn to their common median by how noisy they are; same order as given.

    Normal-normal empirical Bayes. The spread of true gains comes from the MAD, so that a few terrible
    candidates do not make every other look certain. No estimate moves by more than sqrt(2 ln N) standard
    errors, what luck lifts the best of N equals by, so a true outlier stays one.
    Source: Efron and Morris (1975), JASA 70; limited translation, Efron and Morris (1972), JASA 67; the limit
    is Donoho and Johnstone's (1994) universal threshold, Biometrika 81.
    """
    if len(estimates) < 2:
        return tuple(estimates)
    gains = np.array([e.log_gain for e in estimates])
    errors = np.array([e.standard_error for e in estimates])
    centre = float(np.median(gains))
    spread = (MAD_TO_SD * float(np.median(np.abs(gains - centre)))) ** 2
    signal = max(0.0, spread - float(np.median(errors**2)))
    total = signal + errors**2
    weight = np.divide(signal, total, out=np.ones_like(total), where=total > 0)
    limit = math.sqrt(2.0 * math.log(len(estimates))) * errors
    moved = gains + np.clip((1.0 - weight) * (centre - gains), -limit, limit)
    return tuple(
        msgspec.structs.replace(e, log_gain=float(m), standard_error=float(s))
        for e, m, s in zip(estimates, moved, errors * np.sqrt(weight), strict=True)
    )


def choose_finalists(estimates: Sequence[Estimate], count: int) -> tuple[Estimate, ...]:
    """The `count` best by shrunken gain, best first; of equal ones the simpler first. Values are the shrunken
    ones.

    Raises: PlanError if `count` is below 1.
    """
    if count < 1:
        raise PlanError(f"a confirmation needs at least one finalist, not {count}")
    ranked = sorted(shrunken(estimates), key=lambda e: (-e.log_gain, e.changes, e.candidate_id))
    return tuple(ranked[:count])


def simplest_within_noise(estimates: Sequence[Estimate], negligible: float = 0.0) -> Estimate:
    """The winner of several: fewest changed knobs among those that cannot be told from the best.

    A candidate ties with the best if it is behind by no more than one standard error of their difference, or
    by no more than `negligible` (log gain). Of equally simple ones the faster wins.
    Raises: PlanError without estimates.
    Source: the one-standard-error rule, Breiman, Friedman, Olshen and Stone (1984), section 3.4.3.
    """
    if not estimates:
        raise PlanError("there is nothing to choose from")
    best = max(estimates, key=lambda e: (e.log_gain, -e.changes))
    ties = [
        e
        for e in estimates
        if best.log_gain - e.log_gain <= max(negligible, math.hypot(best.standard_error, e.standard_error))
    ]
    return min([best, *ties], key=lambda e: (e.changes, -e.log_gain, e.candidate_id))
