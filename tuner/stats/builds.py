"""The luck of a build: how much rebuilds differ, and what that means for the shipped file.

Flow: the pairs of a confirmation -> HERE -> `fit_builds` widens the route's interval in confirmation;
`figures` tells the shipped file from the rebuilt route, and both from the default rebuilt as often.
Model of a pair: log ratio = route gain + luck of the candidate's build - luck of the baseline's build + pair
noise. All finalists meet the same builds of the baseline, so they are fitted together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from objectives.distributions import Floats, student_quantile
from tuner.stats.errors import PlanError
from tuner.stats.noise import Level
from tuner.stats.pairs import PairBlock
from tuner.stats.samples import require_alike
from tuner.stats.summaries import MAD_TO_SD

REPRODUCIBLE = Level(0.0, 1_000_000)  # rebuilds are the same bytes: builds have no luck
_RATIOS = np.concatenate(([1e-12], np.geomspace(1e-4, 1e4, 41)))  # build variance over pair variance
_CLIP = 2.5  # robust standard deviations, beyond which a pair tells nothing more about a build


class BuildModel(msgspec.Struct, frozen=True):
    """The fitted model: log gains of routes and lucks of builds, with their joint covariance.

    `terms` names each row: (candidate, -1) is the candidate's route, (candidate, b) the luck of its build b,
    and ("", b) the luck of the baseline's build b; above zero is faster.
    """

    terms: tuple[tuple[str, int], ...]
    values: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    spread: Level  # of builds: standard deviation of the log latency between rebuilds of one route

    def builds_of(self, candidate: str) -> tuple[int, ...]:
        """Builds that were seen, of a candidate or ("") of the baseline."""
        return tuple(build for name, build in self.terms if name == candidate and build >= 0)

    def contrast(self, weights: Mapping[tuple[str, int], float]) -> tuple[float, float]:
        """A weighted sum of terms, and its standard error."""
        vector = np.array([weights.get(term, 0.0) for term in self.terms])
        variance = float(vector @ np.array(self.covariance) @ vector)
        return float(vector @ np.array(self.values)), math.sqrt(max(0.0, variance))


class Figure(msgspec.Struct, frozen=True):
    """A speed-up (1.041 is 4.1 % faster) with its interval."""

    speedup: float
    ci_low: float
    ci_high: float


class Figures(msgspec.Struct, frozen=True):
    """What may be said of a winner: of its route, of the file that ships, and against the control."""

    route: Figure  # the route rebuilt once more, over the default rebuilt once more, on average
    shipped: Figure  # this file over the default rebuilt once more, on average
    shipped_build: int  # which build of the candidate ships
    control: Figure  # the best of as many default builds, over the default rebuilt once more
    control_build: int
    over_control: Figure  # the shipped file over that best default file
    confidence: float  # of each interval by itself

    @property
    def beats_control(self) -> bool:
        """True if the shipped file is faster than the best of as many default builds, beyond doubt."""
        return self.over_control.ci_low > 1.0


def fit_builds(by_candidate: Mapping[str, Sequence[PairBlock]], known: Level | None = None) -> BuildModel:
    """Fit routes, lucks of builds and their spread to the pairs of all finalists.

    The spread is taken to be the environment's, the same for every route. `known` is the build level of the
    study's noise run, which counts as much as its degrees of freedom say; REPRODUCIBLE says that rebuilds are
    the same bytes. Far-out pairs are pulled in first, so that one accident does not look like a bad build.
    Raises: PlanError without pairs; MixedSamplesError.
    Source: restricted maximum likelihood, Patterson and Thompson (1971), Biometrika 58; mixed model
    equations, Henderson (1975), Biometrics 31; pulling in, Huber (1981), Robust Statistics, section 7;
    averaging over the spread, Kass and Steffey (1989), JASA 84; flat prior, Gelman (2006), Bayesian Analysis 1.
    """
    blocks = [block for pairs in by_candidate.values() for block in pairs]
    if not blocks:
        raise PlanError("without pairs there is nothing to fit")
    require_alike(block.provenance for block in blocks)
    routes = [(candidate, -1) for candidate, pairs in by_candidate.items() if pairs]
    lucks = sorted({(b.candidate_id, b.build) for b in blocks} | {("", b.baseline_build) for b in blocks})
    terms = (*routes, *lucks)
    place = {term: i for i, term in enumerate(terms)}
    design = np.zeros((len(blocks), len(terms)))
    for row, block in enumerate(blocks):
        design[row, place[block.candidate_id, -1]] = 1.0
        design[row, place[block.candidate_id, block.build]] = 1.0
        design[row, place["", block.baseline_build]] = -1.0
    logs = np.concatenate([_pulled_in(pairs) for pairs in by_candidate.values() if pairs])
    df = len(lucks) - len(routes) - 1
    values, covariance, spread = _solve(design, logs, len(routes), Level(0.0, 0) if known is None else known)
    rows = tuple(tuple(row) for row in covariance.tolist())
    return BuildModel(terms, tuple(values.tolist()), rows, Level(spread, df + (known.df if known else 0)))


def figures(model: BuildModel, candidate: str, confidence: float = 0.95) -> Figures:
    """The separate figures of one candidate, from the model of the whole confirmation.

    The file that ships is the build with the best luck. Lucks are predictions, shrunk by how well each is
    known, which keeps the figure honest although the best build was picked by the same data.
    Raises: PlanError for a candidate that has no pairs.
    Source: posterior means are immune to selection, Efron (2011), Tweedie's formula and selection bias, JASA
    106.
    """
    builds, baseline_builds = model.builds_of(candidate), model.builds_of("")
    if not builds:
        raise PlanError(f"there are no pairs of {candidate!r}")
    luck = dict(zip(model.terms, model.values, strict=True))
    shipped = max(builds, key=lambda build: (luck[candidate, build], -build))
    control = max(baseline_builds, key=lambda build: (luck["", build], -build))
    quantile = student_quantile(0.5 + 0.5 * confidence, float(max(1, model.spread.df)))

    def figure(weights: Mapping[tuple[str, int], float]) -> Figure:
        gain, error = model.contrast(weights)
        return Figure(math.exp(gain), math.exp(gain - quantile * error), math.exp(gain + quantile * error))

    file = {(candidate, -1): 1.0, (candidate, shipped): 1.0}
    return Figures(
        route=figure({(candidate, -1): 1.0}),
        shipped=figure(file),
        shipped_build=shipped,
        control=figure({("", control): 1.0}),
        control_build=control,
        over_control=figure({**file, ("", control): -1.0}),
        confidence=confidence,
    )


def _pulled_in(pairs: Sequence[PairBlock]) -> Floats:
    """Log ratios with far-out pairs moved to the edge of what is usual around their own build's median."""
    logs = np.array([pair.log_ratio for pair in pairs])
    builds, owner = np.unique([pair.build for pair in pairs], return_inverse=True)
    centres = np.array([np.median(logs[owner == i]) for i in range(builds.size)])[owner]
    shrinkage = 1.0 - builds.size / logs.size  # medians follow their own pairs
    reach = _CLIP * MAD_TO_SD * float(np.median(np.abs(logs - centres))) / math.sqrt(shrinkage or 1.0)
    return np.clip(logs, centres - reach, centres + reach) if reach > 0 else logs


