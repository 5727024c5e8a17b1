"""Progress of a recording: which candidates in which order, what is measured, and the table that comes of it.

Flow: record_cuda.py takes candidates from HERE and adds a line for each -> `write` HERE -> a table (tables.py).
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from networks import NETWORKS, Network
from tables import FORMAT, write_table

from objectives.knobs import Knob, KnobKind, KnobSpace

METRIC = "rel_l2"
_FAILED = 1000  # a failure counts for every turn
Line = dict[str, Any]
Changes = tuple[tuple[str, str], ...]


def space_of(network: Network) -> KnobSpace:
    """The knobs of a recording; the first value of each is its default."""
    return KnobSpace(tuple(Knob(n, v, v[0], KnobKind.RUNTIME, "recorded") for n, v in network.knobs.items()))


def ordered(space: KnobSpace) -> list[Changes]:
    """Every candidate: the full factorials of the first one, two, ... knobs one after the other, each step shuffled."""
    found: list[dict[str, str]] = [{}]
    rng = random.Random(0)
    for knob in space.knobs:
        others = [value for value in knob.values if value != knob.default]
        more = [{**values, knob.name: value} for value in others for values in found]
        rng.shuffle(more)
        found += more
    return [space.candidate(values).changes for values in found]


class Progress:
    """What has been recorded of a network: one line of JSON per measurement of a candidate."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / f"{name}.progress.jsonl"

    def lines(self) -> Iterator[Line]:
        for text in self.path.read_text().splitlines() if self.path.exists() else ():
            try:
                yield json.loads(text)
            except json.JSONDecodeError:
                continue  # the last line of a process that was killed while it wrote

    def add(self, line: Mapping[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def todo(self, order: Sequence[Changes], turn: int) -> list[Changes]:
        """What has not been measured more than `turn` times; a failure counts for every turn."""
        counts: Counter[Changes] = Counter()
        for line in self.lines():
            counts[changes_of(line)] += 1 if line["error"] is None else _FAILED
        return [changes for changes in order if counts[changes] <= turn]


def write(name: str, backend: str, out: Path, work_folder: Path) -> None:
    """The table of the largest complete factorial; says what it wrote."""
    network, merged = NETWORKS[name], {}
    for line in Progress(out, name).lines():
        known = merged.setdefault(changes_of(line), {**line, "samples_ms": []})
        known["samples_ms"] = [*known["samples_ms"], *line["samples_ms"]]
        known["error"] = known["error"] or line["error"]
    knobs = space_of(network).knobs
    steps = [ordered(KnobSpace(knobs[:count])) for count in range(1, len(knobs) + 1)]
    whole = [step for step in steps if all(changes in merged for changes in step)]
    if not whole:
        print(f"{name}: no factorial is complete", flush=True)
        return
    machine = json.loads((work_folder / name / "machine.json").read_text())
    header = {
        "format": FORMAT,
        "model": name,
        "backend": f"{backend} {machine['version']}",
        "machine": machine["identity"] | machine["details"],
        "metric": METRIC,
        "note": f"{network.note}; one measurement per candidate and many of the default unless there are more",
        "knobs": [{"name": k.name, "values": list(k.values), "default": k.default} for k in knobs[: len(whole)]],
    }
    lines = [{**merged[changes], "changes": [list(change) for change in changes]} for changes in whole[-1]]
    path = write_table(out / f"{name}.jsonl.xz", header, lines)
    failed = Counter(line["error"].split(":")[0] for line in lines if line["error"])
    print(f"{name}: wrote {path}, {len(lines)} candidates, failed: {dict(failed)}", flush=True)


def changes_of(line: Mapping[str, Any]) -> Changes:
    return tuple((name, value) for name, value in line["changes"])
