"""Progress as a person sees it: on a terminal, in a pipe, and not at all."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from objectives.outcome import Stage
from tests import landscapes
from tests.conftest import Cli
from tuner.cli.progress import LineProgress, SilentProgress, TerminalProgress, make_progress
from tuner.stats import Level, Noise


def _drain(descriptor: int) -> str:
    found = b""
    while True:
        try:
            data = os.read(descriptor, 65536)
        except OSError:  # Linux's way to say that the other side of a terminal is gone
            break
        if not data:
            break
        found += data
    return found.decode(errors="replace")


def test_a_run_on_a_terminal_of_eighty_columns(
    landscape: Callable[..., Path], home_url: str, cli: Cli, tmp_path: Path
) -> None:
    model = landscape(landscapes.small(build_s=0.6))
    create = ("study", "create", "s", "--model", model, "--backend", "synthetic", "--storage", home_url)
    assert cli(*create, "--n-trials", "4", "--noise-sessions", "0").code == 0
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tuner", "study", "run", "s", "--no-confirm", "--storage", home_url]
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environment, cwd=tmp_path) as process:
        os.close(theirs)
        drawn = _drain(ours)
        assert process.stdout is not None
        result = process.stdout.read().decode()
    os.close(ours)
    assert process.returncode == 0, drawn
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn)
    assert re.search(r"now     trial #\d building \(\d+ s\)", plain)
    assert re.search(r"[█░]{10,}  \d of 4 trials, about .* left", plain)
    assert re.search(r"best    \d\.\d+x in the search: trial #\d", plain)
    assert re.search(r"so far  \d feasible, \d rejected, \d failed", plain)
    assert "[4/4] #3" in plain
    assert max(len(line.rstrip()) for line in re.split(r"[\r\n]+", plain)) <= 80
    assert "4 trials" in result
    assert "\x1b" not in result


def test_in_a_pipe_there_is_one_plain_line_a_trial(landscape: Callable[..., Path], home_url: str, cli: Cli) -> None:
    create = ("study", "create", "s", "--model", landscape(), "--backend", "synthetic", "--storage", home_url)
    cli(*create, "--n-trials", "5", "--noise-sessions", "0")
    ended = cli("study", "run", "s", "--no-confirm", "--storage", home_url)
    assert len(re.findall(r"^\[\d/5\] #\d", ended.err, re.MULTILINE)) == 5
    assert "\x1b" not in ended.err + ended.out


def test_every_event_can_be_drawn() -> None:
    with open(os.devnull, "w") as sink, TerminalProgress(Console(file=sink, force_terminal=True)) as progress:
        progress.on_wait("cpu")
        progress.on_noise(None)
        progress.on_noise(Noise(Level(0.01, 3), Level(0.0, 0), Level(0.02, 1)))
        progress.on_stage(Stage.CHECK, "")
        progress.on_stage(Stage.CHECK, "3 of 10")
        progress.on_confirm("building trial #3")


def test_what_fits_where_stderr_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(make_progress(quiet=True)) is SilentProgress
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    assert type(make_progress()) is LineProgress
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert type(make_progress()) is TerminalProgress