def _solve(design: Floats, logs: Floats, routes: int, known: Level) -> tuple[Floats, Floats, float]:
    """Terms and covariance, averaged over what the spread may be, and the most likely spread itself.

    Lucks at the most likely spread would look too certain where that is 0 by chance.
    """
    n, size = design.shape
    ridge = np.zeros((_RATIOS.size, size))
    ridge[:, routes:] = 1.0 / _RATIOS[:, None]
    systems = design.T @ design + ridge[:, :, None] * np.eye(size)
    target = design.T @ logs
    solutions = np.linalg.solve(systems, np.broadcast_to(target[:, None], (_RATIOS.size, size, 1)))[..., 0]
    degrees = max(1, n - routes)
    pair_variances = np.maximum(logs @ logs - solutions @ target, 1e-20) / degrees
    # Restricted likelihood, pair variance profiled out, times the noise run's likelihood of the same spread.
    deviance = degrees * np.log(pair_variances) + np.linalg.slogdet(systems)[1]
    deviance += (size - routes) * np.log(_RATIOS)
    variances = _RATIOS * pair_variances
    seen = variances + known.floor**2 + 1e-16
    deviance += known.df * (np.log(seen) + (known.sd**2 + known.floor**2) / seen)
    best = int(np.argmin(deviance))
    # Geometric grid times square root: a prior that is flat in the standard deviation.
    weights = np.sqrt(_RATIOS) * np.exp(-0.5 * (deviance - deviance[best]))
    weights /= weights.sum()
    values = weights @ solutions
    inverses = np.linalg.inv(systems) * (weights * pair_variances)[:, None, None]
    apart = (solutions - values) * np.sqrt(weights)[:, None]
    covariance = inverses.sum(axis=0) + apart.T @ apart
    return values, covariance, math.sqrt(variances[best]) if best else 0.0
