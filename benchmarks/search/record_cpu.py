"""Records a landscape of the ONNX Runtime CPU backend: every candidate of a few knobs, measured several times.

    python benchmarks/search/record_cpu.py MODEL.onnx NAME [--knobs precision intra_op_threads ...] [--times 2]

Each pass is a study of the public API that tries every candidate in random order, without a limit on accuracy, so that
any limit can be set when the table is replayed. `--fix intra_op_threads=1` gives all of them one value of a knob: with
more threads, recordings side by side would share cores, whatever cores their processes were given. On a machine whose
neighbours halve its speed for seconds, record more passes and keep the fastest: what a candidate takes when nobody
disturbs it. Writes tables/NAME.jsonl.xz; the format is described in tables.py.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from tables import FOLDER, FORMAT, write_table

from objectives.knobs import KnobSpace
from objectives.outcome import Measured, Rejected
from objectives.requests import Described
from storage.studies import replace_spec
from tuner import (
    Budget,
    Judging,
    Limit,
    StudyOptions,
    TimingPlan,
    WorkloadOptions,
    create_study,
    describe,
    run_study,
    show_study,
)
from tuner.home import open_home

KNOBS = ("precision", "graph_optimization_level", "intra_op_threads", "inter_op")
METRIC = "rel_l2"
Changes = dict[str, str]
TIMING = TimingPlan(round_ms=10.0, budget_ms=80.0, warmup_ms=80.0, max_rounds=5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("name")
    parser.add_argument("--knobs", nargs="+", default=list(KNOBS))
    parser.add_argument("--times", type=int, default=2)
    parser.add_argument("--fastest", type=int, help="passes kept of each candidate, where a machine has two speeds")
    parser.add_argument("--shape", nargs="+", default=[], help="of inputs with dynamic shapes: x=1x3x48x192")
    parser.add_argument("--network", default="", help="what tables of other versions of the runtime share")
    parser.add_argument("--to", type=Path, default=FOLDER, help="folder of the table")
    parser.add_argument("--note", default="", help="what else is to be known, such as load on the machine")
    parser.add_argument("--fix", nargs="+", default=[], metavar="KNOB=VALUE", help="values that all candidates have")
    arguments = parser.parse_args()
    arguments.fix = dict(one.split("=") for one in arguments.fix)
    here = describe("onnxruntime", arguments.model)
    assert here.knobs is not None, "a model was given, so its knobs are described"
    space = here.knobs.select(arguments.knobs)
    asked = [*arguments.knobs, *arguments.fix]
    print(f"{space.size} candidates, {arguments.times} times")
    lines: dict[str, dict[str, Any]] = {}
    for turn in range(arguments.times):
        for line in one_pass(arguments, asked, every(space, arguments.fix, turn), turn):
            known = lines.setdefault(str(line["changes"]), line)
            if known is not line:
                known["samples_ms"] += line["samples_ms"]
    for line in lines.values():
        line["samples_ms"] = sorted(line["samples_ms"], key=median)[: arguments.fastest]
    path = write_table(arguments.to / f"{arguments.name}.jsonl.xz", header(arguments, space, here), lines.values())
    print(f"wrote {path}")


def header(arguments: argparse.Namespace, space: KnobSpace, here: Described) -> dict[str, Any]:
    """The first line of a table."""
    return {
        "format": FORMAT,
        "model": arguments.model.name,
        "network": arguments.network,
        "backend": f"onnxruntime {here.environment.backend_version}, CPU",
        "machine": dict(here.environment.identity),
        "metric": METRIC,
        "note": arguments.note,
        "fixed": arguments.fix,
        "passes": f"the {arguments.fastest or arguments.times} fastest of {arguments.times}",
        "knobs": [{"name": k.name, "values": list(k.values), "default": k.default} for k in space.knobs],
    }


def every(space: KnobSpace, fixed: Changes, turn: int) -> list[Changes]:
    """All candidates of a space, with what is fixed, in an order of the pass's own."""
    choices = [[(knob.name, value) for value in knob.values] for knob in space.knobs]
    defaults = {knob.name: knob.default for knob in space.knobs}
    found = [{name: value for name, value in one if defaults[name] != value} | fixed for one in product(*choices)]
    random.Random(turn).shuffle(found)
    return found


def one_pass(
    arguments: argparse.Namespace, knobs: Sequence[str], candidates: Sequence[Changes], turn: int
) -> list[dict[str, Any]]:
    """One study of these candidates: a line for each."""
    named = (one.split("=") for one in arguments.shape)
    shapes = {name: tuple(map(int, text.split("x"))) for name, text in named}
    options = StudyOptions(
        backend="onnxruntime",
        knobs=tuple(knobs),
        workload=WorkloadOptions(shapes=shapes, pairs=2, hard=False),
        judging=Judging(limits=(Limit(METRIC, 1e9),)),
        # The default, which every study begins with, is one of them or comes on top.
        budget=Budget(n_trials=len(candidates) + bool(arguments.fix)),
        timing=TIMING,
        search="random",
        control_every=0,
        noise_sessions=0,
        trial_timeout_s=60.0,
    )
    name = f"pass-{turn}"
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/record.db"
        created = create_study(name, arguments.model, options, storage=url, artifacts=Path(folder) / "artifacts")
        first = tuple(tuple(one.items()) for one in candidates if one)
        with open_home(url) as home:
            replace_spec(home.database, name, msgspec.structs.replace(created.spec, initial=first).to_json())
        run_study(name, storage=url, artifacts=Path(folder) / "artifacts")
        trials = show_study(name, storage=url).contexts[0].trials
    lines = [line(trial, arguments.fix) for trial in trials]
    return [one for one in lines if one is not None]


def line(trial: Any, fixed: Changes) -> dict[str, Any] | None:
    """A finished trial as a line of a table; None for one without what is fixed."""
    outcome, changes = trial.outcome, dict(trial.candidate.changes)
    if any(changes.get(name) != value for name, value in fixed.items()):
        return None
    result: dict[str, Any] = {"changes": [[name, value] for name, value in changes.items() if name not in fixed]}
    if isinstance(outcome, Measured):
        worst = outcome.accuracy.worst(METRIC)
        loss = None if worst is None else worst.losses[METRIC]
        return result | {"samples_ms": [list(outcome.samples.all_ms)], "loss": loss, "error": None}
    error = "wrong output" if isinstance(outcome, Rejected) else f"{outcome.stage}: {outcome.kind}"
    return result | {"samples_ms": [], "loss": None, "error": error}


if __name__ == "__main__":
    main()
