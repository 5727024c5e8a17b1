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
from objectives.outcome import EngineFile, Failed, Samples
from storage.controls import add_control, controls_of
from storage.records import ControlRecord, RoundRecord
from tuner.ask import timing
from tuner.context import Context
from tuner.home import Home
from tuner.ledger import Trial
from tuner.objective import Objective, cost_of
from tuner.spec import StudySpec
from tuner.stats import DriftModel, Provenance, Timing, fit_drift

DRIFT, NOISE = "drift", "noise"  # purposes of a control


def provenance(spec: StudySpec, context: Context) -> Provenance:
    """What timings of this context share; statistics refuse to mix others in."""
    return Provenance(
        environment_digest=context.record.environment.digest,
        data_digest=digest_of([spec.model_digest, *(one.inputs for one in spec.pairs[:1])]),
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

    baseline_cost: float  # in the objective's unit: milliseconds of latency, bytes, seconds
    model: DriftModel
    n_controls: int
    objective: Objective = Objective.THROUGHPUT

    def corrected_cost(self, trial: Trial) -> float | None:
        """A trial's cost, a latency as if the machine had been in its median state; None where it has none."""
        timing = _timing(trial, self.model.provenance, self.objective)
        return None if timing is None else self.model.corrected_ms(timing)

    def ratio(self, trial: Trial) -> float | None:
        """How much better than the default, as a multiple, drift taken out; None where there is no cost."""
        corrected = self.corrected_cost(trial)
        return None if corrected is None else self.baseline_cost / corrected

    def slowness_now(self, at_s: float, then_s: float) -> float:
        """How much slower the machine is at one time than at another, as a log ratio."""
        return self.model.at(at_s) - self.model.at(then_s)


def standard(
    baseline: Trial | None,
    controls: Sequence[ControlRecord],
    origin: Provenance,
    objective: Objective = Objective.THROUGHPUT,
) -> Standard | None:
    """The standard of a context; None while its baseline has no cost. Pure."""
    first = None if baseline is None else _timing(baseline, origin, objective)
    if first is None:
        return None
    timings = [first]
    timings += [Timing(c.taken_at.timestamp(), c.latency_ms, origin) for c in controls if c.purpose == DRIFT]
    model = fit_drift(timings)
    corrected = sorted(model.corrected_ms(timing) for timing in timings)
    middle = len(corrected) // 2
    median = corrected[middle] if len(corrected) % 2 else (corrected[middle - 1] * corrected[middle]) ** 0.5
    return Standard(median, model, len(timings) - 1, objective)


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
        return standard(baseline, self._records, self._origin, self._spec.objective)

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


def _timing(trial: Trial, origin: Provenance, objective: Objective) -> Timing | None:
    cost = cost_of(trial.outcome, objective)
    return None if cost is None else Timing(trial.finished_at.timestamp(), cost, origin)
