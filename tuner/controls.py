"""Controls: the baseline is timed again between trials, so that what the machine does to everybody can be told apart.

Flow: the loop asks `due` before each proposal -> the baseline's own engine is timed HERE -> stats.drift fits what is
drift and what is the baseline's own noise -> latencies are corrected before the search or anybody else compares them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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


def record(
    home: Home, context: Context, purpose: str, where: tuple[int, int], samples: Samples, device: str
) -> ControlRecord:
    """Store a timing of the baseline on a device."""
    timing: dict[str, Any] = msgspec.to_builtins(samples)
    del timing["rounds"]
    rounds = [RoundRecord(one.repeats, one.samples_ms) for one in samples.rounds]
    return add_control(home.database, context.id, purpose, where, samples.median_ms, timing, rounds, device)


@dataclass(frozen=True, slots=True)
class DeviceState:
    """What one device does to everybody on it: `level` is how much slower it is than the baseline's, as a log ratio."""

    level: float
    model: DriftModel
    n_controls: int

    def slowness(self, at_s: float) -> float:
        """How much slower than the baseline's device in its median state, as a log ratio."""
        return self.level + self.model.at(at_s)


@dataclass(frozen=True, slots=True)
class Standard:
    """What latencies of a context are compared with: the baseline on its device in its median state.

    `devices`: by name as recorded, that of the baseline (`home`) among them; one that never timed it is taken as it is.
    """

    baseline_cost: float  # in the objective's unit: milliseconds of latency, bytes, seconds
    home: str
    devices: Mapping[str, DeviceState]
    objective: Objective = Objective.THROUGHPUT

    @property
    def model(self) -> DriftModel:
        """Drift of the baseline's device."""
        return self.devices[self.home].model

    @property
    def n_controls(self) -> int:
        return sum(state.n_controls for state in self.devices.values())

    def corrected_cost(self, trial: Trial) -> float | None:
        """A trial's cost, a latency as if its device had been the baseline's in its median state; None without one."""
        timing = _timing(trial, self.model.provenance, self.objective)
        if timing is None:
            return None
        state = self.devices.get(trial.device)
        return timing.latency_ms if state is None else state.model.corrected_ms(timing) * math.exp(-state.level)

    def ratio(self, trial: Trial) -> float | None:
        """How much better than the default, as a multiple, drift and device taken out; None where there is no cost."""
        corrected = self.corrected_cost(trial)
        return None if corrected is None else self.baseline_cost / corrected

    def slowness(self, device: str, at_s: float) -> float:
        """How much slower a device is at a time than the baseline's in its median state, as a log ratio."""
        state = self.devices.get(device)
        return 0.0 if state is None else state.slowness(at_s)


def standard(
    baseline: Trial | None,
    controls: Sequence[ControlRecord],
    origin: Provenance,
    objective: Objective = Objective.THROUGHPUT,
) -> Standard | None:
    """The standard of a context; None while its baseline has no cost. Pure."""
    first = None if baseline is None else _timing(baseline, origin, objective)
    if baseline is None or first is None:
        return None
    timings = {baseline.device: [first]}
    for one in controls:
        if one.purpose == DRIFT:
            timings.setdefault(one.device, []).append(Timing(one.taken_at.timestamp(), one.latency_ms, origin))
    models = {device: fit_drift(found) for device, found in timings.items()}
    levels = {device: _level(found, models[device]) for device, found in timings.items()}
    home = levels[baseline.device]
    states = {
        device: DeviceState(math.log(levels[device] / home), models[device], len(found) - (device == baseline.device))
        for device, found in timings.items()
    }
    return Standard(home, baseline.device, states, objective)


def _level(timings: Sequence[Timing], model: DriftModel) -> float:
    """Latency of the baseline on a device in its median state, milliseconds."""
    corrected = sorted(model.corrected_ms(timing) for timing in timings)
    middle = len(corrected) // 2
    return corrected[middle] if len(corrected) % 2 else (corrected[middle - 1] * corrected[middle]) ** 0.5


class Controls:
    """Re-times the baseline every `spec.control_every` trials of a device, and fits the drift of each."""

    def __init__(self, home: Home, spec: StudySpec, context: Context) -> None:
        self._home = home
        self._spec = spec
        self._context = context
        self._origin = provenance(spec, context)
        self._records = controls_of(home.database, context.id)
        self._trials_at_last: dict[str, int] = {}

    def refresh(self) -> bool:
        """Take in what other processes have recorded; False if there is nothing new."""
        found = controls_of(self._home.database, self._context.id)
        is_new = len(found) > len(self._records)
        self._records = found
        return is_new

    def standard(self, baseline: Trial | None) -> Standard | None:
        """The standard as it stands now."""
        return standard(baseline, self._records, self._origin, self._spec.objective)

    def due(self, device: str, n_trials: int) -> bool:
        """Whether it is time to time the baseline again on a device that has had so many trials."""
        every = self._spec.control_every
        return every > 0 and n_trials - max(self._trials_at_last.get(device, 0), 1) >= every

    def is_known(self, device: str, baseline: Trial) -> bool:
        """Whether the baseline has been timed on a device, so that its level is known; what is not timed has none."""
        if device == baseline.device or not self._spec.objective.is_timed:
            return True
        return any(one.purpose == DRIFT and one.device == device for one in self._records)

    def take(self, isolation: Isolation, device: str, engine: EngineFile, n_trials: int) -> Failed | None:
        """Time the baseline's engine on a device; what went wrong if it did, which is then no control but no harm."""
        self._trials_at_last[device] = n_trials
        request = timing(self._home, self._spec, self._context, engine, BASELINE, self._spec.timing)
        samples = isolation.time(request)
        if isinstance(samples, Failed):
            return samples
        record(self._home, self._context, DRIFT, (0, len(self._records)), samples, device)
        self.refresh()
        return None


def _timing(trial: Trial, origin: Provenance, objective: Objective) -> Timing | None:
    cost = cost_of(trial.outcome, objective)
    return None if cost is None else Timing(trial.finished_at.timestamp(), cost, origin)
