"""Studies and their contexts: records in, records out.

Flow: `study create` adds a study -> `study run` finds or opens the context for this environment -> trials.py.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from storage.database import Database
from storage.errors import AlreadyExistsError, NotFoundError
from storage.records import (
    ContextRecord,
    EnvironmentRecord,
    Json,
    KnobSpaceRecord,
    ModelRecord,
    Origin,
    StudyRecord,
)
from storage.schema import Context, Environment, KnobSpace, Model, Study


def add_study(database: Database, record: StudyRecord) -> None:
    """Raises: AlreadyExistsError if the name is taken."""
    with database.writing() as session:
        if session.scalar(sa.select(Study.id).where(Study.name == record.name)) is not None:
            raise AlreadyExistsError(
                f"a study named {record.name!r} exists",
                hint=f"choose another name, go on with `study run {record.name}`, or `study delete {record.name}`",
            )
        model = session.scalar(sa.select(Model).where(Model.digest == record.model.digest))
        model = model or Model(
            digest=record.model.digest,
            name=record.model.name,
            format=record.model.format,
            size_bytes=record.model.size_bytes,
            spec=dict(record.model.spec),
        )
        session.add(
            Study(
                name=record.name,
                backend=record.backend,
                model=model,
                spec=dict(record.spec),
                created_at=record.created_at,
            )
        )


def get_study(database: Database, name: str) -> StudyRecord:
    """Raises: NotFoundError naming the studies that there are."""
    with database.reading() as session:
        return _study_record(_find(session, name))


def list_studies(database: Database) -> list[StudyRecord]:
    """Every study, oldest first."""
    with database.reading() as session:
        return [_study_record(row) for row in session.scalars(sa.select(Study).order_by(Study.id))]


def replace_spec(database: Database, name: str, spec: Json) -> None:
    """Store a changed specification (a larger budget, say). Raises: NotFoundError."""
    with database.writing() as session:
        _find(session, name).spec = dict(spec)


def delete_study(database: Database, name: str) -> list[str]:
    """Delete a study with its contexts and trials; returns the names of the Optuna studies that belonged to it."""
    with database.writing() as session:
        study = _find(session, name)
        optuna = list(session.scalars(sa.select(Context.optuna_study).where(Context.study_id == study.id)))
        model_id = study.model_id
        session.execute(sa.delete(Study).where(Study.id == study.id))
        used = session.scalar(sa.select(sa.func.count()).select_from(Study).where(Study.model_id == model_id))
        if not used:
            session.execute(sa.delete(Model).where(Model.id == model_id))
        return optuna


def find_context(database: Database, study: str, environment: str, space: str, judging: str) -> ContextRecord | None:
    """The context of `study` for these three digests, if it was opened before."""
    with database.reading() as session:
        row = session.scalar(
            sa.select(Context)
            .join(Study)
            .join(Environment)
            .join(KnobSpace)
            .where(Study.name == study, Environment.digest == environment)
            .where(KnobSpace.digest == space, Context.judging_digest == judging)
        )
        return None if row is None else _context_record(row)


def contexts_of(database: Database, study: str) -> list[ContextRecord]:
    """Every context of a study, oldest first. Raises: NotFoundError if there is no such study."""
    with database.reading() as session:
        rows = session.scalars(
            sa.select(Context).where(Context.study_id == _find(session, study).id).order_by(Context.number)
        )
        return [_context_record(row) for row in rows]


def open_context(
    database: Database,
    study: str,
    environment: EnvironmentRecord,
    space: KnobSpaceRecord,
    judging: Json,
    judging_digest: str,
    origin: Origin = Origin(),  # noqa: B008 - frozen
) -> ContextRecord:
    """Open a new context; its number is the next.

    Raises: AlreadyExistsError if another process has just opened the same one.
    """
    with database.writing() as session:
        owner = _find(session, study)
        last = session.scalar(sa.select(sa.func.max(Context.number)).where(Context.study_id == owner.id))
        number = (last or 0) + 1
        row = Context(
            study=owner,
            number=number,
            parent_id=origin.parent_id,
            environment=_environment(session, environment),
            knob_space=_space(session, space),
            judging=dict(judging),
            judging_digest=judging_digest,
            carried=None if origin.carried is None else dict(origin.carried),
            optuna_study=f"{study} [{number}] {environment.backend} {environment.backend_version}".strip(),
            created_at=datetime.now(UTC),
        )
        session.add(row)
        session.flush()
        return _context_record(row)


def _find(session: Session, name: str) -> Study:
    row = session.scalar(sa.select(Study).where(Study.name == name))
    if row is None:
        names = list(session.scalars(sa.select(Study.name).order_by(Study.id)))
        raise NotFoundError(
            f"there is no study {name!r}",
            hint=f"studies here: {', '.join(names)}" if names else "make one with `python -m tuner study create`",
        )
    return row


def _environment(session: Session, record: EnvironmentRecord) -> Environment:
    row = session.scalar(sa.select(Environment).where(Environment.digest == record.digest))
    return row or Environment(
        digest=record.digest,
        backend=record.backend,
        backend_version=record.backend_version,
        device=record.device,
        identity=dict(record.identity),
        details=dict(record.details),
    )


def _space(session: Session, record: KnobSpaceRecord) -> KnobSpace:
    row = session.scalar(sa.select(KnobSpace).where(KnobSpace.digest == record.digest))
    return row or KnobSpace(digest=record.digest, knobs=[dict(knob) for knob in record.knobs])


def _study_record(row: Study) -> StudyRecord:
    model = row.model
    return StudyRecord(
        name=row.name,
        backend=row.backend,
        model=ModelRecord(model.digest, model.name, model.format, model.size_bytes, model.spec),
        spec=row.spec,
        created_at=row.created_at,
    )


def _context_record(row: Context) -> ContextRecord:
    found = row.environment
    values: dict[str, Any] = {
        name: getattr(found, name) for name in ("digest", "backend", "backend_version", "device", "identity", "details")
    }
    return ContextRecord(
        id=row.id,
        study=row.study.name,
        number=row.number,
        parent_id=row.parent_id,
        environment=EnvironmentRecord(**values),
        space=KnobSpaceRecord(row.knob_space.digest, row.knob_space.knobs),
        judging=row.judging,
        judging_digest=row.judging_digest,
        optuna_study=row.optuna_study,
        created_at=row.created_at,
        carried=row.carried,
    )
