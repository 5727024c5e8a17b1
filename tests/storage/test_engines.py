"""Engines: which built files are kept."""

from __future__ import annotations

import pytest

from storage.database import Database
from storage.engines import all_digests, drop_engines, engines_of, promote_engine
from storage.errors import NotFoundError
from storage.records import Finish, NewEngine
from storage.trials import finish, propose
from tests.storage.conftest import ME


def _trial(database: Database, context_id: int, index: int) -> str:
    record = propose(database, context_id, [], f"{index:064x}", "tpe", ME)
    assert record is not None
    return record.uid


def _add(database: Database, uid: str, letter: str, size_bytes: int = 5_000_000_000) -> None:
    end = Finish("measured", None, None, "", 1.0, 1000.0, {}, {}, {}, [], 1.0, letter * 64)
    finish(database, uid, end, NewEngine(letter * 64, "plan", size_bytes, {"losses": {"ü": None}}))


def test_an_engine_comes_back_as_it_was(database: Database, context_id: int) -> None:
    uid = _trial(database, context_id, 0)
    _add(database, uid, "a")
    (found,) = engines_of(database, context_id)
    assert (found.digest, found.trial_uid, found.format) == ("a" * 64, uid, "plan")
    assert (found.size_bytes, found.manifest) == (5_000_000_000, {"losses": {"ü": None}})


def test_a_trial_has_one_engine_and_the_first_one_stays(database: Database, context_id: int) -> None:
    uid = _trial(database, context_id, 0)
    _add(database, uid, "a")
    _add(database, uid, "b")
    assert [one.digest for one in engines_of(database, context_id)] == ["a" * 64]


def test_an_engine_of_no_trial_is_refused(database: Database) -> None:
    with pytest.raises(NotFoundError, match="nobody"):
        _add(database, "nobody", "a")


def test_engines_are_listed_for_their_context_in_order(database: Database, context_id: int) -> None:
    uids = [_trial(database, context_id, index) for index in range(3)]
    for uid, letter in zip(uids, "cab", strict=True):
        _add(database, uid, letter)
    assert [one.trial_uid for one in engines_of(database, context_id)] == uids
    assert engines_of(database, context_id + 1) == []


def test_a_file_is_free_only_when_no_trial_needs_it(database: Database, context_id: int) -> None:
    # Two candidates can well give the same bytes.
    uids = [_trial(database, context_id, index) for index in range(3)]
    for uid, letter in zip(uids, "aab", strict=True):
        _add(database, uid, letter)
    assert drop_engines(database, [uids[0]]) == []
    assert [one.trial_uid for one in engines_of(database, context_id)] == uids[1:]
    assert sorted(drop_engines(database, uids[1:])) == ["a" * 64, "b" * 64]
    assert engines_of(database, context_id) == []
    assert drop_engines(database, uids) == []


def test_a_file_shared_by_trials_that_go_together_is_free_once(database: Database, context_id: int) -> None:
    uids = [_trial(database, context_id, index) for index in range(2)]
    for uid in uids:
        _add(database, uid, "a")
    assert drop_engines(database, uids) == ["a" * 64]


def test_a_promoted_engine_replaces_the_one_there_was(database: Database, context_id: int) -> None:
    uids = [_trial(database, context_id, index) for index in range(2)]
    for uid, letter in zip(uids, "ab", strict=True):
        _add(database, uid, letter)
    assert promote_engine(database, uids[0], "c" * 64, "plan", 7, {"confirmed": True}) == "a" * 64
    assert all_digests(database) == {"b" * 64, "c" * 64}
    first, _ = engines_of(database, context_id)
    assert (first.digest, first.size_bytes, first.manifest) == ("c" * 64, 7, {"confirmed": True})
    assert promote_engine(database, uids[1], "b" * 64, "plan", 8, {}) is None


def test_an_engine_that_another_trial_needs_is_not_free(database: Database, context_id: int) -> None:
    uids = [_trial(database, context_id, index) for index in range(2)]
    for uid in uids:
        _add(database, uid, "a")
    assert promote_engine(database, uids[0], "c" * 64, "plan", 7, {}) is None


def test_nobody_cannot_be_promoted(database: Database) -> None:
    with pytest.raises(NotFoundError, match="nobody"):
        promote_engine(database, "nobody", "c" * 64, "plan", 7, {})
