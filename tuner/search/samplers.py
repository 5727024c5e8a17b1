"""Samplers: those of Optuna by the name of a search.

A sampler is made anew for each proposal, from a seed, and looks at a study in memory. Genetic ones keep in each trial
which generation it belongs to; here that is said by the trial's place in the history, so that it survives a resume.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, NSGAIISampler, RandomSampler, TPESampler

from tuner.errors import UsageError
from tuner.searches import OPTUNA, Search

POPULATION = 20  # of genetic samplers: budgets are tens of trials, and Optuna's 50 would be random search
_DIRECT: dict[str, Callable[[int], BaseSampler]] = {
    "tpe": lambda seed: TPESampler(seed=seed),
    "random": lambda seed: RandomSampler(seed=seed),
    "nsgaii": lambda seed: NSGAIISampler(seed=seed, population_size=POPULATION),
}


def make_sampler(search: Search, seed: int) -> BaseSampler:
    """A fresh sampler. Raises: UsageError if Optuna has none of that name, or it cannot be made from a seed alone."""
    if search.name in _DIRECT:
        return _DIRECT[search.name](seed)
    name = "GPSampler" if search.name == "gp" else search.sampler
    if name == "BruteForceSampler":  # it counts questions as trials, and stops the study that asks
        raise UsageError(f"--search {OPTUNA}:{name} does not work here", hint="--search full:shuffle does the same")
    of = getattr(optuna.samplers, name, None)
    if not (isinstance(of, type) and issubclass(of, BaseSampler)):
        names = (
            one for one in dir(optuna.samplers) if one.endswith("Sampler") and not one.startswith(("Base", "Part"))
        )
        raise UsageError(f"Optuna has no sampler {name!r}", hint=f"it has {', '.join(names)}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            made: BaseSampler = of(seed=seed)
    except (TypeError, ImportError) as error:
        raise UsageError(
            f"--search {OPTUNA}:{name} cannot be made from a seed alone: {error}",
            hint="choose another search, or install what it needs",
        ) from error
    if isinstance(getattr(made, "population_size", None), int):
        made.population_size = POPULATION
    return made


def generation(sampler: BaseSampler, index: int) -> dict[str, Any]:
    """What a genetic sampler wants to find at the trial that is `index`-th in the history; nothing for others."""
    if isinstance(getattr(sampler, "population_size", None), int):
        return {f"{type(sampler).__name__}:generation": index // POPULATION}
    return {}
