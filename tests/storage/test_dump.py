"""Dumps: every row of one study and of no other, and back again beside it or elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from storage import confirmations, controls, trials
from storage.database import Database
from storage.dump import dump_study, load_study
from storage.engines import engines_of
from storage.errors import AlreadyExistsError, CorruptError, NotFoundError
from storage.records import NewEngine, Origin, Owner, PairRecord, RoundRecord, VerdictRecord
from storage.schema import Base
from storage.studies import add_study, contexts_of, get_study, open_context
from tests.storage.conftest import ENVIRONMENT, JUDGING, ME, SPACE, failed, measured, study_record


def _propose(database: Database, context_id: int, number: int, owner: Owner = ME) -> str:
    record = trials.propose(database, context_id, [["a", str(number)]], f"{number:064}", "tpe", owner)
    assert record is not None
    return record.uid


@pytest.fixture
def full(database: Database, context_id: int) -> str:
    """A study with something in every table; returns the identity of its first trial."""
    first, second = _propose(database, context_id, 0), _propose(database, context_id, 1)
    trials.finish(database, first, measured(), NewEngine("f" * 64, "onnx", 9, {"confirmation": {"winner": first}}))
    trials.finish(database, second, failed("größe"))
    trials.mark_told(database, [first, second])
    _propose(database, context_id, 2)
    controls.add_control(database, context_id, "drift", (0, 1), 1.5, {"clock": "host"}, [RoundRecord(2, [0.1 + 0.2])])
    controls.set_noise(database, context_id, {"run": 0.1})
    asked = confirmations.open_confirmation(database, context_id, "confirm", {"x": 1}, [{"trial_uid": first}])
    confirmations.add_pair(database, asked.id, PairRecord("c", 0, 0, 1, 0.25, [{"side": "baseline"}]))
    verdict = VerdictRecord(first, "faster", 1.5, 1.2, None, {"reason": "x"})
    confirmations.close_confirmation(database, asked.id, {"winner": first}, [verdict])
    origin = Origin(context_id, {"because": "limits changed"})
    other = open_context(database, "study", ENVIRONMENT, SPACE, JUDGING, "k" * 64, origin)
    assert other.parent_id == context_id
    return first


def _story(database: Database, name: str) -> list[Any]:
    found: list[Any] = []
    for context in contexts_of(database, name):
        found += [(t.number, t.candidate, t.finish) for t in trials.list_trials(database, context.id)]
        found += [controls.controls_of(database, context.id), controls.get_noise(database, context.id)]
        found += [(one.digest, one.format, one.created_at) for one in engines_of(database, context.id)]
        for one in confirmations.confirmations_of(database, context.id):
            found += [one.plan, one.started_at, one.finished_at, confirmations.pairs_of(database, one.id)]
    return found


def test_every_table_comes_along_but_who_is_at_work(database: Database, full: str) -> None:
    rows = dump_study(database, "study")
    assert set(rows) == set(Base.metadata.tables) - {"tuner_lease", "tuner_activity"}
    assert all(rows.values())


def test_beside_the_first(database: Database, full: str) -> None:
    add_study(database, study_record("other"))
    load_study(database, dump_study(database, "study"), "again")
    assert _story(database, "again") == _story(database, "study") != []
    first, second = contexts_of(database, "again")
    assert second.parent_id == first.id
    assert second.carried == {"because": "limits changed"}
    assert first.optuna_study.startswith("again [1]")
    found = trials.list_trials(database, first.id)
    uids = [trial.uid for trial in found]
    assert full not in uids  # an identity belongs to one trial of a database
    assert [trial.told for trial in found] == [False, False, False]
    assert trials.leases(database, first.id) == []
    (asked,) = confirmations.confirmations_of(database, first.id)
    assert asked.finalists[0]["trial_uid"] == uids[0]
    assert asked.result == {"winner": uids[0]}
    assert confirmations.verdicts_of(database, asked.id)[0].trial_uid == uids[0]
    assert engines_of(database, first.id)[0].manifest == {"confirmation": {"winner": uids[0]}}
    assert get_study(database, "again").model == get_study(database, "study").model


def test_only_what_belongs_to_the_study(database: Database, full: str) -> None:
    add_study(database, study_record("other"))
    rows = dump_study(database, "other")
    assert {table for table, found in rows.items() if found} == {"tuner_study", "tuner_model"}
    load_study(database, rows, "other again")
    assert get_study(database, "other again").spec == get_study(database, "other").spec


def test_many_trials(database: Database, context_id: int) -> None:
    _propose(database, context_id, 0)
    rows = dump_study(database, "study")
    (one,) = rows["tuner_trial"]
    many = range(700)  # more than one query may name
    rows["tuner_trial"] = [
        {**one, "id": n + 1, "uid": f"uid-{n}", "number": n, "candidate_digest": f"{n:064}"} for n in many
    ]
    load_study(database, rows, "many")
    dumped = dump_study(database, "many")
    assert [row["number"] for row in dumped["tuner_trial"]] == list(many)
    load_study(database, dumped, "again")
    found = trials.list_trials(database, contexts_of(database, "again")[0].id)
    assert [trial.number for trial in found] == list(many)
    assert not {trial.uid for trial in found} & {f"uid-{n}" for n in many}


def test_a_row_that_refers_to_another_study_loses_that(database: Database, full: str) -> None:
    rows = dump_study(database, "study")
    rows["tuner_context"][0]["parent_id"] = 12345
    load_study(database, rows, "again")
    assert contexts_of(database, "again")[0].parent_id is None


def test_all_or_nothing(database: Database, full: str) -> None:
    rows = dump_study(database, "study")
    with pytest.raises(AlreadyExistsError):
        load_study(database, rows, "study")
    with pytest.raises(NotFoundError):
        dump_study(database, "nobody")
    rows["tuner_verdict"][0]["confirmation_id"] = rows["tuner_verdict"][0]["context_id"] = 12345
    with pytest.raises(CorruptError, match="a verdict has no context_id"):
        load_study(database, rows, "again")
    with pytest.raises(NotFoundError):
        get_study(database, "again")
    with pytest.raises(CorruptError, match="one study"):
        load_study(database, {**rows, "tuner_study": []}, "again")
    with pytest.raises(CorruptError, match="no table"):
        load_study(database, {**rows, "tuner_new": []}, "again")
