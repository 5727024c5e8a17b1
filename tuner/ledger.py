"""Ledger: the only translator between what objectives does and what storage remembers.

Flow: Outcome -> Finish -> database -> TrialRecord -> Trial with the same Outcome again. Feasibility is not stored: it
is asked of the losses, with the limits of the context.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from objectives.backends.base import Environment
from objectives.knobs import Candidate, Knob, KnobSpace
from objectives.model import ModelSpec
from objectives.outcome import (
    Accuracy,
    Built,
    EngineFile,
    Failed,
    FailureKind,
    Measured,
    Outcome,
    Rejected,
    Round,
    Samples,
    Stage,
    Trace,
)
from objectives.requests import Judging
from storage.records import (
    EnvironmentRecord,
    Finish,
    KnobSpaceRecord,
    ModelRecord,
    RoundRecord,
    TrialRecord,
)

_ENGINE = "engine"  # key of what a trial that was not timed has built


class Trial(msgspec.Struct, frozen=True):
    """A finished trial: what was proposed, and what became of it. `spent_s` is wall-clock time."""

    number: int
    uid: str
    candidate: Candidate
    source: str
    outcome: Outcome
    started_at: datetime
    finished_at: datetime
    spent_s: float
    starts: int
    throughput: float | None = None  # inferences per second; None unless measured
    engine_digest: str | None = None
    device: str = ""  # it ran on, as `Environment.device`

    @property
    def status(self) -> str:
        """One word for a table: ok, inaccurate, wrong output, or the kind of failure."""
        if isinstance(self.outcome, Measured | Built):
            return "ok"
        if isinstance(self.outcome, Failed):
            return self.outcome.kind.value.replace("_", " ")
        broken = self.outcome.accuracy.faults or any(
            None in loss.losses.values() for loss in self.outcome.accuracy.losses
        )
        return "wrong output" if broken else "inaccurate"


def to_finish(outcome: Outcome, spent_s: float, engine_digest: str | None, device: str = "") -> Finish:
    """What the database keeps of an outcome."""
    trace: dict[str, Any] = msgspec.to_builtins(outcome.trace)
    measured = outcome if isinstance(outcome, Measured) else None
    failed = outcome if isinstance(outcome, Failed) else None
    if failed is not None and failed.signal is not None:
        trace["signal"] = failed.signal
    return Finish(
        outcome={Measured: "measured", Built: "built", Rejected: "rejected", Failed: "failed"}[type(outcome)],
        stage=failed.stage.value if failed else None,
        kind=failed.kind.value if failed else None,
        reason=failed.detail if failed else _reason(outcome),
        latency_ms=measured.samples.median_ms if measured else None,
        throughput=measured.samples.throughput if measured else None,
        accuracy=None if isinstance(outcome, Failed) else msgspec.to_builtins(outcome.accuracy),
        trace=trace,
        timing=_timing(outcome),
        rounds=[RoundRecord(r.repeats, r.samples_ms) for r in measured.samples.rounds] if measured else [],
        spent_s=spent_s,
        engine_digest=engine_digest,
        device=device,
    )


def to_trial(record: TrialRecord) -> Trial:
    """A finished trial from its row (with samples, if the row has some). The row must be finished."""
    end = record.finish
    if end is None or record.finished_at is None:
        raise ValueError(f"trial {record.number} is not finished")
    return Trial(
        number=record.number,
        uid=record.uid,
        candidate=to_candidate(record),
        source=record.source,
        outcome=_outcome(end),
        started_at=record.started_at,
        finished_at=record.finished_at,
        spent_s=end.spent_s,
        starts=record.starts,
        throughput=end.throughput,
        engine_digest=end.engine_digest,
        device=end.device,
    )


def to_candidate(record: TrialRecord) -> Candidate:
    """The candidate that a row proposes."""
    return Candidate(tuple((change[0], change[1]) for change in record.candidate))


def to_environment_record(environment: Environment) -> EnvironmentRecord:
    return EnvironmentRecord(
        digest=environment.digest,
        backend=environment.backend,
        backend_version=environment.backend_version,
        device=environment.device,
        identity=dict(environment.identity),
        details=dict(environment.details),
    )


def to_space_record(space: KnobSpace) -> KnobSpaceRecord:
    return KnobSpaceRecord(space.digest, [msgspec.to_builtins(knob) for knob in space.knobs])


def to_space(record: KnobSpaceRecord) -> KnobSpace:
    return KnobSpace(tuple(msgspec.convert(knob, Knob) for knob in record.knobs))


def to_judging(stored: Any) -> Judging:
    return msgspec.convert(stored, Judging)


def to_model_record(model: ModelSpec) -> ModelRecord:
    return ModelRecord(model.digest, model.name, model.format, model.size_bytes, msgspec.to_builtins(model))


def _reason(outcome: Outcome) -> str:
    return outcome.reason if isinstance(outcome, Rejected) else ""


def _timing(outcome: Outcome) -> dict[str, Any] | None:
    """What is known of the samples, which have a table of their own; of a build, what was built."""
    if isinstance(outcome, Built):
        # Where it was built is gone as soon as the trial is over.
        return {_ENGINE: msgspec.to_builtins(msgspec.structs.replace(outcome.engine, path=""))}
    if not isinstance(outcome, Measured):
        return None
    kept: dict[str, Any] = msgspec.to_builtins(outcome.samples)
    del kept["rounds"]
    return kept


def _outcome(end: Finish) -> Outcome:
    stored = dict(end.trace)
    signal = stored.pop("signal", None)
    trace = msgspec.convert(stored, Trace)
    if end.outcome == "failed":
        return Failed(trace, Stage(end.stage or ""), FailureKind(end.kind or ""), end.reason, signal)
    if end.outcome == "built":
        checked = None if end.accuracy is None else msgspec.convert(end.accuracy, Accuracy)
        return Built(trace, checked, msgspec.convert((end.timing or {})[_ENGINE], EngineFile))
    accuracy = msgspec.convert(end.accuracy, Accuracy)
    if end.outcome == "rejected":
        return Rejected(trace, accuracy, end.reason)
    rounds = tuple(Round(one.repeats, tuple(one.samples_ms)) for one in end.rounds)
    # Without its samples a row still knows its median: enough for the search, which reads hundreds of rows.
    rounds = rounds or (Round(1, (end.latency_ms or 0.0,)),)
    return Measured(trace, accuracy, msgspec.convert({**(end.timing or {}), "rounds": rounds}, Samples))
