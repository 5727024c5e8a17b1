"""Outcomes: what became of a candidate. A bad candidate is data.

Flow: evaluate.py and isolation.py make an Outcome -> the ledger records it -> the search learns from it.
Losses are raw here; whether one is too large is asked of `accuracy.violations`, never stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import msgspec
import numpy as np

from objectives.digest import digest_of_file
from objectives.errors import EngineFileError


class Stage(StrEnum):
    """Where in an evaluation something happened."""

    BUILD = "build"
    OPEN = "open"
    CHECK = "check"
    TIME = "time"


class FailureKind(StrEnum):
    """Why a candidate has no measurement."""

    UNSUPPORTED = "unsupported"  # the library or the model refuses this setting
    BUILD_FAILED = "build_failed"
    RUN_FAILED = "run_failed"  # opened, but an inference raised
    FALLBACK = "fallback"  # the library quietly did something else than asked
    CRASHED = "crashed"  # the process died; `signal` says by which
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"


class PairLoss(msgspec.Struct, frozen=True):
    """Losses of one output of one (input, reference) pair, by metric; None: not finite, a violation under any limit.

    A metric function of the user's judges all outputs of a pair together: its `output` is `*`.
    """

    pair: str
    output: str
    losses: Mapping[str, float | None]
    worst: str = ""  # the element that is furthest off, in words

    def number(self, metric: str) -> float:
        """The loss under `metric`, infinite where it is not a finite number."""
        value = self.losses[metric]
        return math.inf if value is None else value


class Accuracy(msgspec.Struct, frozen=True):
    """Every loss of every pair, and what is wrong apart from size (`faults`): shapes, types, missing outputs."""

    losses: tuple[PairLoss, ...] = ()
    faults: tuple[str, ...] = ()

    def worst(self, metric: str, output: str | None = None) -> PairLoss | None:
        """The pair with the largest loss under `metric`, of one output or of all; None where nothing was judged."""
        found = [x for x in self.losses if metric in x.losses and output in (None, x.output)]
        return max(found, key=lambda pair: pair.number(metric), default=None)


class Round(msgspec.Struct, frozen=True):
    """Samples taken back to back; each is the mean over `repeats` inferences, milliseconds per inference.

    A round of a confirmation, taken by itself, says what the machine did meanwhile; those of Samples say it together.
    """

    repeats: int
    samples_ms: tuple[float, ...]
    conditions: Mapping[str, float] = {}
    flags: tuple[str, ...] = ()


class Samples(msgspec.Struct, frozen=True):
    """Raw timings of one candidate in one process, in the order taken. Summaries are derived, never stored alone."""

    rounds: tuple[Round, ...]
    warmup_ms: tuple[float, ...]  # thrown away, kept as proof of steadiness
    warmup_reason: str  # why the warm-up ended: "steady", or the cap that was reached
    clock: str  # "host" or "cuda_event"
    flags: tuple[str, ...] = ()  # quality: "unsteady", "few_samples", "other_load", "throttled:power_cap", ...
    conditions: Mapping[str, float] = {}  # what the machine did meanwhile, see conditions.py

    @property
    def all_ms(self) -> tuple[float, ...]:
        return tuple(sample for one in self.rounds for sample in one.samples_ms)

    @property
    def median_ms(self) -> float:
        """Median latency of one inference, milliseconds."""
        return float(np.median(self.all_ms))

    @property
    def throughput(self) -> float:
        """Inferences per second at the median latency."""
        return 1e3 / self.median_ms

    def percentile_ms(self, percent: float) -> float:
        """Latency percentile in milliseconds; of means over `repeats` where a single inference is too short to time."""
        return float(np.percentile(self.all_ms, percent))


class EngineFile(msgspec.Struct, frozen=True):
    """A built engine on disk: `path` is the main file, `sidecars` further files of its folder, name to digest.

    `cache` names the sidecar that later builds of the same study may start from; empty where there is none.
    """

    path: str
    digest: str
    size_bytes: int
    format: str
    sidecars: Mapping[str, str] = {}
    cache: str = ""


def require_intact(engine: EngineFile) -> None:
    """Check every file of an engine against its digest: loading one runs native code, so only known bytes are loaded.

    Raises: EngineFileError.
    """
    path = Path(engine.path)
    for file, digest in ((path, engine.digest), *((path.parent / n, d) for n, d in engine.sidecars.items())):
        if not file.is_file():
            raise EngineFileError(f"engine file {file} is gone", hint="build it again: `engine promote` does")
        if digest_of_file(file) != digest:
            raise EngineFileError(
                f"engine file {file} is not what was built: its digest is another", hint="it was changed or damaged"
            )


class Trace(msgspec.Struct, frozen=True):
    """What was asked, what took effect, and how long each stage took (seconds)."""

    asked: Mapping[str, str] = {}
    effective: Mapping[str, str] = {}
    stage_s: Mapping[str, float] = {}
    attempts: int = 1


class Measured(msgspec.Struct, frozen=True, tag="measured"):
    """Built, within all limits, and timed."""

    trace: Trace
    accuracy: Accuracy
    samples: Samples
    engine: EngineFile | None = None


class Rejected(msgspec.Struct, frozen=True, tag="rejected"):
    """Built, but its outputs are wrong or outside a limit; not timed."""

    trace: Trace
    accuracy: Accuracy
    reason: str  # names output, pair, loss and worst element


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """No engine, or one that does not run. `detail` is the library's own words or what the harness saw."""

    trace: Trace
    stage: Stage
    kind: FailureKind
    detail: str
    signal: int | None = None

    @property
    def reason(self) -> str:
        return f"{self.kind} in {self.stage}: {self.detail}"


class Built(msgspec.Struct, frozen=True, tag="built"):
    """Built and within all limits, not timed; `accuracy` is None where its outputs were not asked for either."""

    trace: Trace
    accuracy: Accuracy | None
    engine: EngineFile


Outcome = Measured | Built | Rejected | Failed
