"""Three levels of noise, kept apart: run, load, build; and what a budget of process pairs can see through them.

Flow: the A/A run of a study's start (rounds within sessions within builds of the baseline) -> HERE -> "effects under
x % cannot be seen with this budget"; the build level also helps a confirmation that has few builds of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from tuner.stats.distributions import Floats, student_quantile
from tuner.stats.errors import PlanError
from tuner.stats.samples import Samples, require_alike

ROUNDS_PER_SIDE = 2  # one A B B A block
_MAX_PAIRS = 100_000


class Level(msgspec.Struct, frozen=True):
    """Standard deviation of the log latency at one level (0.01 is about 1 %); `df` 0 means: not measured."""

    sd: float
    df: int
    floor: float = 0.0  # standard error with which one unit of this level was seen: a smaller `sd` may be chance


class Noise(msgspec.Struct, frozen=True):
    """The three levels: `run` between rounds of a session, `load` between sessions of a build, `build` between builds."""

    run: Level
    load: Level
    build: Level


class PairPlan(msgspec.Struct, frozen=True):
    """The part of a confirmation's plan that decides what it can see."""

    builds: int = 4
    finalists: int = 5
    rounds_per_side: int = ROUNDS_PER_SIDE
    confidence: float = 0.95


def estimate_noise(builds: Sequence[Sequence[Samples]]) -> Noise:
    """Variance components of log latency from builds -> sessions -> rounds; numbers of each may differ.

    A level that the data cannot show (one build, one session per build, one round per session) has `df` 0 and `sd` 0.
    A component whose estimate is negative is reported as 0.
    Raises: MixedSamplesError; PlanError if there is a build without sessions, or a session without rounds.
    Source: Searle, Casella and McCulloch (1992), Variance Components, section 3.6 (nested, unbalanced); the levels follow
    Kalibera and Jones (2013), Rigorous benchmarking in reasonable time, ISMM.
    """
    require_alike(session.provenance for build in builds for session in build)
    if not builds or not all(builds) or not all(s.latencies_ms for build in builds for s in build):
        raise PlanError(
            "a noise estimate needs at least one round in every session and one session in every build"
        )
    logs = [[np.log(np.asarray(s.latencies_ms)) for s in build] for build in builds]
    sessions = [session for build in logs for session in build]
    sizes, means = _sizes_and_means(sessions)
    build_sizes, build_means = _sizes_and_means([np.concatenate(build) for build in logs])
    owner = np.repeat(np.arange(len(logs)), [len(build) for build in logs])
    total, grand = sizes.sum(), float(np.average(means, weights=sizes))
    run_df, load_df, build_df = int(total) - len(sessions), len(sessions) - len(logs), len(logs) - 1

    run = _ratio(sum(float(((s - s.mean()) ** 2).sum()) for s in sessions), run_df)
    within = float((sizes**2 / build_sizes[owner]).sum())
    load_square = _ratio(float((sizes * (means - build_means[owner]) ** 2).sum()), load_df)
    load = max(0.0, load_square - run) / (_ratio(total - within, load_df) or 1.0)
    build_square = _ratio(float((build_sizes * (build_means - grand) ** 2).sum()), build_df)
    carried = _ratio(within - float((sizes**2).sum()) / total, build_df) * load + run
    build = max(0.0, build_square - carried) / (
        _ratio(total - float((build_sizes**2).sum()) / total, build_df) or 1.0
    )
    return Noise(
        Level(math.sqrt(run), run_df), Level(math.sqrt(load), load_df), Level(math.sqrt(build), build_df)
    )


def detectable_gain(
    noise: Noise, n_pairs: int, *, min_gain: float = 0.0, plan: PairPlan | None = None, power: float = 0.8
) -> float:
    """The smallest true gain (0.02 is 2 %) that `n_pairs` process pairs confirm with probability `power`, about.

    A pair's log ratio has variance 2 load^2 + 2 run^2 / rounds per side; builds add 2 build^2 / builds, which no number
    of pairs removes. The gain must clear `min_gain` by the test's quantile plus the power's quantile of that error.
    Raises: PlanError for fewer than two pairs, or a power outside [0.5, 1).
    Source: Chow, Shao and Wang (2008), Sample Size Calculations in Clinical Research, section 3.1 (superiority by a margin).
    """
    plan = plan or PairPlan()
    if n_pairs < 2 or not 0.5 <= power < 1.0:
        raise PlanError(f"at least two pairs and a power in [0.5, 1), not {n_pairs} and {power}")
    pair = 2.0 * noise.load.sd**2 + 2.0 * noise.run.sd**2 / plan.rounds_per_side
    error = math.sqrt(pair / n_pairs + 2.0 * noise.build.sd**2 / plan.builds)
    tail = 0.5 * (1.0 - plan.confidence) / plan.finalists
    df = float(n_pairs - 1)
    return (1.0 + min_gain) * math.exp(
        error * (student_quantile(1 - tail, df) + student_quantile(power, df))
    ) - 1


def pairs_needed(
    noise: Noise, gain: float, *, min_gain: float = 0.0, plan: PairPlan | None = None, power: float = 0.8
) -> int | None:
    """The fewest pairs that confirm a true `gain` with probability `power`; None if no number of pairs does.

    None means that the builds differ too much: more builds are needed, not more pairs.
    Raises: PlanError as `detectable_gain`.
    """

    def seen(n: int) -> bool:
        return detectable_gain(noise, n, min_gain=min_gain, plan=plan, power=power) <= gain

    if not seen(_MAX_PAIRS):
        return None
    low, high = 1, 2
    while not seen(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if seen(middle) else (middle, high)
    return high


def _sizes_and_means(groups: Sequence[Floats]) -> tuple[Floats, Floats]:
    return np.array([float(g.size) for g in groups]), np.array([float(g.mean()) for g in groups])


def _ratio(numerator: float, df: float) -> float:
    return numerator / df if df > 0 else 0.0
