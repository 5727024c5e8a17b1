"""Guard: a program that we started in a process group of its own ends with us, however we end.

Flow: trtexec_process.py and command_process.py start a program inside `guarded` HERE. A second small process holds a
pipe from us; when the pipe closes without a word it kills the program's group. Everything that the program started ends
with it: what it hands over to another session is seen as one of our own descendants.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from objectives.processes import descendants, end_below, reap_below

_GUARD = """
import os, signal, sys
group = sys.stdin.readline()
if group and not sys.stdin.readline():
    os.killpg(int(group), signal.SIGKILL)
"""

_LIVING: list[Guarded] = []


class Guarded:
    """A guard in waiting; `hold` tells it whom to end."""

    def __init__(self, guard: subprocess.Popen[bytes]) -> None:
        self._guard = guard
        self._group: int | None = None
        self._before = set(descendants(os.getpid()))

    def hold(self, group: int) -> None:
        """End the process group `group` when we are gone."""
        self._group = group
        _say(self._guard, f"{group}\n")

    def end(self) -> None:
        """Kill the group and whatever else was started since; also after a good end, for nothing may run on."""
        if self._group is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._group, signal.SIGKILL)
        keep = self._before | {self._guard.pid} | _of_others(self)
        end_below(os.getpid(), keep)
        reap_below(keep | {self._group})

    def processes(self) -> set[int]:
        """The guard, and the program with everything below it."""
        group = set() if self._group is None else {self._group, *descendants(self._group)}
        return {self._guard.pid} | group

    def release(self) -> None:
        """All has ended: nothing is to be done any more."""
        _say(self._guard, "done\n")


@contextmanager
def guarded() -> Iterator[Guarded]:
    """A guard for one program. Inside, this process may start no others but such programs."""
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _GUARD],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    one = Guarded(guard)
    _LIVING.append(one)
    try:
        yield one
    finally:
        _LIVING.remove(one)
        if guard.stdin is not None:
            guard.stdin.close()
        guard.wait()


def _of_others(one: Guarded) -> set[int]:
    """Processes of the other programs that run at this moment."""
    found = set()
    for other in _LIVING:
        if other is not one:
            found |= other.processes()
    return found


def _say(guard: subprocess.Popen[bytes], words: str) -> None:
    if guard.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            guard.stdin.write(words.encode())
            guard.stdin.flush()
