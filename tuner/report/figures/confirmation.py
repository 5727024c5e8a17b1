"""Figures of a confirmation: intervals of the finalists, every process pair, every round of it.

Flow: ConfirmationFacts -> HERE -> plotly figures, drawn by the page and by the dashboard.
"""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from tuner.report.facts import ConfirmationFacts, FinalistFacts
from tuner.report.figures.theme import axis, bare, figure, hover, labels_above, series, short, wrapped
from tuner.report.palette import LIGHT
from tuner.report.words import count, interval, milliseconds, share, times

_ROW = 50
_WORDS = {"faster": "FASTER", "not_faster": "NOT FASTER", "undecided": "UNDECIDED", "dropped": "dropped"}
_ROLES = {"faster": "winner", "not_faster": "rejected", "undecided": "third"}


def intervals(found: ConfirmationFacts) -> go.Figure | None:
    """Speed-up of each finalist with its interval, and the smallest gain that matters. None without any."""
    shown = [one for one in found.finalists if one.speedup is not None and one.low and one.high is not None]
    if not shown:
        return None
    drawn = figure(_ROW * len(shown) + 74, showlegend=False, margin={"l": 12, "r": 20, "t": 12, "b": 44})
    for row, one in enumerate(shown):
        color = LIGHT[_ROLES.get(one.verdict, "failed")]
        drawn.add_scatter(
            x=[one.low, one.high], y=[row, row], mode="lines", line={"color": color, "width": 3}, hoverinfo="skip"
        )
        drawn.add_scatter(
            x=[one.speedup],
            y=[row],
            mode="markers",
            marker={
                "color": color,
                "size": 15 if one.is_winner else 11,
                "symbol": "star" if one.is_winner else "circle",
                "line": {"color": LIGHT["paper"], "width": 1.5},
            },
            hovertext=[_finalist_hover(one)],
            hoverinfo="text",
        )
    _gain_lines(drawn, found, vertical=True)
    labels_above(drawn, [short(f"trial {one.trial} {_WORDS.get(one.verdict, one.verdict)}") for one in shown], rise=0.2)
    drawn.update_layout(
        xaxis=axis("speed-up over the default", ticksuffix="×", nticks=6, showline=False)
        | _range(found, [end for one in shown for end in (one.low, one.high)]),
        yaxis=bare(range=[len(shown) - 0.5, -0.8]),
    )
    return drawn


def pairs(found: ConfirmationFacts, finalist: FinalistFacts) -> go.Figure | None:
    """Every process pair of a finalist as it was taken, by the build that it met. None without pairs."""
    if not finalist.pairs:
        return None
    drawn = figure(330)
    if finalist.low and finalist.high is not None:
        drawn.add_hrect(y0=finalist.low, y1=finalist.high, fillcolor=LIGHT["band"], line_width=0, layer="below")
    if finalist.speedup is not None:
        drawn.add_hline(y=finalist.speedup, line={"color": LIGHT["feasible"], "width": 1.5})
    for place, build in enumerate(sorted({pair.build for pair in finalist.pairs})):
        own = [pair for pair in finalist.pairs if pair.build == build]
        drawn.add_scatter(
            x=[pair.index + 1 for pair in own],
            y=[pair.ratio for pair in own],
            mode="markers",
            name=f"build {build + 1}",
            marker=series(place, 8),
            hovertext=[
                hover(
                    f"pair {pair.index + 1}: {times(pair.ratio)}",
                    f"build {pair.build + 1} against the default's build {pair.baseline_build + 1}",
                )
                for pair in own
            ],
            hoverinfo="text",
        )
    _gain_lines(drawn, found, vertical=False)
    drawn.update_layout(
        xaxis=axis("process pair, in the order taken", nticks=8, showgrid=False),
        yaxis=axis("speed-up in this pair", ticksuffix="×", nticks=6)
        | _range(found, [*[pair.ratio for pair in finalist.pairs], finalist.low, finalist.high]),
    )
    return drawn


def rounds(finalist: FinalistFacts) -> go.Figure | None:
    """Median latency of every round of every pair, both sides, in the order taken. None without pairs."""
    if not finalist.pairs:
        return None
    drawn = figure(330)
    for place, (side, name) in enumerate((("baseline", "default"), ("candidate", f"trial {finalist.trial}"))):
        x, y, texts = [], [], []
        for pair in finalist.pairs:
            for turn, one in enumerate(pair.rounds):
                if one.side == side:
                    x.append(pair.index + 1 + (turn + 0.5) / max(len(pair.rounds), 1) * 0.8 - 0.4)
                    y.append(one.median_ms)
                    texts.append(f"pair {pair.index + 1}, round {turn + 1}: {name}, {milliseconds(one.median_ms)}")
        look = {**series(place, 6), "opacity": 0.8}
        drawn.add_scatter(x=x, y=y, mode="markers", name=name, marker=look, hovertext=texts, hoverinfo="text")
    drawn.update_layout(
        xaxis=axis("process pair, rounds in the order taken", nticks=8, showgrid=False),
        yaxis=axis("latency (ms)", nticks=6, tickformat=",~g"),
    )
    return drawn


def _range(found: ConfirmationFacts, values: Sequence[float | None]) -> dict[str, list[float]]:
    """A range that holds the values and both lines."""
    known = [value for value in (*values, 1.0, 1.0 + found.min_gain) if value]
    pad = 0.06 * max(max(known) - min(known), 1e-3)
    return {"range": [min(known) - pad, max(known) + pad]}


def _gain_lines(drawn: go.Figure, found: ConfirmationFacts, *, vertical: bool) -> None:
    """Where nothing is gained, and the smallest gain that matters."""
    add = drawn.add_vline if vertical else drawn.add_hline
    at = "x" if vertical else "y"
    add(**{at: 1.0}, line={"color": LIGHT["muted"], "width": 1.2, "dash": "dot"})
    if found.min_gain > 0:
        add(**{at: 1.0 + found.min_gain}, line={"color": LIGHT["rejected"], "width": 1.2, "dash": "dash"})


def _finalist_hover(one: FinalistFacts) -> str:
    return hover(
        f"<b>trial {one.trial}</b>, {_WORDS.get(one.verdict, one.verdict)}",
        wrapped(one.candidate),
        f"{times(one.speedup)} ({interval(one.low, one.high)})",
        count(one.n_pairs, "process pair"),
        wrapped(one.reason),
    )


def gain_words(found: ConfirmationFacts) -> str:
    """What the lines of the figures are, in a sentence."""
    least = f"; dashed: the smallest gain that matters, {share(found.min_gain)}" if found.min_gain > 0 else ""
    return f"Dotted: as fast as the default{least}."
