"""Tables: recorded landscapes, replayed as worlds with a known best.

A table is compressed JSON lines, `tables/NAME.jsonl.gz` or `.jsonl.xz`. First line: `format` (1), `model`, `backend`,
`machine`, `metric`, `note`, `knobs`, a list of {name, values, default}, and perhaps `limits`, a list of limits on the
loss. Each further line is one candidate of the full factorial: `changes`, a list of [knob, value] that differ from the
default; `samples_ms`, one list of raw samples per measurement, each measurement in a process of its own; `loss` under
the metric, null if not finite (or `losses`, by metric, of which the header's counts); `error`, null or what went wrong.

One table is several worlds, one for each limit on the loss, because the limit changes the landscape: the header's
limits, else quantiles of the losses. The truth of a candidate is the mean log throughput over its measurements; a
replayed measurement is one of them at random, so that its noise is that of the machine. Tables of a GPU measure the
default many times and the rest once: there noise is added, that of the default's processes where the samples of a
candidate scatter as those of the default do, and less in the ratio where they scatter less. (A network that waits for
its host has 20 % between two processes by default, a tenth of that with a CUDA graph.) Searches are told the variance.
"""

from __future__ import annotations

import functools
import gzip
import itertools
import json
import lzma
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from families import Result

from objectives.knobs import Candidate, Knob, KnobKind, KnobSpace

FOLDER = Path(__file__).parent / "tables"
VERSIONS = FOLDER / "versions"  # of one network in several versions of a runtime: for transfer, not for the comparison
FORMAT = 1
_LIMIT_SHARES = (0.25, 0.6, 0.9)  # quantiles of the losses at which limits are put
_NO_LOSS = 1e-12


class TableWorld:
    """A table under one limit."""

    def __init__(self, header: Mapping[str, Any], lines: Iterable[Mapping[str, Any]], limit: float) -> None:
        self.space = KnobSpace(
            tuple(Knob(k["name"], tuple(k["values"]), k["default"], KnobKind.ROUTE, "") for k in header["knobs"])
        )
        self.limit = limit
        self._lines = {Candidate(tuple((name, value) for name, value in x["changes"])): x for x in lines}
        self._losses = {candidate: loss_of(header, x) for candidate, x in self._lines.items()}
        self._speeds = {c: [math.log(1e3 / np.median(s)) for s in x["samples_ms"]] for c, x in self._lines.items()}
        self.default = float(np.mean(self._speeds[Candidate()]))
        self._variances = _variances({c: line["samples_ms"] for c, line in self._lines.items()}, self._speeds)
        truths = [self.truth(candidate) for candidate in self._lines]
        self.best = max(truths)
        self.infeasible = float(np.mean(np.isneginf(truths)))

    def truth(self, candidate: Candidate) -> float:
        """Mean log throughput over the default's if feasible, else minus infinity."""
        speeds, loss = self._speeds[candidate], self._losses[candidate]
        return float(np.mean(speeds)) - self.default if speeds and loss <= self.limit else -math.inf

    def measure(self, candidate: Candidate, rng: np.random.Generator) -> Result:
        speeds, loss = self._speeds[candidate], self._losses[candidate]
        if not speeds:
            return Result(None, None, failed=True)
        log_loss = min(math.log(max(loss, _NO_LOSS) / self.limit), 20.0)
        if log_loss > 0:
            return Result(None, log_loss, failed=False)
        variance = self._variances.get(candidate)
        noise = rng.normal(0.0, math.sqrt(variance)) if len(speeds) == 1 and variance else 0.0
        return Result(float(rng.choice(speeds)) + noise - self.default, log_loss, False, variance)


def _variances(
    samples: Mapping[Candidate, list[list[float]]], speeds: Mapping[Candidate, list[float]]
) -> dict[Candidate, float]:
    """Variance of one measurement's log throughput, by candidate; empty where nothing was measured twice."""
    spreads = {c: float(np.var(s, ddof=1)) for c, s in speeds.items() if len(s) > 1}
    if len(spreads) > 1:  # of many pairs the median, as of one degree of freedom
        return dict.fromkeys(speeds, float(np.median(list(spreads.values()))) / 0.455)
    if Candidate() not in spreads:
        return {}
    scatter = {c: _scatter(measurements) for c, measurements in samples.items() if measurements}
    own = scatter[Candidate()]
    return {c: spreads[Candidate()] * min(1.0, value / own) ** 2 for c, value in scatter.items()}


