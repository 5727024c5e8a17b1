"""Schema: our tables as SQLAlchemy mapped classes, all named `tuner_*`, beside Optuna's tables in one database.

Flow: database.py opens -> repositories query through these. Real columns for what is asked for in queries, JSON for the
rest. Each change is a migration in migrations/versions; `db check` compares both.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    ForeignKey,
    Index,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

TABLE_PREFIX = "tuner_"
_DIGEST = String(64)
_DEVICE = String(128)  # as `Environment.device`; empty: nothing that can be told apart


class UtcDateTime(TypeDecorator[datetime]):
    """Aware datetimes in, aware UTC datetimes out, in every database: SQLite forgets time zones."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


class Base(DeclarativeBase):
    type_annotation_map = {dict[str, Any]: JSON, list[Any]: JSON, datetime: UtcDateTime}  # noqa: RUF012


class Model(Base):
    __tablename__ = "tuner_model"
    id: Mapped[int] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(_DIGEST, unique=True)
    name: Mapped[str] = mapped_column(String(255))
    format: Mapped[str] = mapped_column(String(32))
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    spec: Mapped[dict[str, Any]]


class Study(Base):
    __tablename__ = "tuner_study"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(255), unique=True)
    backend: Mapped[str] = mapped_column(String(64))
    model_id: Mapped[int] = mapped_column(ForeignKey("tuner_model.id"))
    spec: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    model: Mapped[Model] = relationship()


class Environment(Base):
    __tablename__ = "tuner_environment"
    id: Mapped[int] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(_DIGEST, unique=True)
    backend: Mapped[str] = mapped_column(String(64))
    backend_version: Mapped[str] = mapped_column(String(64))
    device: Mapped[str] = mapped_column(_DEVICE)
    identity: Mapped[dict[str, Any]]
    details: Mapped[dict[str, Any]]


class KnobSpace(Base):
    __tablename__ = "tuner_knob_space"
    id: Mapped[int] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(_DIGEST, unique=True)
    knobs: Mapped[list[Any]]


