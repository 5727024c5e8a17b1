"""Compares searches on simulated families and recorded tables: trials to the best, regret, waste, time.

    python benchmarks/search/run.py --seeds 20 --jobs 16            # everything, all ablations too: about 13 core-hours
    python benchmarks/search/run.py --quick                         # a minute
    python benchmarks/search/run.py --families slope-60 --strategies auto tpe --seeds 3 --first-seed 1000 --out /tmp/x

Runs from a checkout: nothing has to be installed but the tuner's own requirements and plotly. Every run, one (family,
strategy, seed, budget), is one line of results/runs.jsonl (see store.py) and is not repeated while the line is there;
`--fresh` runs anew. Ends with the report: results/report.md, and curves in results/report.html. Seeds from 1000 on are
for development, 0 to 19 for the report.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

import numpy as np  # noqa: E402
import store  # noqa: E402
from families import FAMILIES, make  # noqa: E402
from hold_out import HOLD_OUT  # noqa: E402
from report import write  # noqa: E402
from strategies import ABLATIONS, COMPARED, WORKERS, create  # noqa: E402
from tables import table_worlds  # noqa: E402

RESULTS = Path(__file__).parent / "results"
BUDGET = 120
CHECKPOINTS = (10, 15, 20, 30, 40, 50, 60, 80, 100, 120)
WITHIN = 0.01
FIRST_ADVICE = 20  # trials before which no search is asked for advice
_SECONDS = {"-8": 1.0, "-16": 1.5, "-20": 1.5, "-24": 1.5, "-30": 2.0, "-40": 3.0, "-60": 4.0, "-200": 14.0}  # by run
Job = store.Key


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three seeds, 60 trials, the small families, no ablations")
    parser.add_argument("--families", nargs="+", help="families and tables; all unless given")
    parser.add_argument("--strategies", nargs="+", help="all that are compared, workers and ablations, unless given")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--budget", type=int, default=BUDGET)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--minutes", type=float, help="start no run after that time; the same command goes on later")
    parser.add_argument("--fresh", action="store_true", help="forget the stored runs of what is asked for")
    parser.add_argument("--dry", action="store_true", help="print the estimate and end")
    parser.add_argument("--compress", action="store_true", help="store the rows as runs.jsonl.xz at the end")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.seeds, arguments.budget, arguments.out = 3, 60, arguments.out / "quick"
    jobs = jobs_of(arguments)
    if arguments.dry:
        print(estimate(jobs, arguments.jobs))
        return
    rows = execute(jobs, arguments)
    if arguments.compress:
        store.replace(arguments.out, store.load(arguments.out).values(), packed=True)
    write(rows, arguments.out)


def jobs_of(arguments: argparse.Namespace) -> list[Job]:
    """What is asked for, the longest runs first."""
    known = [*FAMILIES, *HOLD_OUT, *table_worlds()]
    small = [family for family in known if family.endswith(("-8", "-20"))]
    families = arguments.families or (small if arguments.quick else known)
    everything = [*COMPARED, WORKERS, *(() if arguments.quick else ABLATIONS)]
    if importlib.util.find_spec("torch") and importlib.util.find_spec("scipy"):
        print("torch is here: `--strategies gp` compares Optuna's GPSampler too (a minute a run)")
    strategies = dict.fromkeys(arguments.strategies or everything)
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    jobs = [(f, strategy, seed, arguments.budget) for seed in seeds for f in families for strategy in strategies]
    return sorted(jobs, key=lambda job: -seconds_of(job))


def seconds_of(job: Job) -> float:
    """About what a run takes, in seconds of one core of 2023."""
    family, strategy, _, budget = job
    if strategy in ("fast", "mixed", "random"):
        return 0.3 * budget / BUDGET
    base = next((seconds for end, seconds in _SECONDS.items() if family.endswith(end)), 1.0)
    return base * budget / BUDGET * {"gp": 40.0, "tpe": 0.6}.get(strategy, 1.0)


def estimate(jobs: list[Job], processes: int) -> str:
    """How long `jobs` take, in words."""
    total = sum(map(seconds_of, jobs))
    return f"{len(jobs)} runs, about {total / 3600:.1f} core-hours, {total / processes / 60:.0f} minutes on {processes}"


def execute(jobs: list[Job], arguments: argparse.Namespace) -> list[store.Row]:
    """The rows of `jobs`, from the store or run now; fewer if the time was up."""
    folder: Path = arguments.out
    folder.mkdir(parents=True, exist_ok=True)
    known = store.load(folder)
    if arguments.fresh:
        known = {key: row for key, row in known.items() if key not in set(jobs)}
    store.replace(folder, known.values())
    missing = [job for job in jobs if job not in known]
    print(estimate(missing, arguments.jobs), flush=True)
    start, end = time.monotonic(), math.inf if arguments.minutes is None else 60 * arguments.minutes
    with multiprocessing.get_context("spawn").Pool(arguments.jobs) as pool, (folder / "runs.jsonl").open("a") as file:
        for done, row in enumerate(pool.imap_unordered(run, missing), 1):
            known[store.key(row)] = row
            file.write(store.line(row))
            file.flush()
            spent = time.monotonic() - start
            if done % max(1, len(missing) // 200) == 0:
                print(f"{done}/{len(missing)} after {spent:.0f} s", end="\r", flush=True)
            if spent > end:
                print(f"\nthe time is up: {done} of {len(missing)} runs; the same command goes on")
                pool.terminate()
                break
    return [known[job] for job in jobs if job in known]


def run(job: Job, **changes: object) -> store.Row:
    """One strategy on one world: what it tried, and what that was worth."""
    family, strategy, seed, budget = job
    tables = table_worlds()
    world = tables[family]() if family in tables else (HOLD_OUT.get(family) or make(family))(seed)
    searcher = create(strategy, world.space, seed, **changes)
    rng = np.random.default_rng([99, seed])
    tried: dict[str, int] = {}
    truths, measured, wasted, seconds, stopped = [], [], [], [], None
    for number in range(budget):
        if stopped is None and number >= FIRST_ADVICE and not searcher.goes_on(tried):
            stopped = number
        start = time.perf_counter()
        candidate = searcher.next(number, tried)
        seconds.append(time.perf_counter() - start)
        if candidate is None:
            break
        tried[candidate.digest] = number
        result = world.measure(candidate, rng)
        searcher.tell(candidate, result)
        truths.append(world.truth(candidate))
        feasible = result.log_throughput is not None and (result.log_loss or -1.0) <= 0
        measured.append(result.log_throughput if feasible else -math.inf)
        wasted.append(not feasible)
    return {
        "family": family,
        "strategy": strategy,
        "seed": seed,
        "budget": budget,
        "hit": next((i + 1 for i, truth in enumerate(truths) if truth > world.best - WITHIN), None),
        "trials": len(truths),
        "regret": {str(b): _regret(world.best, truths, measured, b) for b in CHECKPOINTS if b <= budget},
        "infeasible": round(world.infeasible, 3),
        "wasted": sum(wasted),
        "wasted_late": float(np.mean(wasted[20:])) if len(wasted) > 20 else None,
        "seconds": round(float(np.mean(seconds)), 5),
        "slowest": round(max(seconds), 4),
        "stopped": stopped,
        "regret_at_stop": None if stopped is None else _regret(world.best, truths, measured, stopped),
    }


def _regret(best: float, truths: list[float], measured: list[float], budget: int) -> Any:
    """True regret, per cent, of the fastest measured feasible candidate among the first `budget`."""
    pick = int(np.argmax(measured[:budget]))
    return round(100 * math.expm1(best - truths[pick]), 4)


if __name__ == "__main__":
    main()
