"""Storage: Optuna's studies as a dashboard may see them: read only, kept in memory, the best trial a feasible one.

Flow: serve.py gives HERE to Optuna Dashboard instead of a URL. Opened from a URL the dashboard reads every trial again
every few seconds, and takes the best value for the best trial whatever its constraints say.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from contextlib import suppress
from typing import Any, NoReturn

from optuna.exceptions import OptunaError
from optuna.storages import BaseStorage, get_storage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.search.projection import LISTED, is_feasible, open_storage

REFUSED = "this dashboard is read-only: studies change by `python -m tuner study ...` alone"


class ReadOnlyError(OptunaError):  # type: ignore[misc]
    """Somebody wants to write through a storage that is for looking."""


class ReadOnlyStorage(BaseStorage):  # type: ignore[misc]
    """The database at `url`; finished trials are read once, all writing is refused. Own connections: `close`."""

    def __init__(self, url: str) -> None:
        self._database = open_storage(url)
        self._cached = get_storage(self._database)

    def close(self) -> None:
        self._database.engine.dispose()

    def warm_up(self) -> None:
        """Read every trial now, the newest study first, so that the first page does not have to wait for it."""
        for study in reversed(self.get_all_studies()):
            with suppress(KeyError, OptunaError):  # deleted in the meantime, or busy: the page will read it
                self.get_all_trials(study._study_id)

    def get_all_trials(self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None) -> Any:
        # Never copied: nobody can write here, and copying a thousand trials takes longer than reading them.
        trials = self._cached.get_all_trials(study_id, deepcopy=False, states=states)
        for trial in trials:
            _list_constraints(trial)
        return trials

    def get_best_trial(self, study_id: int) -> Any:
        """The best feasible trial; only without one the best of all, which the study's note calls what it is."""
        trials = self.get_all_trials(study_id, states=(TrialState.COMPLETE,))
        valued = [trial for trial in trials if trial.value is not None]
        if not valued:
            raise ValueError("No trials are completed yet.")
        (direction,) = self._cached.get_study_directions(study_id)
        choose: Callable[..., FrozenTrial] = min if direction is StudyDirection.MINIMIZE else max
        return choose([trial for trial in valued if is_feasible(trial)] or valued, key=lambda trial: trial.value)

    def get_trial(self, trial_id: int) -> Any:
        trial = self._cached.get_trial(trial_id)
        _list_constraints(trial)
        return trial

    def get_study_id_from_name(self, study_name: str) -> Any:
        return self._cached.get_study_id_from_name(study_name)

    def get_study_name_from_id(self, study_id: int) -> Any:
        return self._cached.get_study_name_from_id(study_id)

    def get_study_directions(self, study_id: int) -> Any:
        return self._cached.get_study_directions(study_id)

    def get_study_user_attrs(self, study_id: int) -> Any:
        return self._cached.get_study_user_attrs(study_id)

    def get_study_system_attrs(self, study_id: int) -> Any:
        return self._cached.get_study_system_attrs(study_id)

    def get_all_studies(self) -> Any:
        return sorted(self._cached.get_all_studies(), key=lambda study: study._study_id)

    def get_trial_id_from_study_id_trial_number(self, study_id: int, trial_number: int) -> Any:
        return self._cached.get_trial_id_from_study_id_trial_number(study_id, trial_number)

    def remove_session(self) -> None:
        self._cached.remove_session()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise ReadOnlyError(REFUSED)

    create_new_study = delete_study = set_study_user_attr = set_study_system_attr = _refuse
    create_new_trial = set_trial_param = set_trial_state_values = set_trial_intermediate_value = _refuse
    set_trial_user_attr = set_trial_system_attr = _refuse


def _list_constraints(trial: FrozenTrial) -> None:
    """Give a trial of an older study its constraints where the dashboard looks for them."""
    named = trial.constraints
    if named and LISTED not in trial.system_attrs:
        trial._system_attrs[LISTED] = list(named.values())
