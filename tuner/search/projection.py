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

from objectives.knobs import KnobSpace
from tuner.objective import Objective
from tuner.search.observation import Observation, to_optuna

UID = "tuner_uid"
_BUSY_TIMEOUT_S = 60.0


def prepare(url: str) -> None:
    """Make Optuna's tables where there are none; Optuna itself does not do so safely in several processes at once."""
    _storage(url).engine.dispose()


def create(url: str, name: str, attributes: Mapping[str, str], objective: Objective = Objective.THROUGHPUT) -> None:
    """Make the Optuna study `name` with its metric name and attributes; nothing happens if it is there."""
    storage = _storage(url)
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
    storage = _storage(url)
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
        self._storage = _storage(url)
        self._study = optuna.load_study(study_name=name, storage=self._storage)
        self._space = space
        self._told = {trial.user_attrs.get(UID) for trial in self._study.get_trials(deepcopy=False)}

    def tell(
        self,
        uid: str,
        seen: Observation,
        attributes: Mapping[str, Any],
        started_at: datetime,
        finished_at: datetime,
    ) -> None:
        """Add a finished trial, unless one with this identity is there."""
        if uid in self._told:
            return
        shown = replace(seen, value=self._objective.shown(seen.value))
        trial = to_optuna(self._space, shown, {UID: uid, **attributes})
        # Optuna stores times without a zone and reads them as UTC.
        trial.datetime_start = started_at.replace(tzinfo=None)
        trial.datetime_complete = finished_at.replace(tzinfo=None)
        self._study.add_trial(trial)
        self._told.add(uid)

    def close(self) -> None:
        self._storage.engine.dispose()


def _storage(url: str) -> RDBStorage:
    is_sqlite = url.startswith("sqlite")
    arguments = {"connect_args": {"timeout": _BUSY_TIMEOUT_S}} if is_sqlite else {"pool_pre_ping": True}
    return RDBStorage(url, engine_kwargs=arguments)
