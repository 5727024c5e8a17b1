"""Process pairs: baseline and finalist side by side in fresh processes, timed in turn.

Flow: confirm.py asks for a pair -> two children open their engines and warm up HERE -> rounds in the order A B B A ..
-> one log ratio and the raw rounds. What one process was lucky with (memory placement, thread placement) ends with it,
so the pair, not the round, is the unit of analysis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from objectives.isolation import Isolation
from objectives.outcome import EngineFile, Failed, Round
from objectives.requests import OpenRequest, PairFiles
from objectives.timing import TimingPlan
from tuner.noise import NewIsolation
from tuner.stats import Side, interleaved_log_ratio, interleaved_order

CYCLES = 2  # A B B A blocks in a pair: four rounds a side


@dataclass(frozen=True, slots=True)
class Contestant:
    """One side of a pair: an engine with the run-time values it is opened with."""

    backend: str
    engine: EngineFile
    values: dict[str, str]
    options: Mapping[str, str] = field(default_factory=dict)  # of the backend

    def request(self, pair: PairFiles | None, timing: TimingPlan) -> OpenRequest:
        return OpenRequest(self.backend, self.engine, self.values, pair, timing, dict(self.options))


@dataclass(frozen=True, slots=True)
class TakenPair:
    """Raw rounds in the order taken, and the log ratio that they make."""

    order: tuple[Side, ...]
    rounds: tuple[Round, ...]

    @property
    def log_ratio(self) -> float:
        """log(baseline latency / candidate latency): above zero the candidate is faster."""
        return interleaved_log_ratio(self.order, [float(np.median(one.samples_ms)) for one in self.rounds])


@dataclass(frozen=True, slots=True)
class BrokenPair:
    """A side that did not open or run, and how."""

    side: Side
    failed: Failed


def take_pair(
    fresh: NewIsolation,
    sides: dict[Side, Contestant],
    pair: PairFiles | None,
    timing: TimingPlan,
    pair_index: int,
    cycles: int = CYCLES,
) -> TakenPair | BrokenPair:
    """Start both sides afresh and time them in turn; who is first alternates with the index."""
    order = interleaved_order(pair_index, cycles)
    first, second = order[0], order[1]
    with fresh() as one, fresh() as other:
        one.prepare()
        other.prepare()
        processes: dict[Side, Isolation] = {first: one, second: other}
        for side, process in processes.items():
            opened = process.open(sides[side].request(pair, timing))
            if isinstance(opened, Failed):
                return BrokenPair(side, opened)
        rounds = []
        for side in order:
            taken = processes[side].round()
            if isinstance(taken, Failed):
                return BrokenPair(side, taken)
            rounds.append(taken)
    return TakenPair(order, tuple(rounds))
