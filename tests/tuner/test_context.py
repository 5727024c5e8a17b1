"""Contexts: resumed while nothing changes, a new one with the reason when something does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import optuna
import pytest

from objectives.accuracy import Limit
from objectives.backends.base import Environment
from objectives.knobs import KnobSpace
from objectives.requests import Judging
from storage.studies import get_study
from tests.tuner.conftest import SHOWCASE, Study
from tuner.context import Context, contexts
from tuner.home import Home, open_home
from tuner.lineage import open_or_resume
from tuner.search import projection
from tuner.spec import Budget, StudySpec, read_spec

SPACE = SHOWCASE.space()


@pytest.fixture
def home(created: Study) -> Iterator[Home]:
    with open_home(created.url) as found:
        yield found


@pytest.fixture
def spec(home: Home, created: Study) -> StudySpec:
    return read_spec(get_study(home.database, created.name).spec)


@pytest.fixture
def here(home: Home, created: Study) -> Environment:
    """The environment that the study was created in."""
    record = contexts(home, created.name)[0].record.environment
    return Environment(record.backend, record.backend_version, record.device, record.identity, record.details)


def _limits(spec: StudySpec, limit: float) -> StudySpec:
    return msgspec.structs.replace(spec, judging=Judging((Limit("rel_l2", limit),)))


def _numbers(home: Home, spec: StudySpec) -> list[int]:
    return [context.record.number for context in contexts(home, spec.name)]


def test_the_same_study_in_the_same_place_is_resumed(home: Home, spec: StudySpec, here: Environment) -> None:
    context = open_or_resume(home, spec, here, SPACE)
    assert context.opened_because == ""
    assert context == contexts(home, spec.name)[0]
    assert _numbers(home, spec) == [1]


@pytest.mark.parametrize(
    "change",
    [{"budget": Budget(99)}, {"seed": 9}, {"search": "random"}, {"trial_timeout_s": 1.0}, {"memory_bytes": 1 << 30}],
)
def test_what_changes_no_measurement_opens_no_context(
    home: Home, spec: StudySpec, here: Environment, change: dict[str, Any]
) -> None:
    open_or_resume(home, msgspec.structs.replace(spec, **change), here, SPACE)
    assert _numbers(home, spec) == [1]


def test_recorded_details_are_no_other_place(home: Home, spec: StudySpec, here: Environment) -> None:
    elsewhere = msgspec.structs.replace(here, details={"python": "9.9"})
    assert open_or_resume(home, spec, elsewhere, SPACE).record.number == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"backend_version": "2"}, ["synthetic 1 became synthetic 2"]),
        ({"identity": {"machine": "riscv"}}, ["machine changed"]),
        ({"identity": {"machine": "riscv", "mig": "1g"}}, ["machine changed", "mig changed"]),
        ({"device": "cuda:GPU-7"}, ["device"]),
    ],
)
def test_another_environment_opens_a_context_and_says_what_changed(
    home: Home, spec: StudySpec, here: Environment, change: dict[str, Any], words: list[str]
) -> None:
    context = open_or_resume(home, spec, msgspec.structs.replace(here, **change), SPACE)
    assert context.record.number == 2
    assert all(word in context.opened_because for word in words)
    assert "knobs" not in context.opened_because
    assert "limits" not in context.opened_because


def test_other_knobs_open_a_context(home: Home, spec: StudySpec, here: Environment) -> None:
    fewer = KnobSpace(SPACE.knobs[:1])
    context = open_or_resume(home, spec, here, fewer)
    assert (context.record.number, context.space) == (2, fewer)
    assert "knobs" in context.opened_because
    assert contexts(home, spec.name)[0].space == SPACE


def test_other_limits_open_a_context(home: Home, spec: StudySpec, here: Environment) -> None:
    context = open_or_resume(home, _limits(spec, 0.5), here, SPACE)
    assert context.record.number == 2
    assert context.opened_because == "limits or data changed"
    assert context.record.judging["limits"][0]["limit"] == 0.5


def test_everything_that_changed_is_said(home: Home, spec: StudySpec, here: Environment) -> None:
    moved = msgspec.structs.replace(here, backend_version="2")
    because = open_or_resume(home, _limits(spec, 0.5), moved, KnobSpace(SPACE.knobs[:1])).opened_because
    assert len(because.split("; ")) == 3


def test_an_earlier_context_is_found_again(home: Home, spec: StudySpec, here: Environment) -> None:
    first = contexts(home, spec.name)[0]
    second = open_or_resume(home, _limits(spec, 0.5), here, SPACE)
    third = open_or_resume(home, _limits(spec, 0.25), here, SPACE)
    assert [second.record.parent_id, third.record.parent_id] == [first.id, second.id]
    assert open_or_resume(home, spec, here, SPACE) == first
    assert open_or_resume(home, _limits(spec, 0.5), here, SPACE).id == second.id
    assert _numbers(home, spec) == [1, 2, 3]


def _optuna(home: Home) -> list[str]:
    storage = optuna.storages.RDBStorage(home.url)
    names = [study.study_name for study in storage.get_all_studies()]
    storage.engine.dispose()
    return names


def test_each_context_is_one_optuna_study(home: Home, spec: StudySpec, here: Environment) -> None:
    second = open_or_resume(home, _limits(spec, 0.5), here, SPACE)
    names = [context.name for context in contexts(home, spec.name)]
    assert second.name in names
    assert sorted(_optuna(home)) == sorted(names)


def test_a_missing_optuna_study_is_made_good(home: Home, spec: StudySpec, here: Environment) -> None:
    # What a kill between our row and Optuna's leaves behind.
    context: Context = contexts(home, spec.name)[0]
    projection.delete(home.url, [context.name])
    assert _optuna(home) == []
    open_or_resume(home, spec, here, SPACE)
    assert _optuna(home) == [context.name]
