"""`env --check`: the table, JSON, exit codes, and what is told meanwhile."""

from __future__ import annotations

import json
import os
import re
import sys

import pytest
from rich.console import Console

import tuner
from objectives.backends.base import Environment
from objectives.checks.result import Report, Result, Status
from tests.conftest import Cli
from tuner.cli.checks import LineListener, SilentListener, TerminalListener, check_lines, make_listener

REASON = "engines cannot be run here: there is no GPU, and this sentence is too long for a line of a table"
LONG = "crashed: was killed by SIGABRT; last output: " + "more words of a library " * 5 + "x" * 90
PASSED = Result("build", Status.PASS, "plan, 12 bytes", 0.5)
FAILED = Result("builder options", Status.FAIL, LONG, 61.0)
UNSUPPORTED = Result("timing", Status.UNSUPPORTED, REASON, 0.0)
HERE = Environment("b", "11.1", "cuda:GPU-1", {"gpu": "NVIDIA X"}, {"driver": "580.1", "os": "Linux"})
SOFTWARE = {"python": "3.12", "system": "Linux"}


def report(*results: Result, environment: Environment | None = HERE) -> Report:
    return Report("b", environment, REASON, SOFTWARE, results, {"device": "1"})


def test_the_table_of_a_real_check(cli: Cli) -> None:
    ended = cli("env", "--check", "synthetic")
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[0] == "synthetic: 1"
    assert f"tensorrt-tuner: {tuner.__version__}" in lines
    assert re.fullmatch(r"synthetic: 21 checks in \d+\.\d s: 17 passed, 0 failed, 4 unsupported", lines[-1])
    assert max(map(len, lines)) <= 80
    rows = [re.split(r"  +", line) for line in lines if line.startswith(("pass", "unsupported"))]
    assert [row[1] for row in rows[:3]] == ["environment", "model", "knobs"]
    told = ended.err.splitlines()
    assert re.fullmatch(r"\[1/21\] environment: pass \(\d+\.\d s\)", told[0])
    assert len(told) == 21


def test_versions_device_and_driver_stand_at_the_top() -> None:
    lines = check_lines(report(PASSED))
    assert lines[:6] == [
        "b: 11.1",
        "gpu: NVIDIA X",
        "driver: 580.1",
        "python: 3.12",
        "system: Linux",
        "option device: 1",
    ]
    assert " ".join(line.strip() for line in lines[6:8]) == f"note: {REASON}"


def test_an_environment_that_is_not_known_leaves_the_software() -> None:
    assert check_lines(report(PASSED, environment=None))[:2] == ["python: 3.12", "system: Linux"]


def test_long_details_are_kept_whole_under_each_other() -> None:
    lines = check_lines(report(PASSED, FAILED, UNSUPPORTED))
    rows = lines[lines.index("") + 1 :]
    assert rows[0] == "pass         build            plan, 12 bytes"
    assert rows[1].startswith("FAIL         builder options  crashed: was killed")
    last = rows.index("unsupported  timing           engines cannot be run here")
    assert {line[:30].strip() for line in rows[2:last]} == {""}
    assert " ".join([rows[1][30:], *[line.strip() for line in rows[2:last]]]) == LONG
    assert lines[-2:] == [
        "b: 3 checks in 1 min 2 s: 1 passed, 1 failed, 1 unsupported",
        "a failed check is a fault of the backend or its library: report all of this",
    ]


@pytest.mark.parametrize(("results", "code"), [((PASSED, UNSUPPORTED), 0), ((PASSED, FAILED), 1)])
def test_the_exit_code_says_whether_a_check_failed(
    results: tuple[Result, ...], code: int, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.cli.checks.check_backend", lambda name, options, listener: report(*results))
    assert cli("env", "--check", "b").code == code
    ended = cli("env", "--check", "b", "--json")
    assert (ended.code, ended.err) == (code, "")
    found = json.loads(ended.out)
    assert found["counts"] == {"pass": 1, "fail": code, "unsupported": 1 - code}
    assert [one["name"] for one in found["results"]] == [one.name for one in results]
    assert found["results"][1]["detail"] == results[1].detail
    assert found["environment"]["identity"] == {"gpu": "NVIDIA X"}
    assert found["cannot_run"] == REASON


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("--check", "nothing"), "there is no backend 'nothing'", "choose one of"),
        (("--check", "trtexec"), "there is no program 'trtexec'", "PATH"),
        (("--check", "synthetic", "--backend", "onnxruntime"), "exclude one another", "env --check synthetic"),
        (("--check", "synthetic", "--backend-option", "a=b"), "has no option 'a'", "it has: devices"),
        (("--backend-option", "a=b"), "goes with --check", "env --check NAME"),
    ],
)
def test_wrong_use_ends_with_a_remedy(
    words: tuple[str, ...], message: str, hint: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    ended = cli("env", *words)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err
    assert hint in ended.err.split("hint:")[1]


def test_a_terminal_shows_where_the_check_is_and_keeps_failures() -> None:
    with open(os.devnull, "w") as sink:
        console = Console(file=sink, force_terminal=True, width=80, record=True)
        with TerminalListener(console) as listener:
            listener.on_start("builder options", 16, 20)
            listener.on_note("2 of 9: tf32=off")
            assert re.fullmatch(r"check 16 of 20: builder options, 2 of 9: tf32=off \(0 s\)", listener._draw().plain)
            listener.on_wait("cuda:0")
            listener.on_result(PASSED, 5, 20)
            listener.on_result(FAILED, 16, 20)
    shown = console.export_text()
    assert "[16/20] builder options: FAIL (61.0 s)" in shown
    assert "waiting: another process measures on cuda:0" in shown
    assert "[5/20]" not in shown


def test_what_fits_where_stderr_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(make_listener(quiet=True)) is SilentListener
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    assert type(make_listener()) is LineListener
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert type(make_listener()) is TerminalListener