def _scatter(measurements: Iterable[Iterable[float]]) -> float:
    """Median over measurements of the standard deviation of the logarithms of their samples."""
    return float(np.median([np.std([math.log(sample) for sample in samples]) for samples in measurements]))


def table_worlds() -> dict[str, Callable[[], TableWorld]]:
    """Every recorded table under each of its limits, by name; a table is read when it is asked for."""
    worlds = {}
    for path in sorted(FOLDER.glob("*.jsonl.*")):
        for limit in limits(path):
            worlds[_name(path, limit)] = functools.partial(_world, path, limit)
    return worlds


def related_tables() -> list[str]:
    """Pairs of `VERSIONS`, both ways and by limit, as "parent > child@limit": tables whose header names one `network`.

    Limits are the child's, and hold for both, as the limits of a study do.
    """
    by_network: dict[str, list[Path]] = {}
    for path in sorted(VERSIONS.glob("*.jsonl.*")):
        if network := read_table(path)[0].get("network"):
            by_network.setdefault(network, []).append(path)
    return [
        f"{_stem(parent)} > {_name(child, limit)}"
        for paths in by_network.values()
        for parent, child in itertools.permutations(paths, 2)
        for limit in limits(child)
    ]


def related_worlds(pair: str) -> tuple[TableWorld, TableWorld]:
    """Parent and child of a pair that `related_tables` names."""
    parent, child = pair.split(" > ")
    paths = {_stem(path): path for path in VERSIONS.glob("*.jsonl.*")}
    child_path = paths[child.rpartition("@")[0]]
    limit = next(limit for limit in limits(child_path) if _name(child_path, limit) == child)
    return _world(paths[parent], limit), _world(child_path, limit)


def _stem(path: Path) -> str:
    return path.name.partition(".jsonl")[0]


def _name(path: Path, limit: float) -> str:
    return f"{_stem(path)}@{limit:.1e}"


@functools.cache
def limits(path: Path) -> tuple[float, ...]:
    """Limits of a table: its own, or some between the default's loss and the worst, so that different shares pass.

    The default always passes, as in a study, which refuses limits that the default breaks.
    """
    header, lines = read_table(path)
    if header.get("limits"):
        return tuple(header["limits"])
    losses = np.array([loss for loss in (loss_of(header, x) for x in lines) if 1e-9 < loss < math.inf])
    if not len(losses):
        return (1.0,)
    least = max((loss_of(header, x) for x in lines if not x["changes"]), default=0.0)
    chosen = sorted(float(f"{1.2 * max(np.quantile(losses, share), least):.1e}") for share in _LIMIT_SHARES)
    by_landscape = {int((losses <= limit).sum()): limit for limit in chosen}  # where the same pass it is the same
    return tuple(by_landscape.values())


def loss_of(header: Mapping[str, Any], line: Mapping[str, Any]) -> float:
    """Loss under the header's metric, infinite where it is not finite or there is none."""
    loss = line["loss"] if "loss" in line else (line.get("losses") or {}).get(header["metric"])
    return math.inf if loss is None else float(loss)


def read_table(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Header and lines. Raises: ValueError for another format."""
    opened = lzma.open if path.suffix == ".xz" else gzip.open
    with opened(path, "rt") as file:
        header, *lines = [json.loads(line) for line in file]
    if header.get("format") != FORMAT:
        raise ValueError(f"{path} has format {header.get('format')}, this reads {FORMAT}")
    return header, lines


def _world(path: Path, limit: float) -> TableWorld:
    return TableWorld(*read_table(path), limit)


def write_table(path: Path, header: Mapping[str, Any], lines: Iterable[Mapping[str, Any]]) -> Path:
    """Write a table, compressed as its name says; samples are rounded to a nanosecond."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = (_rounded(line) for line in (header, *lines))
    content = b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)
    path.write_bytes(lzma.compress(content) if path.suffix == ".xz" else gzip.compress(content, mtime=0))
    return path


def _rounded(line: Mapping[str, Any]) -> Mapping[str, Any]:
    if "samples_ms" not in line:
        return line
    return {**line, "samples_ms": [[round(sample, 6) for sample in one] for one in line["samples_ms"]]}
