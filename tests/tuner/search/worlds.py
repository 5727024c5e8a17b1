"""Worlds for tests of the searches: small, seeded, with a planted best."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from objectives.knobs import BASELINE, Candidate, Knob, KnobKind, KnobSpace
from tuner.search.auto import AutoProposer, Seen

World = Callable[[dict[str, int]], Seen]


def space(*sizes: int) -> KnobSpace:
    """Knobs k0, k1, ... with so many values each, named 0, 1, ...; 0 is the default."""
    return KnobSpace(
        tuple(
            Knob(f"k{index}", tuple(map(str, range(size))), "0", KnobKind.ROUTE, "") for index, size in enumerate(sizes)
        )
    )


def measured(candidate: Candidate, speed: float, loss: float | None = None) -> Seen:
    """A trial with that log throughput, and log of loss over limit if one is given."""
    losses = {} if loss is None else {"accuracy": loss}
    return Seen(candidate, speed if loss is None or loss <= 0 else None, 1e-4, log_losses=losses)


def failure(candidate: Candidate) -> Seen:
    return Seen(candidate, failed="build_crash")


class Planted:
    """Four knobs help, two of them more together, two hurt; the rest do nothing. Noise depends on seed and
    candidate."""

    def __init__(self, of: KnobSpace, seed: int, noise: float = 0.005) -> None:
        self.space, self._noise = of, noise
        rng = np.random.default_rng(seed)
        self._seed = seed
        knobs = rng.permutation(len(of.knobs))[:6]
        self._effects = dict(zip([f"k{k}" for k in knobs], [0.06, 0.05, 0.04, 0.03, -0.05, -0.04], strict=True))
        self._pair = [f"k{k}" for k in knobs[:2]]
        self.best = 0.18 + 0.03

    def speed(self, candidate: Candidate) -> float:
        """True log throughput: the value 1 of a knob acts."""
        on = {name for name, value in candidate.changes if value == "1"}
        both = 0.03 if on.issuperset(self._pair) else 0.0
        return sum(self._effects.get(name, 0.0) for name in on) + both

    def evaluate(self, candidate: Candidate) -> Seen:
        rng = np.random.default_rng([self._seed, *candidate.digest.encode()])
        return measured(candidate, self.speed(candidate) + float(rng.normal(0, self._noise)))


def drive(proposer: AutoProposer, evaluate: Callable[[Candidate], Seen], trials: int) -> list[Candidate]:
    """Propose and learn as a loop does; ends when nothing is proposed."""
    tried: dict[str, int] = {}
    proposed: list[Candidate] = []
    for number in range(trials):
        candidate = proposer.propose(number, tried)
        if candidate is None:
            break
        proposed.append(candidate)
        tried[candidate.digest] = number
        proposer.learn(evaluate(candidate))
    return proposed


def shuffled(of: KnobSpace, seed: int, trials: int) -> list[Candidate]:
    """Random search: the default first, then different random candidates."""
    rng, found = np.random.default_rng(seed), {BASELINE: None}
    while len(found) < trials:
        found[of.candidate({knob.name: str(rng.choice(knob.values)) for knob in of.knobs})] = None
    return list(found)
