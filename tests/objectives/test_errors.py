"""Errors: one tree; the user's errors end a command with 2, everything else with 1."""

from __future__ import annotations

import inspect

import pytest

from objectives import errors
from objectives.errors import CandidateError, InputError, ObjectiveError

TREE = [one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, ObjectiveError)]


@pytest.mark.parametrize("kind", TREE)
def test_the_exit_code_says_whose_fault_it_is(kind: type[ObjectiveError]) -> None:
    assert kind.exit_code == (2 if issubclass(kind, InputError) else 1)


@pytest.mark.parametrize("kind", TREE)
def test_the_module_text_draws_every_error(kind: type[ObjectiveError]) -> None:
    assert kind.__name__ in (errors.__doc__ or "")


def test_a_hint_is_not_part_of_the_message() -> None:
    error = InputError("what is wrong", hint="what to do")
    assert (str(error), error.hint) == ("what is wrong", "what to do")
    assert ObjectiveError("no hint").hint == ""


def test_a_candidate_error_says_its_kind() -> None:
    error = CandidateError("unsupported", "in the library's words")
    assert (error.kind, str(error)) == ("unsupported", "in the library's words")
