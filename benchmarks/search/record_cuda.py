"""Records landscapes of the ONNX Runtime CUDA backend: every candidate of a few knobs, checked and timed on this GPU.

    python benchmarks/search/record_cuda.py [NETWORK ...] --seconds 500 --out FOLDER [--times 1] [--work FOLDER]

Candidates are taken by worker processes, each for a batch; a worker that dies or hangs costs its candidate and is
replaced, one whose GPU context is broken leaves by itself. Each finished candidate is a line in
FOLDER/NAME.progress.jsonl and is not taken again, so a recording can be stopped and resumed. At the end
FOLDER/NAME.jsonl.xz is written: the largest full factorial that is complete (see networks.py for the order of knobs).
Each worker times the default first: the default's measurements tell how much one session differs from the next. The
format is described in tables.py.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from networks import NETWORKS
from progress import METRIC, Line, Progress, ordered, space_of, write

from objectives.accuracy import compare
from objectives.backends import cuda_runtime, load
from objectives.backends.base import Backend
from objectives.errors import CandidateError
from objectives.knobs import KnobKind
from objectives.metrics import Tolerance
from objectives.outcome import EngineFile
from objectives.tensors import Array, load_tensors, save_tensors
from objectives.timing import TimingPlan, time_session

BACKEND = "onnxruntime-cuda"
# Fifteen rounds whatever they show: the benchmark decides itself how much of them it uses.
TIMING = TimingPlan(
    sample_ms=1.0, round_ms=6.0, min_samples=5, max_samples=8, min_rounds=15, max_rounds=15, half_width=0.0,
    budget_ms=1e9, warmup_ms=150.0,
)  # fmt: skip
_BATCH = 64  # candidates of one worker
_STUCK_S = 60.0  # a candidate that takes longer is given up
_HOPELESS = 4  # workers in a row that end without a line
_LEAST_S = 5.0  # left over: not worth starting a process for
_ERROR_CHARS = 400


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", help=f"in this order; all unless given: {' '.join(NETWORKS)}")
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop after this")
    parser.add_argument("--out", type=Path, default=Path("recorded"))
    parser.add_argument("--work", type=Path, default=Path("recorded-work"), help="models, references and engines")
    parser.add_argument("--times", type=int, default=1, help="measurements of each candidate, each in its own session")
    parser.add_argument("--prepare", action="store_true", help="only make models and references")
    parser.add_argument("--role", choices=("parent", "prepare", "worker"), default="parent", help="used by itself")
    parser.add_argument("--turn", type=int, default=0, help="used by itself")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    arguments.networks = arguments.networks or list(NETWORKS)
    if arguments.role == "prepare":
        prepare(arguments.networks[0], arguments.work)
    elif arguments.role == "worker":
        work(arguments.networks[0], arguments.work, Progress(arguments.out, arguments.networks[0]), arguments)
    else:
        Recording(arguments).run()


class Recording:
    """The parent: prepares networks, starts workers, writes tables."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._end = time.monotonic() + arguments.seconds

    def run(self) -> None:
        arguments = self._arguments
        if arguments.prepare:
            for name in arguments.networks:
                self._prepare(name)
            return
        try:
            for turn in range(arguments.times):
                for name in arguments.networks:
                    if self._left_s() > _LEAST_S and self._prepare(name):
                        self._record(name, turn)
        finally:
            for name in arguments.networks:
                if Progress(arguments.out, name).path.exists():
                    write(name, BACKEND, arguments.out, arguments.work)

    def _left_s(self) -> float:
        return self._end - time.monotonic()

    def _command(self, role: str, name: str, *more: str) -> list[str]:
        folders = ("--out", str(self._arguments.out), "--work", str(self._arguments.work))
        return [sys.executable, __file__, name, "--role", role, *folders, *more]

    def _prepare(self, name: str) -> bool:
        if (self._arguments.work / name / "machine.json").exists():
            return True
        start = time.monotonic()
        try:
            code = subprocess.run(self._command("prepare", name), timeout=max(self._left_s(), 1.0)).returncode
        except subprocess.TimeoutExpired:
            code = -9
        print(f"{name}: prepared in {time.monotonic() - start:.1f} s, exit code {code}", flush=True)
        return code == 0

    def _record(self, name: str, turn: int) -> None:
        progress, order = Progress(self._arguments.out, name), ordered(space_of(NETWORKS[name]))
        in_vain = 0
        while (todo := progress.todo(order, turn)) and self._left_s() > _LEAST_S and in_vain < _HOPELESS:
            start = time.monotonic()
            self._one_worker(name, turn, progress)
            done = len(todo) - len(progress.todo(order, turn))
            in_vain = 0 if done else in_vain + 1
            each = (time.monotonic() - start) / max(done, 1)
            print(f"{name}: turn {turn}, {len(todo) - done} to do, {each:.2f} s each", flush=True)

    def _one_worker(self, name: str, turn: int, progress: Progress) -> None:
        marker = self._arguments.work / name / "current.json"
        marker.unlink(missing_ok=True)
        seconds = ("--turn", str(turn), "--seconds", f"{self._left_s():.1f}")
        with subprocess.Popen(self._command("worker", name, *seconds)) as process:
            start = time.monotonic()
            seen, since = "", start
            while process.poll() is None:
                time.sleep(0.1)
                now = _read(marker)
                if now != seen:
                    seen, since = now, time.monotonic()
                if time.monotonic() - since > _STUCK_S or self._left_s() < -_STUCK_S:
                    process.kill()
            # A code above 0 is an exception of ours, printed above, and nobody waits once the time is over: again.
            is_lost = process.returncode < 0 and self._left_s() > -_STUCK_S
            if is_lost and (in_flight := _read(marker)):
                hung = time.monotonic() - since > _STUCK_S
                words = f"did not end within {_STUCK_S:g} s" if hung else f"ended with {process.returncode}"
                progress.add({"changes": json.loads(in_flight), **_failed(f"crashed: the process {words}")})


