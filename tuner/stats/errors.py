"""The errors of the statistics room.

StatsError              root, a TunerError
 |- MixedSamplesError   samples of different environments, data or measurement settings were to be combined
 '- PlanError           a plan or an input that no analysis can serve (exit code 2)
"""

from __future__ import annotations

from tuner.errors import TunerError


class StatsError(TunerError):
    """Root of this room's errors; a branch of the tuner's, so that the command line says them as it says any other."""


class MixedSamplesError(StatsError):
    """Samples that say nothing about each other were to be compared."""


class PlanError(StatsError):
    """The question cannot be asked like this: no samples, impossible looks, a confidence outside (0, 1)."""

    exit_code = 2
