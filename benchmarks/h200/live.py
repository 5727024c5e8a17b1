"""Live studies by the command line: what a user gets on a network in a few minutes, and where the time goes.

    python benchmarks/h200/live.py --out FOLDER [--networks a,b] [--timeout-per-network 150s] [--models DIR]
    python benchmarks/h200/live.py --out FOLDER --report-only --replay 20

For each network: `study create`, `study run`, `study confirm` as processes, each within a share of the network's time.
FOLDER/NAME.jsonl.xz then holds every trial with its raw samples, every re-timing of the default and every process pair;
a network that has one is not run again, an interrupted one goes on where it stopped. FOLDER/report.md says what came of
all that is there. --replay adds what other searches find with as many trials on recorded tables; it needs no GPU.
--prepare only makes the models, into --work, or takes them from --models DIR (NAME.onnx, or as packages call them).
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copyfile
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT)]

import numpy as np  # noqa: E402 - after the path is set
from live_networks import LIVE, LiveNetwork  # noqa: E402
from live_report import write_report  # noqa: E402

from storage.confirmations import confirmations_of, pairs_of  # noqa: E402
from storage.controls import controls_of  # noqa: E402
from storage.migrate import open_database  # noqa: E402
from storage.studies import contexts_of  # noqa: E402
from tuner.cli import parse  # noqa: E402

FORMAT = 1
_GRACE_S = 20.0  # for an interrupted command to end by itself
_CREATE_SHARE = 0.3  # of a network's time, at most
_TRIALS_SHARE = 0.85  # of a search's time, for trials; the rest is for re-timings of the default and process starts
Line = dict[str, Any]


def main() -> None:
    arguments = _arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    arguments.work.mkdir(parents=True, exist_ok=True)
    if not arguments.report_only:
        names = [name for name in arguments.networks if arguments.prepare or not _raw(arguments, name).exists()]
        with ThreadPoolExecutor(max(len(names), 1)) as pool:
            ready = dict(zip(names, pool.map(lambda name: prepare(arguments, name), names), strict=True))
        for name in names if not arguments.prepare else ():
            if ready[name]:
                Study(arguments, name).run()
    if not arguments.prepare:
        print(write_report(arguments.out, read_all(arguments.out), arguments.replay))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="raw results and report")
    parser.add_argument("--networks", default=",".join(LIVE), help=f"with commas, in this order: {','.join(LIVE)}")
    parser.add_argument("--work", type=Path, help="models, data and databases; OUT/work unless given")
    parser.add_argument("--models", type=Path, help="a folder that holds models")
    parser.add_argument("--backend", default="onnxruntime-cuda")
    parser.add_argument("--max-loss", default="rel_l2=1e-2")
    parser.add_argument("--search", default="auto", help="`auto` ends early")
    parser.add_argument("--n-trials", type=int, default=60)
    parser.add_argument("--timeout-per-network", default="150s", metavar="TIME")
    parser.add_argument("--confirm", default="55s", metavar="TIME", help="of that, for the confirmation")
    parser.add_argument("--finalists", type=int, default=1)
    parser.add_argument("--timing-budget", default="1s")
    parser.add_argument("--noise-sessions", type=int, default=0, help="the tuner's default is 4: 6 process starts")
    parser.add_argument("--control-every", type=int, default=10)
    parser.add_argument("--devices", help="as `study run --devices`")
    parser.add_argument("--prepare", action="store_true", help="only make models and data")
    parser.add_argument("--report-only", action="store_true")
    parser.add_argument("--replay", type=int, default=0, metavar="SEEDS", help="compare searches on recorded tables")
    parser.add_argument("--role", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.networks = arguments.networks.split(",")
    if unknown := set(arguments.networks) - set(LIVE):
        parser.error(f"no such network: {', '.join(sorted(unknown))}; there are: {', '.join(LIVE)}")
    arguments.out = arguments.out.resolve()
    arguments.work = (arguments.work or arguments.out / "work").resolve()
    if arguments.role:
        LIVE[arguments.role].make(arguments.work / arguments.role / "model.partial.onnx")
        raise SystemExit(0)
    return arguments


def _raw(arguments: argparse.Namespace, name: str) -> Path:
    return arguments.out / f"{name}.jsonl.xz"


# ---- models and data


def prepare(arguments: argparse.Namespace, name: str) -> bool:
    """Model and data of a network in its work folder; False, and a line, if it cannot be had here."""
    folder = arguments.work / name
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / "model.onnx"
    if not model.exists():
        partial = folder / "model.partial.onnx"
        given = _given(arguments.models, name)
        start = time.monotonic()
        if given is not None:
            copyfile(given, partial)
        else:  # in a process of its own: exporters leave a lot behind
            command = [sys.executable, __file__, "--out", str(arguments.out), "--work", str(arguments.work)]
            made = subprocess.run([*command, "--role", name], capture_output=True, text=True)
            if made.returncode or not partial.exists():
                print(f"{name}: left out, its model cannot be made: {' '.join(made.stderr.split())[-300:]}", flush=True)
                return False
        partial.replace(model)
        print(f"{name}: {given or 'made'} in {time.monotonic() - start:.1f} s", flush=True)
    _write_inputs(LIVE[name], model, folder)
    return True


def _given(models: Path | None, name: str) -> Path | None:
    names = (f"{name}.onnx", *LIVE[name].files)
    found = [path for one in names for path in (models.rglob(one) if models else ())]
    return found[0] if found else None


def _write_inputs(network: LiveNetwork, model: Path, folder: Path) -> None:
    if network.inputs is None:
        return
    import onnx

    graph = onnx.load(str(model), load_external_data=False).graph
    names = [one.name for one in graph.input if one.name not in {weight.name for weight in graph.initializer}]
    for pair in range(network.pairs):
        target = folder / f"pair-{pair}.npz"
        if not target.exists():
            arrays = network.inputs(np.random.default_rng(pair)).values()
            # The file's own names in its own order: exporters choose them.
            np.savez(target, **dict(zip(names, arrays, strict=True)))


# ---- one study


class Study:
    """One network's study, from nothing or from where it stopped."""

    def __init__(self, arguments: argparse.Namespace, name: str) -> None:
        self._arguments = arguments
        self._name = name
        self._folder: Path = arguments.work / name
        self._url = f"sqlite:///{self._folder / 'tuner.db'}"
        self._steps = self._folder / "steps.jsonl"  # what was run so far, over all interruptions
        self._end = time.monotonic() + parse.duration_s(arguments.timeout_per_network)
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[2:]])}

    def run(self) -> None:
        """Create, search, confirm; write what came of it."""
        done = {step["step"] for step in self._known() if step["code"] == 0}
        confirm_s = parse.duration_s(self._arguments.confirm)
        create_s = _CREATE_SHARE * self._left_s() + _GRACE_S
        ok = "create" in done or self._step("create", create_s, *self._create()) == 0
        if ok and "run" not in done:
            search_s = self._left_s() - confirm_s
            # Interrupted by the clock it has what it has: a confirmation of that is what a user would ask for too.
            # A budget for its trials that leaves room for the rest, so that it ends by itself as a rule.
            budget = ("--n-trials", str(self._arguments.n_trials), "--timeout", f"{_TRIALS_SHARE * search_s:.0f}s")
            words = ("run", self._name, "--no-confirm", *budget, *self._where())
            ok = self._step("run", search_s, *words) in (0, 130)
        if ok:
            limits = ("--confirm-timeout", f"{max(self._left_s() - 5.0, 20.0):.0f}s")
            finalists = ("--finalists", str(self._arguments.finalists))
            self._step(
                "confirm", self._left_s() + 3 * _GRACE_S, "confirm", self._name, *limits, *finalists, *self._where()
            )
        self._write()

    def _create(self) -> list[str]:
        arguments, network = self._arguments, LIVE[self._name]
        pairs = [str(path) for path in sorted(self._folder.glob("pair-*.npz"))]
        flags = ["create", self._name, "--model", str(self._folder / "model.onnx"), *network.flags]
        flags += [word for pair in pairs for word in ("--inputs", pair)]
        flags += ["--backend", arguments.backend, "--max-loss", arguments.max_loss, "--search", arguments.search]
        flags += ["--n-trials", str(arguments.n_trials), "--timing-budget", arguments.timing_budget]
        flags += ["--noise-sessions", str(arguments.noise_sessions), "--control-every", str(arguments.control_every)]
        flags += ["--no-hard-inputs", "--trial-timeout", "60s"]
        knobs = network.knobs if arguments.backend == "onnxruntime-cuda" else ()
        return flags + (["--knobs", ",".join(knobs)] if knobs else [])

    def _where(self) -> list[str]:
        return ["--devices", self._arguments.devices] if self._arguments.devices else []

    def _step(self, step: str, limit_s: float, *words: str) -> int:
        """One command of the tuner, interrupted when its time is up; returns its exit code."""
        command = [sys.executable, "-m", "tuner", "study", *words, "--storage", self._url]
        start, begun = time.monotonic(), time.time()
        said: list[tuple[float, str]] = []
        print(f"{self._name}: {step}", flush=True)
        pipes: Line = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with (
            subprocess.Popen(command, cwd=self._folder, env=self._environment, **pipes) as process,
            ThreadPoolExecutor(1) as pool,
        ):
            reading = pool.submit(_read, process, start, said)
            for patience_s, end in ((max(limit_s, 1.0), signal.SIGINT), (_GRACE_S, signal.SIGKILL)):
                try:
                    process.wait(patience_s)
                except subprocess.TimeoutExpired:
                    process.send_signal(end)
            reading.result()
        wall_s = time.monotonic() - start
        row = {
            "step": step, "command": command[2:], "code": process.returncode, "begun_at": begun,
            "wall_s": round(wall_s, 3), "said": said,
        }  # fmt: skip
        with self._steps.open("a") as file:
            file.write(json.dumps(row) + "\n")
        last = " / ".join(words for _, words in said[-2:])
        print(f"{self._name}: {step} ended with {process.returncode} after {wall_s:.1f} s: {last}", flush=True)
        return process.returncode

    def _left_s(self) -> float:
        return self._end - time.monotonic()

    def _known(self) -> list[Line]:
        return [json.loads(line) for line in self._steps.read_text().splitlines()] if self._steps.exists() else []

    def _ask(self, verb: str) -> Any:
        command = [sys.executable, "-m", "tuner", "study", verb, self._name, "--json", "--storage", self._url]
        ended = subprocess.run(command, env=self._environment, capture_output=True, text=True)
        return json.loads(ended.stdout) if ended.returncode == 0 else None

    def _write(self) -> None:
        """Everything that is known of the study, as lines of JSON; nothing if it was not even created."""
        shown = self._ask("show")
        if shown is None or not shown["contexts"]:
            return
        context = shown["contexts"][-1]
        trials = context.pop("trials")
        network = LIVE[self._name]
        header = {
            "format": FORMAT, "network": self._name, "note": network.note, "table": network.table,
            "knobs": list(network.knobs), "arguments": _plain(self._arguments), "study": shown["study"],
            "context": context, "steps": self._known(), "best": self._ask("best"),
        }  # fmt: skip
        lines = [{"kind": "header", **header}, *({"kind": "trial", **one} for one in trials), *self._rows()]
        content = "".join(json.dumps(line, separators=(",", ":"), default=str) + "\n" for line in lines)
        target = _raw(self._arguments, self._name)
        partial = target.with_suffix(".partial")
        partial.write_bytes(lzma.compress(content.encode()))
        partial.replace(target)

    def _rows(self) -> list[Line]:
        """What the command line does not print: re-timings and process pairs."""
        database = open_database(self._url)
        try:
            context = contexts_of(database, self._name)[-1]
            controls = [
                {
                    "kind": "control", "purpose": one.purpose, "taken_at": one.taken_at.isoformat(),
                    "device": one.device, "latency_ms": one.latency_ms,
                    "rounds": [[x.repeats, list(x.samples_ms)] for x in one.rounds],
                }
                for one in controls_of(database, context.id)
            ]  # fmt: skip
            pairs = [
                {
                    "kind": "pair", "finalist": one.finalist, "index": one.pair_index, "log_ratio": one.log_ratio,
                    "device": one.device, "rounds": [dict(x) for x in one.rounds],
                }
                for confirmation in confirmations_of(database, context.id)
                for one in pairs_of(database, confirmation.id)
            ]  # fmt: skip
            return controls + pairs
        finally:
            database.close()


def _read(process: subprocess.Popen[str], start: float, said: list[tuple[float, str]]) -> None:
    assert process.stdout is not None
    said.extend((round(time.monotonic() - start, 2), line.rstrip()) for line in process.stdout)


def _plain(arguments: argparse.Namespace) -> Line:
    return {name: value if isinstance(value, int | list) else str(value) for name, value in vars(arguments).items()}


def read_all(folder: Path) -> list[list[Line]]:
    """The lines of every study in a folder, in the order of `LIVE`."""
    order = {name: index for index, name in enumerate(LIVE)}
    found = sorted(folder.glob("*.jsonl.xz"), key=lambda path: order.get(path.name.partition(".")[0], len(order)))
    return [[json.loads(line) for line in lzma.decompress(path.read_bytes()).decode().splitlines()] for path in found]


if __name__ == "__main__":
    main()
