"""A/A on a real runtime under load: how often does a confirmation call a candidate faster that is the default?

The candidates set knobs that change nothing for the network of the demo (it has no GELU and no chain of casts), so
each is the default under another name. A busy process competes for the machine. Each confirmation goes through the
product's own path: rebuilt, restarted, interleaved, judged; the search chooses nothing. Beside it, on the same rounds:
the rule "smallest of single measurements": one round of each side, the smallest sample counts.

    pip install -e '.[demo]' && python benchmarks/verdict_live.py --confirmations 30 --timeout 30
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from objectives.isolation import Limits, Subprocess
from objectives.timing import TimingPlan
from storage import confirmations as table
from storage.studies import get_study
from tuner.answers import ConfirmOptions
from tuner.api import run_study, show_study
from tuner.confirm import Confirmation
from tuner.context import contexts
from tuner.demo import prepare
from tuner.home import open_home
from tuner.progress import Progress
from tuner.spec import Budget, read_spec
from tuner.stats import VerdictKind

# Short rounds: many pairs matter more here than exact ones.
TIMING = TimingPlan(budget_ms=300.0, round_ms=25.0, min_samples=3, settle_ms=40.0, warmup_ms=300.0)
KNOBS = ("gelu_approximation", "cast_chain_elimination")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--confirmations", type=int, default=30)
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds for each")
    parser.add_argument("--load", type=int, default=1, help="busy processes beside it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/live.db"
        prepare("live", Budget(n_trials=4), storage=url, knobs=KNOBS, timing=TIMING)
        loads = [multiprocessing.Process(target=_busy, daemon=True) for _ in range(arguments.load)]
        for load in loads:
            load.start()
        try:
            run_study("live", storage=url)
            _confirm_often(url, arguments.confirmations, arguments.timeout)
        finally:
            for load in loads:
                load.terminate()
        _report(url)


def _confirm_often(url: str, count: int, timeout_s: float) -> None:
    options = ConfirmOptions(finalists=1, timeout_s=timeout_s)
    view = show_study("live", storage=url).contexts[0]
    # Always one that is not the default by name, even if the search found the default itself fastest.
    other = next(trial for trial in view.trials if not trial.candidate.is_baseline)
    kinds = []
    for number in range(count):
        start = time.monotonic()
        with open_home(url) as home:
            spec = read_spec(get_study(home.database, "live").spec)
            confirmation = Confirmation(home, spec, view.context, lambda: Subprocess(Limits(120.0)), Progress())
            answer = confirmation.run(view.trials[0], [other], options)
        verdict = answer.verdict
        kinds.append(answer.kind)
        shown = (
            "no pairs" if verdict is None else f"{verdict.speedup:.3f} [{verdict.ci_low:.3f}, {verdict.ci_high:.3f}]"
        )
        spent = time.monotonic() - start
        print(f"{number + 1:3d}  {answer.kind.value:<10}  {shown}  {answer.n_pairs} pairs  {spent:.0f} s", flush=True)
    print(
        f"\n{count} confirmations of the default against itself, under load: "
        + ", ".join(f"{kind.value} {kinds.count(kind)}" for kind in VerdictKind)
    )


def _report(url: str) -> None:
    """The single-measurement rule on the same data, and what a pair's log ratio looked like."""
    claims, ratios = [], []
    with open_home(url) as home:
        for context in contexts(home, "live"):
            for confirmation in table.confirmations_of(home.database, context.id):
                pairs = table.pairs_of(home.database, confirmation.id)
                ratios += [pair.log_ratio for pair in pairs]
                claims += [_single_gain(pair.rounds) for pair in pairs[:1]]
    found = [claim for claim in claims if claim > 0.01]
    claim = np.median(found) if found else 0.0
    print(f"one measurement a side, smallest sample: 'finds' over 1 % in {len(found)}, median claim {claim:+.1%}")
    print(f"log ratios of {len(ratios)} pairs: mean {np.mean(ratios):+.2%}, standard deviation {np.std(ratios):.2%}")


def _single_gain(rounds: Sequence[Mapping[str, Any]]) -> float:
    """Gain that the first round of each side shows: smallest sample against smallest sample."""
    smallest: dict[str, float] = {}
    for one in rounds:
        smallest.setdefault(one["side"], min(one["samples_ms"]))
    return smallest["baseline"] / smallest["candidate"] - 1.0


def _busy() -> None:
    while True:
        sum(range(100_000))


if __name__ == "__main__":
    main()
