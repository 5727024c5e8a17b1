"""Process pairs: the unit of analysis of a confirmation, and its plan.

Flow: a restarted baseline process and a restarted finalist process, timed in the order A B B A .. -> HERE one
log ratio, a PairBlock -> confirmation. Rounds of one pair share their processes, so they are not independent;
pairs are. Interleaving cancels drift: in A B B A both sides have the same mean time.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from enum import StrEnum

import msgspec
import numpy as np

from tuner.stats.errors import PlanError
from tuner.stats.samples import Provenance, require_latencies


class Side(StrEnum):
    """Who is timed in a round."""

    BASELINE = "baseline"
    CANDIDATE = "candidate"


class PairBlock(msgspec.Struct, frozen=True):
    """One process pair.

    `log_ratio` is log(baseline latency / candidate latency): above zero the candidate is faster.
    """

    candidate_id: str
    build: int  # which build of the candidate, from 0
    baseline_build: int  # which build of the baseline, from 0
    pair_index: int  # from 0, in the order taken, per candidate
    log_ratio: float
    provenance: Provenance

    def __post_init__(self) -> None:
        if not math.isfinite(self.log_ratio):
            raise PlanError(f"pair {self.pair_index} of {self.candidate_id!r} has no finite log ratio")


class ConfirmationPlan(msgspec.Struct, frozen=True):
    """The question and the budget of a confirmation.

    The more builds, the surer the route: with a fresh build for every pair nothing has to be estimated about
    builds, and with two almost everything has. Take many where builds are cheap.
    `looks` are the numbers of pairs per finalist after which the data are looked at; the last one is the most
    that a finalist gets. They are multiples of `builds`, so that every build has its share at every look.
    Raises: PlanError for a plan that cannot work.
    """

    min_gain: float = 0.01  # the smallest gain that is worth a change
    confidence: float = 0.95  # of all intervals together, over finalists and looks
    builds: int = 4  # of each finalist and of the baseline
    looks: tuple[int, ...] = (16, 24, 32, 40)

    def __post_init__(self) -> None:
        if self.min_gain < 0 or not 0.5 < self.confidence < 1.0:
            raise PlanError("min_gain must not be negative, and confidence must lie between 0.5 and 1")
        if self.builds < 2:
            raise PlanError(
                "one build of each side cannot tell a good route from a lucky build", hint="use two or more"
            )
        growing = all(a < b for a, b in itertools.pairwise((0, *self.looks)))
        if not self.looks or not growing or any(look % self.builds for look in self.looks):
            raise PlanError(f"looks {self.looks} must grow and be multiples of {self.builds} builds")

    def builds_of(self, pair_index: int) -> tuple[int, int]:
        """Build of the candidate and of the baseline for a pair: in turn, and every build meets every other.

        Source: cyclic Latin square, Cochran and Cox (1957), Experimental Designs, section 4.3.
        """
        turn, build = divmod(pair_index, self.builds)
        return build, (build + turn) % self.builds


def interleaved_order(pair_index: int, cycles: int = 1) -> tuple[Side, ...]:
    """Sides of the rounds of a pair: A B B A; who is first changes from pair to pair, evenly for every build.

    Source: Prouhet-Thue-Morse order, Palacios-Huerta (2012), Tournaments, fairness and the Prouhet-Thue-Morse
    sequence.
    """
    first, second = Side.BASELINE, Side.CANDIDATE
    if pair_index.bit_count() % 2:
        first, second = second, first
    return (first, second, second, first) * cycles


def interleaved_log_ratio(order: Sequence[Side], latencies_ms: Sequence[float]) -> float:
    """The log ratio of a pair: mean log difference within each block of four rounds, median over the blocks.

    A speed that changes steadily through a block cancels exactly.
    Raises: PlanError if the rounds are not whole A B B A blocks, or for a latency that is not above zero.
    Source: counterbalanced order, Cox (1958), Planning of Experiments, section 3.2 and chapter 13.
    """
    if len(order) != len(latencies_ms) or not order or len(order) % 4:
        raise PlanError(f"{len(latencies_ms)} latencies for {len(order)} rounds are not whole blocks of four")
    require_latencies(latencies_ms)
    signs = np.array([1.0 if side == Side.BASELINE else -1.0 for side in order]).reshape(-1, 4)
    if np.any(signs[:, 0] != signs[:, 3]) or np.any(signs[:, 1] != signs[:, 2]) or np.any(signs.sum(axis=1)):
        raise PlanError("the rounds of a pair are not in the order A B B A")
    blocks = 0.5 * (signs * np.log(np.asarray(latencies_ms)).reshape(-1, 4)).sum(axis=1)
    return float(statistics.median(blocks.tolist()))
