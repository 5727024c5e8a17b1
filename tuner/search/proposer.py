"""Proposer: the next candidate, from everything that a context has seen.

Flow: the loop tells it each Observation, its own and those of other processes -> propose -> a candidate that the
context has not tried. Optuna's sampler works on a study in memory that is rebuilt from our tables at start: nothing in
it can be lost, stay RUNNING, or block on a database.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import warnings
from collections.abc import Collection, Iterable

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import RandomSampler
from optuna.trial import TrialState

from objectives.knobs import Candidate, KnobSpace
from tuner.search.advice import Advice
from tuner.search.observation import Observation, distributions, to_optuna
from tuner.search.samplers import generation, make_sampler
from tuner.searches import parse_search

_ATTEMPTS = 12  # samplers repeat 1-2 % of their proposals; near the end of a small space nearly all
_ENUMERABLE = 20_000  # up to this size the untried candidates can be listed

optuna.logging.set_verbosity(optuna.logging.WARNING)


class Proposer:
    """Proposes candidates that were not tried; deterministic for (seed, trial number, what was seen)."""

    def __init__(self, space: KnobSpace, search: str, seed: int) -> None:
        self._space = space
        self._search = parse_search(search)
        self._seed = seed
        self._distributions = distributions(space)
        self._seen: list[Observation] = []
        self._in_order = 0  # so many of what was seen stand in the study, in order
        self._study = _new_study()
        make_sampler(self._search, seed)  # what cannot be made is said now

    def learn(self, seen: Observation) -> None:
        """Take an observation into account."""
        self._seen.append(seen)

    def propose(self, number: int, tried: Collection[str], pending: Iterable[Candidate] = ()) -> Candidate | None:
        """A candidate for trial `number` whose digest is not in `tried`; None when the whole space has been tried.

        `pending`: candidates at work; Optuna's samplers are only kept from proposing them again.
        """
        taken = {*tried, *(candidate.digest for candidate in pending)}
        if len(taken) >= self._space.size:
            return None
        self._take_in()
        candidate = Candidate()
        for attempt in range(_ATTEMPTS):
            candidate = self._ask(self._seed_of(number, attempt))
            if candidate.digest not in taken:
                return candidate
        return self._untried_near(candidate, taken, random.Random(self._seed_of(number, _ATTEMPTS)))

    def advice(self, tried: Collection[str], pending: Iterable[Candidate] = ()) -> Advice | None:
        """None: Optuna's samplers do not say whether to go on."""
        return None

    def _take_in(self) -> None:
        """Bring the study up to what was seen, in the order of trial numbers: samplers depend on the order."""
        ordered = in_order(self._seen)
        if ordered[: self._in_order] != self._seen[: self._in_order]:
            self._study, self._in_order = _new_study(), 0
        self._seen = ordered
        sampler = make_sampler(self._search, 0)
        for index, seen in enumerate(ordered[self._in_order :], self._in_order):
            self._study.add_trial(to_optuna(self._space, seen, system=generation(sampler, index)))
        self._in_order = len(ordered)

    def _seed_of(self, number: int, attempt: int) -> int:
        # Of number and attempt, not of the process: a resumed study goes on instead of repeating its random stream.
        text = f"{self._seed}/{number}/{attempt}".encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:4])

    def _ask(self, seed: int) -> Candidate:
        self._study.sampler = make_sampler(self._search, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            trial = self._study.ask(self._distributions)
        candidate = self._space.candidate(trial.params)
        # The question must not stay open: RUNNING trials push the sampler away from where they are.
        self._study.tell(trial, state=TrialState.FAIL)
        return candidate

    def _untried_near(self, start: Candidate, tried: Collection[str], chance: random.Random) -> Candidate | None:
        if self._space.size <= _ENUMERABLE:
            # Where the sampler points, not anywhere: a blind choice spends half its trials where half of them fail.
            untried = self._untried(tried)
            steps = [len({name for name, _ in {*start.changes} ^ {*one.changes}}) for one in untried]
            return chance.choice([one for one, far in zip(untried, steps, strict=True) if far == min(steps)])
        assignment = self._space.values(start)
        while True:  # ends: the space has more candidates than were tried, and every knob can change
            knob = chance.choice(self._space.knobs)
            assignment[knob.name] = chance.choice(knob.values)
            candidate = self._space.candidate(assignment)
            if candidate.digest not in tried:
                return candidate

    def _untried(self, tried: Collection[str]) -> list[Candidate]:
        names = [knob.name for knob in self._space.knobs]
        combinations = itertools.product(*[knob.values for knob in self._space.knobs])
        every = (self._space.candidate(dict(zip(names, values, strict=True))) for values in combinations)
        return [candidate for candidate in every if candidate.digest not in tried]


def in_order(seen: Iterable[Observation]) -> list[Observation]:
    """By trial number; what has none stays behind what came before it."""
    last, keys = -1, []
    for one in seen:
        last = last if one.number is None else one.number
        keys.append((last, one))
    return [one for _, one in sorted(keys, key=lambda pair: pair[0])]


def _new_study() -> optuna.Study:
    return optuna.create_study(direction="maximize", sampler=RandomSampler(seed=0))
