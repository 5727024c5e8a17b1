"""Projection: the context as an Optuna study in the same database, for dashboards, plots and notebooks.

Flow: an outcome is in our tables -> told HERE as one finished Optuna trial, in one transaction. Our tables are the
truth; this is a picture of them that can be drawn again at any time, so a kill at any moment leaves no half trial.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial

from objectives.knobs import KnobSpace
from tuner.objective import Objective
from tuner.search.observation import Observation, to_optuna

optuna.logging.set_verbosity(optuna.logging.WARNING)

UID = "tuner_uid"
_BUSY_TIMEOUT_S = 60.0
# How constraints were stored before Optuna 5; dashboards still look for them there alone, Optuna reads both.
LISTED = "constraints"
_A_LITTLE = 1e-6


def prepare(url: str) -> None:
    """Make Optuna's tables where there are none; Optuna itself does not do so safely in several processes at once."""
    open_storage(url).engine.dispose()


def create(url: str, name: str, attributes: Mapping[str, str], objective: Objective = Objective.THROUGHPUT) -> None:
    """Make the Optuna study `name` with its metric name and attributes; nothing happens if it is there."""
    storage = open_storage(url)
    try:
        study = optuna.create_study(
            storage=storage, study_name=name, direction=objective.direction, load_if_exists=True
        )
        if study.user_attrs.get("study") is not None:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            study.set_metric_names([objective.metric])
        # "study" last: it marks that everything before it was written.
        for key in sorted(attributes, key=lambda key: key == "study"):
            study.set_user_attr(key, attributes[key])
    finally:
        storage.engine.dispose()


def delete(url: str, names: Iterable[str]) -> None:
    """Delete these Optuna studies; a name that is not there is passed over."""
    storage = open_storage(url)
    try:
        for name in names:
            try:
                optuna.delete_study(study_name=name, storage=storage)
            except KeyError:
                continue
    finally:
        storage.engine.dispose()


class Projection:
    """The open Optuna study of one context. Owns its connections; `close` gives them back."""

    def __init__(self, url: str, name: str, space: KnobSpace, objective: Objective = Objective.THROUGHPUT) -> None:
        self._objective = objective
        self._storage = open_storage(url)
        self._study = optuna.load_study(study_name=name, storage=self._storage)
        self._space = space
        told = self._study.get_trials(deepcopy=False)
        self._told = {trial.user_attrs.get(UID) for trial in told}
        self._best = max((objective.merit_of(t.value) for t in told if t.value and is_feasible(t)), default=None)
        # All trials of a study or none: GPSampler refuses trials with different numbers of constraints.
        self._lists = all(LISTED in trial.system_attrs for trial in told)

    def tell(
        self,
        uid: str,
        seen: Observation,
        attributes: Mapping[str, Any],
        started_at: datetime,
        finished_at: datetime,
    ) -> None:
        """Add a finished trial, unless one with this identity is there.

        What breaks a constraint is shown a little worse than the best that does not: dashboards and summaries of
        studies take the best value for the best trial, whatever its constraints say.
        """
        if uid in self._told:
            return
        shown = replace(seen, value=self._objective.shown(self._merit(seen)))
        system = {LISTED: list(seen.constraints.values())} if self._lists else {}
        trial = to_optuna(self._space, shown, {UID: uid, **attributes}, system)
        # Optuna stores times without a zone and reads them as UTC.
        trial.datetime_start = started_at.replace(tzinfo=None)
        trial.datetime_complete = finished_at.replace(tzinfo=None)
        self._study.add_trial(trial)
        self._told.add(uid)

    def close(self) -> None:
        self._storage.engine.dispose()

    def _merit(self, seen: Observation) -> float:
        if all(value <= 0 for value in seen.constraints.values()):
            self._best = seen.value if self._best is None else max(self._best, seen.value)
            return seen.value
        return seen.value if self._best is None else min(seen.value, self._best * (1 - _A_LITTLE))


def is_feasible(trial: FrozenTrial) -> bool:
    """Whether a trial of the projection breaks no constraint."""
    return all(value <= 0 for value in trial.constraints.values())


def open_storage(url: str) -> RDBStorage:
    """Optuna's view of the database, its tables made if they are not there. Owns connections: dispose of `engine`."""
    is_sqlite = url.startswith("sqlite")
    arguments = {"connect_args": {"timeout": _BUSY_TIMEOUT_S}} if is_sqlite else {"pool_pre_ping": True}
    return RDBStorage(url, engine_kwargs=arguments)
