"""Report: rows of runs as tables in Markdown and curves in HTML. Values in, text out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go

Rows = Sequence[dict[str, Any]]
CHECKPOINTS = ("15", "30", "60", "120")


def write(rows: Rows, out: Path) -> None:
    """Print the tables and write report.md and report.html."""
    text = "\n".join(lines(rows)) + "\n"
    print("\n" + text)
    (out / "report.md").write_text(text)
    figure(rows).write_html(out / "report.html", include_plotlyjs="cdn")


def lines(rows: Rows) -> list[str]:
    """One table per family, then all families together."""
    result = [
        "`hit`: median trials until a candidate within 1 % of the best feasible is tried (runs that never do count as",
        "infinite). `regret@n`: median true regret, per cent, of the fastest measured feasible candidate of n trials.",
        "`within`: share of runs that tried one within 1 %. `wasted`: share of trials that failed or broke a limit,",
        "after the first 20. `stop`: share of runs in which the search said by the 60th trial that it is not worth it.",
        "",
    ]
    for family in dict.fromkeys(row["family"] for row in rows):
        of = [row for row in rows if row["family"] == family]
        result += [f"### {family}", "", *table(of), ""]
    return [*result, "### Together", "", *together(rows)]


def table(rows: Rows) -> list[str]:
    """Strategies of one family."""
    result = [
        "| strategy | seeds | hit | regret@15 | @30 | @60 | @120 | within | wasted | stop | s/proposal |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["strategy"] for row in rows):
        of = [row for row in rows if row["strategy"] == name]
        regrets = [_median([row["regret"].get(at, math.nan) for row in of]) for at in CHECKPOINTS]
        late = [row["wasted_late"] for row in of if row["wasted_late"] is not None]
        cells = [
            name,
            str(len(of)),
            _count(_median([hit(row) for row in of])),
            *[f"{regret:.2f}" for regret in regrets],
            f"{np.mean([row['hit'] is not None for row in of]):.0%}",
            f"{np.median(late):.0%}" if late else "-",
            f"{np.mean([(row['stopped'] or 999) <= 60 for row in of]):.0%}" if name.startswith("auto") else "-",
            f"{np.mean([row['seconds'] for row in of]):.3f}",
        ]
        result.append("| " + " | ".join(cells) + " |")
    return result


def together(rows: Rows) -> list[str]:
    """Medians over families in which there is something to find: of hits as a share of TPE's, and of regrets."""
    families = [f for f in dict.fromkeys(row["family"] for row in rows) if not f.startswith(("none", "best"))]
    strategies = list(dict.fromkeys(row["strategy"] for row in rows))
    result = [
        "| strategy | families | hits over those of tpe, median | regret@30 | @60 | no worse than tpe at 30 and 60 |",
        "|---|---|---|---|---|---|",
    ]
    for name in strategies:
        ratios, at30, at60, no_worse = [], [], [], []
        for family in families:
            of = [r for r in rows if r["family"] == family and r["strategy"] == name]
            tpe = {r["seed"]: r for r in rows if r["family"] == family and r["strategy"] == "tpe"}
            if not of:
                continue
            at30.append(_median([r["regret"].get("30", math.nan) for r in of]))
            at60.append(_median([r["regret"].get("60", math.nan) for r in of]))
            if tpe:
                ratios.append(_ratio(_median([hit(r) for r in of]), _median([hit(r) for r in tpe.values()])))
                no_worse.append(all(_no_worse(of, tpe, at) for at in ("30", "60")))
        shown = f"{_median(ratios):.2f}" if ratios else "-"
        verdict = f"{sum(no_worse)} of {len(no_worse)}"
        result.append(f"| {name} | {len(at30)} | {shown} | {_median(at30):.2f} | {_median(at60):.2f} | {verdict} |")
    return result


def figure(rows: Rows) -> go.Figure:
    """Median regret at the checkpoints, one trace per family and strategy; families by menu."""
    families = list(dict.fromkeys(row["family"] for row in rows))
    chart = go.Figure()
    owners = []
    for family in families:
        for name in dict.fromkeys(row["strategy"] for row in rows):
            of = [row for row in rows if row["family"] == family and row["strategy"] == name]
            if not of:
                continue
            at = [point for point in CHECKPOINTS if point in of[0]["regret"]]
            y = [_median([row["regret"][point] for row in of]) for point in at]
            chart.add_scatter(x=[int(p) for p in at], y=y, name=name, visible=family == families[0])
            owners.append(family)
    buttons = [
        {"label": f, "method": "update", "args": [{"visible": [owner == f for owner in owners]}, {"title.text": f}]}
        for f in families
    ]
    chart.update_layout(
        updatemenus=[{"buttons": buttons}],
        title=families[0] if families else "",
        xaxis_title="trials",
        yaxis_title="median true regret, %",
    )
    return chart


def hit(row: dict[str, Any]) -> float:
    return math.inf if row["hit"] is None else float(row["hit"])


def _no_worse(of: Rows, tpe: dict[int, dict[str, Any]], at: str) -> bool:
    """Mean difference of regrets on the same seeds at most one standard error above zero."""
    pairs = [(r["regret"].get(at), tpe[r["seed"]]["regret"].get(at)) for r in of if r["seed"] in tpe]
    differences = np.array([a - b for a, b in pairs if a is not None and b is not None and math.isfinite(a - b)])
    if len(differences) < 2:
        return True
    return bool(differences.mean() <= differences.std(ddof=1) / math.sqrt(len(differences)) + 1e-9)


def _median(values: Sequence[float]) -> float:
    return float(np.median(values)) if len(values) else math.nan


def _ratio(ours: float, theirs: float) -> float:
    if math.isinf(theirs):
        return 1.0 if math.isinf(ours) else 0.0
    return ours / theirs


def _count(value: float) -> str:
    return "never" if math.isinf(value) else f"{value:.0f}"
