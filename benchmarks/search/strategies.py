"""Strategies: every way to search that is compared, behind one pair of verbs, tell and next.

`auto` is driven as the tuner drives it; `tpe` and `random` are the tuner's own searches on Optuna (the default first,
no candidate twice); `fast` and `mixed` are trtexec's.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import Protocol

from families import Result

from objectives.knobs import BASELINE, Candidate, KnobSpace
from tuner.search.auto import AutoConfig, AutoProposer, Seen
from tuner.search.observation import Observation
from tuner.search.proposer import Proposer
from tuner.search.trtexec import STRATEGIES, TrtexecProposer


class Strategy(Protocol):
    def tell(self, candidate: Candidate, result: Result) -> None: ...

    def next(self, number: int, tried: Collection[str]) -> Candidate | None: ...

    def goes_on(self, tried: Collection[str]) -> bool:
        """False when the search says that it is not worth it."""


class Auto:
    """Our sampler, perhaps with a part switched off."""

    def __init__(self, space: KnobSpace, seed: int, config: AutoConfig) -> None:
        self.proposer = AutoProposer(space, seed, config)

    def tell(self, candidate: Candidate, result: Result) -> None:
        self.proposer.learn(replace(seen(candidate, result), variance=result.variance))

    def next(self, number: int, tried: Collection[str]) -> Candidate | None:
        return self.proposer.propose(number, tried)

    def goes_on(self, tried: Collection[str]) -> bool:
        return self.proposer.advice(tried).worth_it


class Restless:
    """A search that never says that it is not worth it."""

    def goes_on(self, tried: Collection[str]) -> bool:
        return True


class Workers(Restless):
    """Our sampler with several workers: a result is known only when as many more have been proposed."""

    def __init__(self, space: KnobSpace, seed: int, workers: int) -> None:
        self.proposer = AutoProposer(space, seed)
        self._late = workers - 1
        self._running: list[Seen] = []

    def tell(self, candidate: Candidate, result: Result) -> None:
        self._running.append(replace(seen(candidate, result), variance=result.variance))
        # The default is measured before anything else, as the tuner does.
        while len(self._running) > (self._late if candidate.changes else 0):
            self.proposer.learn(self._running.pop(0))

    def next(self, number: int, tried: Collection[str]) -> Candidate | None:
        return self.proposer.propose(number, tried, [one.candidate for one in self._running])


class OnOptuna(Restless):
    """A sampler of Optuna. A failure is told as a violated constraint and the default's throughput, as the tuner
    does."""

    def __init__(self, space: KnobSpace, seed: int, search: str) -> None:
        self._proposer = Proposer(space, search, seed)

    def tell(self, candidate: Candidate, result: Result) -> None:
        speed = 1.0 if result.log_throughput is None else math.exp(result.log_throughput)
        failure = 1.0 if result.failed else -1.0
        accuracy = 1.0 if result.log_loss is None else math.exp(result.log_loss) - 1.0
        self._proposer.learn(Observation(candidate, speed, failure, accuracy))

    def next(self, number: int, tried: Collection[str]) -> Candidate | None:
        return BASELINE if number == 0 else self._proposer.propose(number, tried)


class Trtexec(Restless):
    """trtexec's `fast` and `mixed`: they repeat candidates, which costs them trials, as it does in trtexec."""

    def __init__(self, space: KnobSpace, seed: int, search: str) -> None:
        self._proposer = TrtexecProposer(space, search, seed, repeats=True)

    def tell(self, candidate: Candidate, result: Result) -> None:
        self._proposer.learn(seen(candidate, result))

    def next(self, number: int, tried: Collection[str]) -> Candidate | None:
        return self._proposer.propose(number, tried)


def seen(candidate: Candidate, result: Result) -> Seen:
    """A result as the search takes it."""
    losses = {} if result.log_loss is None else {"accuracy": result.log_loss}
    return Seen(candidate, result.log_throughput, failed="crash" if result.failed else None, log_losses=losses)


ABLATIONS = {
    "auto": AutoConfig(),
    "auto-no-screen": AutoConfig(screen=False),
    "auto-no-additive": AutoConfig(additive=False),
    "auto-no-pairs": AutoConfig(pairs=False),
    "auto-no-residual": AutoConfig(residual=False),
    "auto-no-sparse": AutoConfig(sparse=False),
    "auto-no-thompson": AutoConfig(thompson=False),
    "auto-no-leap": AutoConfig(leap=False),
    "auto-no-far": AutoConfig(explore_every=0, doubt=False),
    "auto-no-region": AutoConfig(trust_region=False),
    "auto-no-feasibility": AutoConfig(culprits=False, limits=False, failures=False),
    "auto-no-failures": AutoConfig(failures=False),
}
COMPARED = ("auto", "tpe", "random", "fast", "mixed")
WORKERS = "auto-4-workers"


def create(name: str, space: KnobSpace, seed: int, **changes: object) -> Strategy:
    """A fresh strategy; `changes` are fields of `AutoConfig`, for experiments."""
    if name in ABLATIONS:
        return Auto(space, seed, replace(ABLATIONS[name], **changes))
    if name == WORKERS:
        return Workers(space, seed, workers=4)
    if name not in STRATEGIES:
        return OnOptuna(space, seed, name)
    return Trtexec(space, seed, name)
