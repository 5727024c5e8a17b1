"""TensorRT's log, captured: what the library said during one step, kept beside that step's result.

Flow: trt_build.py and trt_session.py -> capture HERE around every step -> trt_errors.py reads it.
The library keeps the first logger of a process while any of its objects lives and ignores later ones (observed), so
there is one recorder per library, for ever, and a capture collects what it hears meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

_ERRORS = ("INTERNAL_ERROR", "ERROR")
_ROUTE = "route"  # the only detail kept of the verbose level, which has thousands of lines for a large network


@dataclass(frozen=True, slots=True)
class Message:
    """One line of the log; `severity` as the library names it: INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE."""

    severity: str
    text: str


@dataclass(slots=True)
class Log:
    """Messages in the order heard."""

    messages: list[Message] = field(default_factory=list)

    def add(self, severity: str, text: str) -> None:
        if severity != "VERBOSE" or _ROUTE in text.lower():
            self.messages.append(Message(severity, text.strip()))

    @property
    def errors(self) -> tuple[str, ...]:
        """Texts of all errors, each once."""
        return tuple(dict.fromkeys(one.text for one in self.messages if one.severity in _ERRORS))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Texts of all warnings, each once."""
        return tuple(dict.fromkeys(one.text for one in self.messages if one.severity == "WARNING"))


@cache
def recorder(library: Any) -> Any:
    """The logger of this process for `library`, the imported module."""

    class Recorder(library.ILogger):  # type: ignore[misc]  # the base comes from the library, which is untyped
        def __init__(self) -> None:
            library.ILogger.__init__(self)
            self.listening: list[Log] = []

        def log(self, severity: Any, msg: str) -> None:
            # Called from the library's own threads; appending to a list needs no lock.
            for log in self.listening:
                log.add(severity.name, msg)

    return Recorder()


def note(library: Any, text: str) -> None:
    """Add an error of our own to what is heard, from a place that cannot raise: a call out of the library."""
    for log in recorder(library).listening:
        log.add("ERROR", text)


@contextmanager
def capture(library: Any) -> Iterator[Log]:
    """Collect what `library` logs inside."""
    log, listening = Log(), recorder(library).listening
    listening.append(log)
    try:
        yield log
    finally:
        listening[:] = [one for one in listening if one is not log]
