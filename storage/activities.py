"""Activities: what every run is at, for those who watch from other processes. Nobody decides by them.

Flow: tuner/announcer.py says -> one row for each device of a run -> tuner/watching.py reads.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime

import sqlalchemy as sa

from storage.database import Database
from storage.records import ActivityRecord, Owner
from storage.schema import Activity

_WORDS_CHARS, _DEVICE_CHARS = 255, 128  # as wide as the columns
Doing = tuple[str, str, datetime]  # device, words, since when


def say(database: Database, context_id: int, owner: Owner, doings: Sequence[Doing]) -> None:
    """Replace what `owner` is at; nothing in `doings`: it is at nothing any more."""
    now = datetime.now(UTC)
    with database.writing() as session:
        session.execute(sa.delete(Activity).where(Activity.owner == owner.id))
        session.add_all(
            Activity(
                context_id=context_id,
                owner=owner.id,
                host=owner.host,
                pid=owner.pid,
                started_s=owner.started_s,
                device=device[:_DEVICE_CHARS],
                words=words[:_WORDS_CHARS],
                since=since,
                heartbeat_at=now,
            )
            for device, words, since in doings
        )


def activities_of(database: Database, context_ids: Collection[int]) -> list[ActivityRecord]:
    """What is said of these contexts, by device; of runs that were killed too: ask whether the owner lives."""
    with database.reading() as session:
        rows = session.scalars(
            sa.select(Activity).where(Activity.context_id.in_(context_ids)).order_by(Activity.device, Activity.id)
        )
        return [
            ActivityRecord(
                row.context_id,
                Owner(row.owner, row.host, row.pid, row.started_s),
                row.device,
                row.words,
                row.since,
                row.heartbeat_at,
            )
            for row in rows
        ]