class Context(Base):
    __tablename__ = "tuner_context"
    __table_args__ = (
        UniqueConstraint("study_id", "number"),
        UniqueConstraint("study_id", "environment_id", "knob_space_id", "judging_digest"),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(ForeignKey("tuner_study.id", ondelete="CASCADE"))
    number: Mapped[int]
    parent_id: Mapped[int | None] = mapped_column(ForeignKey("tuner_context.id", ondelete="SET NULL"))
    environment_id: Mapped[int] = mapped_column(ForeignKey("tuner_environment.id"))
    knob_space_id: Mapped[int] = mapped_column(ForeignKey("tuner_knob_space.id"))
    judging: Mapped[dict[str, Any]]
    judging_digest: Mapped[str] = mapped_column(_DIGEST)
    optuna_study: Mapped[str] = mapped_column(String(255), unique=True)
    noise: Mapped[dict[str, Any] | None] = mapped_column(JSON)  # what the A/A run of the baseline found
    carried: Mapped[dict[str, Any] | None] = mapped_column(JSON)  # what it took over from its parents, and what not
    created_at: Mapped[datetime]
    study: Mapped[Study] = relationship()
    environment: Mapped[Environment] = relationship()
    knob_space: Mapped[KnobSpace] = relationship()


class Trial(Base):
    __tablename__ = "tuner_trial"
    __table_args__ = (
        UniqueConstraint("context_id", "number"),
        # One candidate, one trial in a context; a deliberate replicate counts up.
        UniqueConstraint("context_id", "candidate_digest", "replicate"),
        Index("ix_tuner_trial_outcome", "context_id", "outcome"),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    uid: Mapped[str] = mapped_column(String(36), unique=True)
    context_id: Mapped[int] = mapped_column(ForeignKey("tuner_context.id", ondelete="CASCADE"))
    number: Mapped[int]
    candidate: Mapped[list[Any]]
    candidate_digest: Mapped[str] = mapped_column(_DIGEST)
    replicate: Mapped[int] = mapped_column(default=0)
    source: Mapped[str] = mapped_column(String(32))  # who proposed it: baseline, tpe, ...
    started_at: Mapped[datetime]
    starts: Mapped[int] = mapped_column(default=1)
    finished_at: Mapped[datetime | None]
    told: Mapped[bool] = mapped_column(default=False)
    outcome: Mapped[str | None] = mapped_column(String(16))
    stage: Mapped[str | None] = mapped_column(String(16))
    kind: Mapped[str | None] = mapped_column(String(32))
    reason: Mapped[str | None] = mapped_column(Text)
    latency_ms: Mapped[float | None]
    throughput: Mapped[float | None]
    accuracy: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    trace: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    timing: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    spent_s: Mapped[float | None]
    device: Mapped[str] = mapped_column(_DEVICE, default="", server_default="")  # where it ended; empty before
    engine_digest: Mapped[str | None] = mapped_column(_DIGEST)
    measurements: Mapped[list[Measurement]] = relationship(
        order_by="Measurement.round", cascade="all, delete-orphan", passive_deletes=True
    )


class Measurement(Base):
    __tablename__ = "tuner_measurement"
    __table_args__ = (UniqueConstraint("trial_id", "round"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    trial_id: Mapped[int] = mapped_column(ForeignKey("tuner_trial.id", ondelete="CASCADE"))
    round: Mapped[int]
    repeats: Mapped[int]
    samples_ms: Mapped[list[Any]]


class Engine(Base):
    __tablename__ = "tuner_engine"
    id: Mapped[int] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(_DIGEST, index=True)
    trial_id: Mapped[int] = mapped_column(ForeignKey("tuner_trial.id", ondelete="CASCADE"), unique=True)
    format: Mapped[str] = mapped_column(String(32))
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    manifest: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class Verdict(Base):
    __tablename__ = "tuner_verdict"
    id: Mapped[int] = mapped_column(primary_key=True)
    context_id: Mapped[int] = mapped_column(ForeignKey("tuner_context.id", ondelete="CASCADE"), index=True)
    trial_id: Mapped[int | None] = mapped_column(ForeignKey("tuner_trial.id", ondelete="SET NULL"))
    confirmation_id: Mapped[int | None] = mapped_column(ForeignKey("tuner_confirmation.id", ondelete="CASCADE"))
    verdict: Mapped[str] = mapped_column(String(16))
    speedup: Mapped[float | None]
    ci_low: Mapped[float | None]
    ci_high: Mapped[float | None]
    detail: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class Lease(Base):
    __tablename__ = "tuner_lease"
    id: Mapped[int] = mapped_column(primary_key=True)
    trial_id: Mapped[int] = mapped_column(ForeignKey("tuner_trial.id", ondelete="CASCADE"), unique=True)
    owner: Mapped[str] = mapped_column(String(36), index=True)
    host: Mapped[str] = mapped_column(String(255))
    pid: Mapped[int]
    started_s: Mapped[float]
    heartbeat_at: Mapped[datetime]


class Activity(Base):
    """What a run is at on one of its devices, for those who watch; gone when the run ends."""

    __tablename__ = "tuner_activity"
    __table_args__ = (UniqueConstraint("owner", "device"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    context_id: Mapped[int] = mapped_column(ForeignKey("tuner_context.id", ondelete="CASCADE"), index=True)
    owner: Mapped[str] = mapped_column(String(36))
    host: Mapped[str] = mapped_column(String(255))
    pid: Mapped[int]
    started_s: Mapped[float]
    device: Mapped[str] = mapped_column(_DEVICE)  # as users call it; empty where there is no choice
    words: Mapped[str] = mapped_column(String(255))
    since: Mapped[datetime]
    heartbeat_at: Mapped[datetime]


class Control(Base):
    """A re-timing of the baseline during a search: what the machine did to everybody."""

    __tablename__ = "tuner_control"
    id: Mapped[int] = mapped_column(primary_key=True)
    context_id: Mapped[int] = mapped_column(ForeignKey("tuner_context.id", ondelete="CASCADE"), index=True)
    purpose: Mapped[str] = mapped_column(String(16))  # "noise": the A/A run at the start; "drift": between trials
    build: Mapped[int]
    session: Mapped[int]
    taken_at: Mapped[datetime]
    device: Mapped[str] = mapped_column(_DEVICE, default="", server_default="")
    latency_ms: Mapped[float]
    timing: Mapped[dict[str, Any]]
    rounds: Mapped[list[Any]]


class Confirmation(Base):
    """A confirmation: its question, its finalists with their rebuilt engines, and what came of it."""

    __tablename__ = "tuner_confirmation"
    id: Mapped[int] = mapped_column(primary_key=True)
    context_id: Mapped[int] = mapped_column(ForeignKey("tuner_context.id", ondelete="CASCADE"), index=True)
    purpose: Mapped[str] = mapped_column(String(16))  # "confirm" or "minimize"
    plan: Mapped[dict[str, Any]]
    finalists: Mapped[list[Any]]
    state: Mapped[str] = mapped_column(String(16))  # running, done
    result: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]


class Pair(Base):
    """A process pair of a confirmation: raw rounds of both sides in the order taken."""

    __tablename__ = "tuner_pair"
    __table_args__ = (UniqueConstraint("confirmation_id", "finalist", "pair_index"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    confirmation_id: Mapped[int] = mapped_column(ForeignKey("tuner_confirmation.id", ondelete="CASCADE"))
    finalist: Mapped[str] = mapped_column(String(64))  # digest of its candidate
    pair_index: Mapped[int]
    build: Mapped[int]
    baseline_build: Mapped[int]
    log_ratio: Mapped[float]
    rounds: Mapped[list[Any]]
    taken_at: Mapped[datetime]
    device: Mapped[str] = mapped_column(_DEVICE, default="", server_default="")  # both sides ran on it
