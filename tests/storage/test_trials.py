"""Trials: the rules of proposing, taking over and finishing, on every kind of database."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from storage.database import Database
from storage.errors import AlreadyExistsError, NotFoundError
from storage.records import Owner, TrialRecord
from storage.schema import Lease, Trial
from storage.studies import add_study, open_context
from storage.trials import (
    STALE_AFTER,
    beat,
    claim_untold,
    finish,
    finished_uids,
    get_trials,
    leases,
    list_candidates,
    list_trials,
    living_owners,
    mark_told,
    propose,
    reclaim,
    release,
    unfinished,
    untold,
)
from tests.storage.conftest import ENVIRONMENT, JUDGING, ME, OTHER, SPACE, failed, measured, study_record

MISSING = 987654


def _digest(index: int) -> str:
    return f"{index:064x}"


def _propose(database: Database, context_id: int, index: int = 0, owner: Owner = ME) -> TrialRecord:
    record = propose(database, context_id, [("a", str(index))], _digest(index), "tpe", owner)
    assert record is not None
    return record


def _alive(_: Owner) -> bool:
    return True


def _dead(_: Owner) -> bool:
    return False


def _unknown(_: Owner) -> None:
    return None


def _age_lease(database: Database, age: timedelta) -> None:
    with database.writing() as session:
        session.execute(sa.update(Lease).values(heartbeat_at=datetime.now(UTC) - age))


def test_a_proposal_is_recorded_and_leased(database: Database, context_id: int) -> None:
    before = datetime.now(UTC)
    record = propose(database, context_id, [("größe", "1"), ("b", "0")], _digest(1), "baseline", ME)
    assert record is not None
    assert record.candidate == [["größe", "1"], ["b", "0"]]
    assert (record.number, record.source, record.starts, record.told, record.finish) == (0, "baseline", 1, False, None)
    assert before <= record.started_at <= datetime.now(UTC)
    assert list_trials(database, context_id) == [record]
    ((number, owner, beaten),) = leases(database, context_id)
    assert (number, owner) == (0, ME)
    assert before <= beaten <= datetime.now(UTC)


def test_numbers_count_up_from_0_whatever_becomes_of_the_trials(database: Database, context_id: int) -> None:
    first = _propose(database, context_id, 0)
    finish(database, first.uid, measured())
    second = _propose(database, context_id, 1)
    third = _propose(database, context_id, 2)
    finish(database, third.uid, failed())
    assert [first.number, second.number, third.number] == [0, 1, 2]
    assert _propose(database, context_id, 3).number == 3
    assert len({record.uid for record in list_trials(database, context_id)}) == 4


def test_numbers_count_in_each_context(database: Database, context_id: int) -> None:
    add_study(database, study_record("other"))
    other = open_context(database, "other", ENVIRONMENT, SPACE, JUDGING, "j" * 64).id
    _propose(database, context_id)
    assert _propose(database, other).number == 0  # the same candidate may be tried in another context
    assert list_candidates(database, other) == {_digest(0): 0}


def test_a_candidate_is_proposed_once(database: Database, context_id: int) -> None:
    _propose(database, context_id, 5)
    assert propose(database, context_id, [("a", "5")], _digest(5), "tpe", OTHER) is None
    assert len(list_trials(database, context_id)) == len(leases(database, context_id)) == 1


def test_no_more_than_the_limit_are_proposed(database: Database, context_id: int) -> None:
    given = [propose(database, context_id, [], _digest(index), "tpe", ME, limit=2) for index in range(4)]
    assert [record is not None for record in given] == [True, True, False, False]
    assert propose(database, context_id, [], _digest(9), "tpe", ME, limit=3) is not None


def test_a_proposal_for_a_deleted_context_is_not_found(database: Database) -> None:
    with pytest.raises(NotFoundError) as caught:
        propose(database, MISSING, [], _digest(0), "tpe", ME)
    assert caught.value.hint
    with pytest.raises(NotFoundError):
        reclaim(database, MISSING, ME, _dead)


def _in_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    """What `work(0)`, `work(1)`, ... gave, all called at once."""
    results: list[Any] = [None] * count
    start = threading.Barrier(count)

    def call(index: int) -> None:
        start.wait()
        try:
            results[index] = work(index)
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=call, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_proposals_made_at_once_have_different_numbers_without_a_hole(database: Database, context_id: int) -> None:
    given = _in_threads(12, lambda index: propose(database, context_id, [], _digest(index), "tpe", ME, limit=9))
    assert not [one for one in given if isinstance(one, Exception)]
    assert sorted(record.number for record in given if record) == list(range(9))


def test_the_same_candidate_proposed_at_once_is_given_to_one(database: Database, context_id: int) -> None:
    given = _in_threads(6, lambda index: propose(database, context_id, [], _digest(0), "tpe", ME))
    assert not [one for one in given if isinstance(one, Exception)]
    assert len([record for record in given if record]) == 1


def test_unfinished_trials_of_a_dead_owner_are_taken_over_in_order(database: Database, context_id: int) -> None:
    records = [_propose(database, context_id, index, OTHER) for index in range(3)]
    finish(database, records[1].uid, measured())
    mark_told(database, [records[1].uid])
    taken = reclaim(database, context_id, ME, _dead)
    assert [record.uid for record in taken] == [records[0].uid, records[2].uid]
    assert [(record.number, record.starts) for record in taken] == [(0, 2), (2, 2)]
    assert all(record.candidate == [["a", str(record.number)]] for record in taken)
    assert all(record.started_at >= records[2].started_at for record in taken)
    assert [(number, owner) for number, owner, _ in leases(database, context_id)] == [(0, ME), (2, ME)]


def test_a_trial_without_a_lease_is_taken_over(database: Database, context_id: int) -> None:
    record = _propose(database, context_id, 0, OTHER)
    with database.writing() as session:
        session.execute(sa.delete(Lease))
    assert [one.uid for one in reclaim(database, context_id, ME, _alive)] == [record.uid]


@pytest.mark.parametrize(
    ("is_alive", "age", "taken"),
    [
        (_alive, timedelta(0), False),
        (_alive, 10 * STALE_AFTER, False),  # it lives, so it works; a stopped heartbeat alone proves nothing here
        (_dead, timedelta(0), True),
        (_unknown, timedelta(0), False),
        (_unknown, STALE_AFTER - timedelta(seconds=30), False),
        (_unknown, STALE_AFTER + timedelta(seconds=1), True),
    ],
)
def test_who_may_be_taken_from(
    database: Database, context_id: int, is_alive: Callable[[Owner], bool | None], age: timedelta, taken: bool
) -> None:
    _propose(database, context_id, 0, OTHER)
    _age_lease(database, age)
    assert len(reclaim(database, context_id, ME, is_alive)) == int(taken)
    assert [owner for _, owner, _ in leases(database, context_id)] == [ME if taken else OTHER]


def test_liveness_is_asked_of_the_owner_that_holds_the_lease(database: Database, context_id: int) -> None:
    asked: list[Owner] = []
    _propose(database, context_id, 0, OTHER)
    reclaim(database, context_id, ME, lambda owner: asked.append(owner) or True)  # type: ignore[func-returns-value]
    assert asked == [OTHER]


def test_nobody_takes_from_himself(database: Database, context_id: int) -> None:
    _propose(database, context_id)
    assert reclaim(database, context_id, ME, _dead) == []
    assert list_trials(database, context_id)[0].starts == 1


def test_two_who_take_over_at_once_do_not_both_get_it(database: Database, context_id: int) -> None:
    for index in range(3):
        _propose(database, context_id, index, OTHER)
    heirs = [Owner(f"heir-{index}", "here", index, 0.0) for index in range(4)]
    taken = _in_threads(4, lambda index: reclaim(database, context_id, heirs[index], lambda owner: owner != OTHER))
    assert not [one for one in taken if isinstance(one, Exception)]
    assert sorted(record.number for records in taken for record in records) == [0, 1, 2]
    assert {record.starts for records in taken for record in records} == {2}


def test_a_measurement_comes_back_as_it_was(database: Database, context_id: int) -> None:
    record = _propose(database, context_id)
    before = datetime.now(UTC)
    assert finish(database, record.uid, measured())
    (found,) = list_trials(database, context_id)
    assert found.finish == measured()
    assert found.finished_at is not None
    assert before <= found.finished_at <= datetime.now(UTC)
    assert (found.uid, found.number, found.told) == (record.uid, 0, False)


def test_a_trial_that_is_finished_and_told_is_nobodys(database: Database, context_id: int) -> None:
    record, other = _propose(database, context_id, 0), _propose(database, context_id, 1)
    finish(database, record.uid, measured())
    mark_told(database, [record.uid])
    assert [(number, owner) for number, owner, _ in leases(database, context_id)] == [(other.number, ME)]
    assert reclaim(database, context_id, OTHER, _dead)[0].uid == other.uid


def test_a_failure_comes_back_as_it_was(database: Database, context_id: int) -> None:
    record = _propose(database, context_id)
    end = failed("größe\nline two " + "x" * 5000)
    finish(database, record.uid, end)
    assert list_trials(database, context_id)[0].finish == end


def test_samples_are_left_out_unless_asked_for(database: Database, context_id: int) -> None:
    record = _propose(database, context_id)
    finish(database, record.uid, measured())
    for found in (list_trials(database, context_id, False), get_trials(database, [record.uid], False)):
        assert found[0].finish == replace(measured(), rounds=[])
    assert get_trials(database, [record.uid, "nobody"])[0].finish == measured()
    assert len(get_trials(database, [record.uid, "nobody"])) == 1


def test_a_trial_is_finished_once(database: Database, context_id: int) -> None:
    record = _propose(database, context_id)
    assert finish(database, record.uid, measured())
    before = list_trials(database, context_id)
    # The late answer of an owner that was taken for dead.
    assert not finish(database, record.uid, failed())
    assert list_trials(database, context_id) == before


def test_a_trial_finished_by_many_at_once_is_finished_once(database: Database, context_id: int) -> None:
    record = _propose(database, context_id)
    done = _in_threads(6, lambda index: finish(database, record.uid, measured(spent_s=float(index))))
    assert not [one for one in done if isinstance(one, Exception)]
    assert sorted(done) == [False] * 5 + [True]
    (found,) = list_trials(database, context_id)
    assert found.finish == measured(spent_s=float(done.index(True)))


def test_a_deleted_trial_cannot_be_finished(database: Database, context_id: int) -> None:
    with pytest.raises(NotFoundError, match="nobody"):
        finish(database, "nobody", measured())


def test_what_was_not_told_is_known_until_it_is(database: Database, context_id: int) -> None:
    records = [_propose(database, context_id, index) for index in range(4)]
    for index in (2, 0, 3):
        finish(database, records[index].uid, measured())
    assert [one.number for one in untold(database, context_id)] == [0, 2, 3]
    assert finished_uids(database, context_id) == [records[index].uid for index in (0, 2, 3)]
    mark_told(database, [records[2].uid, records[0].uid])
    assert [one.number for one in untold(database, context_id)] == [3]
    assert [one.told for one in list_trials(database, context_id)] == [True, False, True, False]
    mark_told(database, [])
    assert [one.number for one in untold(database, context_id)] == [3]


def test_what_has_no_end_is_unfinished_whoever_has_it(database: Database, context_id: int) -> None:
    records = [_propose(database, context_id, index, owner) for index, owner in enumerate((ME, OTHER, ME))]
    finish(database, records[0].uid, measured())
    found = unfinished(database, context_id)
    assert [record.number for record in found] == [1, 2]
    assert [list(map(tuple, record.candidate)) for record in found] == [[("a", "1")], [("a", "2")]]
    assert unfinished(database, MISSING) == []


def test_a_heartbeat_renews_the_leases_of_its_owner_alone(database: Database, context_id: int) -> None:
    _propose(database, context_id, 0, ME)
    _propose(database, context_id, 1, OTHER)
    _propose(database, context_id, 2, ME)
    _age_lease(database, timedelta(hours=1))
    beat(database, ME)
    now = datetime.now(UTC)
    fresh = [now - at < timedelta(minutes=1) for _, _, at in leases(database, context_id)]
    assert fresh == [True, False, True]


def test_the_schema_itself_allows_no_second_trial_of_a_number_or_candidate(database: Database, context_id: int) -> None:
    record = _propose(database, context_id)
    twin = {"uid": "twin", "candidate": [], "source": "tpe", "started_at": record.started_at, "context_id": context_id}
    for clash in ({"number": 0, "candidate_digest": _digest(7)}, {"number": 7, "candidate_digest": _digest(0)}):
        with pytest.raises(AlreadyExistsError), database.writing() as session:
            session.execute(sa.insert(Trial).values(**twin, **clash))


def test_a_finished_trial_is_told_by_who_finished_it_while_he_lives(database: Database, context_id: int) -> None:
    records = [_propose(database, context_id, index, OTHER) for index in range(3)]
    for record in records[:2]:
        finish(database, record.uid, measured())
    mark_told(database, [records[0].uid])
    assert claim_untold(database, context_id, ME, _alive) == []
    # Neither what was told nor what is unfinished is to be told.
    assert claim_untold(database, context_id, ME, _dead) == [records[1].uid]
    assert reclaim(database, context_id, ME, _dead)[0].uid == records[2].uid


def test_an_untold_trial_is_claimed_by_one(database: Database, context_id: int) -> None:
    record = _propose(database, context_id, 0, OTHER)
    finish(database, record.uid, measured())
    heirs = [Owner(f"heir-{index}", "here", index, 0.0) for index in range(5)]
    claims = _in_threads(
        5, lambda index: claim_untold(database, context_id, heirs[index], lambda owner: owner != OTHER)
    )
    assert sorted(claims, key=len) == [[], [], [], [], [record.uid]]


def test_who_stops_gives_everything_back_at_once(database: Database, context_id: int) -> None:
    mine, other, done = (_propose(database, context_id, index, owner) for index, owner in enumerate((ME, OTHER, ME)))
    finish(database, done.uid, measured())
    release(database, ME)
    assert [owner for _, owner, _ in leases(database, context_id)] == [OTHER]
    heir = Owner("heir", "here", 1, 0.0)
    assert [record.uid for record in reclaim(database, context_id, heir, _alive)] == [mine.uid]
    assert claim_untold(database, context_id, heir, _alive) == [done.uid]
    assert other.uid not in {record.uid for record in reclaim(database, context_id, ME, _alive)}


@pytest.mark.parametrize(
    ("is_alive", "age", "counts"),
    [
        (_alive, 10 * STALE_AFTER, True),
        (_dead, timedelta(0), False),
        (_unknown, timedelta(0), True),
        (_unknown, 2 * STALE_AFTER, False),
    ],
)
def test_who_is_or_may_be_at_work(
    database: Database, context_id: int, is_alive: Callable[[Owner], bool | None], age: timedelta, counts: bool
) -> None:
    _propose(database, context_id, 0, OTHER)
    _age_lease(database, age)
    assert living_owners(database, is_alive) == ({OTHER.id} if counts else set())
