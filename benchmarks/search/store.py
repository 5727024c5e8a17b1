"""Store: rows of finished runs, one JSON line each, so that a benchmark can be stopped and goes on.

`runs.jsonl` grows while jobs end; `compress` turns it into `runs.jsonl.xz`, and later rows start a new `runs.jsonl`
beside it. Of rows with the same key the last one counts. `FIELDS` says what a row holds.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Key = tuple[str, str, int, int]  # family, strategy, seed, budget

FIELDS = {
    "family": "name of the family or table",
    "strategy": "name of the strategy",
    "seed": "of the world, of the strategy and of the measurements",
    "budget": "trials that the run may have",
    "hit": "first trial within 1 % of the best feasible, counted from 1; null: none",
    "trials": "trials that the run had; fewer than the budget where a sweep ends",
    "regret": "by number of trials: true regret, per cent, of the fastest measured feasible candidate so far",
    "infeasible": "share of random candidates of the world that are infeasible",
    "wasted": "trials that failed or broke a limit",
    "wasted_late": "share of such trials after the first 20; null: none came after",
    "seconds": "mean time of a proposal",
    "slowest": "longest time of a proposal",
    "stopped": "trial after which the search said that it is not worth it; null: it never did",
    "regret_at_stop": "regret then; null: it never did",
}


def load(folder: Path) -> dict[Key, Row]:
    """Every stored row by its key; rows of an earlier format, which lack a field, are passed over."""
    lines: list[str] = []
    if (packed := folder / "runs.jsonl.xz").exists():
        lines += lzma.decompress(packed.read_bytes()).decode().splitlines()
    if (plain := folder / "runs.jsonl").exists():
        lines += plain.read_text().splitlines()
    rows = [json.loads(line) for line in lines if line.endswith("}")]  # a kill leaves half a line at most
    return {key(row): row for row in rows if FIELDS.keys() <= row.keys()}


def replace(folder: Path, rows: Iterable[Row], *, packed: bool = False) -> None:
    """Write `rows` as all that is stored."""
    text = "".join(line(row) for row in rows)
    names = ("runs.jsonl", "runs.jsonl.xz")
    written, other = folder / names[packed], folder / names[not packed]
    partial = written.with_suffix(".partial")
    partial.write_bytes(lzma.compress(text.encode()) if packed else text.encode())
    partial.replace(written)
    other.unlink(missing_ok=True)


def line(row: Row) -> str:
    """One row as it is stored."""
    return json.dumps(row, separators=(",", ":")) + "\n"


def key(row: Row) -> Key:
    return row["family"], row["strategy"], row["seed"], row["budget"]
