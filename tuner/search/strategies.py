"""Strategies: the searches that a study can be made with, behind one door.

Flow: `--search NAME` -> make_strategy HERE -> the loop tells it each Observation and asks it for the next candidate.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Protocol

from objectives.knobs import Candidate, KnobSpace
from tuner.search.auto import AutoProposer, Seen
from tuner.search.observation import Observation
from tuner.search.proposer import Proposer

_LEAST_RATIO = 1e-9  # of a loss to its limit, where a logarithm needs a number


class Strategy(Protocol):
    """Proposes candidates that were not tried; a function of seed, trial number and what it was told."""

    def learn(self, seen: Observation) -> None:
        """Take an observation into account."""

    def propose(self, number: int, tried: Collection[str]) -> Candidate | None:
        """A candidate whose digest is not in `tried`; None when the whole space has been tried."""


def make_strategy(search: str, space: KnobSpace, seed: int) -> Strategy:
    """The strategy called `search` (one of `spec.SEARCHES`)."""
    return AutoStrategy(space, seed) if search == "auto" else Proposer(space, search, seed)


class AutoStrategy:
    """Our own sampler, fed with observations."""

    def __init__(self, space: KnobSpace, seed: int) -> None:
        self._proposer = AutoProposer(space, seed)

    def learn(self, seen: Observation) -> None:
        self._proposer.learn(to_seen(seen))

    def propose(self, number: int, tried: Collection[str]) -> Candidate | None:
        return self._proposer.propose(number, tried)


def to_seen(observation: Observation) -> Seen:
    """An observation without made-up numbers: what was not timed has no throughput."""
    if observation.kind is not None:
        return Seen(observation.candidate, failed=observation.kind)
    return Seen(
        observation.candidate,
        log_throughput=math.log(observation.value) if observation.timed else None,
        log_losses={"accuracy": math.log(max(observation.accuracy + 1.0, _LEAST_RATIO))},
    )
