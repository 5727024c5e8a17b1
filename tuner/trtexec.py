"""trtexec's tuning caches: a sweep made with NVIDIA's tool becomes a warm start, a study becomes a cache to replay.

Flow: file -> read_cache -> TuningCache -> warm_start -> candidates that a study tries first; a context's trials ->
cache_of -> write_cache; replay_command says how to build a candidate with trtexec. A cache knows times of another
environment, which decide nothing here: they only order what is tried first.
The file format is in trtexec_cache.py.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

import msgspec

from objectives.accuracy import Limit, violations
from objectives.knobs import Candidate, Knob, KnobKind, KnobSpace
from objectives.outcome import Accuracy, Failed, Measured, Rejected
from objectives.requests import Judging
from objectives.shapes import NO_SHAPES, Shapes
from objectives.trtexec_flags import (
    AVG_TIMING,
    CUDA_GRAPH,
    DEFAULT_AVG_TIMING,
    PRECISION,
    ROUTE_PREFIX,
    always,
    flags_of,
    profile_flags,
    route_of,
)
from tuner.errors import UsageError
from tuner.ledger import Trial
from tuner.trtexec_cache import Header, Row, TuningCache, read_cache

FIRST = 10  # candidates that are taken from a cache unless told otherwise
_ALGORITHMS = {"l0": "L0", "l1": "L1", "l2": "L2", "linf": "LInf", "cos": "Cosine"}
_TOKEN = re.compile(r"-([^\s=]+)=(\S+)")
_OLD_DEFAULTS = 10  # up to this major version trtexec runs without CUDA graph, copies and blocks unless told otherwise


class Proposed(msgspec.Struct, frozen=True):
    """A candidate from a cache, and the median of the times it had there."""

    candidate: Candidate
    gpu_time_ms: float
    rows: int


class Dropped(msgspec.Struct, frozen=True):
    """A row that gave no candidate."""

    iter: int
    build_route: str
    reason: str


class WarmStart(msgspec.Struct, frozen=True):
    """What a cache gives a study: candidates, fastest first, and everything that was left out.

    `default_ms` is what the cache measured for the default; None if it did not. `notes` concern the cache as a whole.
    """

    proposed: tuple[Proposed, ...]
    dropped: tuple[Dropped, ...]
    notes: tuple[str, ...]
    default_ms: float | None = None

    @property
    def candidates(self) -> list[Candidate]:
        """Fastest first; the default is not among them, since a study tries it anyway."""
        return [one.candidate for one in self.proposed]


class Export(msgspec.Struct, frozen=True):
    """A cache made of a study's trials, and the trials that a cache cannot hold: number and reason."""

    cache: TuningCache
    left_out: tuple[tuple[int, str], ...]


class Replay(msgspec.Struct, frozen=True):
    """The command that builds and times a candidate; `notes` say what it cannot do."""

    command: str
    notes: tuple[str, ...]


def warm_start(cache: TuningCache, space: KnobSpace, first: int | None = FIRST) -> WarmStart:
    """The candidates of `space` that the cache measured, fastest first, at most `first`.

    A route with a knob or value that `space` lacks is dropped, not bent; only a knob outside the space that a route
    sets to the cache's own default says nothing and is passed over. Rows of one candidate count with their median.
    """
    defaults = _tokens(cache.header.default_build_route)[0]
    times: dict[Candidate, list[float]] = {}
    dropped: list[Dropped] = []
    for row in cache.rows:
        reason = row.why_unusable
        found = None if reason else _candidate(row.build_route, space, defaults)
        if isinstance(found, Candidate) and row.gpu_time is not None:
            times.setdefault(found, []).append(row.gpu_time)
        else:
            dropped.append(Dropped(row.iter, row.build_route, reason or str(found)))
    default_ms = _median(times.pop(Candidate(), []))
    ranked = sorted(
        (Proposed(candidate, float(median(found)), len(found)) for candidate, found in times.items()),
        key=lambda one: one.gpu_time_ms,
    )
    kept = ranked if first is None else ranked[:first]
    notes = [*cache.faults, *_differing_defaults(defaults, space)]
    if len(kept) < len(ranked):
        notes.append(f"{len(ranked) - len(kept)} slower candidate(s) are not among the first {first}")
    return WarmStart(tuple(kept), tuple(dropped), tuple(notes), default_ms)


