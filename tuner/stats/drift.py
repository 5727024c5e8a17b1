"""Drift: what the machine did to everybody while a study ran.

Flow: re-timings of the baseline through a study -> HERE -> the search works on corrected latencies, `study
show` prints the drift. The baseline is a fitted covariate with a coefficient between 0 and 1: dividing by it
(coefficient 1) adds its own noise to every candidate where nothing drifts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from objectives.distributions import Floats
from tuner.stats.errors import PlanError
from tuner.stats.samples import Provenance, Timing, require_alike

_FEWEST = 4  # with three re-timings a step and two accidents look the same


class DriftModel(msgspec.Struct, frozen=True):
    """The machine's slowness over time, relative to its median; log units, 0.1 is about 10 % slower."""

    times_s: tuple[float, ...]
    slowness: tuple[float, ...]  # smoothed log latency of the baseline minus its median, one per time
    coefficient: float  # in [0, 1]: how much of it is drift and not the baseline's own noise
    provenance: Provenance

    def at(self, time_s: float) -> float:
        """The drift that is believed at a time, in log units: coefficient times the interpolated slowness."""
        return self.coefficient * _between(time_s, np.array(self.times_s), np.array(self.slowness))

    @property
    def range(self) -> float:
        """Believed slowest over fastest state of the study's machine, minus 1."""
        return math.expm1(self.coefficient * (max(self.slowness) - min(self.slowness)))

    def corrected_ms(self, timing: Timing) -> float:
        """The latency as if the machine had been in its median state.

        Raises: MixedSamplesError if the timing is from elsewhere.
        """
        require_alike((self.provenance, timing.provenance))
        return timing.latency_ms * math.exp(-self.at(timing.time_s))


def fit_drift(baseline: Sequence[Timing]) -> DriftModel:
    """Fit the drift from re-timings of the baseline, in any order; below four of them the coefficient is 0.

    Each re-timing is predicted from the others exactly as a candidate would be; the coefficient is the slope
    of that regression, shrunk by its own uncertainty and kept in [0, 1]. Pure noise cannot be predicted, so
    its slope is near 0 (or negative, then 0); a smooth drift can, so its slope is near 1. A running median of
    three keeps single accidents out.
    Raises: MixedSamplesError; PlanError without any re-timing.
    Source: covariate adjustment, Fisher (1932); attenuation by a noisy covariate, Fuller (1987), Measurement
    Error Models; leave-one-out, Stone (1974); positive-part shrinkage of the slope, James and Stein (1961);
    median of 3, Tukey (1977).
    """
    if not baseline:
        raise PlanError("drift needs at least one timing of the baseline")
    require_alike(timing.provenance for timing in baseline)
    ordered = sorted(baseline, key=lambda timing: timing.time_s)
    times = np.array([timing.time_s for timing in ordered])
    logs = np.log([timing.latency_ms for timing in ordered])
    logs -= np.median(logs)
    return DriftModel(
        tuple(times.tolist()), tuple(_smooth(logs).tolist()), _coefficient(times, logs), ordered[0].provenance
    )


def _coefficient(times: Floats, logs: Floats) -> float:
    n = logs.size
    if n < _FEWEST or not logs.any():
        return 0.0
    others = ~np.eye(n, dtype=bool)
    predicted = np.array([_between(times[i], times[others[i]], _smooth(logs[others[i]])) for i in range(n)])
    x, y = predicted - predicted.mean(), logs - logs.mean()
    power = float(x @ x)
    if power <= 1e-18:
        return 0.0
    slope = float(x @ y) / power
    error = float(((y - slope * x) ** 2).sum()) / (n - 2) / power
    return min(1.0, slope * max(0.0, 1.0 - error / slope**2)) if slope > 0 else 0.0


def _between(time_s: float, times: Floats, values: Floats) -> float:
    """Linear interpolation; the value before, where two times are so close that a slope is too steep for a float."""
    found = float(np.interp(time_s, times, values))
    return found if math.isfinite(found) else float(values[max(int(np.searchsorted(times, time_s, "right")) - 1, 0)])


def _smooth(values: Floats) -> Floats:
    """Running median of three; the ends stay as they are."""
    if values.size < 3:
        return values
    inner = np.median(np.stack((values[:-2], values[1:-1], values[2:])), axis=0)
    return np.concatenate((values[:1], inner, values[-1:]))
