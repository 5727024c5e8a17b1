"""Small worlds with known truth, seeded: the samples and pairs that the tests of this room judge."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tuner.stats import ConfirmationPlan, Level, PairBlock, Provenance, Samples, Step, Timing, next_step

HERE = Provenance("environment", "data", "settings")
ELSEWHERE = (
    Provenance("other", "data", "settings"),
    Provenance("environment", "other", "settings"),
    Provenance("environment", "data", "other"),
)


def samples(latencies_ms: Sequence[float], provenance: Provenance = HERE) -> Samples:
    return Samples(tuple(float(value) for value in latencies_ms), provenance)


def timing(time_s: float, latency_ms: float, provenance: Provenance = HERE) -> Timing:
    return Timing(float(time_s), float(latency_ms), provenance)


def pairs(
    name: str, log_ratios: Sequence[float], plan: ConfirmationPlan, provenance: Provenance = HERE
) -> list[PairBlock]:
    """Pairs in the plan's own order of builds, with the given log ratios."""
    return [
        PairBlock(name, *plan.builds_of(index), index, float(ratio), provenance)
        for index, ratio in enumerate(log_ratios)
    ]


class World:
    """Finalists with true gains, pair noise and build luck; takes the pairs that are asked for."""

    def __init__(
        self, rng: np.random.Generator, gains: Sequence[float], plan: ConfirmationPlan, *, sd: float, luck: float = 0.0
    ) -> None:
        self.rng, self.plan, self.sd = rng, plan, sd
        self.gains = {f"finalist {i}": gain for i, gain in enumerate(gains)}
        self.luck = dict(zip(["", *self.gains], rng.normal(0.0, luck, (len(gains) + 1, plan.builds)), strict=True))

    def pair(self, name: str, index: int) -> PairBlock:
        build, baseline_build = self.plan.builds_of(index)
        luck = self.luck[name][build] - self.luck[""][baseline_build]
        ratio = math.log1p(self.gains[name]) + luck + self.rng.normal(0.0, self.sd)
        return PairBlock(name, build, baseline_build, index, float(ratio), HERE)

    def confirm(self, known: Level | None = None) -> tuple[Step, list[PairBlock]]:
        blocks: list[PairBlock] = []
        while (step := next_step(blocks, list(self.gains), self.plan, known)).needs:
            for need in step.needs:
                span = range(need.first_pair, need.first_pair + need.pairs)
                blocks += [self.pair(need.candidate_id, index) for index in span]
        return step, blocks
