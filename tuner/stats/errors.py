"""The errors of the statistics room.

StatsError              root; `hint` says what to do, `exit_code` is what a command line ends with
 |- MixedSamplesError   samples of different environments, data or measurement settings were to be combined
 '- PlanError           a plan or an input that no analysis can serve (exit code 2)
"""

from __future__ import annotations

from typing import ClassVar


class StatsError(Exception):
    """Root of this room's errors: what was wrong, and in `hint` what to do about it."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class MixedSamplesError(StatsError):
    """Samples that say nothing about each other were to be compared."""


class PlanError(StatsError):
    """The question cannot be asked like this: no samples, impossible looks, a confidence outside (0, 1)."""

    exit_code = 2
