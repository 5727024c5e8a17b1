"""Engines: which built files are kept, and what each is bound to.

Flow: the loop keeps the baseline's engine and the incumbent's -> HERE -> artifacts.py holds the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import sqlalchemy as sa

from storage.database import Database
from storage.errors import NotFoundError
from storage.records import EngineRecord, Json
from storage.schema import Engine, Trial


def promote_engine(
    database: Database, trial_uid: str, digest: str, file_format: str, size_bytes: int, manifest: Json
) -> str | None:
    """Make `digest` the engine of a trial; returns the digest it replaces if no other trial needs that one."""
    with database.writing() as session:
        trial = session.scalar(sa.select(Trial).where(Trial.uid == trial_uid))
        if trial is None:
            raise NotFoundError(f"trial {trial_uid} is gone", hint="was its study deleted while it ran?")
        row = session.scalar(sa.select(Engine).where(Engine.trial_id == trial.id))
        before = None if row is None else row.digest
        row = row or Engine(trial_id=trial.id)
        row.digest, row.format, row.size_bytes = digest, file_format, size_bytes
        row.manifest, row.created_at = dict(manifest), datetime.now(UTC)
        trial.engine_digest = digest
        session.add(row)
        session.flush()
        if before is None or before == digest:
            return None
        return None if session.scalar(sa.select(Engine.id).where(Engine.digest == before)) is not None else before


def engines_of(database: Database, context_id: int) -> list[EngineRecord]:
    """Engines kept for a context, oldest first."""
    with database.reading() as session:
        rows = session.execute(
            sa.select(Engine, Trial.uid)
            .join(Trial, Trial.id == Engine.trial_id)
            .where(Trial.context_id == context_id)
            .order_by(Engine.id)
        )
        return [
            EngineRecord(row.digest, uid, row.format, row.size_bytes, row.manifest, row.created_at) for row, uid in rows
        ]


def set_manifest(database: Database, trial_uid: str, manifest: Json) -> None:
    """Replace what is written of a trial's engine. Raises: NotFoundError if none is kept."""
    with database.writing() as session:
        row = session.scalar(sa.select(Engine).join(Trial).where(Trial.uid == trial_uid))
        if row is None:
            raise NotFoundError(f"no engine is kept for trial {trial_uid}")
        row.manifest = dict(manifest)


def all_digests(database: Database) -> set[str]:
    """Digests of every engine that any study keeps."""
    with database.reading() as session:
        return set(session.scalars(sa.select(Engine.digest)))


def drop_engines(database: Database, trial_uids: Sequence[str]) -> list[str]:
    """Forget the engines of these trials; returns the digests that no trial needs any more."""
    with database.writing() as session:
        ids = sa.select(Trial.id).where(Trial.uid.in_(trial_uids))
        digests = list(session.scalars(sa.select(Engine.digest).where(Engine.trial_id.in_(ids))))
        session.execute(sa.delete(Engine).where(Engine.trial_id.in_(ids)))
        kept = set(session.scalars(sa.select(Engine.digest).where(Engine.digest.in_(digests))))
        return [digest for digest in dict.fromkeys(digests) if digest not in kept]
