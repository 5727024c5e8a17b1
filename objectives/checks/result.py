"""What a self-check of a backend found, as values.

Flow: selfcheck.py asks, steps.py answers -> values HERE -> tuner/cli/checks.py draws them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from objectives.backends.base import Environment


class Status(StrEnum):
    """How a check ended."""

    PASS = "pass"
    FAIL = "fail"
    UNSUPPORTED = "unsupported"  # this library, version or machine has nothing to check; says why


class Result(msgspec.Struct, frozen=True):
    """One check: its name, how it ended, what was seen in a line, and the seconds that it took."""

    name: str
    status: Status
    detail: str
    seconds: float


class Report(msgspec.Struct, frozen=True):
    """All checks of a backend on this machine, in the order in which they ran.

    `environment`: None if it could not be read. `cannot_run`: why engines can be built here but not run, empty where
    they can. `software`: versions of what took part, by name. `options`: of the backend, as the user gave them.
    """

    backend: str
    environment: Environment | None
    cannot_run: str
    software: Mapping[str, str]
    results: tuple[Result, ...]
    options: Mapping[str, str] = {}

    @property
    def failed(self) -> tuple[Result, ...]:
        return self.having(Status.FAIL)

    @property
    def seconds(self) -> float:
        return sum(one.seconds for one in self.results)

    def having(self, status: Status) -> tuple[Result, ...]:
        """The checks that ended as `status`."""
        return tuple(one for one in self.results if one.status == status)
