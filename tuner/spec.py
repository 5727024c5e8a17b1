"""Specification: what a user asks for, and the frozen form in which a study remembers it.

Flow: flags or keyword values -> StudyOptions -> create.py checks them against the model -> StudySpec, stored as JSON.
Nothing below the command line reads settings from anywhere else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from objectives.digest import digest_of
from objectives.requests import Judging
from objectives.shapes import ShapeRange
from objectives.timing import TimingPlan
from tuner.errors import UsageError
from tuner.objective import Objective
from tuner.searches import parse_search

KEEP = ("best", "all")  # best: the default's, the best's, confirmed and promoted ones
FORMAT = 1  # 1: the first
_LONGEST_TRIAL_S = 30 * 86400.0  # every process is bounded; a month is longer than any build
_NAME_CHARS = 150  # the names of a study's Optuna studies add to it, and 255 is what databases index


class Budget(msgspec.Struct, frozen=True):
    """When a study is done: trials of a context in all, and seconds spent in its trials; None: no such limit."""

    n_trials: int | None = 50
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        if self.n_trials is not None and self.n_trials < 1:
            raise UsageError(f"--n-trials must be at least 1, not {self.n_trials}")
        if self.timeout_s is not None and not (self.timeout_s > 0 and math.isfinite(self.timeout_s)):
            raise UsageError(f"--timeout must be a positive duration, not {self.timeout_s:g} s")
        if self.n_trials is None and self.timeout_s is None:
            raise UsageError("a study needs an end", hint="give --n-trials, --timeout or both")


class WorkloadOptions(msgspec.Struct, frozen=True):
    """How the model is run: shapes by input name, data files or generated data, reference files.

    `inputs` and `references` are sources as in `objectives.dataset.read_pairs`; without `inputs`, data are generated
    from `seed`: `pairs` ordinary sets, and hard ones when `hard`. `ranges`: low and high by input name.
    """

    shapes: Mapping[str, tuple[int, ...]] = {}
    min_shapes: Mapping[str, tuple[int, ...]] = {}
    max_shapes: Mapping[str, tuple[int, ...]] = {}
    inputs: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    ranges: Mapping[str, tuple[float, float]] = {}
    pairs: int = 3
    hard: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.pairs < 1:
            raise UsageError(f"--pairs must be at least 1, not {self.pairs}")
        if self.references and not self.inputs:
            raise UsageError("--reference without --inputs: which data do they belong to?", hint="give --inputs too")
        if self.inputs and self.ranges:
            raise UsageError("--range is for generated data; --inputs gives the data", hint="leave one of them out")


class StudyOptions(msgspec.Struct, frozen=True):
    """Everything about a study but its name and model. `knobs`: patterns as in `KnobSpace.select`, none: all."""

    backend: str = "onnxruntime"
    backend_options: Mapping[str, str] = {}  # as `Backend.options` of the backend; `env --backend NAME` lists them
    knobs: tuple[str, ...] = ()
    workload: WorkloadOptions = WorkloadOptions()
    judging: Judging = Judging()
    budget: Budget = Budget()
    objective: Objective = Objective.THROUGHPUT
    build_only: bool = False  # engines are not run: outputs are neither checked nor timed
    timing: TimingPlan = TimingPlan()
    search: str = "auto"  # as `parse_search` takes it
    transfer: bool = True  # a new context starts from what the study's other contexts have seen
    early_end: bool = True  # a search that can say that going on is not worth it ends then
    keep_engines: str = "best"  # which are kept while the study goes on: one of KEEP
    control_every: int = 8  # trials between two re-timings of the baseline; 0: never
    noise_sessions: int = 4  # processes of the A/A run that finds the noise floor; 0: none
    trial_timeout_s: float = 300.0
    memory_bytes: int | None = None  # None: four fifths of what the machine (or container) has

    def __post_init__(self) -> None:
        parse_search(self.search)
        if self.keep_engines not in KEEP:
            raise UsageError(f"--keep-engines {self.keep_engines!r}", hint=f"choose one of: {', '.join(KEEP)}")
        if self.build_only and self.objective.is_timed:
            raise UsageError(
                "--build-only: engines that are not run have no throughput",
                hint="add --objective engine-size or --objective build-time",
            )
        if self.control_every < 0 or self.noise_sessions < 0 or self.noise_sessions % 2:
            raise UsageError(
                f"--control-every {self.control_every}, --noise-sessions {self.noise_sessions}",
                hint="both are 0 or more, and sessions come in pairs: 4, 6, 8",
            )
        if not 0 < self.trial_timeout_s <= _LONGEST_TRIAL_S:
            raise UsageError(
                f"--trial-timeout must be between 0 and {_LONGEST_TRIAL_S:g} s, not {self.trial_timeout_s:g} s"
            )
        if self.memory_bytes is not None and self.memory_bytes < 64 << 20:
            raise UsageError(f"--memory-limit of {self.memory_bytes} bytes is too small to start a runtime")


class PairSpec(msgspec.Struct, frozen=True):
    """One (input, reference) pair by the digests of its tensor files."""

    label: str
    inputs: str
    reference: str


class StudySpec(msgspec.Struct, frozen=True):
    """What a study remembers, validated once. The first pair is the one that is timed.

    Without pairs the model is a program that brings its own inputs, and reports its samples and losses.
    """

    name: str
    model_digest: str
    model_file: str
    pairs: tuple[PairSpec, ...]
    backend: str
    knobs: tuple[str, ...]
    judging: Judging
    budget: Budget
    timing: TimingPlan
    search: str
    seed: int
    trial_timeout_s: float
    memory_bytes: int | None
    shapes: Mapping[str, tuple[int, ...]]
    ranges: Mapping[str, ShapeRange] = {}  # of dynamic inputs: all shapes that the pairs have, made for the timed one
    control_every: int = 0
    noise_sessions: int = 0
    objective: Objective = Objective.THROUGHPUT
    build_only: bool = False
    keep_engines: str = "best"
    backend_options: Mapping[str, str] = {}
    calibration: tuple[str, ...] = ()  # digests of typical inputs, for ranges of numbers
    transfer: bool = True  # a new context starts from what the others have seen
    early_end: bool = False  # of a study older than this field: its budget was a promise
    initial: tuple[tuple[tuple[str, str], ...], ...] = ()  # changes of candidates to try first, after the default
    format: int = FORMAT

    @property
    def measures_itself(self) -> bool:
        return not self.pairs

    @property
    def judging_digest(self) -> str:
        """Identity of how candidates are judged: limits and the data they are judged on."""
        return digest_of([self.judging, self.pairs])

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        result: dict[str, Any] = msgspec.to_builtins(self)
        return result


def read_spec(stored: Mapping[str, Any]) -> StudySpec:
    """Raises: UsageError if a newer version of the tuner wrote it."""
    if stored.get("format") != FORMAT:
        raise UsageError(
            f"the study is stored in format {stored.get('format')}, this version reads {FORMAT}",
            hint="upgrade the tuner",
        )
    return msgspec.convert(dict(stored), StudySpec)


def require_name(name: str) -> str:
    """`name` if it can name a study. Raises: UsageError."""
    if not name.strip() or name != name.strip() or not name.isprintable() or len(name) > _NAME_CHARS:
        raise UsageError(
            f"{name!r} cannot name a study",
            hint=f"use 1 to {_NAME_CHARS} printable characters without blanks at the ends",
        )
    return name
