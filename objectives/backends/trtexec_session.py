"""An engine run through trtexec: every call is a process that loads the engine, runs, and exports what it saw.

Flow: trtexec.py opens -> HERE -> evaluate.py checks (`--exportOutput`) and times (`--exportTimes`).
How a process per call becomes a stopwatch: one timing call runs many inferences, and its times are queued; `measure`
takes as many from the queue as it is asked for and adds them up, so every sample is of real inferences that ran back
to back. When the queue runs dry the program is called again. Queued times go stale: when somebody else had the device
since the last call, they are thrown away, or a confirmation's turns would be turns in name only.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from objectives.backends.base import Session, Values
from objectives.backends.trt_errors import failure
from objectives.backends.trt_manifest import Manifest
from objectives.backends.trtexec_command import (
    Changes,
    Offer,
    check_arguments,
    run_arguments,
    timing_arguments,
)
from objectives.backends.trtexec_process import Ended, run
from objectives.backends.trtexec_results import read_log, read_outputs, read_report, read_times
from objectives.conditions import HostWatch, Watch
from objectives.errors import CandidateError, HarnessError
from objectives.outcome import FailureKind
from objectives.tensors import Array, Tensors, dtype_of, name_of

_FRESH_S = 0.5  # starting CUDA and loading an engine takes anybody else longer
_FIRST_ITERATIONS = 10  # before it is known how long one takes
_CALL_MS = 1000.0  # of inferences per timing call, about
_MOST_ITERATIONS = 10_000  # a call exports 300 bytes for each
_WARMUP_MS = 200
_NOT_TAKEN = "graph_not_captured"


@dataclass(frozen=True, slots=True)
class TrtexecSettings:
    """What a user may set beside the knobs. It is the same for every candidate of a study."""

    build_limit_s: float = 3600.0
    run_limit_s: float = 600.0
    query_limit_s: float = 120.0
    device: int | None = None  # CUDA device; None: the program's own choice, the first
    keep: tuple[str, ...] = ()  # nodes that a conversion leaves as they are, see keep.py
    ladders: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # ranges of open-ended build-route knobs


@dataclass(frozen=True, slots=True)
class Program:
    """The installed trtexec: where it is, what it offers, and what the user allows."""

    path: str
    offer: Offer
    settings: TrtexecSettings

    def call(self, arguments: list[str], limit_s: float) -> Ended:
        """Run it. Raises: BackendUnavailableError if it cannot be started."""
        device = [] if self.settings.device is None else [f"--device={self.settings.device}"]
        return run([self.path, *arguments, *device], limit_s)


def require_good(ended: Ended, otherwise: FailureKind, what: str) -> None:
    """Raises: CandidateError in trtexec's words if the run did not end well.

    Both the exit code and the last line count: some failures are told by only one of them.
    """
    if ended.is_good and read_report(ended.text).verdict in ("", "PASSED"):
        return
    log = read_log(ended.text)
    if ended.timed_out:
        raise CandidateError(FailureKind.TIMED_OUT, f"{what}: trtexec {ended.describe()}")
    if ended.signal is not None:
        words = "; ".join(log.errors) or "it said nothing about it"
        raise CandidateError(FailureKind.CRASHED, f"{what}: trtexec {ended.describe()}: {words}")
    raise failure(log, otherwise, f"{what}: trtexec {ended.describe()}")


class TrtexecSession(Session):
    """`manifest` says what the engine is; nothing is loaded before the first call."""

    clock = "cuda_event"

    def __init__(self, program: Program, plan: Path, manifest: Manifest, changes: Changes, effective: Values) -> None:
        self._program = program
        self._plan = plan
        self._manifest = manifest
        self._changes = changes
        self._effective = dict(effective)
        self._folder: tempfile.TemporaryDirectory[str] | None = tempfile.TemporaryDirectory(prefix="trtexec.")
        self._bound: list[str] | None = None
        self._queue: deque[float] = deque()
        self._typical_ms: float | None = None
        self._last_s = 0.0
        self.quality: set[str] = set()

    @property
    def effective(self) -> Values:
        return self._effective

    def run(self, inputs: Tensors) -> dict[str, Array]:
        folder = self._require_open()
        common = self._arguments(inputs, "run")
        exported = folder / "output.json"
        exported.unlink(missing_ok=True)
        limit_s = self._program.settings.run_limit_s
        ended = self._program.call([*common, *check_arguments(self._program.offer, self._changes, exported)], limit_s)
        require_good(ended, FailureKind.RUN_FAILED, "the engine does not run")
        return read_outputs(_exported(exported), self._manifest.outputs)

    def bind(self, inputs: Tensors) -> None:
        self._require_open()
        self._bound = self._arguments(inputs, "bound")
        self._queue.clear()

    def measure(self, repeats: int) -> float:
        """Device time of `repeats` consecutive inferences, from the events around each; copies are not in it."""
        self._require_open()
        if self._bound is None:
            raise HarnessError("measure was called before bind")
        if time.monotonic() - self._last_s > _FRESH_S:
            self._queue.clear()
        while len(self._queue) < repeats:
            self._queue.extend(self._take(self._bound, repeats - len(self._queue)))
        total_ms = sum(self._queue.popleft() for _ in range(repeats))
        self._last_s = time.monotonic()
        return total_ms * 1e-3

    def _execute(self, repeats: int) -> None:
        self.measure(repeats)

    def watch(self) -> Watch:
        return _QualityWatch(self)

    def close(self) -> None:
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()

    def _take(self, bound: list[str], needed: int) -> tuple[float, ...]:
        """Times of at least `needed` inferences, milliseconds each."""
        wanted = _FIRST_ITERATIONS if self._typical_ms is None else int(_CALL_MS / self._typical_ms)
        iterations = max(needed, min(max(wanted, _FIRST_ITERATIONS), _MOST_ITERATIONS))
        exported = self._require_open() / "times.json"
        exported.unlink(missing_ok=True)
        timing = timing_arguments(self._program.offer, self._changes, iterations, _WARMUP_MS, exported)
        ended = self._program.call([*bound, *timing], self._program.settings.run_limit_s)
        require_good(ended, FailureKind.RUN_FAILED, "the engine cannot be timed")
        self._judge(ended)
        times = read_times(_exported(exported))
        self._typical_ms = float(np.median(times))
        return times

    def _judge(self, ended: Ended) -> None:
        quality = read_report(ended.text).quality
        if self._changes.graph == "capture":
            if _NOT_TAKEN in quality:
                raise CandidateError(FailureKind.FALLBACK, "cuda_graph=capture: trtexec says the capture failed")
            self._effective["graph"] = "captured, trtexec did not say otherwise"
        self.quality.update(flag for flag in quality if flag != _NOT_TAKEN)

    def _arguments(self, inputs: Tensors, name: str) -> list[str]:
        """Write `inputs` as raw files and name them."""
        folder = self._require_open() / name
        folder.mkdir(exist_ok=True)
        files: dict[str, Path] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        for index, (tensor, kind) in enumerate(self._manifest.inputs.items()):
            array = np.ascontiguousarray(_native(tensor, inputs[tensor], kind, self._program.offer.major))
            files[tensor] = folder / f"{index}.bin"
            files[tensor].write_bytes(array.tobytes())
            if tensor in self._manifest.profile:
                shapes[tensor] = inputs[tensor].shape
        return run_arguments(self._program.offer, self._changes, self._plan, files, shapes)

    def _require_open(self) -> Path:
        if self._folder is None:
            raise HarnessError("this session is closed")
        return Path(self._folder.name)


class _QualityWatch:
    """The host's conditions, and what trtexec said about its own timings meanwhile."""

    def __init__(self, session: TrtexecSession) -> None:
        self._host = HostWatch()
        self._session = session
        session.quality.clear()

    def stop(self) -> tuple[dict[str, float], tuple[str, ...]]:
        """Figures and flags."""
        figures, flags = self._host.stop()
        return figures, (*flags, *sorted(self._session.quality))


def _native(name: str, array: Array, kind: str, major: int) -> Array:
    """`array` in the type that TensorRT has for the model's type. Raises: CandidateError."""
    if name_of(array.dtype) == "string" or kind == "string":
        raise CandidateError(FailureKind.UNSUPPORTED, f"input {name!r} is text, which TensorRT does not have")
    target = {"float64": "float32", "int64": "int64" if major >= 10 else "int32"}.get(kind, kind)
    converted = array.astype(dtype_of(target), copy=False)
    if target == "int32" and not np.array_equal(converted, array):
        words = f"input {name!r} holds numbers beyond 32 bits, which this version of TensorRT does not take"
        raise CandidateError(FailureKind.UNSUPPORTED, words)
    return converted


def _exported(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        words = f"trtexec ended well, but did not write {path.name}: {error}"
        raise CandidateError(FailureKind.RUN_FAILED, words) from error
