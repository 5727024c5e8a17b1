"""Sampler: the `auto` search as a sampler of Optuna, for plain Optuna studies.

    space = {"precision": CategoricalDistribution(["fp32", "fp16"]), "streams": CategoricalDistribution([1, 2, 4])}
    study = optuna.create_study(sampler=AutoSampler(space, seed=1))
    study.optimize(objective, n_trials=60)

Constraints set with `trial.set_constraint` are taken into account. A trial that ends in the state FAIL is learned as a
failure of its candidate: of a transient failure that is not true, so retry those inside the objective. The first choice
of each parameter counts as its default unless `defaults` says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from objectives.knobs import Candidate, Knob, KnobKind, KnobSpace
from tuner.search.auto.config import AutoConfig, Prior
from tuner.search.auto.history import Seen
from tuner.search.auto.proposer import AutoProposer

_FINISHED = (TrialState.COMPLETE, TrialState.FAIL)


class AutoSampler(BaseSampler):  # type: ignore[misc]  # optuna is not type-checked here
    """Samples categorical parameters jointly; other parameters, and those outside `space`, at random.

    `space`: the parameters; None: those that all finished trials have in common, which is nothing for the first trial.
    Deterministic for `seed`, the trial's number and the finished and running trials of the study.
    """

    def __init__(
        self,
        space: Mapping[str, CategoricalDistribution] | None = None,
        *,
        seed: int = 0,
        defaults: Mapping[str, Any] | None = None,
        config: AutoConfig | None = None,
        prior: Prior | None = None,
    ) -> None:
        self._space = dict(space) if space is not None else None
        self._seed = seed
        self._defaults = dict(defaults or {})
        self._config = config
        self._prior = prior
        self._common = IntersectionSearchSpace()
        self._random = RandomSampler(seed=seed)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        space = self._space if self._space is not None else self._common.calculate(study)
        return {name: one for name, one in space.items() if isinstance(one, CategoricalDistribution)}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if len(study.directions) != 1:
            raise ValueError("AutoSampler optimizes one objective")
        choices = {n: d.choices for n, d in search_space.items() if isinstance(d, CategoricalDistribution)}
        if not choices:
            return {}
        space = KnobSpace(tuple(self._knob(name, values) for name, values in choices.items()))
        proposer = AutoProposer(space, self._seed, self._config, self._prior)
        tried, pending = set(), []
        seen = _seen(study, [t for t in study.get_trials(deepcopy=False) if _within(t, choices)], choices, space)
        for state, one in seen:
            if state in _FINISHED:
                proposer.learn(one)
                tried.add(one.candidate.digest)
            elif state == TrialState.RUNNING:
                pending.append(one.candidate)
        candidate = proposer.propose(trial.number, tried, pending)
        values = space.values(candidate if candidate is not None else Candidate())
        return {name: values_of[int(values[name])] for name, values_of in choices.items()}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        if isinstance(param_distribution, CategoricalDistribution) and not study.get_trials(
            deepcopy=False, states=_FINISHED
        ):
            return self._defaults.get(param_name, param_distribution.choices[0])
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def _knob(self, name: str, choices: Sequence[Any]) -> Knob:
        default = choices.index(self._defaults[name]) if name in self._defaults else 0
        return Knob(name, tuple(str(index) for index in range(len(choices))), str(default), KnobKind.ROUTE, "")


def _within(trial: FrozenTrial, choices: Mapping[str, Sequence[Any]]) -> bool:
    return all(name in trial.params and trial.params[name] in values for name, values in choices.items())


def _seen(
    study: Study, trials: Sequence[FrozenTrial], choices: Mapping[str, Sequence[Any]], space: KnobSpace
) -> list[tuple[TrialState, Seen]]:
    """The trials as the search takes them: logarithms where all values are positive, constraints on a common scale."""
    sign = -1.0 if study.direction == StudyDirection.MINIMIZE else 1.0
    values = [t.value for t in trials if t.value is not None]
    positive = all(value > 0 for value in values)
    scales = _scales(trials)
    result = []
    for t in trials:
        candidate = space.candidate({name: str(of.index(t.params[name])) for name, of in choices.items()})
        losses = {key: math.asinh(value / scales[key]) for key, value in t.constraints.items()}
        value = t.value if t.state == TrialState.COMPLETE else None
        if value is not None and all(loss <= 0 for loss in losses.values()):
            measured = sign * (math.log(value) if positive else value)
        else:
            measured = None
        failed = "fail" if t.state == TrialState.FAIL else None
        result.append((t.state, Seen(candidate, measured, failed=failed, log_losses=losses)))
    return result


def _scales(trials: Sequence[FrozenTrial]) -> dict[str, float]:
    """What counts as far from the limit, by constraint."""
    result = {}
    for key in {key for t in trials for key in t.constraints}:
        sizes = [abs(t.constraints[key]) for t in trials if key in t.constraints]
        result[key] = max(float(np.median([size for size in sizes if math.isfinite(size)] or [1.0])), 1e-12)
    return result
