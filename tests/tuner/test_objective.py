"""Objectives other than throughput: small engines and short builds, with and without running them."""

from __future__ import annotations

import optuna
import pytest

from objectives.outcome import Built, EngineFile, Failed, FailureKind, Measured, Round, Samples, Stage, Trace
from tests import landscapes
from tests.conftest import Cli, MakeModel
from tuner.api import best_of, confirm_study, create_study, run_study, show_study
from tuner.errors import StudyError, UsageError
from tuner.objective import Objective, cost_of
from tuner.spec import Budget, StudyOptions

ENGINE = EngineFile("e", "0" * 64, 2_000_000, "none")
TRACE = Trace(stage_s={Stage.BUILD: 4.0})
BUILT = Built(TRACE, None, ENGINE)
MEASURED = Measured(TRACE, None, Samples((Round(1, (2.0, 2.0)),), (), "steady", "host"), ENGINE)  # type: ignore[arg-type]


@pytest.mark.parametrize("objective", list(Objective))
def test_merit_and_what_is_shown_of_it(objective: Objective) -> None:
    assert objective.merit(2.0) > objective.merit(3.0)
    shown = objective.shown(objective.merit(2e6))
    assert shown == pytest.approx({"throughput": 5e-4, "engine-size": 2.0, "build-time": 2e6}[objective])
    assert objective.direction == ("maximize" if objective is Objective.THROUGHPUT else "minimize")


def test_costs() -> None:
    assert [cost_of(MEASURED, one) for one in Objective] == [2.0, 2e6, 4.0]
    assert [cost_of(BUILT, one) for one in Objective] == [None, 2e6, 4.0]
    failed = Failed(TRACE, Stage.BUILD, FailureKind.CRASHED, "gone")
    assert [cost_of(failed, one) for one in Objective] == [None] * 3


@pytest.mark.parametrize("build_only", [False, True])
@pytest.mark.parametrize("objective", [Objective.ENGINE_SIZE, Objective.BUILD_TIME])
def test_a_study_that_times_nothing(
    landscape: MakeModel, home_url: str, objective: Objective, build_only: bool, cli: Cli
) -> None:
    options = StudyOptions(backend="synthetic", budget=Budget(6), objective=objective, build_only=build_only)
    create_study("s", landscape(), options, storage=home_url)
    summary = run_study("s", storage=home_url)
    assert (summary.n_trials, summary.feasible) == (6, 6)
    assert summary.objective is objective
    (view,) = show_study("s", storage=home_url).contexts
    assert view.noise is None
    costs = {}
    for trial in view.trials:
        assert isinstance(trial.outcome, Built)
        assert (trial.outcome.accuracy is None) == build_only
        assert (Stage.CHECK in trial.outcome.trace.stage_s) != build_only
        assert Stage.TIME not in trial.outcome.trace.stage_s
        costs[trial.number] = cost_of(trial.outcome, objective)
    best = best_of("s", storage=home_url)
    assert best.trial is not None
    assert costs[best.trial.number] == min(cost for cost in costs.values() if cost is not None)
    assert best.engine is not None
    assert best.engine.exists()
    study = optuna.load_study(study_name=view.context.name, storage=home_url)
    assert study.metric_names == [objective.metric]
    assert study.best_value == pytest.approx(objective.shown(objective.merit(min(c for c in costs.values() if c))))
    with pytest.raises(StudyError, match="nothing to confirm"):
        confirm_study("s", storage=home_url)
    for words in (("study", "show", "s"), ("study", "best", "s"), ("study", "list")):
        assert cli(*words, "--storage", home_url).code == 0
        assert cli(*words, "--storage", home_url, "--json").code == 0
    assert ("outputs not checked" in cli("study", "best", "s", "--storage", home_url).out) == build_only
    again = cli("study", "run", "s", "--n-trials", "7", "--storage", home_url)
    assert again.code == 0, again.err
    assert "confirming" not in again.err


def test_wrong_outputs_are_rejected_where_they_are_checked(landscape: MakeModel, home_url: str) -> None:
    for name, build_only in (("checked", False), ("built", True)):
        options = StudyOptions(
            backend="synthetic",
            budget=Budget(12),
            search="random",
            objective=Objective.ENGINE_SIZE,
            build_only=build_only,
            trial_timeout_s=8.0,  # one of the faults is to hang
        )
        create_study(name, landscape(landscapes.faulty()), options, storage=home_url)
        run_study(name, storage=home_url)
    checked, built = (show_study(name, storage=home_url).contexts[0].summary for name in ("checked", "built"))
    assert checked.rejected + checked.n_failed > built.rejected + built.n_failed
    assert built.rejected == 0


def test_build_only_needs_an_objective_that_needs_no_run() -> None:
    with pytest.raises(UsageError, match="no throughput"):
        StudyOptions(build_only=True)
