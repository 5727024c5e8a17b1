"""Strategies: the searches that a study can be made with, behind one door.

Flow: `--search NAME` -> make_strategy HERE -> the loop tells it each Observation and asks it for the next candidate.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Protocol

from objectives.knobs import Candidate, KnobSpace
from tuner.search.advice import Advice
from tuner.search.auto import AutoConfig, AutoProposer, Prior, Seen
from tuner.search.observation import Observation
from tuner.search.proposer import Proposer
from tuner.search.trtexec import STRATEGIES, Deviations, TrtexecProposer
from tuner.searches import Search, parse_search

_LEAST_RATIO = 1e-9  # of a loss to its limit, where a logarithm needs a number


class Strategy(Protocol):
    """Proposes candidates that were not tried; a function of seed, trial number, what it was told and what is pending.

    `tried` holds the digests of all proposed candidates, `pending` those of them that have no outcome yet.
    """

    def learn(self, seen: Observation) -> None:
        """Take an observation into account."""

    def propose(self, number: int, tried: Collection[str], pending: Iterable[Candidate] = ()) -> Candidate | None:
        """A candidate that is neither in `tried` nor pending; None when the search has no more to propose."""

    def advice(self, tried: Collection[str], pending: Iterable[Candidate] = ()) -> Advice | None:
        """Whether to go on; None from a search that does not say."""


def make_strategy(search: str, space: KnobSpace, seed: int, prior: Prior | None = None) -> Strategy:
    """The strategy called `search`, as `parse_search` takes it; only `auto` can use a prior. Raises: UsageError."""
    parsed = parse_search(search)
    if parsed.name == "auto":
        return AutoStrategy(space, seed, prior)
    if parsed.name in STRATEGIES:
        return TrtexecStrategy(space, parsed, seed)
    return Proposer(space, search, seed)


class AutoStrategy:
    """Our own sampler, fed with observations."""

    def __init__(self, space: KnobSpace, seed: int, prior: Prior | None = None) -> None:
        # What others have learnt stands in for the screen: its trials are near the default, and the best is not.
        config = None if prior is None else AutoConfig(screen_trials=0)
        self._proposer = AutoProposer(space, seed, config, prior)

    def learn(self, seen: Observation) -> None:
        self._proposer.learn(to_seen(seen))

    def propose(self, number: int, tried: Collection[str], pending: Iterable[Candidate] = ()) -> Candidate | None:
        return self._proposer.propose(number, tried, pending)

    def advice(self, tried: Collection[str], pending: Iterable[Candidate] = ()) -> Advice | None:
        return self._proposer.advice(tried, pending)


class TrtexecStrategy:
    """trtexec's sweeps. Ours differ in two ways: no candidate is measured twice, and none is timed that gives wrong
    answers, so that what breaks a limit cannot count as positive."""

    def __init__(self, space: KnobSpace, search: Search, seed: int) -> None:
        how = Deviations(search.cap, search.shuffle, search.margin)
        self._proposer = TrtexecProposer(space, search.name, seed, how)

    def learn(self, seen: Observation) -> None:
        self._proposer.learn(to_seen(seen))

    def propose(self, number: int, tried: Collection[str], pending: Iterable[Candidate] = ()) -> Candidate | None:
        return self._proposer.propose(number, tried, pending)

    def advice(self, tried: Collection[str], pending: Iterable[Candidate] = ()) -> Advice | None:
        return None


def to_seen(observation: Observation) -> Seen:
    """An observation without made-up numbers: what was not timed has no throughput."""
    if observation.kind is not None:
        return Seen(observation.candidate, failed=observation.kind, number=observation.number)
    return Seen(
        observation.candidate,
        log_throughput=math.log(observation.value) if observation.timed else None,
        variance=observation.variance if observation.timed else None,
        log_losses={"accuracy": math.log(max(observation.accuracy + 1.0, _LEAST_RATIO))},
        number=observation.number,
    )
