"""The errors of this room.

TunerError           root; `hint` says what to do, `exit_code` is what a command line ends with
 |- UsageError       a value that the user gave makes no sense (exit code 2)
 |- StudyError       a study cannot go on: its default fails, its machinery keeps breaking (exit code 1)
 '- StatsError       see stats/errors.py

Errors of the other rooms (objectives/errors.py, storage/errors.py) pass through unchanged; they carry the same two
attributes.
"""

from __future__ import annotations

from typing import ClassVar


class TunerError(Exception):
    """Root of this room's errors: what was wrong, and in `hint` what to do about it."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(TunerError):
    """A value that the user gave makes no sense."""

    exit_code = 2


class StudyError(TunerError):
    """The study cannot go on; what it has is kept."""
