"""Confirmations: questions, process pairs and verdicts, stored as they come, so that a killed one goes on.

Flow: tuner/confirm.py opens one -> adds each pair when it is done -> closes it with verdicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import sqlalchemy as sa

from storage.database import Database
from storage.errors import NotFoundError
from storage.records import ConfirmationRecord, Json, PairRecord, VerdictRecord
from storage.schema import Confirmation, Context, Pair, Trial, Verdict


def open_confirmation(
    database: Database, context_id: int, purpose: str, plan: Json, finalists: Sequence[Json]
) -> ConfirmationRecord:
    """Record a confirmation that begins."""
    with database.writing() as session:
        if session.get(Context, context_id) is None:
            raise NotFoundError(f"context {context_id} is gone", hint="was its study deleted while it ran?")
        row = Confirmation(
            context_id=context_id,
            purpose=purpose,
            plan=dict(plan),
            finalists=[dict(one) for one in finalists],
            state="running",
            started_at=datetime.now(UTC),
        )
        session.add(row)
        session.flush()
        return _record(row)


def confirmations_of(database: Database, context_id: int) -> list[ConfirmationRecord]:
    """Every confirmation of a context, oldest first."""
    with database.reading() as session:
        rows = session.scalars(
            sa.select(Confirmation).where(Confirmation.context_id == context_id).order_by(Confirmation.id)
        )
        return [_record(row) for row in rows]


def running_confirmations(database: Database) -> list[ConfirmationRecord]:
    """Every confirmation, of any study, that has begun and not ended."""
    with database.reading() as session:
        return [_record(row) for row in session.scalars(sa.select(Confirmation).where(Confirmation.state == "running"))]


def set_finalists(database: Database, confirmation_id: int, finalists: Sequence[Json]) -> None:
    """Replace what is known of the finalists (their rebuilt engines)."""
    with database.writing() as session:
        _get(session.get(Confirmation, confirmation_id)).finalists = [dict(one) for one in finalists]


def add_pair(database: Database, confirmation_id: int, pair: PairRecord) -> None:
    """Record a finished process pair. Raises: AlreadyExistsError if it is there."""
    with database.writing() as session:
        session.add(
            Pair(
                confirmation_id=confirmation_id,
                finalist=pair.finalist,
                pair_index=pair.pair_index,
                build=pair.build,
                baseline_build=pair.baseline_build,
                log_ratio=pair.log_ratio,
                device=pair.device,
                rounds=[dict(one) for one in pair.rounds],
                taken_at=datetime.now(UTC),
            )
        )


def pairs_of(database: Database, confirmation_id: int) -> list[PairRecord]:
    """The process pairs of a confirmation in the order taken."""
    with database.reading() as session:
        rows = session.scalars(sa.select(Pair).where(Pair.confirmation_id == confirmation_id).order_by(Pair.id))
        return [
            PairRecord(
                row.finalist, row.pair_index, row.build, row.baseline_build, row.log_ratio, row.rounds, row.device
            )
            for row in rows
        ]


def close_confirmation(
    database: Database, confirmation_id: int, result: Json, verdicts: Sequence[VerdictRecord]
) -> None:
    """Record what came of a confirmation, one verdict a finalist. Nothing happens if it is closed already."""
    with database.writing() as session:
        row = _get(session.get(Confirmation, confirmation_id))
        if row.state == "done":
            return
        row.state, row.result, row.finished_at = "done", dict(result), datetime.now(UTC)
        for one in verdicts:
            trial_id = session.scalar(sa.select(Trial.id).where(Trial.uid == one.trial_uid))
            session.add(
                Verdict(
                    context_id=row.context_id,
                    trial_id=trial_id,
                    confirmation_id=row.id,
                    verdict=one.verdict,
                    speedup=one.speedup,
                    ci_low=one.ci_low,
                    ci_high=one.ci_high,
                    detail=dict(one.detail),
                    created_at=datetime.now(UTC),
                )
            )


def verdicts_of(database: Database, confirmation_id: int) -> list[VerdictRecord]:
    """The verdicts of a confirmation in its finalists' order."""
    with database.reading() as session:
        rows = session.execute(
            sa.select(Verdict, Trial.uid)
            .outerjoin(Trial, Trial.id == Verdict.trial_id)
            .where(Verdict.confirmation_id == confirmation_id)
            .order_by(Verdict.id)
        )
        return [
            VerdictRecord(uid or "", row.verdict, row.speedup, row.ci_low, row.ci_high, row.detail) for row, uid in rows
        ]


def _get(row: Confirmation | None) -> Confirmation:
    if row is None:
        raise NotFoundError("the confirmation is gone", hint="was its study deleted while it ran?")
    return row


def _record(row: Confirmation) -> ConfirmationRecord:
    return ConfirmationRecord(
        id=row.id,
        context_id=row.context_id,
        purpose=row.purpose,
        plan=row.plan,
        finalists=row.finalists,
        state=row.state,
        result=row.result,
        started_at=row.started_at,
        finished_at=row.finished_at,
    )
