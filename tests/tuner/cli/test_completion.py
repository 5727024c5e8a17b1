"""Completion: what a shell is offered, and that it costs no database and no error."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Cli
from tests.tuner.conftest import Study
from tuner.cli import main
from tuner.cli.completion import VARIABLE

BESIDE = os.path.dirname(sys.executable)


@pytest.fixture
def offered(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> object:
    """What bash is offered for the last of some words."""

    def ask(*words: str) -> list[str]:
        monkeypatch.setenv(VARIABLE, "bash_complete")
        monkeypatch.setenv("COMP_WORDS", " ".join(["tuner", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        with pytest.raises(SystemExit):
            main([])
        monkeypatch.delenv(VARIABLE)
        return [line.partition(",")[2] for line in capsys.readouterr().out.splitlines() if line]

    return ask


def test_commands_and_options(offered: object) -> None:
    assert callable(offered)
    assert {"study", "report", "dashboard", "completion"} <= set(offered(""))
    assert offered("study", "wa") == ["watch"]
    assert "--finalists" in offered("study", "run", "demo", "--fin")


@pytest.mark.parametrize(
    "words",
    [
        ("study", "run"),
        ("study", "watch"),
        ("study", "clone"),
        ("engine", "verify"),
        ("report",),
        ("check",),
        ("db", "export"),
    ],
)
def test_names_of_studies(offered: object, finished: Study, monkeypatch: pytest.MonkeyPatch, words: tuple[str]) -> None:
    assert callable(offered)
    monkeypatch.setenv("TUNER_STORAGE", finished.url)
    assert offered(*words, "") == ["demo"]
    assert offered(*words, "x") == []


def test_a_storage_among_the_words_counts(offered: object, finished: Study) -> None:
    assert callable(offered)
    assert offered("study", "show", "--storage", finished.url, "de") == ["demo"]


def test_knobs_one_after_the_other(offered: object, finished: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(offered)
    monkeypatch.setenv("TUNER_STORAGE", finished.url)
    assert offered("study", "create", "x", "--knobs", "") == ["a", "b"]
    assert offered("study", "create", "x", "--knobs", "a,-") == ["a,-a", "a,-b"]


def test_backends_and_searches(offered: object) -> None:
    assert callable(offered)
    assert offered("env", "--backend", "synth") == ["synthetic"]
    assert offered("study", "create", "x", "--search", "a") == ["auto"]


@pytest.mark.parametrize("content", [None, b"no database", b""])
def test_without_a_database_there_is_nothing_and_no_error(
    offered: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None
) -> None:
    assert callable(offered)
    if content is not None:
        (tmp_path / "tuner.db").write_bytes(content)
    monkeypatch.setenv("TUNER_STORAGE", f"sqlite:///{tmp_path}/tuner.db")
    assert offered("study", "run", "") == []
    monkeypatch.setenv("TUNER_STORAGE", "postgresql+psycopg://nobody@203.0.113.7/x")
    assert offered("study", "run", "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell(cli: Cli, shell: str) -> None:
    ended = cli("completion", shell)
    assert ended.code == 0
    assert f"{VARIABLE}={shell}_complete" in ended.out


def test_a_shell_that_is_not_known(cli: Cli) -> None:
    assert cli("completion", "tcsh").code == 2


def test_a_real_bash_completes(finished: Study) -> None:
    bash = shutil.which("bash")
    if bash is None or not os.path.exists(f"{BESIDE}/tuner"):
        pytest.skip("bash, or the command tuner, is not here")
    script = (
        'eval "$(tuner completion bash)"; COMP_WORDS=(tuner study run de); COMP_CWORD=3; '
        '_tuner_completion tuner; echo "${COMPREPLY[@]}"'
    )
    environment = {**os.environ, "PATH": f"{BESIDE}:{os.environ['PATH']}", "TUNER_STORAGE": finished.url}
    ended = subprocess.run([bash, "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert (ended.stdout, ended.stderr) == ("demo\n", "")
