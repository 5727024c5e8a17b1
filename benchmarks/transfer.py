"""How many trials a new context needs with what its parent taught, against a cold start.

    nice python benchmarks/transfer.py --seeds 20 -o benchmarks/results/transfer.txt

Two simulated problems of one family (search/families.py): the parent is searched for 60 trials with `auto`, then the
child from scratch and with what the tuner carries over. Their log throughputs correlate by the given figure over random
candidates; at 0 and below the parent misleads. Limits are the model's, so both have the same. Recorded tables of one
network in two versions of a runtime (search/tables.py) are such a pair too, each way. Counted are trials until one is
within 1 % of the child's true best; a run that does not get there counts as the whole budget, so the figure to look at
is the median over seeds, as in the comparison of searches; means are shown beside it.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import multiprocessing
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from multiprocessing.pool import Pool
from pathlib import Path

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
sys.path[:0] = [str(Path(__file__).parent / "search"), str(Path(__file__).parents[1])]

import numpy as np  # noqa: E402
from families import Recipe, Result, Term, World, draw  # noqa: E402
from tables import TableWorld, related_tables, related_worlds  # noqa: E402

from objectives.knobs import BASELINE, Candidate  # noqa: E402
from tuner.carried import Carried  # noqa: E402
from tuner.carrying import Carrying  # noqa: E402
from tuner.search.observation import Observation  # noqa: E402
from tuner.search.strategies import make_strategy  # noqa: E402
from tuner.transfer import Lesson, Parent, carry  # noqa: E402

FAMILIES = {
    "additive-20": Recipe(20, active=5, limit="slope", infeasible=(0.1, 0.4)),
    "pairs-20": Recipe(20, active=5, pairs=(6, 0.03), limit="step", infeasible=(0.2, 0.6)),
    "crash-40": Recipe(40, active=5, pairs=(3, 0.02), crash_values=1, infeasible=(0.1, 0.5)),
}
CORRELATIONS = (0.9, 0.6, 0.0, -0.3)
PARENT_TRIALS, BUDGET, WITHIN = 60, 100, 0.01
_MOST_LISTED = 60_000
_ROWS = 4000
_NAME = 44
Groups = Mapping[str, Sequence[tuple[str, float | None]]]  # heading -> family and correlation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0, help="from 1000 on: for development")
    parser.add_argument("--families", nargs="+", default=list(FAMILIES))
    parser.add_argument("--no-tables", action="store_true", help="leave the recorded tables out")
    parser.add_argument("--searches", nargs="+", default=["auto", "tpe"])
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("-o", "--out", type=Path)
    arguments = parser.parse_args()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    groups: Groups = {f"{rho:g}": [(family, rho) for family in arguments.families] for rho in CORRELATIONS}
    if not arguments.no_tables and (tables := related_tables()):
        groups["tables"] = [(pair, None) for pair in tables]
    lines = [f"command: python {' '.join(['benchmarks/transfer.py', *sys.argv[1:]])}", ""]
    with multiprocessing.get_context("spawn").Pool(arguments.jobs) as pool:
        for search in arguments.searches:
            lines += report(pool, search, groups, seeds)
    print("\n".join(lines))
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n")


def report(pool: Pool, search: str, groups: Groups, seeds: Iterable[int]) -> list[str]:
    """A table of one search: trials to within 1 %, cold and with transfer, by correlation and family."""
    lines = [
        f"search {search}: trials until within {WITHIN:.0%} of the best feasible, budget {BUDGET}",
        "medians over seeds and their ratio with its 95 % interval; ratio of arithmetic and of geometric means",
        "",
        f"{'correlation':>11}  {'family':<{_NAME}} {'cold':>6} {'carried':>7}  {'ratio [95 %]':<18} means geom.",
    ]
    seeds = list(seeds)
    for title, members in groups.items():
        jobs = [(search, family, rho, seed) for family, rho in members for seed in seeds]
        found = np.array(pool.starmap(compare, jobs), dtype=float).reshape(len(members), len(seeds), 2)
        for (family, _), one in zip(members, found, strict=True):
            lines.append(f"{title:>11}  {family:<{_NAME}} {_figures(one[None])}")
        if len(members) > 1:
            lines.append(f"{title:>11}  {'median of families':<{_NAME}} {_figures(found)}")
        print(lines[-1], file=sys.stderr, flush=True)
    return [*lines, ""]


def _figures(found: np.ndarray) -> str:
    """Of (families, seeds, cold and carried): medians, their ratio by bootstrap over seeds, other ratios."""
    rng, (_, n, _) = np.random.default_rng(0), found.shape
    low, high = np.percentile([_ratio(found[:, rng.integers(0, n, n)]) for _ in range(1000)], [2.5, 97.5])
    cold, warm = np.median(found, axis=1).mean(axis=0)
    means = found.mean(axis=(0, 1))
    typical = math.exp(float(np.mean(np.log(found[..., 1] / found[..., 0]))))
    ratio = f"{_ratio(found):.2f} [{low:.2f}, {high:.2f}]"
    return f"{cold:>6.1f} {warm:>7.1f}  {ratio:<18} {means[1] / means[0]:>5.2f} {typical:>5.2f}"


def _ratio(found: np.ndarray) -> float:
    """Median over families of the ratio of medians over seeds."""
    medians = np.median(found, axis=1)
    return float(np.median(medians[:, 1] / medians[:, 0]))


def compare(search: str, family: str, rho: float | None, seed: int) -> tuple[int, int]:
    """Trials of the child until within 1 %: cold, and with transfer. Without `rho`: tables "parent > child"."""
    if rho is None:
        parent, child = related_worlds(family)
        carried = carry("", [learn(parent, seed)], child.space)
    else:
        attempt, child = related(family, rho, seed)
        carried = carry("", [learn_of(family, seed, attempt)], child.space)
    return trials_to_best(child, search, seed, None), trials_to_best(child, search, seed, carried)


@functools.cache
def parent_of(family: str, seed: int, attempt: int) -> World:
    """The parent's problem; the same for every correlation, as long as it has such a child."""
    return draw(FAMILIES[family], 10_000 * attempt + seed)


