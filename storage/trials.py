"""Trials: proposed, leased, finished, told. The rules of resume live here, as transactions.

Flow: the loop proposes -> evaluates -> finishes -> Optuna is told -> mark_told. Whatever moment a process dies in, the
row says how far it came: no `finished_at` means it has to be evaluated again under the same number; not `told` means
only that Optuna has to hear of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session, selectinload

from storage.database import Database
from storage.errors import NotFoundError
from storage.records import Finish, NewEngine, Owner, RoundRecord, TrialRecord
from storage.schema import Context, Engine, Lease, Measurement, Trial

STALE_AFTER = timedelta(seconds=90)  # heartbeats come every 15 s: six missed ones are no hiccup
IsAlive = Callable[[Owner], bool | None]  # None: cannot tell (another host), so the heartbeat decides

Changes = Sequence[Sequence[str]]


def propose(
    database: Database,
    context_id: int,
    candidate: Changes,
    digest: str,
    source: str,
    owner: Owner,
    limit: int | None = None,
) -> TrialRecord | None:
    """Record a proposal and lease it to `owner`; its number is the next free one.

    None if the context has `limit` trials already, or if another process has just proposed the same candidate.
    """
    with database.writing() as session:
        _lock(session, context_id)
        trials = sa.select(Trial.number, Trial.candidate_digest).where(Trial.context_id == context_id)
        known = [(row.number, row.candidate_digest) for row in session.execute(trials)]
        if (limit is not None and len(known) >= limit) or digest in {found for _, found in known}:
            return None
        row = Trial(
            uid=str(uuid.uuid4()),
            context_id=context_id,
            number=max((number for number, _ in known), default=-1) + 1,
            candidate=[list(change) for change in candidate],
            candidate_digest=digest,
            source=source,
            started_at=_now(),
        )
        session.add(row)
        session.flush()
        session.add(_lease(row.id, owner))
        return _record(row)


def reclaim(
    database: Database, context_id: int, owner: Owner, is_alive: IsAlive, most: int | None = None
) -> list[TrialRecord]:
    """Take over unfinished trials whose owner is gone (`most` of them), lowest number first; each counts one start."""
    with database.writing() as session:
        _lock(session, context_id)
        taken = _take_over(session, context_id, Trial.finished_at.is_(None), owner, is_alive, most)
        for trial in taken:
            trial.starts += 1
            trial.started_at = _now()
        session.flush()
        return [_record(trial) for trial in taken]


def finish(database: Database, uid: str, end: Finish, engine: NewEngine | None = None) -> bool:
    """Record how a trial ended, and the engine kept of it; False if it was finished already (nothing changes then).

    The lease stays until Optuna has been told: telling is the owner's as well (see `claim_untold`).
    """
    with database.writing() as session:
        row = session.scalar(sa.select(Trial).where(Trial.uid == uid).with_for_update())
        if row is None:
            raise NotFoundError(f"trial {uid} is gone", hint="was its study deleted while it ran?")
        if row.finished_at is not None:
            return False
        for name in (
            "outcome",
            "stage",
            "kind",
            "reason",
            "latency_ms",
            "throughput",
            "spent_s",
            "engine_digest",
            "device",
        ):
            setattr(row, name, getattr(end, name))
        row.accuracy, row.timing = _dict(end.accuracy), _dict(end.timing)
        row.trace = dict(end.trace)
        row.finished_at = _now()
        row.measurements = [
            Measurement(round=number, repeats=one.repeats, samples_ms=list(one.samples_ms))
            for number, one in enumerate(end.rounds)
        ]
        if engine is not None:
            session.add(
                Engine(
                    digest=engine.digest,
                    trial_id=row.id,
                    format=engine.format,
                    size_bytes=engine.size_bytes,
                    manifest=dict(engine.manifest),
                    created_at=_now(),
                )
            )
        return True


def mark_told(database: Database, uids: Sequence[str]) -> None:
    """Remember that Optuna's study holds these trials, and release their leases."""
    with database.writing() as session:
        ids = sa.select(Trial.id).where(Trial.uid.in_(uids))
        session.execute(sa.delete(Lease).where(Lease.trial_id.in_(ids)))
        session.execute(sa.update(Trial).where(Trial.uid.in_(uids)).values(told=True))


