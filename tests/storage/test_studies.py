"""Studies and contexts as records, on every kind of database."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
import sqlalchemy as sa

from storage.database import Database
from storage.errors import AlreadyExistsError, NotFoundError
from storage.records import ContextRecord, NewEngine, Origin
from storage.schema import Base, Environment, KnobSpace
from storage.studies import (
    add_study,
    contexts_of,
    delete_study,
    find_context,
    get_study,
    list_studies,
    open_context,
    replace_spec,
)
from storage.trials import finish, propose
from tests.storage.conftest import ENVIRONMENT, JUDGING, ME, MODEL, SPACE, measured, study_record


def _open(database: Database, study: str = "study", judging: str = "j" * 64) -> ContextRecord:
    return open_context(database, study, ENVIRONMENT, SPACE, JUDGING, judging)


def _rows(database: Database) -> dict[str, int]:
    with database.reading() as session:
        return {
            name: session.scalar(sa.select(sa.func.count()).select_from(table)) or 0
            for name, table in Base.metadata.tables.items()
        }


def test_a_study_comes_back_as_it_was(database: Database) -> None:
    record = study_record("größe 📏 '; DROP TABLE tuner_study; --", nested={"ü": [1, None, 1e-3, True]})
    add_study(database, record)
    assert get_study(database, record.name) == record
    assert list_studies(database) == [record]


def test_times_are_the_same_moment_whatever_zone_they_were_given_in(database: Database) -> None:
    local = datetime(2030, 7, 1, 12, 0, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    add_study(database, replace(study_record(), created_at=local))
    found = get_study(database, "study").created_at
    assert found == local
    assert found.tzinfo == UTC


def test_a_name_can_be_taken_once(database: Database) -> None:
    add_study(database, study_record())
    with pytest.raises(AlreadyExistsError, match="'study'") as caught:
        add_study(database, study_record(other=True))
    assert "study run study" in caught.value.hint
    assert list_studies(database) == [study_record()]


def test_an_unknown_study_is_answered_with_those_there_are(database: Database) -> None:
    with pytest.raises(NotFoundError) as caught:
        get_study(database, "ocr")
    assert "study create" in caught.value.hint
    add_study(database, study_record("first"))
    add_study(database, study_record("second"))
    with pytest.raises(NotFoundError, match="'ocr'") as caught:
        get_study(database, "ocr")
    assert "first, second" in caught.value.hint


@pytest.mark.parametrize("ask", [contexts_of, delete_study, _open, lambda db, name: replace_spec(db, name, {})])
def test_every_question_about_an_unknown_study_is_not_found(database: Database, ask) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(NotFoundError):
        ask(database, "ocr")


def test_studies_of_one_model_share_it(database: Database) -> None:
    add_study(database, study_record("first"))
    add_study(database, study_record("second"))
    assert _rows(database)["tuner_model"] == 1
    delete_study(database, "first")
    assert get_study(database, "second").model == MODEL
    delete_study(database, "second")
    assert _rows(database)["tuner_model"] == 0


def test_a_specification_is_replaced(database: Database) -> None:
    add_study(database, study_record("first"))
    add_study(database, study_record("second"))
    replace_spec(database, "first", {"format": 1, "budget": 7})
    assert get_study(database, "first").spec == {"format": 1, "budget": 7}
    assert get_study(database, "second") == study_record("second")


def test_a_context_comes_back_as_it_was(database: Database) -> None:
    add_study(database, study_record())
    opened = _open(database)
    assert (opened.environment, opened.space, opened.judging) == (ENVIRONMENT, SPACE, JUDGING)
    assert (opened.study, opened.number, opened.parent_id) == ("study", 1, None)
    assert contexts_of(database, "study") == [opened]
    digests = (ENVIRONMENT.digest, SPACE.digest, "j" * 64)
    assert find_context(database, "study", *digests) == opened


@pytest.mark.parametrize("position", range(3))
def test_a_context_is_found_by_all_three_digests(database: Database, position: int) -> None:
    add_study(database, study_record())
    _open(database)
    digests = [ENVIRONMENT.digest, SPACE.digest, "j" * 64]
    digests[position] = "x" * 64
    assert find_context(database, "study", *digests) is None


def test_a_context_belongs_to_its_study_alone(database: Database) -> None:
    add_study(database, study_record("first"))
    add_study(database, study_record("second"))
    first = _open(database, "first")
    assert find_context(database, "second", ENVIRONMENT.digest, SPACE.digest, "j" * 64) is None
    second = _open(database, "second")
    assert second.number == 1
    assert second.optuna_study != first.optuna_study
    # What two contexts have in common is stored once.
    assert _rows(database)["tuner_environment"] == _rows(database)["tuner_knob_space"] == 1


def test_contexts_are_numbered_and_remember_where_they_come_from(database: Database) -> None:
    add_study(database, study_record())
    opened = [_open(database, judging="a" * 64)]
    for letter in "bc":
        origin = Origin(opened[0].id, {"because": f"limits {letter}"})
        opened.append(open_context(database, "study", ENVIRONMENT, SPACE, JUDGING, letter * 64, origin))
    assert [context.number for context in opened] == [1, 2, 3]
    assert [context.parent_id for context in opened] == [None, opened[0].id, opened[0].id]
    assert [context.carried for context in opened] == [None, {"because": "limits b"}, {"because": "limits c"}]
    assert len({context.optuna_study for context in opened}) == 3
    assert contexts_of(database, "study") == opened


def test_the_same_context_is_not_opened_twice(database: Database) -> None:
    add_study(database, study_record())
    opened = _open(database)
    with pytest.raises(AlreadyExistsError):
        _open(database)
    assert contexts_of(database, "study") == [opened]


def test_a_deleted_study_leaves_nothing_of_its_own(database: Database, context_id: int) -> None:
    add_study(database, study_record("other"))
    _open(database, "other")
    before = _rows(database)
    add_study(database, study_record("doomed"))
    doomed = [_open(database, "doomed", letter * 64) for letter in "ab"]
    for context in doomed:
        trial = propose(database, context.id, [("a", "1")], "d" * 64, "tpe", ME)
        assert trial is not None
        finish(database, trial.uid, measured(), NewEngine("f" * 64, "plan", 1, {}))
        propose(database, context.id, [], "e" * 64, "tpe", ME)  # leased, unfinished
    assert delete_study(database, "doomed") == [context.optuna_study for context in doomed]
    assert _rows(database) == before
    assert [record.name for record in list_studies(database)] == ["study", "other"]


def test_stored_values_do_not_follow_changes_of_what_was_given(database: Database) -> None:
    spec = {"format": 1, "list": [1]}
    add_study(database, replace(study_record(), spec=spec))
    spec["list"].append(2)  # type: ignore[attr-defined]
    assert get_study(database, "study").spec == {"format": 1, "list": [1]}


def test_environments_and_spaces_are_told_apart_by_digest(database: Database) -> None:
    add_study(database, study_record())
    _open(database)
    other = replace(ENVIRONMENT, digest="f" * 64, backend_version="2")
    opened = open_context(database, "study", other, SPACE, JUDGING, "j" * 64)
    assert opened.environment == other
    with database.reading() as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(Environment)) == 2
        assert session.scalar(sa.select(sa.func.count()).select_from(KnobSpace)) == 1