def related(family: str, rho: float, seed: int) -> tuple[int, World]:
    """A child whose log throughput correlates with its parent's by `rho` over random candidates, and which parent."""
    for attempt in itertools.count():
        child = _child(parent_of(family, seed, attempt), rho, np.random.default_rng([815, seed, attempt]))
        if child.n_listed <= _MOST_LISTED and child.best > 0.03:
            return attempt, child
    raise AssertionError("unreachable")


def _child(parent: World, rho: float, rng: np.random.Generator) -> World:
    """`rho` times the parent's speed, and for the rest a function of other knobs that does not correlate with it."""
    rows = rng.integers(0, parent.sizes, (_ROWS, len(parent.sizes)))
    other = _elsewhere(parent, rng)
    ours = _centred(parent.speeds(rows))
    theirs = _centred(World(parent.sizes, other).speeds(rows))
    shared = float(ours @ theirs / (ours @ ours))
    rest = theirs - shared * ours
    weight = math.sqrt(1 - rho**2) * float(np.std(ours) / np.std(rest))
    speed = [Term(t.when, t.amount * (rho - weight * shared)) for t in parent.speed]
    speed += [Term(t.when, t.amount * weight) for t in other]
    return World(parent.sizes, speed, parent.loss, parent.crash, parent.noise, parent.outliers)


def _elsewhere(parent: World, rng: np.random.Generator) -> list[Term]:
    """The parent's terms on other knobs of the same sizes, with signs of their own."""
    to = np.arange(len(parent.sizes))
    for size in set(parent.sizes):
        group = np.flatnonzero(np.array(parent.sizes) == size)
        to[group] = rng.permutation(group)
    terms = rng.permutation(len(parent.speed))
    return [
        Term(tuple((int(to[i]), v) for i, v in parent.speed[k].when), parent.speed[k].amount * rng.choice([-1.0, 1.0]))
        for k in terms
    ]


def _centred(values: np.ndarray) -> np.ndarray:
    return values - values.mean()


@functools.cache
def learn_of(family: str, seed: int, attempt: int) -> Parent:
    """What a finished context of the parent has seen; the same for every correlation and search."""
    return learn(parent_of(family, seed, attempt), seed)


def learn(world: World | TableWorld, seed: int) -> Parent:
    """What a finished context of `world` has seen; its winner is confirmed, as the tuner would."""
    strategy, rng = make_strategy("auto", world.space, seed), np.random.default_rng([7, seed])
    lessons: list[Lesson] = []
    tried: dict[str, int] = {}
    default = 0.0
    for number in range(PARENT_TRIALS):
        candidate = BASELINE if number == 0 else strategy.propose(number, tried)
        if candidate is None:
            break
        tried[candidate.digest] = number
        result = world.measure(candidate, rng)
        strategy.learn(observation(candidate, result, number))
        default = result.log_throughput if number == 0 and result.log_throughput is not None else default
        timed = result.log_throughput is not None
        gain = result.log_throughput - default if result.log_throughput is not None else None
        lessons.append(Lesson(number, candidate, gain, timed, result.failed))
    best = max((one for one in lessons if one.log_gain is not None), key=lambda one: one.log_gain or 0.0)
    winner = best.number if world.truth(best.candidate) > WITHIN else None
    return Parent(1, "another version", world.space, lessons, winner)


def trials_to_best(world: World | TableWorld, search: str, seed: int, carried: Carried | None) -> int:
    """Trials until one is within 1 % of the best feasible, driven as tuner/searching.py drives them."""
    carrying = Carrying(carried, world.space)
    prior, strategy = carrying.prior, make_strategy(search, world.space, seed, carrying.prior)
    rng, tried, seen = np.random.default_rng([99, seed]), dict[str, int](), list[Observation]()
    for number in range(BUDGET):
        candidate = BASELINE if number == 0 else carrying.next(tried) or strategy.propose(number, tried)
        if candidate is None:
            break
        tried[candidate.digest] = number
        if world.truth(candidate) > world.best - WITHIN:
            return number + 1
        seen.append(observation(candidate, world.measure(candidate, rng), number))
        carrying.learn(seen[-1])
        strategy.learn(seen[-1])
        if carrying.prior is not prior:
            prior, strategy = carrying.prior, make_strategy(search, world.space, seed, carrying.prior)
            for one in seen:
                strategy.learn(one)
    return BUDGET


def observation(candidate: Candidate, result: Result, number: int) -> Observation:
    """A result as the tuner tells it to a search."""
    if result.failed:
        return Observation(candidate, 1.0, 1.0, 1.0, timed=False, kind="crashed", number=number)
    over = math.exp(result.log_loss or 0.0) - 1.0
    if result.log_throughput is None:
        return Observation(candidate, 1.0, -1.0, over, timed=False, number=number)
    return Observation(candidate, math.exp(result.log_throughput), -1.0, over, variance=result.variance, number=number)


if __name__ == "__main__":
    main()
