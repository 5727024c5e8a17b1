"""The errors of this room.

StorageError               root; `hint` says what to do, `exit_code` is what a command line ends with
 |- DatabaseUnusableError  wrong URL, missing driver, no permission, not a database (exit code 2)
 |- SchemaError            the database has another schema than this version; the hint names the cure (exit code 2)
 |- NotFoundError          no such study, context, trial or file (exit code 2)
 |- AlreadyExistsError     the name is taken (exit code 2)
 |- DatabaseBusyError      locked or unreachable for longer than the time-out (exit code 1)
 '- CorruptError           stored bytes are not what their digest says (exit code 1)
"""

from __future__ import annotations

from typing import ClassVar


class StorageError(Exception):
    """Root of this room's errors: what was wrong, and in `hint` what to do about it."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class DatabaseUnusableError(StorageError):
    """The database cannot be opened or written."""

    exit_code = 2


class SchemaError(StorageError):
    """The schema is older or newer than this version of the tuner."""

    exit_code = 2


class NotFoundError(StorageError):
    """What was asked for is not in the database."""

    exit_code = 2


class AlreadyExistsError(StorageError):
    """A study with this name exists."""

    exit_code = 2


class DatabaseBusyError(StorageError):
    """The database did not answer within its time-out; nothing was written."""


class CorruptError(StorageError):
    """A stored file is not what its digest says."""
