"""Three levels of noise, kept apart: run, load, build; and what a budget of process pairs can see through
them.

Flow: the A/A run of a study's start (rounds within sessions within builds of the baseline) -> HERE ->
"effects under x % cannot be seen with this budget"; the build level also helps a confirmation that has few
builds of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from objectives.distributions import Floats, student_quantile
from tuner.stats.errors import PlanError
from tuner.stats.pairs import ConfirmationPlan
from tuner.stats.samples import Samples, require_alike

ROUNDS_PER_SIDE = 2  # one A B B A block
_MAX_PAIRS = 100_000


class Level(msgspec.Struct, frozen=True):
    """Standard deviation of the log latency at one level (0.01 is about 1 %); `df` 0 means: not measured."""

    sd: float
    df: int
    floor: float = 0.0  # standard error with which one unit of this level was seen: a smaller `sd` may be chance


class Noise(msgspec.Struct, frozen=True):
    """Levels: `run` between rounds of a session, `load` between sessions, `build` between builds."""

    run: Level
    load: Level
    build: Level


def estimate_noise(builds: Sequence[Sequence[Samples]]) -> Noise:
    """Variance components of log latency from builds -> sessions -> rounds; numbers of each may differ.

    A level that the data cannot show (one build, one session per build, one round per session) has `df` 0 and `sd` 0.
    A component whose estimate is negative is reported as 0.
    Raises: MixedSamplesError; PlanError if there is a build without sessions, or a session without rounds.
    Source: Searle, Casella and McCulloch (1992), Variance Components, section 3.6 (nested, unbalanced);
    the levels follow Kalibera and Jones (2013), Rigorous benchmarking in reasonable time, ISMM.
    """
    require_alike(session.provenance for build in builds for session in build)
    if not builds or not all(builds) or not all(s.latencies_ms for build in builds for s in build):
        raise PlanError("a noise estimate needs at least one round in every session and one session in every build")
    logs = [[np.log(np.asarray(s.latencies_ms)) for s in build] for build in builds]
    sessions = [session for build in logs for session in build]
    sizes, means = _sizes_and_means(sessions)
    build_sizes, build_means = _sizes_and_means([np.concatenate(build) for build in logs])
    owner = np.repeat(np.arange(len(logs)), [len(build) for build in logs])
    total, grand = float(sizes.sum()), float(np.average(means, weights=sizes))
    run_df, load_df, build_df = int(total) - len(sessions), len(sessions) - len(logs), len(logs) - 1
    # Mean squares and how often each level's variance is in them, after Searle et al., unequal numbers
    # allowed.
    within, overall = float((sizes**2 / build_sizes[owner]).sum()), float((sizes**2).sum()) / total
    run = sum(float(((s - s.mean()) ** 2).sum()) for s in sessions) / max(1, run_df)
    load_squares = float((sizes * (means - build_means[owner]) ** 2).sum())
    load = _level(load_squares, run, total - within, load_df)
    build_squares = float((build_sizes * (build_means - grand) ** 2).sum())
    below = run + (within - overall) / max(1, build_df) * load.sd**2
    build = _level(build_squares, below, total - float((build_sizes**2).sum()) / total, build_df)
    return Noise(Level(math.sqrt(run), run_df), load, build)


def detectable_gain(
    noise: Noise,
    n_pairs: int,
    *,
    plan: ConfirmationPlan | None = None,
    finalists: int = 1,
    rounds_per_side: int = ROUNDS_PER_SIDE,
    power: float = 0.8,
) -> float:
    """The smallest true gain (0.02 is 2 %) that `n_pairs` process pairs confirm with probability `power`,
    about.

    A pair's log ratio has variance 2 load^2 + 2 run^2 / rounds per side; builds add 2 build^2 / builds, which no
    number of pairs removes. The gain must clear the plan's `min_gain` (0 asks for bare sensitivity) by the test's
    quantile plus the power's quantile of that error. Looks cost a little more, which is left out.
    Raises: PlanError for fewer than two pairs, no finalist, or a power outside [0.5, 1).
    Source: Chow, Shao and Wang (2008), Sample Size Calculations in Clinical Research, section 3.1 (superiority by a
    margin); signed-rank efficiency 3 / pi, Hodges and Lehmann (1956), Annals of Mathematical Statistics 27.
    """
    plan = plan or ConfirmationPlan()
    if n_pairs < 2 or finalists < 1 or not 0.5 <= power < 1.0:
        wrong = f"{n_pairs} pairs, {finalists} finalists, power {power}"
        raise PlanError(wrong, hint="two pairs or more, one finalist or more, a power in [0.5, 1)")
    pair = 2.0 * noise.load.sd**2 + 2.0 * noise.run.sd**2 / rounds_per_side
    builds = min(plan.builds, n_pairs)
    error = math.sqrt(pair / n_pairs * math.pi / 3.0 + 2.0 * noise.build.sd**2 / builds)
    tail, df = 0.5 * (1.0 - plan.confidence) / finalists, float(n_pairs - 1)
    reach = error * (student_quantile(1.0 - tail, df) + student_quantile(power, df))
    return (1.0 + plan.min_gain) * math.exp(reach) - 1.0


def pairs_needed(
    noise: Noise, gain: float, *, plan: ConfirmationPlan | None = None, finalists: int = 1, power: float = 0.8
) -> int | None:
    """The fewest pairs that confirm a true `gain` with probability `power`; None if no number of pairs does.

    None means that the gain is no larger than `min_gain`, or that the builds differ too much: then more builds are
    needed, not more pairs.
    Raises: PlanError as `detectable_gain`.
    """

    def seen(n: int) -> bool:
        return detectable_gain(noise, n, plan=plan, finalists=finalists, power=power) <= gain

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


def _level(squares: float, below: float, weight: float, df: int) -> Level:
    """One level: its sum of squares, the levels' below share of its mean square, how often its variance is in
    it."""
    if df < 1:
        return Level(0.0, 0)
    per_unit = weight / df
    return Level(math.sqrt(max(0.0, squares / df - below) / per_unit), df, floor=math.sqrt(below / per_unit))
