"""Child: one worker process as its parent sees it: started, asked, watched, killed as a group.

Flow: isolation.Subprocess -> HERE -> `python -m objectives.worker`. Replies come over a pipe of their own; stdout and
stderr go to a log file whose end is kept for the failure's detail.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from objectives.errors import HarnessError, StartError, StoppedError
from objectives.outcome import Stage
from objectives.processes import WORKER_FOLDER, end_tree, is_over
from objectives.requests import Message, Ready, Request, StageEvent, decode_message, encode

_POLL_S = 0.2  # how often deadline and memory are looked at; rare enough not to disturb a timing
_GRACE_S = 15  # the child's own alarm comes this much after our deadline, for the case that we are gone
_EXIT_S = 10.0  # a child that has closed its pipe is gone after this
_LOG_CHARS = 600
_ALLOWED = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP"),
        *("VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH"),
        *("CC", "CXX", "CPATH", "LIBRARY_PATH", "PKG_CONFIG_PATH"),
    )
)
_ALLOWED_PREFIXES = (
    *("LC_", "PYTHON", "CUDA_", "NVIDIA_", "CUBLAS_", "CUDNN_", "NCCL_", "OMP_", "KMP_", "MKL_", "OPENBLAS_"),
    *("ORT_", "TRT_", "TENSORRT_", "XLA_", "JAX_", "TORCH", "TRITON_", "COVERAGE_"),
)
_ALLOWED_SUFFIX = "FLAGS"  # CFLAGS, XLA_FLAGS, RUSTFLAGS: what compilers and runtimes are steered by
PASS = "TUNER_PASS"  # names of further variables, commas between, that the user lets through


class Death(msgspec.Struct, frozen=True):
    """How a child ended in the middle of a request. `reason`: "exit", "signal", "deadline" or "memory"."""

    reason: str
    stage: Stage
    stage_s: Mapping[str, float]
    signal: int | None
    code: int | None
    log: str

    def describe(self) -> str:
        """In words, starting with a verb."""
        if self.reason == "deadline":
            return "did not finish before its deadline and was killed"
        if self.reason == "memory":
            return "went over its memory limit and was killed"
        if self.signal is not None:
            return f"was killed by {_signal_name(self.signal)}"
        return f"ended with exit code {self.code}"


class _Stages:
    """When the child entered which stage, as far as its events told."""

    def __init__(self) -> None:
        self.current = Stage.BUILD
        self._started = time.monotonic()
        self.seconds: dict[str, float] = {}

    def enter(self, stage: Stage) -> None:
        self.close()
        self.current = stage

    def close(self) -> None:
        now = time.monotonic()
        self.seconds[self.current] = self.seconds.get(self.current, 0.0) + now - self._started
        self._started = now


class Child:
    """A living worker. Not thread-safe. Raises HarnessError if it cannot be started.

    `variables` are added to its environment; once `is_stopped` says so, an exchange raises StoppedError.
    """

    def __init__(
        self,
        deadline_s: float,
        memory_bytes: int | None,
        variables: Mapping[str, str] | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._deadline_s = deadline_s
        self._memory_bytes = memory_bytes
        self._variables = dict(variables or {})
        self._is_stopped = is_stopped
        self._buffer = b""
        self._ready = False
        self._killed = False  # then its number may be another's by now
        with contextlib.ExitStack() as undo:
            self._log = undo.enter_context(tempfile.TemporaryFile())
            # Whatever way it ends, what it left in its temporary folder goes.
            self._folder = undo.enter_context(
                tempfile.TemporaryDirectory(prefix=WORKER_FOLDER, ignore_cleanup_errors=True)
            )
            (request_read, self._request_fd), (self._reply_fd, reply_write) = os.pipe(), os.pipe()
            for ours in (self._request_fd, self._reply_fd):
                undo.callback(os.close, ours)
            # A child that does not read must not hold us up for longer than its deadline.
            os.set_blocking(self._request_fd, False)
            try:
                self._process = self._start(request_read, reply_write)
            except OSError as error:
                raise HarnessError(f"cannot start the evaluation process: {error}") from error
            finally:
                os.close(request_read)
                os.close(reply_write)
            self._release = undo.pop_all()

    def _start(self, request_fd: int, reply_fd: int) -> subprocess.Popen[bytes]:
        limit_s = str(int(self._deadline_s) + _GRACE_S)
        return subprocess.Popen(
            [sys.executable, "-m", "objectives.worker", str(request_fd), str(reply_fd), limit_s],
            pass_fds=(request_fd, reply_fd),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env={**allowed_environment(os.environ), "TMPDIR": self._folder, **self._variables},
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def exchange(self, request: Request, on_stage: Callable[[Stage, str], None]) -> Message | Death:
        """Send a request and wait for its reply, or for the child's end.

        Raises: HarnessError if the child has not even started: that says nothing about a candidate.
        """
        deadline = time.monotonic() + self._deadline_s
        self._await_ready(deadline)
        stages = _Stages()
        if reason := self._send(encode(request), deadline):
            return self._death(reason, stages)
        while True:
            message = self._receive(deadline)
            if isinstance(message, str):
                return self._death(message, stages)
            if not isinstance(message, StageEvent):
                return message
            if not message.detail:
                stages.enter(message.stage)
            on_stage(message.stage, message.detail)
            # One that never falls silent is bounded too.
            if reason := self._excess(deadline):
                return self._death(reason, stages)

    def kill(self) -> None:
        """End it with all that it has started, and release the pipes. May be called twice."""
        if self._process.returncode is None:
            end_tree(self._process.pid)
            self._process.wait()
        elif not self._killed:
            with contextlib.suppress(ProcessLookupError):  # it has ended; what it left in its group has not
                os.killpg(self._process.pid, signal.SIGKILL)
        self._killed = True
        self._release.close()

    def _await_ready(self, deadline: float) -> None:
        if self._ready:
            return
        message = self._receive(deadline)
        if not isinstance(message, Ready):
            words = self._death(message, _Stages()) if isinstance(message, str) else message
            said = f"{words.describe()}: {words.log}" if isinstance(words, Death) else f"it said {words}"
            raise StartError(f"the evaluation process did not get ready; it {said}")
        self._ready = True

    def _send(self, data: bytes, deadline: float) -> str | None:
        """Write everything; returns why that was not possible."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._request_fd, view) :]
            except BlockingIOError:
                select.select([], [self._request_fd], [], _POLL_S)
                if reason := self._trouble(deadline):
                    return reason
            except BrokenPipeError:
                return "exit"
        return None

    def _receive(self, deadline: float) -> Message | str:
        """The next message, or why there will be none."""
        while True:
            line = self._line()
            if line is not None:
                return _decode(line)
            if reason := self._trouble(deadline):
                return reason

    def _line(self) -> bytes | None:
        """The next line; b"" is never a line, None: nothing within the poll time."""
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._reply_fd], [], [], _POLL_S)
            if not ready:
                return None
            data = os.read(self._reply_fd, 1 << 20)
            if not data:  # closed: the child is ending, or about to
                time.sleep(0.01)
                return None
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line

    def _trouble(self, deadline: float) -> str | None:
        if self._process.poll() is not None:
            return "signal" if self._process.returncode < 0 else "exit"
        return self._excess(deadline)

    def _excess(self, deadline: float) -> str | None:
        if self._is_stopped():
            raise StoppedError("the evaluation was stopped")
        if time.monotonic() > deadline:
            return "deadline"
        if self._memory_bytes is not None and is_over(self.pid, self._memory_bytes):
            return "memory"
        return None

    def _death(self, reason: str, stages: _Stages) -> Death:
        stages.close()
        if reason in ("deadline", "memory"):
            end_tree(self._process.pid)
        try:
            code = self._process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:  # it closed its pipe and goes on
            end_tree(self._process.pid)
            code = self._process.wait()
        if reason == "exit" and code < 0:
            reason = "signal"
        number = -code if code < 0 else None
        return Death(reason, stages.current, stages.seconds, number, code if code >= 0 else None, self._log_tail())

    def _log_tail(self) -> str:
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - 4 * _LOG_CHARS))
        return " ".join(self._log.read().decode(errors="replace").split())[-_LOG_CHARS:]


def _children(pid: int) -> list[int]:
    """Processes that its main thread has started; asked of the kernel, since looking through all disturbs a timing."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []  # it has just ended, or the kernel does not tell


def allowed_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a child inherits: what finds programs and libraries, and what runtimes are steered by.

    Everything else stays out, credentials above all: a model's metric function and a runtime's plugins are other
    people's code. TUNER_PASS names what the user lets through all the same.
    """
    passed = {name.strip() for name in environment.get(PASS, "").split(",") if name.strip()}
    return {
        name: value
        for name, value in environment.items()
        if name in _ALLOWED or name in passed or name.startswith(_ALLOWED_PREFIXES) or name.endswith(_ALLOWED_SUFFIX)
    }


def _decode(line: bytes) -> Message:
    try:
        return decode_message(line)
    except msgspec.MsgspecError as error:
        raise HarnessError(f"the evaluation process sent something unreadable: {error}") from error


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
