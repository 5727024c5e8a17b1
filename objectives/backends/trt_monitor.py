"""Progress of a build, and its end before time: a deadline, or an event that somebody sets.

Flow: trt_build.py hangs a monitor HERE into the configuration -> the library reports phases and steps from its own
threads and stops soon after it is told no. Without monitors (before TensorRT 9) only the process's deadline bounds a
build.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from objectives.errors import CandidateError, HarnessError
from objectives.outcome import FailureKind

OnStep = Callable[[str], None]  # told "phase, 3 of 10", at most a few times a second

_QUIET_S = 0.25  # between two words of progress: a build has thousands of steps


class Watchdog:
    """What a monitor asks at every step: may the build go on? Remembers why not."""

    def __init__(self, limit_s: float | None, cancel: threading.Event | None, on_step: OnStep | None) -> None:
        self._start = time.monotonic()
        self._limit_s = limit_s
        self._cancel = cancel
        self._on_step = on_step
        self._steps: dict[str, int] = {}
        self._said_s = -_QUIET_S
        self._where = "before the first step"
        self._reason: Exception | None = None

    def begin(self, phase: str, steps: int) -> None:
        """A phase of so many steps has begun."""
        self._steps[phase] = steps

    def step(self, phase: str, index: int) -> bool:
        """A step has ended. Returns whether the build may go on."""
        self._where = f"in {phase!r}, step {index + 1} of {self._steps.get(phase, 0)}"
        try:
            self._say(f"{phase}, {index + 1} of {self._steps.get(phase, 0)}")
        except Exception as error:  # must not cross the library's threads, which would end the process; see `require`
            self._reason = error
            return False
        if self._cancel is not None and self._cancel.is_set():
            self._reason = HarnessError(f"the build was cancelled {self._where}")
        elif self._limit_s is not None and time.monotonic() - self._start > self._limit_s:
            words = f"the build was stopped after {self._limit_s:g} s, {self._where}"
            self._reason = CandidateError(FailureKind.TIMED_OUT, words)
        return self._reason is None

    def _say(self, words: str) -> None:
        now = time.monotonic() - self._start
        if self._on_step is not None and now - self._said_s >= _QUIET_S:
            self._said_s = now
            self._on_step(words)

    def require(self) -> None:
        """Raises: what stopped the build: CandidateError (`timed_out`), HarnessError, or what `on_step` raised."""
        if self._reason is not None:
            raise self._reason


def attach(library: Any, config: Any, watchdog: Watchdog) -> Any:
    """Hang a monitor into `config`, which does not keep it alive: the caller does. None where there are none."""
    if not hasattr(library, "IProgressMonitor") or not hasattr(config, "progress_monitor"):
        return None

    class Monitor(library.IProgressMonitor):  # type: ignore[misc]  # the base comes from the library, which is untyped
        def __init__(self) -> None:
            library.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            watchdog.begin(phase_name, num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:
            return watchdog.step(phase_name, step)

        def phase_finish(self, phase_name: str) -> None:
            """Nothing to note: the steps have said it."""

    monitor = Monitor()
    config.progress_monitor = monitor
    return monitor
