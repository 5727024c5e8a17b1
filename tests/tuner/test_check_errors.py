"""How often the gate errs, by simulation: an engine that has not changed passes, one that has lost is found."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from tuner.check_answers import CheckAnswer, CheckOptions, Recorded, faster_question
from tuner.stats import (
    REPRODUCIBLE,
    ConfirmationPlan,
    Level,
    PairBlock,
    Provenance,
    Verdict,
    VerdictKind,
    figures,
    fit_builds,
    grouped,
    judge,
    next_step,
)

ORIGIN = Provenance("e", "d", "s")
TIMES = 100


class World:
    """An engine with a true gain over the default (log), on a machine where sessions and builds differ."""

    def __init__(self, gain: float, load: float, build: float, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._load = load * math.sqrt(2.0)
        self.gain, self.build = gain, build
        self.luck = self._random.normal(0.0, build, 4)
        self.default_luck = self._random.normal(0.0, build, 4)
        self.known = Level(build, 1, 0.002) if build else REPRODUCIBLE

    def confirm(self) -> tuple[Recorded, int] | None:
        """What a confirmation records, and which build it ships; None if it says nothing."""
        plan = ConfirmationPlan()
        blocks, verdict = self._pairs(plan, self.known, self.luck, self.default_luck)
        if verdict.kind is not VerdictKind.FASTER:
            return None
        found = figures(fit_builds(grouped(blocks, ["c"]), self.known), "c")
        shipped = found.shipped
        return Recorded(shipped.speedup, shipped.ci_low, shipped.ci_high), found.shipped_build

    def check(self, recorded: Recorded, shipped: int, change: float) -> tuple[bool, CheckAnswer]:
        """Whether the gate forbids the shipped file after a change of its gain, and its answer."""
        options = CheckOptions()
        luck = np.full(2, self.luck[shipped] + change)
        default = np.full(2, self._random.normal(0.0, self.build))
        _, verdict = self._pairs(options.plan(0.01, 2), REPRODUCIBLE, luck, default)
        question, answer = faster_question(verdict, recorded, options, 2.0 * self.build)
        return question.forbidden, answer

    def _pairs(
        self, plan: ConfirmationPlan, known: Level, luck: np.ndarray, default: np.ndarray
    ) -> tuple[list[PairBlock], Verdict]:
        blocks: list[PairBlock] = []
        while needs := next_step(blocks, ["c"], plan, known).needs:
            for index in range(needs[0].first_pair, needs[0].first_pair + needs[0].pairs):
                one, other = plan.builds_of(index)
                log = self.gain + luck[one] - default[other] + self._random.normal(0.0, self._load)
                blocks.append(PairBlock("c", one, other, index, float(log), ORIGIN))
        return blocks, judge(blocks, ["c"], plan, known)[0]


def checked(load: float, build: float, change: float) -> tuple[float, Counter[CheckAnswer]]:
    """Share of checks that the gate forbids, and their answers."""
    answers: Counter[CheckAnswer] = Counter()
    forbidden = 0
    for seed in range(TIMES):
        world = World(0.1, load, build, seed)
        if confirmed := world.confirm():
            stopped, answer = world.check(*confirmed, change)
            answers[answer] += 1
            forbidden += stopped
    assert answers.total() > TIMES / 2
    return forbidden / answers.total(), answers


@pytest.mark.parametrize(("load", "build"), [(0.01, 0.0), (0.03, 0.0), (0.01, 0.02)])
def test_an_engine_that_has_not_changed_passes(load: float, build: float) -> None:
    share, answers = checked(load, build, 0.0)
    assert share <= 0.02
    assert answers[CheckAnswer.STILL_FASTER] >= 0.9 * answers.total()


@pytest.mark.parametrize(("load", "build", "change"), [(0.01, 0.0, -0.05), (0.03, 0.0, -0.1), (0.01, 0.02, -0.15)])
def test_an_engine_that_has_lost_is_found(load: float, build: float, change: float) -> None:
    assert checked(load, build, change)[0] >= 0.9
