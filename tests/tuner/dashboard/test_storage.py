"""Optuna's studies as the dashboard may see them: nothing can be written, the best trial is a feasible one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import optuna
import pytest
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial

from tests.tuner.conftest import Study
from tuner.dashboard.storage import REFUSED, ReadOnlyError, ReadOnlyStorage
from tuner.search import projection
from tuner.search.projection import LISTED

ADDRESS = "an older study"
Told = tuple[float, float]  # value and constraint


def _add(url: str, direction: str, *told: Told) -> None:
    """A study as it was written before constraints were listed where the dashboard looks."""
    storage = RDBStorage(url)
    study = optuna.create_study(storage=storage, study_name=ADDRESS, direction=direction)
    for value, broken in told:
        study.add_trial(optuna.create_trial(value=value, constraints={"accuracy": broken, "failure": -1.0}))
    storage.remove_session()
    storage.engine.dispose()


@pytest.fixture
def look(any_url: str) -> Iterator[Callable[..., ReadOnlyStorage]]:
    """Opens a study of these trials to be looked at: `look("maximize", (value, constraint), ...)`."""
    projection.prepare(any_url)
    opened: list[ReadOnlyStorage] = []

    def open_storage(direction: str, *told: Told) -> ReadOnlyStorage:
        _add(any_url, direction, *told)
        opened.append(ReadOnlyStorage(any_url))
        return opened[-1]

    yield open_storage
    for storage in opened:
        storage.close()


def _best(storage: ReadOnlyStorage) -> FrozenTrial:
    best: FrozenTrial = storage.get_best_trial(storage.get_study_id_from_name(ADDRESS))
    return best


@pytest.mark.parametrize(("direction", "best"), [("maximize", 2), ("minimize", 1)])
def test_the_best_trial_is_the_best_feasible_one(
    look: Callable[..., ReadOnlyStorage], direction: str, best: int
) -> None:
    storage = look(direction, (9.0, 0.5), (3.0, -1.0), (5.0, 0.0), (1.0, 0.1))
    assert _best(storage).number == best


def test_without_a_feasible_trial_the_best_of_all_is_shown(look: Callable[..., ReadOnlyStorage]) -> None:
    assert _best(look("maximize", (1.0, 0.5), (2.0, 0.5))).number == 1


def test_without_any_trial_there_is_no_best_one(look: Callable[..., ReadOnlyStorage]) -> None:
    with pytest.raises(ValueError, match="No trials"):
        _best(look("maximize"))


def test_constraints_of_older_studies_stand_where_the_dashboard_looks(look: Callable[..., ReadOnlyStorage]) -> None:
    storage = look("maximize", (1.0, 0.5), (2.0, -1.0))
    study_id = storage.get_study_id_from_name(ADDRESS)
    wrong, right = storage.get_all_trials(study_id)
    assert wrong.system_attrs[LISTED] == [0.5, -1.0]
    assert right.system_attrs[LISTED] == [-1.0, -1.0]
    assert storage.get_trial(wrong._trial_id).system_attrs[LISTED] == [0.5, -1.0]


def test_new_trials_are_seen_and_old_ones_are_read_once(
    look: Callable[..., ReadOnlyStorage], any_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = look("maximize", (1.0, -1.0))
    study_id = storage.get_study_id_from_name(ADDRESS)
    storage.warm_up()
    (before,) = storage.get_all_trials(study_id)
    writer = RDBStorage(any_url)
    optuna.load_study(study_name=ADDRESS, storage=writer).add_trial(optuna.create_trial(value=2.0))
    writer.remove_session()
    writer.engine.dispose()
    after = storage.get_all_trials(study_id)
    assert [trial.value for trial in after] == [1.0, 2.0]
    assert after[0] is before


def test_nothing_can_be_written(look: Callable[..., ReadOnlyStorage], any_url: str) -> None:
    storage = look("maximize", (1.0, -1.0))
    study_id = storage.get_study_id_from_name(ADDRESS)
    trial_id = storage.get_all_trials(study_id)[0]._trial_id
    attempts: list[Callable[[], object]] = [
        lambda: storage.delete_study(study_id),
        lambda: storage.create_new_study([optuna.study.StudyDirection.MINIMIZE], "another"),
        lambda: storage.create_new_trial(study_id),
        lambda: storage.set_study_user_attr(study_id, "key", 1),
        lambda: storage.set_study_system_attr(study_id, "key", 1),
        lambda: storage.set_trial_user_attr(trial_id, "key", 1),
        lambda: storage.set_trial_system_attr(trial_id, "key", 1),
        lambda: storage.set_trial_state_values(trial_id, optuna.trial.TrialState.FAIL),
        lambda: storage.set_trial_intermediate_value(trial_id, 0, 1.0),
        lambda: storage.set_trial_param(trial_id, "x", 0.5, optuna.distributions.FloatDistribution(0, 1)),
    ]
    for attempt in attempts:
        with pytest.raises(ReadOnlyError, match="read-only"):
            attempt()
    assert "study" in REFUSED
    reader = RDBStorage(any_url)
    (only,) = reader.get_all_studies()
    assert (only.study_name, only.user_attrs) == (ADDRESS, {})
    reader.remove_session()
    reader.engine.dispose()


def test_what_the_loop_tells_is_right_without_this_storage_too(finished: Study) -> None:
    # `optuna-dashboard URL` takes the best value of the database and reads the listed constraints alone.
    storage = RDBStorage(finished.url)
    (study,) = storage.get_all_studies()
    trials = storage.get_all_trials(study._study_id)
    assert all(set(trial.system_attrs[LISTED]) == set(trial.constraints.values()) for trial in trials)
    best = storage.get_best_trial(study._study_id)
    assert best.user_attrs["feasible"] is True
    assert best.user_attrs["candidate"] == "b=v1"
    storage.remove_session()
    storage.engine.dispose()
