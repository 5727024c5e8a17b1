"""Hold-outs: families of another make than those the sampler was tuned on, and not run before it was finished.

`stages-30`: latency is a sum of stages, and a knob scales one or two of them, so that effects are neither additive in
log throughput nor pairwise: what is gained in one stage is worth less the more that stage has shrunk. `gated-24`: four
knobs do something only while a fifth, which costs by itself, has a certain value.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
from families import Term, World, terms_sum

_SEED = 90210


@dataclass
class Staged(World):
    """`stages`: share of the default's latency, and terms in the log of that stage's latency."""

    stages: list[tuple[float, list[Term]]] = field(default_factory=list)

    def speeds(self, rows: np.ndarray) -> np.ndarray:
        return -np.log(sum(share * np.exp(terms_sum(terms, rows)) for share, terms in self.stages))


def stages_30(seed: int) -> World:
    """30 knobs, 9 of them matter to 4 stages; a limit cuts off the fastest, and two pairs of values crash."""
    for attempt in itertools.count():
        rng = np.random.default_rng([_SEED, 30, seed, attempt])
        sizes = _sizes(30, rng)
        active = rng.choice(30, 9, replace=False)
        shares = rng.dirichlet(np.full(4, 3.0))
        stages: list[tuple[float, list[Term]]] = [(float(share), []) for share in shares]
        for i in active:
            for v in range(1, sizes[i]):
                for stage in rng.choice(4, 1 + int(rng.random() < 0.3), replace=False):
                    amount = float(rng.uniform(-0.5, -0.05) if rng.random() < 0.5 else rng.uniform(0.05, 0.5))
                    stages[stage][1].append(Term(((int(i), v),), amount))
        helpful = [t.when[0] for _, terms in stages for t in terms if t.amount < -0.15]
        if len(helpful) < 3:
            continue
        loss = [Term((helpful[k],), float(rng.uniform(0.3, 0.7))) for k in rng.permutation(len(helpful))[:4]]
        speed = [term for _, terms in stages for term in terms]
        world = Staged(sizes, speed, loss, _crashes(2, sizes, rng), stages=stages)
        if _is_fit(world, (0.1, 0.6)) and world.best_unlimited > world.best + 0.005:
            return world
    raise AssertionError("unreachable")


def gated_24(seed: int) -> World:
    """24 knobs: a gate, four knobs behind it, four that act alone; one value crashes, one is over the limit."""
    for attempt in itertools.count():
        rng = np.random.default_rng([_SEED, 24, seed, attempt])
        sizes = _sizes(24, rng)
        gate, *others = (int(i) for i in rng.choice(24, 9, replace=False))
        opened = (gate, int(rng.integers(1, sizes[gate])))
        speed = [Term((opened,), -float(rng.uniform(0.01, 0.03)))]
        for i in others[:4]:
            for v in range(1, sizes[i]):
                helps = rng.random() < 0.6
                amount = float(rng.uniform(0.02, 0.08) if helps else -rng.uniform(0.01, 0.08))
                speed.append(Term(((i, v), opened), amount))
        for i in others[4:]:
            for v in range(1, sizes[i]):
                amount = float(rng.uniform(0.01, 0.05) if rng.random() < 0.5 else -rng.uniform(0.01, 0.08))
                speed.append(Term(((i, v),), amount))
        inert = [i for i in range(24) if i not in (gate, *others)]
        bad = [(int(i), int(rng.integers(1, sizes[i]))) for i in rng.choice(inert, 2, replace=False)]
        world = World(sizes, speed, [Term((bad[0],), 4.0)], [Term((bad[1],), 1.0)])
        if _is_fit(world, (0.3, 0.8)):
            return world
    raise AssertionError("unreachable")


def _is_fit(world: World, infeasible: tuple[float, float]) -> bool:
    return world.n_listed <= 70_000 and infeasible[0] <= world.infeasible <= infeasible[1] and 0.05 < world.best < 1.0


def _sizes(n: int, rng: np.random.Generator) -> list[int]:
    return rng.choice([2, 3, 4], size=n, p=[0.55, 0.3, 0.15]).tolist()


def _crashes(n: int, sizes: list[int], rng: np.random.Generator) -> list[Term]:
    pairs = [sorted(rng.choice(len(sizes), 2, replace=False).tolist()) for _ in range(n)]
    return [Term(tuple((int(i), int(rng.integers(1, sizes[i]))) for i in pair), 1.0) for pair in pairs]


HOLD_OUT = {"stages-30": stages_30, "gated-24": gated_24}
