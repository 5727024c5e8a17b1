"""One run of trtexec, or of another program, as a process: bounded, in a group of its own, gone when we are gone.

Flow: trtexec.py, trtexec_session.py and trt_quantize.py -> run HERE -> how it ended and everything it printed. A group
of its own, so that a wrapper script and what it starts can be ended together; guard.py ends it when we are gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from objectives.backends.guard import guarded
from objectives.errors import BackendUnavailableError

_MOST_BYTES = 16 << 20  # of what is printed; a route database has about 100 kB, a verbose log far more
_SHELL_SIGNALS = {128 + number for number in (4, 6, 7, 8, 9, 11, 15)}  # how a wrapper reports that its program died
_EXIT_S = 10.0


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
    with tempfile.TemporaryFile() as log, guarded() as guard:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        except OSError as error:
            hint = "is it a program for this machine, and may it be executed?"
            raise BackendUnavailableError(f"cannot start {command[0]!r}: {error}", hint=hint) from error
        guard.hold(process.pid)
        timed_out = False
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            guard.end()
            process.wait(_EXIT_S)
            guard.release()
        return _ended(process.returncode, timed_out, _tail(log.fileno()))


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