def prepare(name: str, work_folder: Path) -> None:
    """Model, inputs, reference outputs and what the machine is, into a folder of the network."""
    network, folder, backend = NETWORKS[name], work_folder / name, load(BACKEND)
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / "model.onnx"
    network.make(model)
    inputs = network.inputs(np.random.default_rng(0))
    # The file's own names in its own order: exporters choose them.
    inputs = dict(zip((x.name for x in backend.describe(model).inputs), inputs.values(), strict=True))
    save_tensors(folder / "inputs.tensors", inputs)
    save_tensors(folder / "reference.tensors", backend.reference(model, inputs))
    offered = {knob.name: knob.values for knob in backend.knobs(model, backend.describe(model)).knobs}
    for knob, values in network.knobs.items():
        if missing := set(values) - set(offered.get(knob, ())):
            raise SystemExit(f"{name}: this version does not offer {knob}={' '.join(sorted(missing))}")
    found = backend.environment()
    facts = {"version": found.backend_version, "identity": dict(found.identity), "details": dict(found.details)}
    (folder / "machine.json").write_text(json.dumps(facts))


@dataclass(frozen=True)
class Desk:
    """What every candidate of a network needs."""

    backend: Backend
    folder: Path
    inputs: dict[str, Array]
    expected: dict[str, Array]
    fixed: frozenset[str]  # knobs that an engine file depends on

    @classmethod
    def of(cls, folder: Path) -> Desk:
        backend, model = load(BACKEND), folder / "model.onnx"
        knobs = backend.knobs(model, backend.describe(model)).knobs
        fixed = frozenset(knob.name for knob in knobs if knob.kind != KnobKind.RUNTIME)
        inputs, expected = (load_tensors(folder / f"{kind}.tensors") for kind in ("inputs", "reference"))
        return cls(backend, folder, inputs, expected, fixed)


def work(name: str, work_folder: Path, progress: Progress, arguments: argparse.Namespace) -> None:
    """One batch of candidates, the default before them; ends early when the time is over or the GPU is lost."""
    end = time.monotonic() + arguments.seconds
    desk = Desk.of(work_folder / name)
    todo = progress.todo(ordered(space_of(NETWORKS[name])), arguments.turn)
    marker = desk.folder / "current.json"
    for changes in [(), *(one for one in todo if one)][: _BATCH + 1]:
        if time.monotonic() > end:
            return
        marker.write_text(json.dumps(changes))
        start = time.monotonic()
        line = one_line(desk, dict(changes))
        progress.add({"changes": changes, **line, "seconds": round(time.monotonic() - start, 3)})
        marker.unlink()
        if line["error"] is not None and not _is_gpu_well():
            return


def one_line(desk: Desk, values: dict[str, str]) -> Line:
    """Build, open, check and time one candidate; what it does wrong is its `error`."""
    backend, stage = desk.backend, "build"
    try:
        engine = _engine(backend, desk.folder, values, desk.fixed)
        stage = "open"
        with backend.open(engine, values) as session:
            stage = "check"
            judged = compare("pair", session.run(desk.inputs), desk.expected, Tolerance(), {})
            stage = "time"
            session.bind(desk.inputs)
            samples = time_session(session.measure, TIMING, session.clock)
            effective = session.effective
    except CandidateError as error:
        return _failed(f"{stage}: {error.kind}: {error}")
    except OSError:
        raise  # ours: a full disk says nothing about a candidate
    except Exception as error:  # as in an evaluation: a library may raise anything
        return _failed(f"{stage}: {type(error).__name__}: {error}")
    worst = {metric: judged.worst(metric) for metric in (METRIC, "linf")}
    losses = {metric: None if pair is None else pair.losses[metric] for metric, pair in worst.items()}
    return {
        "samples_ms": [[round(sample, 6) for sample in samples.all_ms]],
        "loss": None if judged.faults else losses[METRIC],
        "error": "; ".join(judged.faults) or None,
        "linf": losses["linf"],
        "warmup": samples.warmup_reason,
        "cpu_nodes": effective.get("cpu_nodes"),
    }


def _failed(words: str) -> Line:
    return {"samples_ms": [], "loss": None, "error": " ".join(words.split())[:_ERROR_CHARS]}


def _engine(backend: Backend, folder: Path, values: Mapping[str, str], fixed: frozenset[str]) -> EngineFile:
    """An engine file for each combination of the `fixed` knobs; the others act when it is opened."""
    built = {name: value for name, value in values.items() if name in fixed}
    target = folder / "engines" / ("-".join(f"{name}={value}" for name, value in built.items()) or "default")
    if not (target / "done").exists():
        shutil.rmtree(target, ignore_errors=True)  # what a killed worker left
        target.mkdir(parents=True)
        backend.build(folder / "model.onnx", built, target)
        (target / "done").touch()
    return EngineFile(str(target / "engine.onnx"), "", 0, "onnx")


def _is_gpu_well() -> bool:
    try:
        cuda_runtime.synchronize()
    except CandidateError:
        return False
    return True


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


if __name__ == "__main__":
    os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")
    main()
