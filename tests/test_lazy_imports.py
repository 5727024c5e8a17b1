"""`--help` is quick because nothing heavy is imported for it: a fresh interpreter tells what it imports."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from tuner.cli.app import app

HEAVY = {
    *("numpy", "optuna", "sqlalchemy", "alembic", "onnx", "onnxruntime", "torch", "tensorrt", "plotly", "rich"),
    *("pandas", "scipy", "matplotlib", "psutil", "ml_dtypes", "magika"),
}


def _imported(*command: str) -> set[str]:
    """Top-level packages that a fresh interpreter imports for `python COMMAND`."""
    ended = subprocess.run([sys.executable, "-X", "importtime", *command], capture_output=True, text=True, check=True)
    lines = [line for line in ended.stderr.splitlines() if line.startswith("import time:")]
    return {line.rsplit("|", 1)[1].strip().split(".")[0] for line in lines}


def _groups() -> list[tuple[str, ...]]:
    """The words of every group and command, the root first."""

    def walk(command: click.Command, words: tuple[str, ...]) -> list[tuple[str, ...]]:
        children = command.commands.items() if isinstance(command, click.Group) else ()
        return [words, *[found for name, child in children for found in walk(child, (*words, name))]]

    return walk(app, ())


GROUPS = [words for words in _groups() if len(words) < 2]


def test_what_is_heavy_is_noticed() -> None:
    assert "numpy" in _imported("-c", "import numpy")
    assert "click" in _imported("-m", "tuner", "--help")


@pytest.mark.parametrize("words", GROUPS, ids=lambda words: " ".join(words) or "tuner")
def test_help_imports_nothing_heavy(words: tuple[str, ...]) -> None:
    assert _imported("-m", "tuner", *words, "--help") & HEAVY == set()


def test_the_help_of_a_command_imports_nothing_heavy() -> None:
    assert _imported("-m", "tuner", "study", "create", "--help") & HEAVY == set()


def test_wrong_words_are_refused_without_anything_heavy() -> None:
    script = "from tuner.cli import main; raise SystemExit(main(['study', 'create', 'x']) - 2)"
    assert _imported("-c", script) & HEAVY == set()


def test_the_package_itself_is_light() -> None:
    script = "import tuner; tuner.__version__; dir(tuner)"
    assert _imported("-c", script) & HEAVY == set()


def test_every_name_of_the_package_is_there_when_asked_for() -> None:
    script = "import tuner; [getattr(tuner, name) for name in tuner.__all__]; tuner.nothing"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.stderr.strip().endswith("AttributeError: module 'tuner' has no attribute 'nothing'")


def test_a_backend_that_is_not_used_is_not_imported() -> None:
    script = "from objectives.backends import load; load('synthetic').environment()"
    assert _imported("-c", script) & {"onnxruntime", "torch", "tensorrt"} == set()