def claim_untold(database: Database, context_id: int, owner: Owner, is_alive: IsAlive) -> list[str]:
    """Take over telling Optuna of every finished trial whose owner is gone before it did; identities by number.

    Two processes that both found a trial untold would tell it twice; a claim is one transaction.
    """
    with database.writing() as session:
        _lock(session, context_id)
        untold = sa.and_(Trial.finished_at.is_not(None), Trial.told.is_(False))
        return [trial.uid for trial in _take_over(session, context_id, untold, owner, is_alive)]


def release(database: Database, owner: Owner) -> None:
    """Give every lease of `owner` back: what it did not finish may be taken over at once."""
    with database.writing() as session:
        session.execute(sa.delete(Lease).where(Lease.owner == owner.id))


def living_owners(database: Database, is_alive: IsAlive) -> set[str]:
    """Identities of the owners of leases, in any study, that are or may be at work."""
    with database.reading() as session:
        return {
            lease.owner
            for lease in session.scalars(sa.select(Lease))
            if is_alive(_owner(lease)) or (is_alive(_owner(lease)) is None and not _is_stale(lease))
        }


def beat(database: Database, owner: Owner) -> None:
    """Renew the leases of `owner`."""
    with database.writing() as session:
        session.execute(sa.update(Lease).where(Lease.owner == owner.id).values(heartbeat_at=_now()))


def list_trials(database: Database, context_id: int, with_samples: bool = True) -> list[TrialRecord]:
    """Every trial of a context by number; raw samples only if asked for."""
    statement = sa.select(Trial).where(Trial.context_id == context_id).order_by(Trial.number)
    if with_samples:
        statement = statement.options(selectinload(Trial.measurements))
    with database.reading() as session:
        return [_record(row, with_samples) for row in session.scalars(statement)]


def list_candidates(database: Database, context_id: int) -> dict[str, int]:
    """Digest of every candidate that was proposed in a context, with its trial number."""
    with database.reading() as session:
        rows = session.execute(sa.select(Trial.candidate_digest, Trial.number).where(Trial.context_id == context_id))
        return {row.candidate_digest: row.number for row in rows}


def finished_uids(database: Database, context_id: int) -> list[str]:
    """Identities of the finished trials, by number: the cheap question whether another process has finished some."""
    with database.reading() as session:
        return list(
            session.scalars(
                sa.select(Trial.uid)
                .where(Trial.context_id == context_id, Trial.finished_at.is_not(None))
                .order_by(Trial.number)
            )
        )


def get_trials(database: Database, uids: Sequence[str], with_samples: bool = True) -> list[TrialRecord]:
    """The trials with these identities, by number; unknown ones are left out."""
    statement = sa.select(Trial).where(Trial.uid.in_(uids)).order_by(Trial.number)
    if with_samples:
        statement = statement.options(selectinload(Trial.measurements))
    with database.reading() as session:
        return [_record(row, with_samples) for row in session.scalars(statement)]


def unfinished(database: Database, context_id: int) -> list[TrialRecord]:
    """Trials that were proposed and have no end: at work somewhere, or left behind by a process that died."""
    statement = sa.select(Trial).where(Trial.context_id == context_id, Trial.finished_at.is_(None))
    with database.reading() as session:
        return [_record(row, with_samples=False) for row in session.scalars(statement.order_by(Trial.number))]


