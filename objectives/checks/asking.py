"""Asking: one step of a self-check, in a child process with a deadline; whatever becomes of it is an answer.

Flow: selfcheck.py, options.py, endings.py -> HERE -> isolation -> steps.py.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path

import msgspec

from objectives.checks.result import Status
from objectives.errors import ObjectiveError
from objectives.isolation import Limits, Subprocess
from objectives.outcome import Failed, FailureKind, Stage
from objectives.requests import SelfChecked, SelfCheckRequest

_NOTHING: Mapping[str, str] = {}
# What the detail of a failure says well enough by itself.
_PLAIN = (FailureKind.BUILD_FAILED, FailureKind.RUN_FAILED)


class CheckPlan(msgspec.Struct, frozen=True):
    """Bounds of a self-check: seconds of one step, of all values of a group, of what is made to miss its deadline."""

    step_s: float = 120.0
    group_s: float = 240.0
    short_s: float = 5.0
    memory_bytes: int | None = None


class Asker:
    """Sends steps for one backend to child processes; `folder` holds what they write."""

    def __init__(self, backend: str, options: Mapping[str, str], plan: CheckPlan, folder: Path) -> None:
        self.backend = backend
        self.options = dict(options)
        self.plan = plan
        self._folder = folder
        self._numbers = count(1)

    def isolation(self, deadline_s: float | None = None) -> Subprocess:
        """A process for steps, to be closed by the caller."""
        return Subprocess(Limits(self.plan.step_s if deadline_s is None else deadline_s, self.plan.memory_bytes))

    def ask(self, step: str, values: Mapping[str, str] = _NOTHING) -> SelfChecked:
        """Take a step in a process of its own."""
        with self.isolation() as isolation:
            return self.ask_in(isolation, step, values)

    def ask_in(self, isolation: Subprocess, step: str, values: Mapping[str, str] = _NOTHING) -> SelfChecked:
        """Take a step; a crash, a hang and any error are a failed check."""
        try:
            return found(self.send(isolation, step, values))
        except ObjectiveError as error:
            return SelfChecked(Status.FAIL, str(error))

    def send(
        self,
        isolation: Subprocess,
        step: str,
        values: Mapping[str, str] = _NOTHING,
        on_stage: Callable[[Stage, str], None] = lambda stage, detail: None,
    ) -> SelfChecked | Failed:
        """Take a step and give the answer as it is. Raises: ObjectiveError."""
        workdir = self._folder / f"step-{next(self._numbers)}"
        workdir.mkdir()
        request = SelfCheckRequest(self.backend, step, str(workdir), dict(values), self.options)
        return isolation.self_check(request, on_stage)


def found(answer: SelfChecked | Failed) -> SelfChecked:
    """An answer as a result of a check."""
    if isinstance(answer, SelfChecked):
        return answer
    # A study takes SIGKILL for the kernel's memory guard; here it is told as what was seen.
    kind = FailureKind.CRASHED if _is_killed(answer) else answer.kind
    words = answer.detail if kind in _PLAIN else f"{kind.replace('_', ' ')}: {answer.detail}"
    return SelfChecked(Status.FAIL, words)


def _is_killed(answer: Failed) -> bool:
    return answer.kind is FailureKind.OUT_OF_MEMORY and answer.signal == signal.SIGKILL
