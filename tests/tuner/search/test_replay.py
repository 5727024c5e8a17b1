"""A strategy proposes the same through a study as when it is driven directly and told of the same outcomes."""

from __future__ import annotations

import pytest

from objectives.landscape import Fault, Interaction, Landscape
from tests import landscapes
from tests.tuner.conftest import MakeStudy
from tuner.api import run_study, show_study
from tuner.search.strategies import make_strategy
from tuner.searching import Searching
from tuner.spec import Budget

TRIALS = 24


def world() -> Landscape:
    """Nine knobs: some help, one value is inaccurate, one combination cannot be built."""
    effects = [(-0.05, 0.03), (-0.03,), (0.02, -0.04), (0.0,), (0.01, 0.0), (-0.02,), (0.0, 0.0), (0.03,), (0.0,)]
    return Landscape(
        tuple(landscapes.knob(f"k{index}", *of) for index, of in enumerate(effects)),
        interactions=(
            Interaction({"k0": "v1"}, loss=0.5),
            Interaction({"k2": "v2", "k4": "v1"}, fault=Fault.BUILD_FAILED),
        ),
        noise=0.01,
        repeatable=True,
    )


@pytest.mark.parametrize("search", ["auto", "tpe", "random", "nsgaii", "fast", "mixed:cap=3"])
def test_a_study_and_the_bare_strategy_agree(new_study: MakeStudy, search: str) -> None:
    study = new_study(world(), budget=Budget(TRIALS), search=search, early_end=False)
    run_study(study.name, storage=study.url)
    shown = show_study(study.name, storage=study.url)
    (view,) = shown.contexts
    searching = Searching(shown.spec, view.context, None)
    seen = [searching.observe(trial, view.summary.standard) for trial in view.trials]
    strategy = make_strategy(search, view.context.space, shown.spec.seed)
    tried: set[str] = set()
    for number, (trial, one) in enumerate(zip(view.trials, seen, strict=True)):
        proposed = strategy.propose(number, tried) if number else trial.candidate
        assert proposed == trial.candidate, number
        tried.add(trial.candidate.digest)
        strategy.learn(one)
    assert any(one.variance for one in seen)
    n_single = sum(len(knob.values) - 1 for knob in view.context.space.knobs)
    assert len(seen) == {"fast": 1 + n_single}.get(search, len(seen))
    assert len(seen) > n_single
