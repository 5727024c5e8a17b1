"""Every error that this project defines is one that the command line says in a sentence."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

import objectives
import storage
import tuner
from objectives.errors import CandidateError, ObjectiveError
from storage.errors import StorageError
from tests.conftest import Cli
from tuner.cli import app as command_tree
from tuner.errors import TunerError

ROOTS = (ObjectiveError, StorageError, TunerError)
ERROR_MODULES = [
    info.name
    for room in (objectives, storage, tuner)
    for info in pkgutil.walk_packages(room.__path__, f"{room.__name__}.")
    if info.name.rpartition(".")[2] == "errors"
]
ERRORS = {
    error
    for name in ERROR_MODULES
    for error in vars(importlib.import_module(name)).values()
    if inspect.isclass(error) and issubclass(error, Exception)
}


def test_every_room_was_looked_into() -> None:
    assert set(ERROR_MODULES) >= {"objectives.errors", "storage.errors", "tuner.errors", "tuner.stats.errors"}


@pytest.mark.parametrize("error", sorted(ERRORS, key=lambda one: one.__name__), ids=lambda one: one.__name__)
def test_every_error_ends_in_a_sentence_with_its_own_exit_code(
    error: type[Exception], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert issubclass(error, ROOTS)
    made = error("kind", "what is wrong") if error is CandidateError else error("what is wrong", hint="do this")  # type: ignore[call-arg]

    def fail(**_: object) -> None:
        raise made

    monkeypatch.setattr(command_tree.commands["env"], "callback", fail)
    ended = cli("env")
    assert ended.code == made.exit_code  # type: ignore[attr-defined]
    assert "error: what is wrong" in ended.err
    assert ended.code in (1, 2)
