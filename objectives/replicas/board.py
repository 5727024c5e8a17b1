"""Board: how far each instance of a replicated session is, seen by all of them without a system call.

Flow: session.py makes the file -> every instance maps it HERE -> a timing begins when all are at work and each goes on,
untimed, until all are done: nobody's time is taken while another one rests. Where instances have more threads than the
machine has cores, a start that is agreed on by the clock is missed by milliseconds; this one is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

_LOOK_NS = 20_000_000  # how often it is asked whether the others live


class AbandonedError(Exception):
    """Another instance has failed: there is nobody to run beside."""


class Board:
    """A number for each instance, which only grows, and one that says that all is over. `own`: which is ours."""

    def __init__(self, path: Path, count: int, own: int) -> None:
        is_new = not path.exists()
        self._cells = np.asarray(np.memmap(path, np.int64, "w+" if is_new else "r+", shape=(count + 1,)))
        self._own = own

    def measured(self, turn: int, measure: Callable[[int], float], repeats: int, is_alone: Callable[[], bool]) -> float:
        """Seconds that `repeats` inferences take while every other instance runs as well; `turn` counts from 0.

        `is_alone`: whether another instance is gone, asked now and then. Raises: AbandonedError, and as `measure`.
        """
        try:
            self._reach(2 * turn + 1)
            self._run_until(2 * turn + 1, measure, is_alone)
            seconds = measure(repeats)
            self._reach(2 * turn + 2)
            self._run_until(2 * turn + 2, measure, is_alone)
            return seconds
        except BaseException:
            self._cells[-1] = 1  # the others wait for us in vain
            raise

    def _reach(self, mark: int) -> None:
        self._cells[self._own] = mark

    def _run_until(self, mark: int, measure: Callable[[int], float], is_alone: Callable[[], bool]) -> None:
        looked_ns = time.monotonic_ns()
        while int(self._cells[:-1].min()) < mark:
            measure(1)
            now = time.monotonic_ns()
            if self._cells[-1]:
                raise AbandonedError
            if now - looked_ns > _LOOK_NS:
                looked_ns = now
                if is_alone():
                    raise AbandonedError