def import_cache(
    name: str,
    path: Path,
    storage: str,
    *,
    space_of: Callable[[str, str], KnobSpace],
    store: Callable[[str, str, Sequence[Candidate]], None],
    first: int | None = FIRST,
) -> WarmStart:
    """Make a cache the warm start of the study `name`.

    `space_of(name, storage)` gives the study's knobs, `store(name, storage, candidates)` keeps what is to be tried
    first. Raises: UsageError if the cache holds nothing for this study; nothing is stored then.
    """
    cache = read_cache(path)
    report = warm_start(cache, space_of(name, storage), first)
    if not report.proposed:
        reasons = [one.reason for one in report.dropped]
        words = f"; the first reason: {reasons[0]}" if reasons else ""
        raise UsageError(
            f"none of the {len(cache.rows)} row(s) of {str(path)!r} is a candidate of study {name!r}{words}",
            hint=f"the study's knobs: python -m tuner study show {name}",
        )
    store(name, storage, report.candidates)
    return report


def cache_of(
    trials: Iterable[Trial], space: KnobSpace, judging: Judging, *, tuner_version: str = "", model: str = ""
) -> Export:
    """The trials of one context as a cache. It holds build routes only, so other changes are left out.

    The search's name is our own; without `argv` trtexec refuses to continue the file, as it should: its own loop would
    count our rows as its iterations.
    """
    rows: list[Row] = []
    left_out: list[tuple[int, str]] = []
    limits = judging.limits
    metric = limits[0].metric if limits else ""
    for trial in trials:
        others = [f"{name}={value}" for name, value in trial.candidate.changes if not name.startswith(ROUTE_PREFIX)]
        if others:
            left_out.append((trial.number, f"a cache holds build routes only, not {' '.join(others)}"))
        else:
            rows.append(_row(trial, limits, metric))
    header = Header(
        tuner_version=tuner_version or "unknown",
        accuracy_algorithm=_ALGORITHMS.get(metric, metric),
        accuracy_parameter={
            "atol": judging.tolerance.atol,
            "rtol": judging.tolerance.rtol,
            "epsilon": limits[0].limit if limits else 0.0,
        },
        searching_algorithm="tuner",
        command_line="",
        default_build_route=" ".join(f"{_dashed(knob)}={knob.default}" for knob in _routes(space)),
        tuning_expr=" ".join(f"{_dashed(knob)}=[{'|'.join(knob.values)}]" for knob in _routes(space)),
        files={"onnx": model} if model else None,
    )
    return Export(TuningCache(header, tuple(rows)), tuple(left_out))


def replay_command(
    candidate: Candidate,
    space: KnobSpace,
    *,
    backend: str,
    version: str,
    model: str = "model.onnx",
    shapes: Shapes = NO_SHAPES,
) -> Replay:
    """The trtexec command that builds and times `candidate` as `backend` does.

    `version` is that of TensorRT, such as "11.1.0"; `shapes` are those of inputs with dynamic dimensions.
    Raises: KnobError if the candidate does not belong to `space`.
    """
    full = space.values(candidate)
    is_old = backend != "tensorrt-rtx" and _major(version) <= _OLD_DEFAULTS  # RTX counts its own versions
    changes = dict(candidate.changes)
    # The library and trtexec do not have the same default here, so it is always said.
    changes[AVG_TIMING] = full.get(AVG_TIMING, DEFAULT_AVG_TIMING if backend == "trtexec" else "1")
    flags = flags_of(changes, is_weakly_typed=is_old)
    said = always(full.get(CUDA_GRAPH, "off"), has_new_defaults=not is_old, with_transfers=False)
    files = (f"--onnx={model}", "--saveEngine=best.plan")
    words = ["trtexec", *files, *flags.build, *profile_flags(shapes), *flags.run, *said]
    notes = [_cannot(one) for one in flags.inexpressible]
    notes.append("building the same route again gives another engine: compare with the one that the study kept")
    return Replay(shlex.join(words), tuple(notes))


