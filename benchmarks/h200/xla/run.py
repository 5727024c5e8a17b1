"""Three studies of one program and its knobs, one for each search, each confirmed; what they found as files.

    python benchmarks/h200/xla/run.py OUT                       on the GPU: auto, tpe and fast, 60 trials each
    python benchmarks/h200/xla/run.py OUT --knobs knobs-cpu.toml --n-trials 8 --python PATH     where there is none

Everything is in OUT: the database, the reference, a log of each study. Cut off at any moment and started again with the
same arguments it goes on where it was. The studies run one after another: they share a device.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SEARCHES = ("auto", "tpe", "fast")
# Compiles for minutes: no trial within the deadline would come of it.
LEFT_OUT = "-xla_gpu_exhaustive_tiling_search"


class Run:
    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.out: Path = given.out.resolve()
        self.until = None if given.timeout is None else time.monotonic() + given.timeout
        self.storage = f"sqlite:///{self.out / 'tuner.db'}"
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.environment = {**os.environ, "XLA_STUDY_CACHE": str(self.out / "cache"), "PYTHONPATH": path}

    def prepare(self) -> Path:
        """The program in a folder of OUT, with the Python that has JAX; its reference computed."""
        folder = self.out / "program"
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("measure.py", "network.py"):
            shutil.copyfile(HERE / name, folder / name)
        text = (HERE / self.given.knobs).read_text().replace('"python3"', json.dumps(self.given.python))
        path = folder / self.given.knobs
        path.write_text(text)
        return path

    def tuner(self, *words: str, log: Path | None = None) -> subprocess.CompletedProcess[str]:
        """`python -m tuner ...`; what has a `log` of its own takes time, and ends when time is over."""
        command = [sys.executable, "-m", "tuner", *words, "--storage", self.storage]
        left = None if self.until is None or log is None else max(1.0, self.until - time.monotonic())
        with (log or self.out / "run.log").open("a") as stream:
            # Asked to end, not killed, when time is over: it leaves everything in order either way.
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stream, text=True, env=self.environment)
            try:
                printed, _ = process.communicate(timeout=left)
            except subprocess.TimeoutExpired:
                process.terminate()
                printed, _ = process.communicate()
        return subprocess.CompletedProcess(command, process.returncode, printed)

    def create(self, search: str, model: Path) -> None:
        if search in {one["study"]["name"] for one in self.listed()}:
            return
        words = ["study", "create", search, "--backend", "command", "--model", str(model), "--search", search]
        words += ["--n-trials", str(self.given.n_trials), "--seed", str(self.given.seed)]
        words += ["--max-loss", f"rel_l2={self.given.max_loss}", "--trial-timeout", self.given.trial_timeout]
        words += ["--timing-budget", "500ms", "--noise-sessions", "2", "--control-every", "20", "--no-early-end"]
        words += ["--knobs", LEFT_OUT] if self.given.knobs == "knobs.toml" else []
        ended = self.tuner(*words)
        if ended.returncode:
            sys.exit(f"study {search!r} could not be created: see {self.out / 'run.log'}")

    def listed(self) -> list[dict[str, Any]]:
        if not (self.out / "tuner.db").exists():
            return []
        return json.loads(self.tuner("study", "list", "--json").stdout or "[]")

    def go(self, search: str) -> bool:
        """Search and confirm; whether that came to its end."""
        log = self.out / f"{search}.log"
        if self.tuner("study", "run", search, "--no-confirm", log=log).returncode:
            return False
        if self.found(search).get("verdict"):
            return True
        words = ["study", "confirm", search, "--finalists", "1", "--builds", "2", "--min-gain", "1%"]
        return self.tuner(*words, "--confirm-timeout", self.given.confirm_timeout, log=log).returncode == 0

    def found(self, search: str) -> dict[str, Any]:
        printed = self.tuner("study", "best", search, "--json").stdout
        return json.loads(printed) if printed else {}

    def summarize(self) -> None:
        """Write summary.json and summary.md of what there is by now."""
        found = {}
        for search in SEARCHES:
            shown = self.tuner("study", "show", search, "--json").stdout
            if shown:
                study = json.loads(shown)
                found[search] = {"best": self.found(search), "study": study}
        (self.out / "summary.json").write_text(json.dumps(found, indent=1))
        (self.out / "summary.md").write_text("\n".join(lines(found)) + "\n")


def lines(found: dict[str, Any]) -> list[str]:
    """A table of the studies, then the environment."""
    rows = [
        "| search | trials | feasible | rejected | failed | observed | verdict | winner |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for search, one in found.items():
        best, verdict = one["best"], one["best"].get("verdict")
        words = "-"
        if verdict:
            words = verdict["verdict"].upper().replace("_", " ")
            if verdict.get("speedup") is not None:
                words += (
                    f" {verdict['speedup']:.3f}x [{verdict['ci_low']:.3f}, {verdict['ci_high'] or float('inf'):.3f}]"
                )
        trial = best.get("best_trial") or {}
        winner = " ".join(f"{name}={value}" for name, value in dict(trial.get("candidate", {})).items()) or "-"
        speedup = best.get("speedup_observed")
        observed = f"{speedup:.3f}x" if speedup else "-"
        failed = ", ".join(f"{count} {kind}" for kind, count in best.get("failed", {}).items()) or "0"
        counts = [*(str(best.get(key, "-")) for key in ("n_trials", "feasible", "rejected")), failed]
        rows.append(f"| {search} | {' | '.join(counts)} | {observed} | {words} | {winner} |")
    return [*rows, "", *_details(found)]


def _details(found: dict[str, Any]) -> list[str]:
    """For each study its environment, default, best and cost."""
    rows = []
    for search, one in found.items():
        best, contexts = one["best"], one["study"]["contexts"]
        if not contexts or not best.get("default"):
            continue
        identity = ", ".join(f"{name} {value}" for name, value in contexts[-1]["environment"]["identity"].items())
        default, fastest = best["default"]["throughput"], (best.get("best") or best["default"])["throughput"]
        seconds = f"{best['spent_s']:.0f} s in trials"
        rows.append(f"- {search}: default {default:.1f}/s, best seen {fastest:.1f}/s, {seconds}; {identity}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--knobs", choices=("knobs.toml", "knobs-cpu.toml"), default="knobs.toml")
    parser.add_argument("--searches", default=",".join(SEARCHES))
    parser.add_argument("--n-trials", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-loss", type=float, default=1e-2)
    parser.add_argument("--trial-timeout", default="25s")
    parser.add_argument("--confirm-timeout", default="5m", help="a verdict takes 16 pairs of starts")
    parser.add_argument("--timeout", type=float, help="seconds, of everything; what is not done then is done next time")
    parser.add_argument("--python", default="python3", help="the Python that has JAX")
    run = Run(parser.parse_args())
    model = run.prepare()
    ended = []
    for search in run.given.searches.split(","):
        if run.until is None or time.monotonic() < run.until:
            run.create(search, model)
            ended.append(run.go(search))
            run.summarize()
    print((run.out / "summary.md").read_text())
    if not all(ended) or len(ended) < len(run.given.searches.split(",")):
        sys.exit("not at its end: start it again with the same arguments")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted: start it again with the same arguments, it goes on where it was")
