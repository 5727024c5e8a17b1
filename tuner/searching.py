"""Searching: the search of one context as the loop uses it: told of trials, asked for the next candidate and whether to
go on.

Flow: loop.py hands on finished trials, what is pending and the noise floor -> HERE -> a strategy of `tuner/search`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from objectives.errors import KnobError
from objectives.knobs import BASELINE, Candidate
from tuner.carried import read_carried
from tuner.carrying import CARRIED, Carrying
from tuner.context import Context
from tuner.controls import Standard
from tuner.ledger import Trial
from tuner.objective import cost_of
from tuner.search.advice import Advice
from tuner.search.observation import Observation, observe
from tuner.search.proposer import in_order
from tuner.search.strategies import make_strategy
from tuner.spec import StudySpec
from tuner.stats import Noise

INITIAL = "initial"  # source of candidates that the user wants tried first


class Searching:
    """What a context's search has been told; it can be told anew when drift or noise are known better."""

    def __init__(self, spec: StudySpec, context: Context, floor: Noise | None) -> None:
        self._spec = spec
        self._context = context
        self._between = 0.0
        self._objective = spec.objective
        self._carrying = Carrying(read_carried(context.record), context.space)
        self._told: list[Observation] = []
        self._start()
        self.know(floor)

    def know(self, floor: Noise | None) -> None:
        """Take the noise floor into account for what is observed from now on."""
        # Levels that the samples of one session cannot show; a level that was not measured has no deviation.
        self._between = 0.0 if floor is None else floor.load.sd**2 + floor.build.sd**2

    def observe(self, trial: Trial, standard: Standard | None) -> Observation:
        """What a finished trial says, drift taken out where there is something to compare with."""
        usual = standard.baseline_cost if standard else math.inf
        raw = cost_of(trial.outcome, self._objective)
        cost = standard.corrected_cost(trial) if standard else raw
        return observe(
            trial.candidate,
            trial.outcome,
            self._spec.judging.limits,
            self._objective.merit(cost or usual),
            number=trial.number,
            between=self._between,
        )

    def learn(self, seen: Observation) -> None:
        """Tell the search of one more trial."""
        self._told.append(seen)
        self._carrying.learn(seen)
        self._strategy.learn(seen)
        if self._carrying.prior is not self._prior:
            # What was carried has come out otherwise than it did there: the search begins anew without it, or with it.
            self._start()
            for one in in_order(self._told):
                self._strategy.learn(one)

    def learn_again(self, trials: Iterable[Trial], standard: Standard | None) -> None:
        """Tell a fresh search of all trials, as they look now."""
        self._told.clear()
        self._carrying.forget()
        self._start()
        for trial in sorted(trials, key=lambda trial: trial.number):
            self.learn(self.observe(trial, standard))

    def next(self, tried: Collection[str], pending: Sequence[Candidate]) -> tuple[Candidate | None, str]:
        """The next candidate and who proposes it: the default, what the user wants tried first, what was carried
        over from other contexts, then the search.

        Without a candidate: None, and why there is none.
        """
        if BASELINE.digest not in tried:
            return BASELINE, "baseline"
        for changes in self._spec.initial:
            try:
                candidate = self._context.space.candidate(dict(changes))
            except KnobError:
                continue  # of another version's knob space
            if candidate.digest not in tried:
                return candidate, INITIAL
        if (carried := self._carrying.next(tried)) is not None:
            return carried, CARRIED
        found = self._strategy.propose(len(tried), tried, pending)
        if found is not None:
            return found, self._spec.search
        size = self._context.space.size
        done = f"all {size} candidates have been tried" if len(tried) >= size else f"the sweep of {self._name} is done"
        return None, done

    def advice(self, tried: Collection[str], pending: Sequence[Candidate]) -> Advice | None:
        """Whether to go on; None from a search that does not say, and when there is nothing left to say it of."""
        return self._strategy.advice(tried, pending) if len(tried) < self._context.space.size else None

    def _start(self) -> None:
        self._prior = self._carrying.prior
        self._strategy = make_strategy(self._spec.search, self._context.space, self._spec.seed, self._prior)

    @property
    def _name(self) -> str:
        return f"`{self._spec.search}`"
