"""The auto search as a sampler of Optuna: plain studies, constraints, failures, both directions."""

from __future__ import annotations

import optuna
import pytest
from optuna.distributions import CategoricalDistribution
from optuna.samplers import RandomSampler
from optuna.trial import Trial, TrialState

from tuner.search.auto.sampler import AutoSampler

NAMES = [f"p{index}" for index in range(10)]
SPACE = {name: CategoricalDistribution([None, "a", 3]) for name in NAMES}
optuna.logging.set_verbosity(optuna.logging.WARNING)


def suggest(trial: Trial) -> dict[str, object]:
    return {name: trial.suggest_categorical(name, SPACE[name].choices) for name in NAMES}


def latency(trial: Trial) -> float:
    """The fastest is p0 = 3, p1 = "a"; p2 = 3 would be faster, but breaks the limit."""
    on = suggest(trial)
    trial.set_constraint("loss", 1.0 if on["p2"] == 3 else -1.0)
    return 10.0 * (1 - 0.2 * (on["p0"] == 3)) * (1 - 0.1 * (on["p1"] == "a")) * (1 - 0.3 * (on["p2"] == 3))


def test_a_plain_study_finds_the_best_within_its_constraints() -> None:
    study = optuna.create_study(sampler=AutoSampler(SPACE, seed=0))
    study.optimize(latency, n_trials=35)
    assert study.trials[0].params == dict.fromkeys(NAMES)
    assert study.best_value == pytest.approx(7.2)
    assert len({tuple(trial.params.items()) for trial in study.trials}) == 35
    assert sum(trial.params["p2"] == 3 for trial in study.trials[20:]) <= 3


def test_maximizing_and_values_below_zero_work_and_defaults_come_first() -> None:
    study = optuna.create_study(sampler=AutoSampler(SPACE, seed=1, defaults={"p3": "a"}), direction="maximize")
    study.optimize(lambda trial: (suggest(trial)["p3"] == 3) - 0.5, n_trials=15)
    assert study.trials[0].params["p3"] == "a"
    assert study.best_value == 0.5


def test_without_a_given_space_it_is_inferred_and_other_parameters_are_random() -> None:
    def objective(trial: Trial) -> float:
        return 1.0 + (trial.suggest_categorical("p", ["x", "y", "z"]) == "z") + trial.suggest_float("f", 0.0, 0.1)

    study = optuna.create_study(sampler=AutoSampler(seed=2), direction="maximize")
    study.optimize(objective, n_trials=6)
    assert study.trials[0].params["p"] == "x"
    assert {trial.params["p"] for trial in study.trials} == {"x", "y", "z"}
    assert len({trial.params["f"] for trial in study.trials}) == 6


def test_what_fails_is_not_proposed_again() -> None:
    def objective(trial: Trial) -> float:
        if suggest(trial)["p4"] == "a":
            raise RuntimeError("does not build")
        return 1.0

    study = optuna.create_study(sampler=AutoSampler(SPACE, seed=3))
    study.optimize(objective, n_trials=40, catch=(RuntimeError,))
    assert sum(trial.state == TrialState.FAIL for trial in study.trials[15:]) <= 1


def test_the_same_study_is_continued_in_the_same_way() -> None:
    whole = optuna.create_study(sampler=AutoSampler(SPACE, seed=4))
    whole.optimize(latency, n_trials=20)
    halves = optuna.create_study(sampler=AutoSampler(SPACE, seed=4))
    halves.optimize(latency, n_trials=10)
    halves.sampler = AutoSampler(SPACE, seed=4)
    halves.optimize(latency, n_trials=10)
    assert [trial.params for trial in whole.trials] == [trial.params for trial in halves.trials]


def test_several_objectives_are_refused() -> None:
    study = optuna.create_study(sampler=AutoSampler(SPACE), directions=["minimize", "minimize"])
    with pytest.raises(ValueError, match="one objective"):
        study.ask(dict(SPACE)).params  # noqa: B018


def test_it_is_better_than_random_search() -> None:
    found = {}
    for name, make in {"auto": lambda s: AutoSampler(SPACE, seed=s), "random": lambda s: RandomSampler(seed=s)}.items():
        best = []
        for seed in range(4):
            study = optuna.create_study(sampler=make(seed))
            study.optimize(slope, n_trials=20)
            best.append(study.best_value)
        found[name] = sum(best)
    assert found["auto"] < found["random"]


def slope(trial: Trial) -> float:
    """The more parameters are at their last choice, the faster."""
    return 10.0 * 0.95 ** sum(value == 3 for value in suggest(trial).values())
