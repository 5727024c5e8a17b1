"""Adoption: finished trials of one context copied into another that differs from it only in how it judges.

Flow: `study retarget` or another context of the same place -> tuner/lineage.py says which trials keep their meaning ->
copied HERE in one transaction, with samples, engines, re-timings of the baseline and noise floor. Nothing moves: the
context that they come from stays as it is. Doing it again copies what is new since.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

import sqlalchemy as sa
from sqlalchemy.orm import Session, selectinload

from storage.database import Database
from storage.errors import NotFoundError
from storage.records import Json
from storage.schema import Context, Control, Engine, Measurement, Trial

ADOPTED = "adopted"  # source of a copied trial
Rewrite = Callable[[Json, int], Json]  # manifest of an engine and number of its new trial -> its manifest there
_COPIED = (
    "candidate",
    "candidate_digest",
    "started_at",
    "starts",
    "finished_at",
    "outcome",
    "stage",
    "kind",
    "latency_ms",
    "throughput",
    "accuracy",
    "trace",
    "timing",
    "spent_s",
    "device",
    "engine_digest",
)
_CONTROL = ("purpose", "build", "session", "taken_at", "device", "latency_ms", "timing", "rounds")


def adopt(database: Database, source_id: int, target_id: int, reasons: Mapping[str, str], rewrite: Rewrite) -> int:
    """Copy the finished trials whose identities are keys of `reasons`, unless the target has the candidate already.

    `reasons`: why each is no good as it is judged now, empty where it is good. The copies have numbers of their own,
    in the order of the originals, and Optuna has not been told of them. Returns how many there are.
    Raises: NotFoundError if a context is gone.
    """
    with database.writing() as session:
        source, target = _locked(session, source_id), _locked(session, target_id)
        taken = set(session.scalars(sa.select(Trial.candidate_digest).where(Trial.context_id == target_id)))
        last = session.scalar(sa.select(sa.func.max(Trial.number)).where(Trial.context_id == target_id))
        first = 0 if last is None else last + 1
        rows = session.scalars(
            sa.select(Trial)
            .where(Trial.context_id == source_id, Trial.uid.in_(list(reasons)), Trial.finished_at.is_not(None))
            .options(selectinload(Trial.measurements))
            .order_by(Trial.number)
        ).all()
        wanted = [row for row in rows if row.candidate_digest not in taken]
        for number, row in enumerate(wanted, first):
            copy = _copy(row, target_id, number, reasons[row.uid])
            session.add(copy)
            session.flush()
            _copy_engine(session, row, copy, rewrite)
        _copy_machine(session, source, target)
        return len(wanted)


def _locked(session: Session, context_id: int) -> Context:
    row = session.scalar(sa.select(Context).where(Context.id == context_id).with_for_update())
    if row is None:
        raise NotFoundError(f"context {context_id} is gone", hint="was its study deleted meanwhile?")
    return row


def _copy(row: Trial, context_id: int, number: int, reason: str) -> Trial:
    copy = Trial(uid=str(uuid.uuid4()), context_id=context_id, number=number, source=ADOPTED, told=False)
    for name in _COPIED:
        setattr(copy, name, getattr(row, name))
    copy.reason = row.reason if row.outcome == "failed" else reason
    copy.measurements = [
        Measurement(round=one.round, repeats=one.repeats, samples_ms=list(one.samples_ms)) for one in row.measurements
    ]
    return copy


def _copy_engine(session: Session, row: Trial, copy: Trial, rewrite: Rewrite) -> None:
    engine = session.scalar(sa.select(Engine).where(Engine.trial_id == row.id))
    if engine is None:
        return
    session.add(
        Engine(
            digest=engine.digest,
            trial_id=copy.id,
            format=engine.format,
            size_bytes=engine.size_bytes,
            manifest=dict(rewrite(engine.manifest, copy.number)),
            created_at=engine.created_at,
        )
    )


def _copy_machine(session: Session, source: Context, target: Context) -> None:
    """Noise floor and re-timings of the baseline, unless the target has its own."""
    if target.noise is None and source.noise is not None:
        target.noise = dict(source.noise)
    if session.scalar(sa.select(Control.id).where(Control.context_id == target.id).limit(1)) is None:
        for control in session.scalars(sa.select(Control).where(Control.context_id == source.id).order_by(Control.id)):
            session.add(Control(context_id=target.id, **{name: getattr(control, name) for name in _CONTROL}))
