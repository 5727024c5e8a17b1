"""`env --check`: the checks of a backend while they run, and the table that can be pasted into an issue.

Flow: `env` -> check HERE -> tuner/api -> a Listener HERE tells on stderr where it is -> the table on stdout.
"""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

import click
import msgspec
from rich.console import Console
from rich.live import Live
from rich.text import Text

from objectives.checks.result import Report, Result, Status
from objectives.checks.selfcheck import Listener
from tuner.api import check_backend
from tuner.cli.render import emit, span

_WIDTH = 80  # what a table in an issue may have, whatever the terminal has
_ADVICE = "a failed check is a fault of the backend or its library: report all of this"
_COUNTED = {Status.PASS: "passed", Status.FAIL: "failed", Status.UNSUPPORTED: "unsupported"}
_SHOWN = {Status.PASS: "pass", Status.FAIL: "FAIL", Status.UNSUPPORTED: "unsupported"}


def check(backend: str, options: Mapping[str, str], as_json: bool) -> None:
    """Check a backend and print what was found. Raises: Exit with code 1 if a check failed."""
    with make_listener(quiet=as_json) as listener:
        report = check_backend(backend, options, listener=listener)
    emit(check_json(report) if as_json else check_lines(report))
    if report.failed:
        raise click.exceptions.Exit(1)


def check_json(report: Report) -> dict[str, Any]:
    """The report, and how many checks ended how."""
    counts = {status.value: len(report.having(status)) for status in Status}
    return {**msgspec.to_builtins(report), "counts": counts}


def check_lines(report: Report) -> list[str]:
    """Versions, device and driver at the top, then a row for each check, then the sum."""
    counts = ", ".join(f"{len(report.having(status))} {word}" for status, word in _COUNTED.items())
    total = f"{report.backend}: {len(report.results)} checks in {span(report.seconds)}: {counts}"
    return [*_head(report), "", *_rows(report), "", total, *([_ADVICE] if report.failed else [])]


def _head(report: Report) -> list[str]:
    here = report.environment
    facts = dict(report.software)
    if here is not None:
        facts = {report.backend: here.backend_version, **here.identity, **here.details, **facts}
    if facts.get("os") == facts.get("system"):
        facts.pop("os", None)
    facts |= {f"option {name}": value for name, value in report.options.items()}
    if report.cannot_run:
        facts["note"] = report.cannot_run
    return [line for name, value in facts.items() for line in _hanging(f"{name}: ", value, 2)]


def _rows(report: Report) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*(_cells(one) for one in report.results), strict=True)]
    lines: list[str] = []
    for one in report.results:
        first = "".join(f"{cell:<{width}}  " for cell, width in zip(_cells(one), widths, strict=True))
        lines += _hanging(first, _detail(one, report), len(first))
    return lines


def _cells(result: Result) -> tuple[str, str]:
    return _SHOWN[result.status], result.name


def _detail(result: Result, report: Report) -> str:
    if report.cannot_run and result.detail == report.cannot_run:
        return "engines cannot be run here"
    return result.detail


def _hanging(first: str, text: str, indent: int) -> list[str]:
    """`text` after `first`, its further lines indented; a word keeps its length."""
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [first.rstrip()]


class LineListener(Listener, AbstractContextManager["LineListener"]):
    """A line on stderr for each check that has ended: stdout belongs to the table."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def say(self, line: str) -> None:
        click.echo(line, err=True)

    def on_wait(self, device: str) -> None:
        self.say(f"waiting: another process measures on {device}")

    def on_result(self, result: Result, index: int, total: int) -> None:
        self.say(f"[{index}/{total}] {result.name}: {_SHOWN[result.status]} ({result.seconds:.1f} s)")


class TerminalListener(LineListener):
    """One line that stays in place and says where the check is; failures stay above it."""

    def __init__(self, console: Console) -> None:
        self._now = "starting"
        self._note = ""
        self._since = time.monotonic()
        # Last: it draws at once.
        self._live = Live(console=console, refresh_per_second=2, transient=True, get_renderable=self._draw)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, line: str) -> None:
        self._live.console.print(Text(line), overflow="ellipsis", no_wrap=True)

    def on_start(self, name: str, index: int, total: int) -> None:
        self._now, self._note, self._since = f"check {index} of {total}: {name}", "", time.monotonic()

    def on_note(self, words: str) -> None:
        self._note = f", {words}"

    def on_result(self, result: Result, index: int, total: int) -> None:
        if result.status is Status.FAIL:
            super().on_result(result, index, total)

    def _draw(self) -> Text:
        words = f"{self._now}{self._note} ({time.monotonic() - self._since:.0f} s)"
        return Text(words, overflow="ellipsis", no_wrap=True, style="dim")


class SilentListener(LineListener):
    """Says nothing: the caller wants JSON alone."""

    def say(self, line: str) -> None:
        return


def make_listener(quiet: bool = False) -> LineListener:
    """The listener that fits where stderr goes."""
    if quiet:
        return SilentListener()
    return TerminalListener(Console(stderr=True)) if sys.stderr.isatty() else LineListener()