def untold(database: Database, context_id: int) -> list[TrialRecord]:
    """Finished trials that Optuna may not have heard of, by number."""
    with database.reading() as session:
        rows = session.scalars(
            sa.select(Trial)
            .where(Trial.context_id == context_id, Trial.finished_at.is_not(None), Trial.told.is_(False))
            .order_by(Trial.number)
        )
        return [_record(row, with_samples=False) for row in rows]


def leases(database: Database, context_id: int) -> list[tuple[int, Owner, datetime]]:
    """Trial number, owner and last heartbeat of every leased trial."""
    with database.reading() as session:
        rows = session.execute(
            sa.select(Trial.number, Lease)
            .join(Lease, Lease.trial_id == Trial.id)
            .where(Trial.context_id == context_id)
            .order_by(Trial.number)
        )
        return [(number, _owner(lease), lease.heartbeat_at) for number, lease in rows]


def _lock(session: Session, context_id: int) -> None:
    """Serialize proposals within a context. SQLite is serialized by its transaction already."""
    found = session.scalar(sa.select(Context.id).where(Context.id == context_id).with_for_update())
    if found is None:
        raise NotFoundError(f"context {context_id} is gone", hint="was its study deleted while it ran?")


def _take_over(
    session: Session,
    context_id: int,
    which: sa.ColumnElement[bool],
    owner: Owner,
    is_alive: IsAlive,
    most: int | None = None,
) -> list[Trial]:
    """Lease to `owner` every trial of this kind that nobody living has, or `most` of them, lowest number first."""
    rows = session.execute(
        sa.select(Trial, Lease)
        .outerjoin(Lease, Lease.trial_id == Trial.id)
        .where(Trial.context_id == context_id, which)
        .order_by(Trial.number)
    ).all()
    taken = [trial for trial, lease in rows if lease is None or _is_gone(lease, owner, is_alive)][:most]
    session.execute(sa.delete(Lease).where(Lease.trial_id.in_([trial.id for trial in taken])))
    session.add_all([_lease(trial.id, owner) for trial in taken])
    return taken


def _is_gone(lease: Lease, owner: Owner, is_alive: IsAlive) -> bool:
    if lease.owner == owner.id:
        return False
    alive = is_alive(_owner(lease))
    return _is_stale(lease) if alive is None else not alive


def _is_stale(lease: Lease) -> bool:
    return _now() - lease.heartbeat_at > STALE_AFTER


def _owner(lease: Lease) -> Owner:
    return Owner(lease.owner, lease.host, lease.pid, lease.started_s)


def _lease(trial_id: int, owner: Owner) -> Lease:
    return Lease(
        trial_id=trial_id,
        owner=owner.id,
        host=owner.host,
        pid=owner.pid,
        started_s=owner.started_s,
        heartbeat_at=_now(),
    )


def _record(row: Trial, with_samples: bool = False) -> TrialRecord:
    return TrialRecord(
        id=row.id,
        uid=row.uid,
        context_id=row.context_id,
        number=row.number,
        candidate=row.candidate,
        candidate_digest=row.candidate_digest,
        source=row.source,
        started_at=row.started_at,
        finished_at=row.finished_at,
        starts=row.starts,
        told=row.told,
        finish=None if row.finished_at is None else _finish(row, with_samples),
    )


def _finish(row: Trial, with_samples: bool) -> Finish:
    rounds = row.measurements if with_samples else []
    return Finish(
        outcome=row.outcome or "",
        stage=row.stage,
        kind=row.kind,
        reason=row.reason or "",
        latency_ms=row.latency_ms,
        throughput=row.throughput,
        accuracy=row.accuracy,
        trace=row.trace or {},
        timing=row.timing,
        rounds=[RoundRecord(one.repeats, one.samples_ms) for one in rounds],
        spent_s=row.spent_s or 0.0,
        engine_digest=row.engine_digest,
        device=row.device,
    )


def _dict(value: Any) -> dict[str, Any] | None:
    return None if value is None else dict(value)


def _now() -> datetime:
    return datetime.now(UTC)
