"""What a trial costs beside building, checking and timing: proposing, recording, telling, process traffic.

Runs a study on the synthetic backend (simulated latencies, so that nearly all time is ours) and takes, for each trial,
the time from the end of the one before to its own end, less the time of its stages as the child process measured them.

    python benchmarks/overhead.py [--trials 200] [--knobs 14] [--storage URL]
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path

import numpy as np

from objectives.landscape import Landscape, SimulatedKnob
from tuner import Budget, StudyOptions, create_study, run_study, show_study


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--knobs", type=int, default=14)
    parser.add_argument("--storage", help="database to use; a temporary SQLite file unless given")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        overhead_ms = measure(Path(folder), arguments.trials, arguments.knobs, arguments.storage)
    quarters = np.array_split(overhead_ms, 4)
    print(f"{len(overhead_ms)} trials, {arguments.knobs} knobs, warm child: overhead per trial in ms")
    print(
        f"  median {np.median(overhead_ms):.1f}, 90 % {np.percentile(overhead_ms, 90):.1f}, max {overhead_ms.max():.1f}"
    )
    print("  median by quarter of the study: " + ", ".join(f"{np.median(part):.1f}" for part in quarters))


def measure(folder: Path, trials: int, knobs: int, storage: str | None) -> np.ndarray:
    """Overhead of each trial after the first, milliseconds."""
    url = storage or f"sqlite:///{folder}/overhead.db"
    effects = np.random.default_rng(0).normal(0.0, 0.03, (knobs, 2))
    landscape = Landscape(
        knobs=tuple(
            SimulatedKnob(f"knob-{i:02d}", ("a", "b", "c"), "a", {"b": float(b), "c": float(c)})
            for i, (b, c) in enumerate(effects)
        )
    )
    model = landscape.save(folder / "landscape.json")
    options = StudyOptions(backend="synthetic", budget=Budget(n_trials=trials))
    create_study("overhead", model, options, storage=url, artifacts=folder / "artifacts")
    run_study("overhead", storage=url, artifacts=folder / "artifacts")
    done = show_study("overhead", storage=url).contexts[0].trials
    return np.array(
        [
            ((b.finished_at - a.finished_at).total_seconds() - sum(b.outcome.trace.stage_s.values())) * 1e3
            for a, b in itertools.pairwise(done)
        ]
    )


if __name__ == "__main__":
    main()