def _candidate(route: str, space: KnobSpace, cache_defaults: Mapping[str, str]) -> Candidate | str:
    """The candidate that a route means, or why there is none."""
    tokens, wrong = _tokens(route)
    if wrong:
        return wrong
    known = {knob.name: knob for knob in space.knobs}
    assignment: dict[str, str] = {}
    for name, value in tokens.items():
        knob = known.get(ROUTE_PREFIX + name)
        if knob is None and cache_defaults.get(name) == value:
            continue
        if knob is None:
            return f"unknown knob -{name}"
        if value not in knob.values:
            return f"-{name} has no value {value!r} here; it takes {', '.join(knob.values)}"
        assignment[knob.name] = value
    return space.candidate(assignment)


def _tokens(route: str) -> tuple[dict[str, str], str]:
    """Knobs without dash and their values, and what is wrong with the route."""
    found: dict[str, str] = {}
    for token in route.split():
        match = _TOKEN.fullmatch(token)
        if match is None:
            return found, f"{token!r} is not of the form -name=value"
        if match[1] in found:
            return found, f"the route sets -{match[1]} twice"
        found[match[1]] = match[2]
    return found, ""


def _differing_defaults(cache_defaults: Mapping[str, str], space: KnobSpace) -> list[str]:
    """What a route that does not name a knob meant there and does not mean here."""
    notes = []
    for knob in _routes(space):
        there = cache_defaults.get(knob.name.removeprefix(ROUTE_PREFIX))
        if there is not None and there != knob.default:
            notes.append(f"{_dashed(knob)}: the default was {there!r} in the cache, here it is {knob.default!r}")
    return notes


def _row(trial: Trial, limits: Sequence[Limit], metric: str) -> Row:
    outcome, route = trial.outcome, route_of(dict(trial.candidate.changes))
    if isinstance(outcome, Failed):
        return Row(trial.number, route, crash=True, error_message=outcome.reason)
    losses = None if outcome.accuracy is None else _losses(outcome.accuracy, metric)
    if isinstance(outcome, Rejected):
        return Row(trial.number, route, error_message=outcome.reason, accuracy_loss=losses)
    # Judged as the limits stand now; what breaks them has a time all the same.
    wrong = () if outcome.accuracy is None else violations(outcome.accuracy, limits)
    time_ms = outcome.samples.median_ms if isinstance(outcome, Measured) else None
    return Row(trial.number, route, False, wrong[0] if wrong else "", losses, time_ms)


def _losses(accuracy: Accuracy, metric: str) -> dict[str, float | None] | None:
    """Largest loss of each output under `metric`; None stands for one that is not finite."""
    outputs = dict.fromkeys(loss.output for loss in accuracy.losses if metric in loss.losses)
    worst = {output: accuracy.worst(metric, output) for output in outputs}
    return {output: one.losses[metric] for output, one in worst.items() if one is not None} or None


def _routes(space: KnobSpace) -> list[Knob]:
    return [knob for knob in space.knobs if knob.kind == KnobKind.ROUTE and knob.name.startswith(ROUTE_PREFIX)]


def _dashed(knob: Knob) -> str:
    return "-" + knob.name.removeprefix(ROUTE_PREFIX)


def _cannot(change: str) -> str:
    name, _, value = change.partition("=")
    if name == PRECISION:
        return f"{change}: from TensorRT 11.0 on a precision is another model; convert it to {value} first"
    return f"{change}: trtexec has no option for it"


def _median(times: list[float]) -> float | None:
    return float(median(times)) if times else None


def _major(version: str) -> int:
    head = version.partition(".")[0]
    return int(head) if head.isdigit() else _OLD_DEFAULTS + 1
