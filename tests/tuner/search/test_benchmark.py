"""The benchmark of the searches runs from a checkout, goes on where it was stopped, and says what it found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("plotly", reason="plotly is not installed: pip install plotly")

RUN = Path(__file__).parents[3] / "benchmarks" / "search" / "run.py"


def run(out: Path, *arguments: str) -> str:
    command = [
        sys.executable,
        str(RUN),
        "--families",
        "additive-8",
        "--seeds",
        "2",
        "--budget",
        "22",
        "--out",
        str(out),
    ]
    return subprocess.run([*command, *arguments], check=True, capture_output=True, text=True, timeout=120).stdout


def test_runs_are_kept_and_reported(tmp_path: Path) -> None:
    first = run(tmp_path, "--strategies", "auto", "fast")
    assert "4 runs" in first
    assert "`auto` is not worse than TPE" in first
    more = run(tmp_path, "--strategies", "auto", "fast", "tpe", "--compress")
    assert more.startswith("2 runs")
    assert [path.name for path in tmp_path.glob("runs*")] == ["runs.jsonl.xz"]
    last = run(tmp_path, "--strategies", "auto", "fast", "tpe", "auto-4-workers", "auto-no-pairs")
    assert last.startswith("4 runs")
    report = (tmp_path / "report.md").read_text()
    assert "### additive-8" in report
    assert "| auto-no-pairs |" in report
    assert "**not shown**: At 200 knobs" in report
    assert (tmp_path / "report.html").exists()
