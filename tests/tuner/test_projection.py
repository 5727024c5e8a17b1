"""The projection: a context as an Optuna study that dashboards and notebooks can trust."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import optuna
import pytest
from optuna.storages import RDBStorage
from optuna.trial import TrialState

from objectives.outcome import Accuracy, Outcome, Rejected, Trace
from storage.migrate import create_database
from tests.tuner.test_proposer import BASE, FAILED, measured, seen, space
from tuner.objective import Objective
from tuner.search import projection
from tuner.search.projection import Projection

NAME = "study [1] synthetic 1"
SPACE = space(2, 3)
START = datetime(2030, 1, 1, 12, tzinfo=UTC)
WRONG = Rejected(Trace(), Accuracy(faults=("shape",)), "shape")


@pytest.fixture
def url(any_url: str) -> str:
    """A database with our tables and the empty Optuna study NAME."""
    create_database(any_url).close()
    projection.create(any_url, NAME, {"study": "study", "limits": "rel_l2 <= 0.01"})
    return any_url


@pytest.fixture
def opened(url: str) -> Iterator[Projection]:
    found = Projection(url, NAME, SPACE)
    yield found
    found.close()


def _tell(to: Projection, uid: str, assignment: dict[str, str], outcome: Outcome) -> None:
    to.tell(
        uid,
        seen(SPACE.candidate(assignment), outcome),
        {"outcome": "ok", "trial": 3},
        START,
        START + timedelta(seconds=2),
    )


@pytest.fixture
def storage(url: str) -> Iterator[RDBStorage]:
    """The database as Optuna opens it."""
    found = RDBStorage(url)
    yield found
    found.remove_session()
    found.engine.dispose()


def _load(storage: RDBStorage) -> optuna.Study:
    return optuna.load_study(study_name=NAME, storage=storage)


def test_a_trial_is_complete_with_every_knob_and_its_times(storage: RDBStorage, opened: Projection) -> None:
    _tell(opened, "uid-1", {"k1": "2"}, measured(1234.5))
    (trial,) = _load(storage).get_trials()
    assert trial.state is TrialState.COMPLETE
    assert trial.value == pytest.approx(1234.5)
    assert trial.params == {"k0": "0", "k1": "2"}
    assert trial.user_attrs == {projection.UID: "uid-1", "outcome": "ok", "trial": 3}
    assert trial.duration == timedelta(seconds=2)
    assert trial.datetime_start is not None
    assert trial.datetime_start.replace(tzinfo=UTC) == START


def test_every_trial_has_its_constraints_and_none_is_failed_or_open(storage: RDBStorage, opened: Projection) -> None:
    _tell(opened, "good", {}, measured(BASE))
    _tell(opened, "bad", {"k0": "1"}, FAILED)
    _tell(opened, "wrong", {"k1": "1"}, WRONG)
    trials = _load(storage).get_trials()
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 3
    constraints = [trial.constraints for trial in trials]
    assert all(one is not None and {"accuracy", "failure"} <= set(one) for one in constraints)
    assert [all(value <= 0 for value in one.values()) for one in constraints if one] == [True, False, False]


def test_the_best_trial_is_feasible_however_fast_a_wrong_one_is(storage: RDBStorage, opened: Projection) -> None:
    _tell(opened, "base", {}, measured(BASE))
    _tell(opened, "off", {"k1": "1"}, measured(50 * BASE, loss=0.5))
    _tell(opened, "fast", {"k1": "2"}, measured(2 * BASE))
    _tell(opened, "bad", {"k0": "1"}, FAILED)
    assert _load(storage).best_trial.user_attrs[projection.UID] == "fast"


def test_without_a_feasible_trial_there_is_no_best(storage: RDBStorage, opened: Projection) -> None:
    _tell(opened, "bad", {}, FAILED)
    with pytest.raises(ValueError, match="feasible"):
        _ = _load(storage).best_trial


def test_a_trial_is_told_once_by_whomever(url: str, storage: RDBStorage, opened: Projection) -> None:
    for _ in range(2):
        _tell(opened, "uid-1", {}, measured(BASE))
    later = Projection(url, NAME, SPACE)
    _tell(later, "uid-1", {}, measured(BASE))
    _tell(later, "uid-2", {"k0": "1"}, FAILED)
    later.close()
    assert [trial.user_attrs[projection.UID] for trial in _load(storage).get_trials()] == ["uid-1", "uid-2"]


def test_the_study_says_what_it_shows(storage: RDBStorage) -> None:
    study = _load(storage)
    assert study.metric_names == [Objective.THROUGHPUT.metric]
    assert study.direction is optuna.study.StudyDirection.MAXIMIZE
    assert study.user_attrs == {"study": "study", "limits": "rel_l2 <= 0.01"}


def test_a_study_is_made_once_and_keeps_its_trials(url: str, storage: RDBStorage, opened: Projection) -> None:
    _tell(opened, "uid-1", {}, measured(BASE))
    projection.create(url, NAME, {"study": "another"})
    assert len(_load(storage).get_trials()) == 1
    assert _load(storage).user_attrs["study"] == "study"


def test_a_study_whose_making_was_interrupted_is_completed(any_url: str) -> None:
    create_database(any_url).close()
    storage = RDBStorage(any_url)
    optuna.create_study(storage=storage, study_name=NAME, direction="maximize")
    projection.create(any_url, NAME, {"study": "study", "limits": "x"})
    study = _load(storage)
    assert study.metric_names == [Objective.THROUGHPUT.metric]
    assert study.user_attrs == {"study": "study", "limits": "x"}
    storage.engine.dispose()


def test_studies_are_deleted_by_name_and_no_others(url: str, storage: RDBStorage) -> None:
    optuna.create_study(storage=storage, study_name="somebody else's")
    projection.delete(url, [NAME, "was never there"])
    assert optuna.get_all_study_names(storage=storage) == ["somebody else's"]
    projection.delete(url, [NAME])


def test_a_sampler_can_go_on_from_the_projection(storage: RDBStorage, opened: Projection) -> None:
    # What a notebook would do: no trial may lack a parameter, a value or a constraint.
    for index, assignment in enumerate(({}, {"k0": "1"}, {"k1": "1"}, {"k1": "2"})):
        outcome = FAILED if index == 1 else measured(BASE + index)
        _tell(opened, f"uid-{index}", assignment, outcome)
    sampler = optuna.samplers.TPESampler(seed=1, n_startup_trials=2)
    study = optuna.load_study(study_name=NAME, storage=storage, sampler=sampler)
    trial = study.ask({knob.name: optuna.distributions.CategoricalDistribution(knob.values) for knob in SPACE.knobs})
    SPACE.candidate(trial.params)
    study.tell(trial, state=TrialState.FAIL)
