"""Process pairs: fresh processes, opened and timed in turn, broken sides named."""

from __future__ import annotations

import math
from typing import Any

import pytest

from objectives.isolation import InProcess
from objectives.outcome import EngineFile, Failed, FailureKind, Round, Stage, Trace
from objectives.requests import Opened, OpenRequest, PairFiles
from objectives.timing import TimingPlan
from tuner.pairs import BrokenPair, Contestant, TakenPair, take_pair
from tuner.stats import Side

PAIR = PairFiles("p", "inputs", "reference")
SIDES = {
    side: Contestant("none", EngineFile(f"{side}.engine", "0" * 64, 1, "none"), {"side": side.value}) for side in Side
}


class Recorder:
    """Makes fake processes that log what is asked of them; latencies come from `latency_ms(side, moment)`."""

    def __init__(self, broken: str = "", **latency_ms: float) -> None:
        self.log: list[str] = []
        self.alive = 0
        self._latency_ms = latency_ms
        self._broken = broken
        self.moment = 0

    def __call__(self) -> Any:
        owner = self

        class Process(InProcess):
            side = ""

            def __enter__(self) -> Any:
                owner.alive += 1
                return self

            def __exit__(self, *_: object) -> None:
                owner.alive -= 1

            def prepare(self) -> None:
                owner.log.append("start")

            def open(self, request: OpenRequest) -> Opened | Failed:
                self.side = request.values["side"]
                owner.log.append(f"open {self.side}")
                if owner._broken == f"open {self.side}":
                    return Failed(Trace(), Stage.OPEN, FailureKind.CRASHED, "gone")
                return Opened((1.0,), "steady")

            def round(self) -> Round | Failed:
                owner.moment += 1
                owner.log.append(self.side)
                if owner._broken == self.side:
                    return Failed(Trace(), Stage.TIME, FailureKind.TIMED_OUT, "hangs")
                base = owner._latency_ms[self.side]
                return Round(1, (base * (1.0 + 0.01 * owner.moment),) * 3)

        return Process()


def test_both_sides_start_before_either_opens_and_are_timed_in_turn() -> None:
    fake = Recorder(baseline=10.0, candidate=8.0)
    taken = take_pair(fake, SIDES, PAIR, TimingPlan(), 0, cycles=1)
    assert isinstance(taken, TakenPair)
    opening = ["start", "start", "open baseline", "open candidate"]
    assert fake.log == [*opening, "baseline", "candidate", "candidate", "baseline"]
    assert fake.alive == 0


def test_who_is_first_alternates() -> None:
    fake = Recorder(baseline=10.0, candidate=8.0)
    take_pair(fake, SIDES, PAIR, TimingPlan(), 1, cycles=1)
    assert fake.log[2:] == ["open candidate", "open baseline", "candidate", "baseline", "baseline", "candidate"]


@pytest.mark.parametrize("index", [0, 1])
def test_a_machine_that_slows_down_cancels_out(index: int) -> None:
    taken = take_pair(Recorder(baseline=10.0, candidate=8.0), SIDES, PAIR, TimingPlan(), index)
    assert isinstance(taken, TakenPair)
    assert taken.log_ratio == pytest.approx(math.log(10 / 8), abs=2e-4)
    assert len(taken.rounds) == 8


@pytest.mark.parametrize(
    ("broken", "side"),
    [("open baseline", Side.BASELINE), ("open candidate", Side.CANDIDATE), ("candidate", Side.CANDIDATE)],
)
def test_a_side_that_breaks_is_named(broken: str, side: Side) -> None:
    fake = Recorder(broken, baseline=10.0, candidate=8.0)
    taken = take_pair(fake, SIDES, PAIR, TimingPlan(), 0)
    assert isinstance(taken, BrokenPair)
    assert taken.side is side
    assert taken.failed.detail in ("gone", "hangs")
    assert fake.alive == 0
