"""Records: what the database remembers, as plain frozen values. No ORM object leaves this room.

Flow: tuner/ledger.py translates the tuner's values to and from these -> repositories store them.
JSON-shaped fields hold what the tuner gives; this room does not look inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A model file; `spec` describes its inputs and outputs."""

    digest: str
    name: str
    format: str
    size_bytes: int
    spec: Json


@dataclass(frozen=True, slots=True)
class StudyRecord:
    """What a user created and named. `spec` is versioned by its own "format" entry."""

    name: str
    backend: str
    model: ModelRecord
    spec: Json
    created_at: datetime


@dataclass(frozen=True, slots=True)
class EnvironmentRecord:
    """Fingerprint of a machine and its software; `identity` is what makes it another one."""

    digest: str
    backend: str
    backend_version: str
    device: str
    identity: Json
    details: Json


@dataclass(frozen=True, slots=True)
class KnobSpaceRecord:
    digest: str
    knobs: Sequence[Json]


@dataclass(frozen=True, slots=True)
class ContextRecord:
    """Study x environment x knob space x judging. `number` counts within the study, from 1.

    `carried`: why it was opened and what it took over, as the tuner wrote it then; None if nobody wrote anything.
    """

    id: int
    study: str
    number: int
    parent_id: int | None
    environment: EnvironmentRecord
    space: KnobSpaceRecord
    judging: Json
    judging_digest: str
    optuna_study: str
    created_at: datetime
    carried: Json | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a new context comes from: its nearest parent, and what it takes over."""

    parent_id: int | None = None
    carried: Json | None = None


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """Raw samples of one round, milliseconds per inference; each is a mean over `repeats` inferences."""

    repeats: int
    samples_ms: Sequence[float]


@dataclass(frozen=True, slots=True)
class Finish:
    """How a trial ended. `outcome` is measured, built, rejected or failed; what does not apply is None."""

    outcome: str
    stage: str | None
    kind: str | None
    reason: str
    latency_ms: float | None
    throughput: float | None
    accuracy: Json | None
    trace: Json
    timing: Json | None
    rounds: Sequence[RoundRecord]
    spent_s: float
    engine_digest: str | None = None
    device: str = ""  # it ran on, as `Environment.device`


@dataclass(frozen=True, slots=True)
class NewEngine:
    """An engine to be registered with its trial's end."""

    digest: str
    format: str
    size_bytes: int
    manifest: Json


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """A trial: proposed when `finish` is None, else finished. `uid` is its identity outside this database."""

    id: int
    uid: str
    context_id: int
    number: int
    candidate: Sequence[Sequence[str]]
    candidate_digest: str
    source: str
    started_at: datetime
    finished_at: datetime | None
    starts: int  # how often it was started; more than 1 after an interruption
    told: bool
    finish: Finish | None


@dataclass(frozen=True, slots=True)
class EngineRecord:
    """A built engine kept in the artifact folder."""

    digest: str
    trial_uid: str
    format: str
    size_bytes: int
    manifest: Json
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """A re-timing of the baseline on `device`. `purpose`: "noise" or "drift"."""

    purpose: str
    build: int
    session: int
    taken_at: datetime
    latency_ms: float
    timing: Json
    rounds: Sequence[RoundRecord]
    device: str = ""


@dataclass(frozen=True, slots=True)
class ConfirmationRecord:
    """A confirmation. `state`: "running" or "done"; `finalists` holds trial, candidate and rebuilt engines of each."""

    id: int
    context_id: int
    purpose: str
    plan: Json
    finalists: Sequence[Json]
    state: str
    result: Json | None
    started_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class PairRecord:
    """A process pair; `rounds` are raw: side, repeats, samples in milliseconds, in the order taken."""

    finalist: str
    pair_index: int
    build: int
    baseline_build: int
    log_ratio: float
    rounds: Sequence[Json]
    device: str = ""


@dataclass(frozen=True, slots=True)
class VerdictRecord:
    """What a confirmation says of one finalist; bounds are None where there are none."""

    trial_uid: str
    verdict: str
    speedup: float | None
    ci_low: float | None
    ci_high: float | None
    detail: Json


@dataclass(frozen=True, slots=True)
class Owner:
    """Who works on a trial. `started_s`: the process's start time, so that a reused process id is not mistaken."""

    id: str
    host: str
    pid: int
    started_s: float


@dataclass(frozen=True, slots=True)
class ActivityRecord:
    """What a run is at on one of its devices, in words, since when."""

    context_id: int
    owner: Owner
    device: str
    words: str
    since: datetime
    heartbeat_at: datetime
