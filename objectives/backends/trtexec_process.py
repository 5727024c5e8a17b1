"""One run of trtexec, or of another program, as a process: bounded, in a group of its own, gone when we are gone.

Flow: trtexec.py, trtexec_session.py and trt_quantize.py -> run HERE -> how it ended and everything it printed. A group
of its own, so that a wrapper script and what it starts can be ended together; but then whoever kills our group misses
it. A second small process holds a pipe from us and kills that group when the pipe closes without a word.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from objectives.errors import BackendUnavailableError

_MOST_BYTES = 16 << 20  # of what is printed; a route database has about 100 kB, a verbose log far more
_SHELL_SIGNALS = {128 + number for number in (4, 6, 7, 8, 9, 11, 15)}  # how a wrapper reports that its program died
_EXIT_S = 10.0
_GUARD = """
import os, signal, sys
group = sys.stdin.readline()
if group and not sys.stdin.readline():
    os.killpg(int(group), signal.SIGKILL)
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended; `code` is None when a signal or the time limit ended it."""

    code: int | None
    signal: int | None
    timed_out: bool
    text: str  # stdout and stderr as they came

    @property
    def is_good(self) -> bool:
        return self.code == 0

    def describe(self) -> str:
        """In words, starting with a verb."""
        if self.timed_out:
            return "did not finish within its time limit and was killed"
        if self.signal is not None:
            return f"was killed by {_signal_name(self.signal)}"
        return f"ended with exit code {self.code}"


def run(command: Sequence[str], limit_s: float | None) -> Ended:
    """Run `command` for at most `limit_s` seconds; None: as long as we live.

    Raises: BackendUnavailableError if it cannot be started.
    """
    with tempfile.TemporaryFile() as log, _guard() as guard:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        except OSError as error:
            hint = "is it a program for this machine, and may it be executed?"
            raise BackendUnavailableError(f"cannot start {command[0]!r}: {error}", hint=hint) from error
        _say(guard, f"{process.pid}\n")
        timed_out = False
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            # Also after a good end: nothing that the program started may go on beside a timing.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(_EXIT_S)
            _say(guard, "done\n")
        return _ended(process.returncode, timed_out, _tail(log.fileno()))


@contextmanager
def _guard() -> Iterator[subprocess.Popen[bytes]]:
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _GUARD],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield guard
    finally:
        if guard.stdin is not None:
            guard.stdin.close()
        guard.wait()


def _say(guard: subprocess.Popen[bytes], line: str) -> None:
    if guard.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            guard.stdin.write(line.encode())
            guard.stdin.flush()


def _ended(code: int, timed_out: bool, text: str) -> Ended:
    if timed_out:
        return Ended(None, None, True, text)
    if code < 0:
        return Ended(None, -code, False, text)
    if code in _SHELL_SIGNALS:
        return Ended(None, code - 128, False, text)
    return Ended(code, None, False, text)


def _tail(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, _MOST_BYTES, max(0, size - _MOST_BYTES)).decode(errors="replace")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
