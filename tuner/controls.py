"""Controls: the baseline is timed again between trials, so that what the machine does to everybody can be told apart.

Flow: the loop asks `due` before each proposal -> the baseline's own engine is timed HERE -> stats.drift fits what is
drift and what is the baseline's own noise -> latencies are corrected before the search or anybody else compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from objectives.digest import digest_of
from objectives.isolation import Isolation
from objectives.knobs import BASELINE
from objectives.outcome import EngineFile, Failed, Measured, Samples
from storage.controls import add_control, controls_of
from storage.records import ControlRecord, RoundRecord
from tuner.ask import timing
from tuner.context import Context
from tuner.home import Home
from tuner.ledger import Trial
from tuner.spec import StudySpec
from tuner.stats import DriftModel, Provenance, Timing, fit_drift

DRIFT, NOISE = "drift", "noise"  # purposes of a control


def provenance(spec: StudySpec, context: Context) -> Provenance:
    """What timings of this context share; statistics refuse to mix others in."""
    return Provenance(
        environment_digest=context.record.environment.digest,
        data_digest=digest_of([spec.model_digest, spec.pairs[0].inputs]),
        settings_digest=digest_of(spec.timing),
    )


def record(home: Home, context: Context, purpose: str, where: tuple[int, int], samples: Samples) -> ControlRecord:
    """Store a timing of the baseline."""
    timing: dict[str, Any] = msgspec.to_builtins(samples)
    del timing["rounds"]
    rounds = [RoundRecord(one.repeats, one.samples_ms) for one in samples.rounds]
    return add_control(home.database, context.id, purpose, where, samples.median_ms, timing, rounds)


@dataclass(frozen=True, slots=True)
class Standard:
    """What latencies of a context are compared with: the baseline in the machine's median state, and drift."""

    baseline_ms: float
    model: DriftModel
    n_controls: int

    def corrected_ms(self, trial: Trial) -> float | None:
        """A trial's median latency as if the machine had been in its median state; None unless measured."""
        if not isinstance(trial.outcome, Measured):
            return None
        return self.model.corrected_ms(_timing(trial.finished_at.timestamp(), trial, self.model.provenance))

    def ratio(self, trial: Trial) -> float | None:
        """Speed of a trial as a multiple of the default's, drift taken out; None unless measured."""
        corrected = self.corrected_ms(trial)
        return None if corrected is None else self.baseline_ms / corrected

    def slowness_now(self, at_s: float, then_s: float) -> float:
        """How much slower the machine is at one time than at another, as a log ratio."""
        return self.model.at(at_s) - self.model.at(then_s)


def standard(baseline: Trial | None, controls: Sequence[ControlRecord], origin: Provenance) -> Standard | None:
    """The standard of a context; None while its baseline has not been measured. Pure."""
    if baseline is None or not isinstance(baseline.outcome, Measured):
        return None
    timings = [_timing(baseline.finished_at.timestamp(), baseline, origin)]
    timings += [Timing(c.taken_at.timestamp(), c.latency_ms, origin) for c in controls if c.purpose == DRIFT]
    model = fit_drift(timings)
    corrected = sorted(model.corrected_ms(timing) for timing in timings)
    middle = len(corrected) // 2
    median = corrected[middle] if len(corrected) % 2 else (corrected[middle - 1] * corrected[middle]) ** 0.5
    return Standard(median, model, len(timings) - 1)


class Controls:
    """Re-times the baseline every `spec.control_every` trials, and fits the drift."""

    def __init__(self, home: Home, spec: StudySpec, context: Context, isolation: Isolation) -> None:
        self._home = home
        self._spec = spec
        self._context = context
        self._isolation = isolation
        self._origin = provenance(spec, context)
        self._records = controls_of(home.database, context.id)
        self._trials_at_last = 0

    def standard(self, baseline: Trial | None) -> Standard | None:
        """The standard as it stands now."""
        return standard(baseline, self._records, self._origin)

    def due(self, n_trials: int) -> bool:
        """Whether it is time to time the baseline again."""
        every = self._spec.control_every
        return every > 0 and n_trials - max(self._trials_at_last, 1) >= every

    def take(self, engine: EngineFile, n_trials: int) -> Failed | None:
        """Time the baseline's engine; what went wrong if it did, which is then no control but no harm either."""
        self._trials_at_last = n_trials
        request = timing(self._home, self._spec, self._context, engine, BASELINE, self._spec.timing)
        samples = self._isolation.time(request)
        if isinstance(samples, Failed):
            return samples
        self._records.append(record(self._home, self._context, DRIFT, (0, len(self._records)), samples))
        return None


def _timing(at_s: float, trial: Trial, origin: Provenance) -> Timing:
    assert isinstance(trial.outcome, Measured), "callers ask for measured trials"
    return Timing(at_s, trial.outcome.samples.median_ms, origin)
