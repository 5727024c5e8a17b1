"""Families: simulated tuning problems with a known best, each drawn from a seed.

Log throughput is a sum of effects of single values and of combinations; loss is a sum as well, judged against a limit
of 1; a candidate that holds a crash value or combination fails. The best feasible candidate is found exactly, by
listing the knobs that matter. The sampler was tuned on these families with seeds from 1000 on; hold_out.py has others.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from objectives.knobs import Candidate, Knob, KnobKind, KnobSpace

_MOST_LISTED = 70_000  # combinations of the knobs that matter


@dataclass(frozen=True)
class Term:
    """Something that happens where all of `when`, (knob index, value index), hold."""

    when: tuple[tuple[int, int], ...]
    amount: float


@dataclass(frozen=True)
class Result:
    """One evaluation. `log_loss`: log of loss over limit, None if it failed; throughput only if feasible."""

    log_throughput: float | None
    log_loss: float | None
    failed: bool
    variance: float | None = None  # of the measurement, as far as it is known


@dataclass
class World:
    """One problem. `speed`, `loss`: terms; `crash`: combinations that fail; `noise`: of one measurement, log units."""

    sizes: list[int]
    speed: list[Term] = field(default_factory=list)
    loss: list[Term] = field(default_factory=list)
    crash: list[Term] = field(default_factory=list)
    noise: float = 0.01
    outliers: float = 0.0  # share of measurements that something disturbed
    base_loss: float = 1e-3  # of the limit

    def __post_init__(self) -> None:
        names = [f"k{i:03d}" for i in range(len(self.sizes))]
        self.space = KnobSpace(
            tuple(
                Knob(name, tuple(f"v{j}" for j in range(size)), "v0", KnobKind.ROUTE, "")
                for name, size in zip(names, self.sizes, strict=True)
            )
        )
        self._index = {name: i for i, name in enumerate(names)}

    @functools.cached_property
    def best(self) -> float:
        """True log throughput of the best feasible candidate."""
        return self._listed[1]

    @functools.cached_property
    def best_unlimited(self) -> float:
        """The same if nothing were infeasible."""
        return self._listed[0]

    @functools.cached_property
    def infeasible(self) -> float:
        """Share of random candidates that fail or are over the limit."""
        rows = np.random.default_rng(0).integers(0, self.sizes, (2000, len(self.sizes)))
        return 1 - float(np.mean(self.feasible(rows)))

    def row(self, candidate: Candidate) -> np.ndarray:
        row = np.zeros(len(self.sizes), dtype=int)
        for name, value in candidate.changes:
            row[self._index[name]] = int(value[1:])
        return row

    def truth(self, candidate: Candidate) -> float:
        """True log throughput of a feasible candidate, minus infinity of any other."""
        row = self.row(candidate)[None]
        return float(self.speeds(row)[0]) if self.feasible(row)[0] else -math.inf

    def measure(self, candidate: Candidate, rng: np.random.Generator) -> Result:
        row = self.row(candidate)[None]
        if self._crashes(row)[0]:
            return Result(None, None, failed=True)
        loss = float(self._losses(row)[0])
        if loss > 1:
            return Result(None, math.log(loss), failed=False)
        disturbed = abs(rng.normal(0, 10 * self.noise)) if rng.random() < self.outliers else 0.0
        return Result(
            float(self.speeds(row)[0] + rng.normal(0, self.noise) - disturbed), math.log(loss), False, self.noise**2
        )

    def speeds(self, rows: np.ndarray) -> np.ndarray:
        return terms_sum(self.speed, rows)

    def feasible(self, rows: np.ndarray) -> np.ndarray:
        return ~self._crashes(rows) & (self._losses(rows) <= 1)

    def _losses(self, rows: np.ndarray) -> np.ndarray:
        return self.base_loss + terms_sum(self.loss, rows)

    def _crashes(self, rows: np.ndarray) -> np.ndarray:
        return terms_sum(self.crash, rows) > 0

    def _matter(self) -> list[int]:
        return sorted({i for terms in (self.speed, self.loss, self.crash) for t in terms for i, _ in t.when})

    @property
    def n_listed(self) -> int:
        """Combinations of the knobs that matter."""
        return math.prod(self.sizes[i] for i in self._matter())

    @functools.cached_property
    def _listed(self) -> tuple[float, float]:
        matter = self._matter()
        grid = np.array(list(itertools.product(*[range(self.sizes[i]) for i in matter])), dtype=int)
        rows = np.zeros((len(grid), len(self.sizes)), dtype=int)
        rows[:, matter] = grid
        speeds = self.speeds(rows)
        return float(speeds.max()), float(speeds[self.feasible(rows)].max())


def terms_sum(terms: list[Term], rows: np.ndarray) -> np.ndarray:
    """Sum of the amounts of what holds, by row."""
    total = np.zeros(len(rows))
    for term in terms:
        total += term.amount * np.all([rows[:, i] == v for i, v in term.when], axis=0)
    return total


@dataclass(frozen=True)
class Recipe:
    """How to draw a world. Effects are in log throughput."""

    knobs: int
    active: int = 6
    help: tuple[float, float] = (0.01, 0.06)
    hurt: tuple[float, float] = (0.01, 0.08)
    helping: float = 0.5  # share of the active values
    pairs: tuple[int, float] = (0, 0.0)  # number, standard deviation
    triples: tuple[int, float] = (0, 0.0)
    together: int = 0  # knobs that pay together and hurt alone
    heavy: bool = False  # effects with heavy tails
    limit: str = ""  # "step" or "slope"
    crash_values: int = 0
    crash_pairs: int = 0
    infeasible: tuple[float, float] = (0.0, 1.0)  # share of random candidates
    noise: float = 0.01
    outliers: float = 0.0


def draw(recipe: Recipe, seed: int) -> World:
    """A world of that kind, with at least 3 % to gain; where there is a limit, it cuts off the fastest."""
    for attempt in itertools.count():
        rng = np.random.default_rng([4711, seed, recipe.knobs, attempt])
        try:
            world = _draw(recipe, rng)
            if world.n_listed > _MOST_LISTED:
                continue
            rows = rng.integers(0, world.sizes, (1000, recipe.knobs))
            share = 1 - float(np.mean(world.feasible(rows)))
            if not recipe.infeasible[0] <= share <= recipe.infeasible[1]:
                continue
            cut = not recipe.limit or world.best_unlimited > world.best + 0.005
            gains = world.best > 0.03 if recipe.helping else world.best == 0
            if cut and gains:
                return world
        except ValueError:
            continue
    raise AssertionError("unreachable")


def _draw(r: Recipe, rng: np.random.Generator) -> World:
    sizes = rng.choice([2, 3, 4], size=r.knobs, p=[0.6, 0.25, 0.15]).tolist()
    if r.knobs >= 200:
        sizes = [4] * r.knobs
    active = rng.choice(r.knobs, r.active, replace=False).tolist() if r.active else []
    speed: list[Term] = []
    for i in active[r.together :]:
        for v in range(1, sizes[i]):
            helps = rng.random() < r.helping
            size = float(rng.uniform(*r.help) if helps else rng.uniform(*r.hurt))
            if r.heavy:
                size *= float(min(abs(rng.standard_t(1.5)), 12.0))
            speed.append(Term(((i, v),), size if helps else -size))
    group = active[: r.together]
    if group:
        chosen = [(i, int(rng.integers(1, sizes[i]))) for i in group]
        speed += [Term((one,), -float(rng.uniform(0.01, 0.03))) for one in chosen]
        speed.append(Term(tuple(chosen), float(rng.uniform(0.15, 0.3))))
    speed += [Term(_combination(active, sizes, 2, rng), float(rng.normal(0, r.pairs[1]))) for _ in range(r.pairs[0])]
    speed += [
        Term(_combination(active, sizes, 3, rng), float(rng.normal(0, r.triples[1]))) for _ in range(r.triples[0])
    ]
    loss = _losses(r, sizes, active, speed, rng)
    spared = {one for term in speed if len(term.when) == r.together > 2 for one in term.when}
    crash: list[Term] = []
    others = [(i, v) for i in range(r.knobs) for v in range(1, sizes[i]) if (i, v) not in spared]
    others.sort(key=lambda one: -sizes[one[0]] + rng.random())
    crash += [Term((others[k],), 1.0) for k in range(r.crash_values)]
    for _ in range(r.crash_pairs):
        crash.append(Term(_combination(rng.choice(r.knobs, 6, replace=False).tolist(), sizes, 2, rng), 1.0))
    return World(sizes, speed, loss, crash, r.noise, r.outliers)


def _losses(r: Recipe, sizes: list[int], active: list[int], speed: list[Term], rng: np.random.Generator) -> list[Term]:
    if not r.limit:
        return []
    helpful = [t.when[0] for t in speed if len(t.when) == 1 and t.amount > 0]
    inert = [i for i in range(r.knobs) if i not in active]
    picked = [helpful[k] for k in rng.permutation(len(helpful))[:3]]
    if r.limit == "step":
        # Any one of these is far over the limit, by itself or with another.
        terms = [Term((one,), float(np.exp(rng.uniform(0.7, 5.0)))) for one in picked[:1]]
        terms += [Term(tuple(picked[1:3]), 20.0)] if len(picked) == 3 else []
        if inert:
            terms += [Term(((int(rng.choice(inert)), 1),), 6.0)]
        return terms
    picked += [(int(i), 1) for i in rng.choice(inert, min(2, len(inert)), replace=False)]
    terms = [Term((one,), float(rng.uniform(0.25, 0.75))) for one in picked]
    return [*terms, Term(tuple(picked[:2]), float(rng.uniform(0.2, 0.5)))] if len(picked) >= 2 else terms


def _combination(among: list[int], sizes: list[int], n: int, rng: np.random.Generator) -> tuple[tuple[int, int], ...]:
    if len(among) < n:
        raise ValueError("too few knobs")
    return tuple((int(i), int(rng.integers(1, sizes[i]))) for i in sorted(rng.choice(among, n, replace=False)))


_PAIRS, _ROUGH, _HEAVY = (8, 0.02), (0.005, 0.03), {"heavy": True, "outliers": 0.1}

# Seven kinds at four sizes, and a few more. The smallest and the largest of a kind have what fits: a table of all
# combinations of what matters has to be short enough to be listed.
FAMILIES: dict[str, Recipe] = {
    "additive-8": Recipe(8, active=5, limit="slope", infeasible=(0.05, 0.4), noise=0.01),
    "additive-20": Recipe(20, active=7, limit="slope", infeasible=(0.1, 0.4), noise=0.01),
    "slope-60": Recipe(60, active=9, pairs=_PAIRS, limit="slope", infeasible=(0.15, 0.4), noise=0.01),
    "sparse-200": Recipe(200, active=8, help=(0.01, 0.06), noise=0.01),
    "interaction-8": Recipe(8, active=6, help=_ROUGH, pairs=(8, 0.04), triples=(10, 0.04)),
    "interaction-20": Recipe(20, active=7, help=_ROUGH, pairs=(10, 0.04), triples=(14, 0.04), noise=0.01),
    "interaction-60": Recipe(60, active=9, help=_ROUGH, pairs=(14, 0.04), triples=(18, 0.04)),
    "interaction-200": Recipe(200, active=8, help=_ROUGH, pairs=(12, 0.04), triples=(16, 0.04)),
    "deceptive-8": Recipe(8, active=6, together=3, limit="step", infeasible=(0.1, 0.6), noise=0.01),
    "deceptive-20": Recipe(20, active=8, together=3, noise=0.01),
    "deceptive-60": Recipe(60, active=9, together=3),
    "deceptive-200": Recipe(200, active=8, together=3),
    "heavy-8": Recipe(8, active=5, limit="slope", infeasible=(0.05, 0.4), **_HEAVY),
    "heavy-20": Recipe(20, active=8, heavy=True, limit="slope", infeasible=(0.05, 0.4), noise=0.01, outliers=0.1),
    "heavy-60": Recipe(60, active=9, limit="slope", infeasible=(0.05, 0.4), **_HEAVY),
    "heavy-200": Recipe(200, active=6, limit="slope", infeasible=(0.05, 0.4), **_HEAVY),
    "step-8": Recipe(8, active=6, pairs=(4, 0.02), limit="step", infeasible=(0.2, 0.6), noise=0.002),
    "step-20": Recipe(20, active=8, pairs=(6, 0.02), limit="step", infeasible=(0.3, 0.55), noise=0.002),
    "step-60": Recipe(60, active=9, pairs=_PAIRS, limit="step", infeasible=(0.3, 0.6), noise=0.002),
    "step-200": Recipe(200, active=7, pairs=(6, 0.02), limit="step", infeasible=(0.2, 0.6), noise=0.002),
    "crash-8": Recipe(8, active=5, pairs=(3, 0.02), crash_values=1, crash_pairs=1, infeasible=(0.2, 0.6)),
    "crash-20": Recipe(20, active=7, pairs=(6, 0.02), crash_values=1, crash_pairs=2, infeasible=(0.35, 0.6)),
    "crash-60": Recipe(60, active=9, pairs=_PAIRS, crash_values=1, crash_pairs=3, infeasible=(0.35, 0.5)),
    "crash-200": Recipe(200, active=5, pairs=(3, 0.02), crash_values=1, crash_pairs=1, infeasible=(0.2, 0.6)),
    "noisy-8": Recipe(8, active=5, pairs=(3, 0.02), noise=0.05),
    "noisy-20": Recipe(20, active=7, pairs=(5, 0.02), noise=0.05),
    "noisy-60": Recipe(60, active=9, pairs=_PAIRS, noise=0.05),
    "noisy-200": Recipe(200, active=8, pairs=_PAIRS, noise=0.05),
    "none-20": Recipe(20, active=0, helping=0.0, noise=0.01),
    "none-60": Recipe(60, active=0, helping=0.0, noise=0.01),
    "best-20": Recipe(20, active=8, helping=0.0, noise=0.01),
    "rough-40": Recipe(
        40, active=7, pairs=(7, 0.02), triples=(14, 0.03), limit="slope", crash_pairs=2, infeasible=(0.2, 0.7)
    ),
}
NOTHING_TO_GAIN = ("none-20", "none-60", "best-20")


def make(family: str) -> Callable[[int], World]:
    """The function from seed to world of one of these families."""
    recipe = FAMILIES[family]
    return lambda seed: draw(recipe, seed)
