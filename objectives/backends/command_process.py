"""A running program that measures itself: started in a folder of its own, read by lines, ended with all its children.

Flow: command_session.py -> start HERE -> lines of its stdout; everything it prints is kept for the case that it fails.
Our own stderr gets a copy of it, so that the last words are there too when we are killed in the middle.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from objectives.backends.guard import Guarded, guarded
from objectives.errors import BackendUnavailableError

_POLL_S = 0.05  # how soon the end of a program is seen whose children hold its pipes open
_EXIT_S = 2.0  # a program that was told to end may take this long
_TAIL_BYTES = 1 << 16
_COPIED_BYTES = 1 << 22  # of its words, to our stderr
_LINE_BYTES = 1 << 26
_LINKED_BYTES = 16 << 20  # larger files are not copied for each start


def inherited() -> dict[str, str]:
    """The environment that a program gets before its knobs: what the user's has and the child was let have."""
    return dict(os.environ)


class Program:
    """One start of a program. A context manager; not usable after `close`."""

    def __init__(self, command: Sequence[str], files: Mapping[str, Path], variables: Mapping[str, str]) -> None:
        """Start `command` in an empty folder that holds `files` by name, with `variables` as its environment.

        Raises: BackendUnavailableError if it cannot be started.
        """
        self._tail = bytearray()
        self._copied = 0
        self._buffer = b""
        self._lines: list[str] = []
        self._exit = ExitStack()
        with contextlib.ExitStack() as undo:
            folder = undo.enter_context(
                tempfile.TemporaryDirectory(prefix="tuner-program-", ignore_cleanup_errors=True)
            )
            self._guard: Guarded = undo.enter_context(guarded())
            self._process = self._start(command, _furnish(Path(folder), files), variables)
            self._guard.hold(self._process.pid)
            self._selector = undo.enter_context(selectors.DefaultSelector())
            for stream in (self._stdout, self._stderr):
                os.set_blocking(stream.fileno(), False)
                self._selector.register(stream, selectors.EVENT_READ)
            self._exit = undo.pop_all()

    def _start(self, command: Sequence[str], folder: Path, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
        own = folder / command[0]
        words = [str(own) if own.is_file() else command[0], *command[1:]]
        try:
            return subprocess.Popen(
                words,
                cwd=folder,
                env=dict(variables),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise BackendUnavailableError(
                f"cannot start {command[0]!r}: {error.strerror}",
                hint="is it installed, on PATH, and made for this machine?",
            ) from error

    @property
    def words(self) -> str:
        """The end of what it has printed so far."""
        return bytes(self._tail).decode(errors="replace").strip()

    @property
    def code(self) -> int | None:
        """Its exit code, minus the number of the signal that ended it; None while it runs."""
        return self._process.poll()

    def ask(self, line: str) -> None:
        """Send it a line. Nothing happens if it does not read any more."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(line.encode() + b"\n")
            self._stdin.flush()

    def hush(self) -> None:
        """Close its stdin: nothing more will be asked."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()

    def lines(self) -> Iterator[str]:
        """Lines of its stdout as they come, until it ends."""
        while True:
            while self._lines:
                yield self._lines.pop(0)
            ended = self._process.poll() is not None
            if not self._read(0.0 if ended else _POLL_S) and ended:
                break
        if self._buffer:
            rest, self._buffer = self._buffer, b""
            yield rest.decode(errors="replace")

    def close(self) -> None:
        """End it: its stdin closes, and what is still there a moment later is killed."""
        self.hush()
        until = time.monotonic() + _EXIT_S
        while self._process.poll() is None and time.monotonic() < until:
            self._read(_POLL_S)  # one that prints while it ends must not wait for us
        self._guard.end()
        self._process.wait()
        self._guard.release()
        for stream in (self._stdout, self._stderr):
            stream.close()
        self._exit.close()

    def _read(self, wait_s: float) -> bool:
        """Take in what there is; False if there was nothing."""
        if not self._selector.get_map():
            time.sleep(wait_s)
            return False
        found = False
        for key, _ in self._selector.select(wait_s):
            data = os.read(key.fd, 1 << 16)
            if not data:
                self._selector.unregister(key.fileobj)
                continue
            found = True
            self._keep(data)
            if key.fd == self._stdout.fileno():
                self._split(data)
        return found

    def _split(self, data: bytes) -> None:
        *whole, self._buffer = (self._buffer + data).split(b"\n")
        self._buffer = self._buffer[-_LINE_BYTES:]
        self._lines += [one.decode(errors="replace") for one in whole]

    def _keep(self, data: bytes) -> None:
        self._tail += data
        del self._tail[:-_TAIL_BYTES]
        if self._copied < _COPIED_BYTES:
            self._copied += len(data)
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.buffer.write(data)
                sys.stderr.flush()

    @property
    def _stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None, "it was asked for"
        return self._process.stdin

    @property
    def _stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None, "it was asked for"
        return self._process.stdout

    @property
    def _stderr(self) -> IO[bytes]:
        assert self._process.stderr is not None, "it was asked for"
        return self._process.stderr


def _furnish(folder: Path, files: Mapping[str, Path]) -> Path:
    """Put the program's files into its folder: copies, so that what it writes there harms nobody."""
    for name, source in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.stat().st_size > _LINKED_BYTES:
            target.symlink_to(source.resolve())
        else:
            shutil.copyfile(source, target)
            target.chmod(0o755)  # one of them may be the program itself
    return folder
