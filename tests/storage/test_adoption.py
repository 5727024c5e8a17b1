"""Adoption: copies of trials between contexts, on every kind of database."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.adoption import ADOPTED, adopt
from storage.controls import add_control, controls_of, get_noise, set_noise
from storage.database import Database
from storage.engines import engines_of
from storage.errors import NotFoundError
from storage.records import NewEngine, Origin, RoundRecord
from storage.studies import open_context
from storage.trials import claim_untold, finish, list_trials, propose
from tests.storage.conftest import ENVIRONMENT, JUDGING, ME, SPACE, failed, measured


@pytest.fixture
def target_id(database: Database, context_id: int) -> int:
    return open_context(database, "study", ENVIRONMENT, SPACE, JUDGING, "o" * 64, Origin(context_id)).id


@pytest.fixture
def uids(database: Database, context_id: int) -> list[str]:
    """Five trials: measured with an engine, measured, rejected, failed, unfinished."""
    ends = [
        measured(),
        measured(latency_ms=7.0, engine_digest=None),
        measured(outcome="rejected", reason="over 1", rounds=[]),
        failed(),
    ]
    found = []
    for number in range(5):
        row = propose(database, context_id, [["a", str(number)]], f"{number}" * 64, "tpe", ME)
        assert row is not None
        found.append(row.uid)
        if number < len(ends):
            engine = NewEngine("f" * 64, "onnx", 3, {"trial": number}) if number == 0 else None
            finish(database, row.uid, ends[number], engine)
    return found


def _adopt(database: Database, source: int, target: int, reasons: dict[str, str]) -> int:
    return adopt(database, source, target, reasons, lambda manifest, number: {**manifest, "trial": number, "new": True})


def test_copies_have_everything_but_their_identity(
    database: Database, context_id: int, target_id: int, uids: list[str]
) -> None:
    before = list_trials(database, context_id)
    reasons = {uids[0]: "", uids[2]: "over 2", uids[3]: "", uids[4]: ""}
    assert _adopt(database, context_id, target_id, reasons) == 3
    assert list_trials(database, context_id) == before
    copies = list_trials(database, target_id)
    assert [copy.number for copy in copies] == [0, 1, 2]
    assert {copy.source for copy in copies} == {ADOPTED}
    assert not {copy.uid for copy in copies} & set(uids)
    assert not any(copy.told for copy in copies)
    first, rejected, broken = (copy.finish for copy in copies)
    assert first == before[0].finish
    assert before[2].finish is not None
    assert rejected == replace(before[2].finish, reason="over 2")
    assert broken == before[3].finish  # a failure keeps its own words
    assert [copy.finished_at for copy in copies] == [before[n].finished_at for n in (0, 2, 3)]
    assert claim_untold(database, target_id, ME, lambda owner: True) == [copy.uid for copy in copies]


def test_an_engine_belongs_to_both(database: Database, context_id: int, target_id: int, uids: list[str]) -> None:
    _adopt(database, context_id, target_id, {uids[1]: "", uids[0]: ""})
    (engine,) = engines_of(database, target_id)
    assert (engine.digest, engine.manifest) == ("f" * 64, {"trial": 0, "new": True})
    assert engines_of(database, context_id)[0].manifest == {"trial": 0}


def test_doing_it_again_copies_what_is_new(
    database: Database, context_id: int, target_id: int, uids: list[str]
) -> None:
    assert _adopt(database, context_id, target_id, {uids[1]: ""}) == 1
    reasons = dict.fromkeys(uids, "")
    assert _adopt(database, context_id, target_id, reasons) == 3
    assert _adopt(database, context_id, target_id, reasons) == 0
    assert [trial.candidate for trial in list_trials(database, target_id)] == [[["a", n]] for n in "1023"]


def test_the_machine_goes_with_them_once(database: Database, context_id: int, target_id: int, uids: list[str]) -> None:
    set_noise(database, context_id, {"run": 1})
    add_control(database, context_id, "drift", (0, 1), 2.5, {"clock": "host"}, [RoundRecord(2, [1.0, 2.0])])
    for _ in range(2):
        _adopt(database, context_id, target_id, {uids[0]: ""})
        assert controls_of(database, target_id) == controls_of(database, context_id)
        assert get_noise(database, target_id) == {"run": 1}


def test_a_context_that_is_gone(database: Database, context_id: int, uids: list[str]) -> None:
    with pytest.raises(NotFoundError, match="999"):
        _adopt(database, context_id, 999, {uids[0]: ""})
