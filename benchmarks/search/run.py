"""Compares searches on simulated families and recorded tables: trials to the best, regret, waste, time.

    python benchmarks/search/run.py [--quick] [--families ...] [--strategies ...] [--seeds N] [--jobs N] [--ablations]

Every run, one (family, strategy, seed), is one line in results/runs.jsonl and is not repeated while the line is there;
`--fresh` runs anew. Ends with the report, which is also written to results/report.md and results/report.html.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import time
from pathlib import Path

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402
from families import FAMILIES, HOLD_OUT, NOTHING_TO_GAIN, make  # noqa: E402
from report import write  # noqa: E402
from strategies import ABLATIONS, Auto, create  # noqa: E402
from tables import table_worlds  # noqa: E402

RESULTS = Path(__file__).parent / "results"
BUDGET = 120
CHECKPOINTS = (15, 30, 60, 120)
WITHIN = 0.01
COMPARED = ("auto", "tpe", "random", "fast", "mixed")
Job = tuple[str, str, int, int]  # family, strategy, seed, budget


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three seeds, 60 trials, the small families")
    parser.add_argument("--families", nargs="+", help="families and tables; all unless given")
    parser.add_argument("--strategies", nargs="+", default=list(COMPARED))
    parser.add_argument("--ablations", action="store_true", help="also auto with one part switched off at a time")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--budget", type=int, default=BUDGET)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--fresh", action="store_true", help="forget the stored runs of what is asked for")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.seeds, arguments.budget, arguments.out = 3, 60, arguments.out / "quick"
    known = [*FAMILIES, *HOLD_OUT, *table_worlds()]
    families = arguments.families or ([f for f in known if f.endswith(("-8", "-20"))] if arguments.quick else known)
    strategies = [*arguments.strategies, *(ABLATIONS if arguments.ablations else ())]
    jobs = [
        (family, strategy, seed, arguments.budget)
        for seed in range(arguments.seeds)
        for family in families
        for strategy in dict.fromkeys(strategies)
    ]
    write(execute(jobs, arguments.out, arguments.jobs, arguments.fresh), arguments.out)


def execute(jobs: list[Job], out: Path, processes: int, fresh: bool) -> list[dict]:
    """The rows of `jobs`, from the store or run now."""
    out.mkdir(parents=True, exist_ok=True)
    store = out / "runs.jsonl"
    rows = [json.loads(line) for line in store.read_text().splitlines()] if store.exists() else []
    known = {(r["family"], r["strategy"], r["seed"], r["budget"]): r for r in rows}
    if fresh:
        known = {key: row for key, row in known.items() if key not in set(jobs)}
        store.write_text("".join(json.dumps(row) + "\n" for row in known.values()))
    missing = [job for job in jobs if job not in known]
    with multiprocessing.get_context("spawn").Pool(processes) as pool, store.open("a") as file:
        for done, row in enumerate(pool.imap_unordered(run, missing), 1):
            known[row["family"], row["strategy"], row["seed"], row["budget"]] = row
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(f"{done}/{len(missing)} {row['family']} {row['strategy']} {row['seed']}", end="\r", flush=True)
    return list(known.values())


def run(job: Job, **changes: object) -> dict:
    """One strategy on one world: what it tried, and what that was worth."""
    family, strategy, seed, budget = job
    tables = table_worlds()
    world = tables[family]() if family in tables else make(family)(seed)
    searcher = create(strategy, world.space, seed, **changes)
    rng = np.random.default_rng([99, seed])
    tried: dict[str, int] = {}
    truths, measured, wasted, seconds, stopped = [], [], [], [], None
    for number in range(budget):
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
        asked = number in (31, 59, 119) or (family in NOTHING_TO_GAIN and number >= 19 and number % 4 == 3)
        if isinstance(searcher, Auto) and stopped is None and asked:
            stopped = None if searcher.proposer.advice(tried).worth_it else number + 1
    return {
        "family": family,
        "strategy": strategy,
        "seed": seed,
        "budget": budget,
        "hit": next((i + 1 for i, truth in enumerate(truths) if truth > world.best - WITHIN), None),
        "trials": len(truths),
        "regret": {str(b): _regret(world.best, truths, measured, b) for b in CHECKPOINTS if b <= budget},
        "wasted": sum(wasted),
        "wasted_late": float(np.mean(wasted[20:])) if len(wasted) > 20 else None,
        "seconds": float(np.mean(seconds)),
        "stopped": stopped,
    }


def _regret(best: float, truths: list[float], measured: list[float], budget: int) -> float:
    """True regret, per cent, of the fastest measured feasible candidate among the first `budget`."""
    if not truths:
        return math.nan
    pick = int(np.argmax(measured[:budget]))
    return 100 * math.expm1(best - truths[pick])


if __name__ == "__main__":
    main()
