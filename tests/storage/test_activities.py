"""Activities: what runs say they are at, and that nothing else depends on it."""

from __future__ import annotations

from datetime import UTC, datetime

from storage.activities import activities_of, say
from storage.database import Database
from storage.records import Owner
from storage.studies import delete_study

THEN = datetime(2030, 1, 1, tzinfo=UTC)
ANN, BOB = Owner("ann", "host", 1, 0.0), Owner("bob", "host", 2, 0.0)


def _said(database: Database, *contexts: int) -> list[tuple[str, str, str]]:
    return [(one.owner.id, one.device, one.words) for one in activities_of(database, contexts)]


def test_what_an_owner_says_replaces_what_it_said(database: Database, context_id: int) -> None:
    say(database, context_id, ANN, [("0", "trial #1", THEN), ("1", "trial #2", THEN)])
    say(database, context_id, BOB, [("", "starting", THEN)])
    say(database, context_id, ANN, [("1", "trial #3 building", THEN)])
    assert _said(database, context_id) == [("bob", "", "starting"), ("ann", "1", "trial #3 building")]
    (first, _) = activities_of(database, [context_id])
    assert (first.since, first.context_id) == (THEN, context_id)
    assert first.heartbeat_at > datetime(2020, 1, 1, tzinfo=UTC)
    say(database, context_id, BOB, [])
    assert _said(database, context_id) == [("ann", "1", "trial #3 building")]
    assert _said(database) == []


def test_long_words_are_cut_and_not_refused(database: Database, context_id: int) -> None:
    say(database, context_id, ANN, [("d" * 500, "w" * 500, THEN)])
    assert _said(database, context_id) == [("ann", "d" * 128, "w" * 255)]


def test_they_go_with_their_study(database: Database, context_id: int) -> None:
    say(database, context_id, ANN, [("", "starting", THEN)])
    delete_study(database, "study")
    assert _said(database, context_id) == []
