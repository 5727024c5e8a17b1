"""Noise floor: the baseline against itself, before anything is compared with it.

Flow: the first run of a context -> the baseline is rebuilt and restarted HERE -> three levels of noise, stored with the
context -> "effects under x % cannot be seen with this budget"; the confirmation stands on the build level.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from objectives.isolation import Isolation
from objectives.knobs import BASELINE
from objectives.outcome import Built, EngineFile, Failed, Measured, Samples
from objectives.timing import TimingPlan
from storage.controls import get_noise, set_noise
from tuner.ask import fresh_build, timing
from tuner.context import Context
from tuner.controls import NOISE, provenance, record
from tuner.home import Home
from tuner.results import Summary
from tuner.spec import StudySpec
from tuner.stats import REPRODUCIBLE, Noise, estimate_noise, median_log_variance
from tuner.stats import Samples as Session

_BUILDS = 2
_Z = 1.96
_ROUNDS = 6  # of each session: enough to tell the run level from the load level

NewIsolation = Callable[[], Isolation]


def known(home: Home, context: Context) -> Noise | None:
    """The noise floor measured earlier, None if it was not."""
    stored = get_noise(home.database, context.id)
    return None if stored is None else msgspec.convert(dict(stored), Noise)


def spread_of(summary: Summary, floor: Noise | None) -> float | None:
    """Half the width of the 95 % interval of how much faster the best is than the default, as a share of it.

    As far as one session and one build of each can tell; that it is the best of many makes it look better on top.
    None where nothing is timed or the noise floor is not known.
    """
    best, baseline = summary.best, summary.baseline
    if floor is None or best is None or baseline is None or best.candidate.is_baseline:
        return None
    variance = 2 * (floor.load.sd**2 + floor.build.sd**2)
    for trial in (best, baseline):
        if not isinstance(trial.outcome, Measured):
            return None
        variance += median_log_variance([one.samples_ms for one in trial.outcome.samples.rounds]) or floor.run.sd**2
    return _Z * math.sqrt(variance)


def measure(
    home: Home, spec: StudySpec, context: Context, fresh: NewIsolation, device: str | None = None
) -> Noise | None:
    """Measure the noise floor: two builds of the baseline, fresh processes for each; None if one of them fails.

    Takes `spec.noise_sessions` processes in all, on `device`. Where both builds give the same bytes, builds have no
    luck.
    """
    with home.artifacts.scratch() as scratch:
        engines = []
        for build in range(_BUILDS):
            folder = scratch / str(build)
            folder.mkdir()
            engine = _build(home, spec, context, fresh, folder)
            if engine is None:
                return None
            engines.append(engine)
        sessions = _time_all(home, spec, context, fresh, engines, context.device if device is None else device)
    if sessions is None:
        return None
    noise = estimate_noise(sessions)
    if len({engine.digest for engine in engines}) == 1:
        # The same bytes: what looks like a difference between builds is one between sessions.
        merged = estimate_noise([[session for build in sessions for session in build]])
        noise = Noise(merged.run, merged.load, REPRODUCIBLE)
    set_noise(home.database, context.id, msgspec.to_builtins(noise))
    return noise


def fixed_rounds(plan: TimingPlan, rounds: int) -> TimingPlan:
    """The same plan with a fixed number of rounds."""
    return msgspec.structs.replace(plan, min_rounds=rounds, max_rounds=rounds, budget_ms=10 * plan.budget_ms)


def round_medians(samples: Samples) -> tuple[float, ...]:
    """One latency a round: samples within a round are not independent."""
    return tuple(float(np.median(one.samples_ms)) for one in samples.rounds)


def _build(home: Home, spec: StudySpec, context: Context, fresh: NewIsolation, folder: Path) -> EngineFile | None:
    with fresh() as isolation:
        built = isolation.build(fresh_build(home, spec, context, BASELINE, folder))
    return built.engine if isinstance(built, Built) else None


def _time_all(
    home: Home, spec: StudySpec, context: Context, fresh: NewIsolation, engines: list[EngineFile], device: str
) -> list[list[Session]] | None:
    origin = provenance(spec, context)
    plan = fixed_rounds(spec.timing, _ROUNDS)
    sessions: list[list[Session]] = [[] for _ in engines]
    for number in range(spec.noise_sessions):
        build = number % len(engines)  # in turn, so that a drift is not mistaken for a build
        request = timing(home, spec, context, engines[build], BASELINE, plan)
        with fresh() as isolation:
            samples = isolation.time(request)
        if isinstance(samples, Failed):
            return None
        record(home, context, NOISE, (build, number), samples, device)
        sessions[build].append(Session(round_medians(samples), origin))
    return sessions
