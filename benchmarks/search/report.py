"""Report: rows of runs as text in Markdown and curves in HTML. Values in, text out; claims.py does the judging."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
from claims import claims, differences, hits, with_error
from families import NOTHING_TO_GAIN
from hold_out import HOLD_OUT
from store import Row
from strategies import ABLATIONS

CHECKPOINTS = ("15", "30", "60", "120")
_EXPLAINED = """`hit`: median trials until a candidate within 1 % of the best feasible is tried (runs that never do
count as infinite). `regret@n`: median true regret, per cent, of the fastest measured feasible candidate of n trials.
`within`: share of runs that tried one within 1 %. `wasted`: share of trials that failed or broke a limit, after the
first 20. `stop`: share of runs in which the search said by the 60th trial that it is not worth it, and their mean
regret, per cent, at that moment. The other figures are of runs that went on regardless."""


def write(rows: Sequence[Row], out: Path) -> None:
    """Print the summary, and write report.md and report.html."""
    text = "\n".join(lines(rows)) + "\n"
    print("\n" + text.partition("## Families")[0])
    (out / "report.md").write_text(text)
    figure(rows).write_html(out / "report.html", include_plotlyjs="cdn")


def lines(rows: Sequence[Row]) -> list[str]:
    """Claims, families together, ablations, then one table per family."""
    main = [row for row in rows if row["strategy"] not in ABLATIONS or row["strategy"] == "auto"]
    seeds = sorted({row["seed"] for row in rows})
    result = [f"# Searches compared: {len(rows)} runs, seeds {seeds[0]} to {seeds[-1]}" if seeds else "# No runs"]
    result += ["", *map(str, claims(rows)), "", "## Families together", "", *together(main), "", *against(main), ""]
    if ablations := ablated(rows):
        result += ["## One part switched off at a time", "", *ablations, ""]
    result += ["## Families", "", *_EXPLAINED.splitlines(), ""]
    for family in dict.fromkeys(sorted((row["family"] for row in main), key=_place)):
        of = [row for row in main if row["family"] == family]
        apart = " (hold-out)" if family in HOLD_OUT else ""
        share = float(np.mean([row["infeasible"] for row in of]))
        result += [f"### {family}{apart}", "", f"{share:.0%} infeasible", "", *table(of), ""]
    return result


def table(rows: Sequence[Row]) -> list[str]:
    """Strategies of one family."""
    head = [
        "strategy",
        "seeds",
        "hit",
        *(f"regret@{at}" for at in CHECKPOINTS),
        "within",
        "wasted",
        "stop",
        "s/proposal",
    ]
    result = _head(head)
    for name in sorted({row["strategy"] for row in rows}):
        of = [row for row in rows if row["strategy"] == name]
        late = [row["wasted_late"] for row in of if row["wasted_late"] is not None]
        cells = [
            name,
            str(len(of)),
            _count(_median([math.inf if row["hit"] is None else row["hit"] for row in of])),
            *(f"{_median([row['regret'].get(at, math.nan) for row in of]):.2f}" for at in CHECKPOINTS),
            f"{np.mean([row['hit'] is not None for row in of]):.0%}",
            f"{np.median(late):.0%}" if late else "-",
            _stops(of) if name.startswith("auto") else "-",
            f"{np.mean([row['seconds'] for row in of]):.3f}",
        ]
        result.append(_line(cells))
    return result


def together(rows: Sequence[Row]) -> list[str]:
    """Medians over the families in which there is something to find."""
    rows = [row for row in rows if row["family"] not in NOTHING_TO_GAIN]
    result = _head(["strategy", "families", "trials over TPE's", "regret@30", "@60", "no worse than TPE at 30 and 60"])
    tpe = hits(rows, "tpe")
    for name in sorted({row["strategy"] for row in rows}):
        _, (value, error) = with_error(hits(rows, name), tpe)
        medians = [_over_families(rows, name, at) for at in ("30", "60")]
        worse = [_worse(rows, name, at) for at in ("30", "60")]
        n = len(differences(rows, name, "30"))
        verdict = f"{n - len(worse[0] | worse[1])} of {n}"
        families = str(len({row["family"] for row in rows if row["strategy"] == name}))
        result.append(_line([name, families, _shown(value, error), f"{medians[0]:.2f}", f"{medians[1]:.2f}", verdict]))
    return result


def against(rows: Sequence[Row]) -> list[str]:
    """Trials of `auto` as a share of those of others, family by family."""
    others = [name for name in ("tpe", "mixed", "random", "gp") if any(row["strategy"] == name for row in rows)]
    found = {name: with_error(hits(rows, "auto"), hits(rows, name)) for name in others}
    result = _head(["trials of auto over those of", *others])
    for family in sorted(hits(rows, "auto"), key=_place):
        cells = [_shown(*found[name][0].get(family, (math.nan, math.nan))) for name in others]
        result.append(_line([family, *cells]))
    return [*result, _line(["median", *(_shown(*found[name][1]) for name in others)])]


def ablated(rows: Sequence[Row]) -> list[str]:
    """Each ablation beside `auto`: ratio of trials, regrets, waste."""
    names = [name for name in ABLATIONS if any(row["strategy"] == name for row in rows)]
    if len(names) < 2:
        return []
    rows = [row for row in rows if row["family"] not in NOTHING_TO_GAIN]
    whole = hits(rows, "auto")
    result = _head(["strategy", "trials over auto's", "worst family", "mean regret@30", "@60", "@120", "wasted"])
    for name in names:
        by_family, (value, error) = with_error(hits(rows, name), whole)
        worst = max(by_family, key=lambda family: _or_zero(by_family[family][0]), default="-")
        of = [row for row in rows if row["strategy"] == name]
        late = [row["wasted_late"] for row in of if row["wasted_late"] is not None]
        regrets = [f"{np.mean([row['regret'].get(at, math.nan) for row in of]):.2f}" for at in ("30", "60", "120")]
        far = f"{worst} ({_number(by_family[worst][0])})" if by_family else "-"
        result.append(_line([name, _shown(value, error), far, *regrets, f"{np.mean(late):.0%}" if late else "-"]))
    return result


def figure(rows: Sequence[Row]) -> go.Figure:
    """Median regret by trials, one trace per family and strategy; families by menu."""
    families = list(dict.fromkeys(row["family"] for row in rows))
    chart = go.Figure()
    owners = []
    for family in families:
        for name in sorted({row["strategy"] for row in rows if row["strategy"] not in ABLATIONS} | {"auto"}):
            of = [row for row in rows if row["family"] == family and row["strategy"] == name]
            if not of:
                continue
            y = [_median([row["regret"][point] for row in of]) for point in of[0]["regret"]]
            chart.add_scatter(x=[*map(int, of[0]["regret"])], y=y, name=name, visible=family == families[0])
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


def _stops(rows: Sequence[Row]) -> str:
    early = [row for row in rows if (row["stopped"] or math.inf) <= 60]
    share = f"{len(early) / len(rows):.0%}"
    return f"{share} ({np.mean([row['regret_at_stop'] for row in early]):.2f})" if early else share


def _worse(rows: Sequence[Row], name: str, at: str) -> set[str]:
    return {family for family, (mean, error) in differences(rows, name, at).items() if mean > error + 1e-9}


def _over_families(rows: Sequence[Row], name: str, at: str) -> float:
    of = [row for row in rows if row["strategy"] == name]
    families = {row["family"] for row in of}
    return _median([_median([r["regret"].get(at, math.nan) for r in of if r["family"] == f]) for f in families])


def _place(family: str) -> tuple[bool, bool, str]:
    return "@" in family, family in HOLD_OUT, family


def _head(cells: Sequence[str]) -> list[str]:
    return [_line(cells), "|" + "---|" * len(cells)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _median(values: Sequence[float]) -> float:
    return float(np.median(values)) if len(values) else math.nan


def _or_zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def _number(value: float) -> str:
    return "-" if math.isnan(value) else "never" if math.isinf(value) else f"{value:.2f}"


def _shown(value: float, error: float) -> str:
    return _number(value) + (f" ± {error:.2f}" if math.isfinite(value) and math.isfinite(error) else "")


def _count(value: float) -> str:
    return "never" if math.isinf(value) else f"{value:.0f}"
