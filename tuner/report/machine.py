"""Machine: noise floor, drift and quality flags of a context, as facts.

Flow: gather.py -> HERE, from the re-timings of the default -> MachineFacts.
"""

from __future__ import annotations

import math
from collections import Counter

from objectives.outcome import Measured
from storage.controls import controls_of
from tuner.controls import DRIFT
from tuner.home import Home
from tuner.objective import Objective
from tuner.report.facts import ControlFacts, DeviceFacts, FlagFacts, MachineFacts
from tuner.stats import detectable_gain
from tuner.views import ContextView

_PAIRS_ASSUMED, _FINALISTS_ASSUMED = 28, 3  # of a confirmation as it is by default, when its power is foretold
_MEANINGS = {
    "unsteady": "the warm-up ended before the latency had settled",
    "few_samples": "too few rounds for an interval of the median",
    "imprecise": "the interval of the median is wider than asked for",
    "stopped_early": "given up after few samples: hopelessly slower than the best until then",
    "other_load": "other processes took more than 15 % of the machine's cores meanwhile",
    "stolen_time": "the hypervisor gave more than 2 % of the time to others",
    "other_process": "another process used the same GPU meanwhile",
}
_THROTTLED = "the GPU slowed itself down meanwhile"


def machine(home: Home, view: ContextView) -> MachineFacts:
    """What the machine did while a context was measured."""
    records = controls_of(home.database, view.context.id)
    standard, noise = view.summary.standard, view.noise
    baseline = view.summary.baseline
    starts = [one.taken_at.timestamp() for one in records]
    first = baseline.finished_at.timestamp() if baseline else min(starts, default=0.0)
    start = min([first, *starts])
    controls = [
        ControlFacts(one.purpose, one.taken_at.timestamp() - start, one.latency_ms, one.build, one.session, one.device)
        for one in records
    ]
    median_ms = None
    if baseline is not None and isinstance(baseline.outcome, Measured):
        median_ms = baseline.outcome.samples.median_ms
        controls.insert(0, ControlFacts(DRIFT, first - start, median_ms, 0, 0, baseline.device))
    drifts = standard is not None and standard.objective is Objective.THROUGHPUT and standard.n_controls > 0
    model = standard.model if standard is not None and drifts else None
    return MachineFacts(
        controls=tuple(controls),
        drift_s=() if model is None else tuple(one - start for one in model.times_s),
        drift=() if model is None else tuple(model.at(one) for one in model.times_s),
        drift_range=None if model is None else model.range,
        drift_share=None if model is None else model.coefficient,
        run_sd=None if noise is None else noise.run.sd,
        load_sd=None if noise is None else noise.load.sd,
        build_sd=None if noise is None else noise.build.sd,
        detectable=None
        if noise is None
        else _finite(detectable_gain(noise, _PAIRS_ASSUMED, finalists=_FINALISTS_ASSUMED)),
        baseline_ms=median_ms,
        flags=_flags(view),
        home="" if standard is None else standard.home,
        devices=_devices(view),
        n_timed=sum(isinstance(trial.outcome, Measured) for trial in view.trials),
    )


def _devices(view: ContextView) -> tuple[DeviceFacts, ...]:
    """How unlike several devices of a context are; nothing where there is one."""
    standard = view.summary.standard
    tried = Counter(trial.device for trial in view.trials)
    if standard is None or len({*standard.devices, *tried}) < 2:
        return ()
    return tuple(
        DeviceFacts(device, state.level, state.n_controls, tried[device]) for device, state in standard.devices.items()
    )


def _flags(view: ContextView) -> tuple[FlagFacts, ...]:
    found = Counter(
        flag for trial in view.trials if isinstance(trial.outcome, Measured) for flag in trial.outcome.samples.flags
    )
    return tuple(FlagFacts(flag, count, _meaning(flag)) for flag, count in found.most_common())


def _meaning(flag: str) -> str:
    if flag.startswith("throttled:"):
        return f"{_THROTTLED}: {flag.partition(':')[2].replace('_', ' ')}"
    return _MEANINGS.get(flag, "as the backend names it")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
