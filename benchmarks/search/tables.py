"""Tables: recorded landscapes, replayed as worlds with a known best.

A table is compressed JSON lines, `tables/NAME.jsonl.gz` or `.jsonl.xz`. First line: `format` (1), `model`, `backend`,
`machine`, `metric`, `note`, `knobs`, a list of {name, values, default}, and perhaps `limits`, a list of limits on the
loss. Each further line is one candidate of the full factorial: `changes`, a list of [knob, value] that differ from the
default; `samples_ms`, one list of raw samples per measurement, each measurement in a process of its own; `loss` under
the metric, null if not finite (or `losses`, by metric, of which the header's counts); `error`, null or what went wrong.

One table is several worlds, one for each limit on the loss, because the limit changes the landscape: the header's
limits, else quantiles of the losses. The truth of a candidate is the mean log throughput over its measurements; a
replayed measurement is one of them at random, so that its noise is that of the machine; where there is but one (tables
of a GPU measure the default many times and the rest once), noise of the default's size is added to it.
"""

from __future__ import annotations

import functools
import gzip
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
        spreads = [np.var(s, ddof=1) for s in self._speeds.values() if len(s) > 1]
        repeated = len(spreads) > 1
        # Of many pairs the median, one degree of freedom; of the default alone what its many measurements say.
        self.variance = float(np.median(spreads)) / (0.455 if repeated else 1.0) if spreads else None
        self._noise = 0.0 if repeated or self.variance is None else math.sqrt(self.variance)
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
        noise = rng.normal(0.0, self._noise) if len(speeds) == 1 and self._noise else 0.0
        return Result(float(rng.choice(speeds)) + noise - self.default, log_loss, False, self.variance)


def table_worlds() -> dict[str, Callable[[], TableWorld]]:
    """Every recorded table under each of its limits, by name; a table is read when it is asked for."""
    worlds = {}
    for path in sorted(FOLDER.glob("*.jsonl.*")):
        for limit in limits(path):
            name = f"{path.name.partition('.jsonl')[0]}@{limit:.0e}"
            worlds[name] = functools.partial(_world, path, limit)
    return worlds


@functools.cache
def limits(path: Path) -> tuple[float, ...]:
    """Limits of a table: its own, or some between the default's loss and the worst, so that different shares pass."""
    header, lines = read_table(path)
    if header.get("limits"):
        return tuple(header["limits"])
    losses = np.array([loss for loss in (loss_of(header, x) for x in lines) if 1e-9 < loss < math.inf])
    if not len(losses):
        return (1.0,)
    return tuple(sorted({float(f"{1.2 * np.quantile(losses, share):.0e}") for share in _LIMIT_SHARES}))


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
