"""Controls: re-timings of the baseline, and the noise floor of a context.

Flow: tuner/controls.py times the baseline between trials -> HERE -> drift correction; tuner/noise.py does so once at
the start, over fresh processes and rebuilds.
"""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa

from storage.database import Database
from storage.errors import NotFoundError
from storage.records import ControlRecord, Json, RoundRecord
from storage.schema import Context, Control


def add_control(
    database: Database,
    context_id: int,
    purpose: str,
    where: tuple[int, int],
    latency_ms: float,
    timing: Json,
    rounds: list[RoundRecord],
    device: str = "",
) -> ControlRecord:
    """Record a re-timing of the baseline on `device`; `where` is its build and session number."""
    with database.writing() as session:
        row = Control(
            context_id=context_id,
            purpose=purpose,
            build=where[0],
            session=where[1],
            taken_at=datetime.now(UTC),
            device=device,
            latency_ms=latency_ms,
            timing=dict(timing),
            rounds=[[one.repeats, list(one.samples_ms)] for one in rounds],
        )
        session.add(row)
        session.flush()
        return _record(row)


def controls_of(database: Database, context_id: int) -> list[ControlRecord]:
    """Every re-timing of a context, oldest first."""
    with database.reading() as session:
        rows = session.scalars(sa.select(Control).where(Control.context_id == context_id).order_by(Control.id))
        return [_record(row) for row in rows]


def set_noise(database: Database, context_id: int, noise: Json) -> None:
    """Remember the noise floor of a context. Raises: NotFoundError."""
    with database.writing() as session:
        row = session.get(Context, context_id)
        if row is None:
            raise NotFoundError(f"context {context_id} is gone", hint="was its study deleted while it ran?")
        row.noise = dict(noise)


def get_noise(database: Database, context_id: int) -> Json | None:
    """The noise floor of a context, None while it has not been measured."""
    with database.reading() as session:
        return session.scalar(sa.select(Context.noise).where(Context.id == context_id))


def _record(row: Control) -> ControlRecord:
    rounds = [RoundRecord(repeats, samples) for repeats, samples in row.rounds]
    return ControlRecord(
        row.purpose, row.build, row.session, row.taken_at, row.latency_ms, row.timing, rounds, row.device
    )
