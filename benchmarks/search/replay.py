"""Replay: do strategies propose the same through the public study API as they do when they are driven directly?

    python benchmarks/search/replay.py [--families additive-20 step-20] [--strategies auto tpe mixed] [--trials 40]

Each family becomes a landscape of the synthetic backend. `create_study` and `run_study` search it with everything that
a user's study has: child processes, checks, timing, a database. The same strategy, made anew and told of the same
outcomes one by one, has to propose the same candidates in the same order. Ends with exit code 1 if one differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

from families import FAMILIES, Term, World, make  # noqa: E402 - after the path is set

from objectives.accuracy import Limit  # noqa: E402
from objectives.landscape import Fault, Interaction, Landscape, SimulatedKnob  # noqa: E402
from tuner import Budget, Judging, StudyOptions, WorkloadOptions, create_study, run_study, show_study  # noqa: E402
from tuner.searching import Searching  # noqa: E402

_LIMIT = 0.01  # of rel_l2, for the limit of 1 that a family has


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", nargs="+", default=["additive-20", "step-20", "deceptive-8"], choices=FAMILIES)
    parser.add_argument("--strategies", nargs="+", default=["auto", "tpe", "mixed"])
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    same = True
    for family in arguments.families:
        landscape = to_landscape(make(family)(arguments.seed), arguments.seed)
        for strategy in arguments.strategies:
            n, first = compare(landscape, strategy, arguments.trials, arguments.seed)
            same &= first is None
            print(f"{family} {strategy}: {n} trials, " + ("the same" if first is None else f"differ at trial {first}"))
    raise SystemExit(0 if same else 1)


def to_landscape(world: World, seed: int) -> Landscape:
    """The same problem for the synthetic backend; a candidate's noise is drawn once, so that runs can be compared."""
    knobs = tuple(SimulatedKnob(knob.name, knob.values, knob.default) for knob in world.space.knobs)
    names = [knob.name for knob in knobs]

    def when(term: Term) -> dict[str, str]:
        return {names[i]: f"v{v}" for i, v in term.when}

    terms = [Interaction(when(term), effect=-term.amount) for term in world.speed]
    terms += [Interaction(when(term), loss=_LIMIT * term.amount) for term in world.loss]
    terms += [Interaction(when(term), fault=Fault.BUILD_FAILED) for term in world.crash]
    terms += [Interaction({}, loss=_LIMIT * world.base_loss)]
    return Landscape(knobs, noise=world.noise, interactions=tuple(terms), seed=seed, repeatable=True)


def compare(landscape: Landscape, strategy: str, trials: int, seed: int) -> tuple[int, int | None]:
    """Trials of a study, and the first at which the strategy, driven directly, proposes something else."""
    options = StudyOptions(
        backend="synthetic",
        judging=Judging(limits=(Limit("rel_l2", _LIMIT),)),
        workload=WorkloadOptions(seed=seed, pairs=1, hard=False),
        budget=Budget(trials),
        search=strategy,
        early_end=False,
        control_every=0,
        noise_sessions=0,
    )
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/replay.db"
        create_study("replay", landscape.save(Path(folder) / "landscape.json"), options, storage=url)
        run_study("replay", storage=url)
        study = show_study("replay", storage=url)
    view = study.contexts[-1]
    search = Searching(study.spec, view.context, None)
    tried: set[str] = set()
    for number, trial in enumerate(view.trials):
        candidate, _ = search.next(tried, [])
        if candidate != trial.candidate:
            return len(view.trials), number
        tried.add(trial.candidate.digest)
        search.learn(search.observe(trial, view.summary.standard))
    return len(view.trials), None


if __name__ == "__main__":
    main()
