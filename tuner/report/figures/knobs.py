"""Figures of knobs: which matter, what each value does, what two do together.

Flow: ContextFacts -> HERE -> plotly figures, drawn by the page and by the dashboard.
"""

from __future__ import annotations

import math

import plotly.graph_objects as go

from tuner.report.facts import ContextFacts, EffectFacts, PairingFacts
from tuner.report.figures.theme import axis, bare, figure, hover, labels_above, short, wrapped
from tuner.report.palette import LIGHT
from tuner.report.words import count, percent, share

_MOST_KNOBS, _MOST_EFFECTS = 10, 16
_ROW = 44  # pixels, label and bar
_LEAST_SHARE = 0.001
_LABEL, _ACROSS = 18, 34  # characters of a value, and of all that a telephone has room for side by side


def importance(context: ContextFacts) -> go.Figure | None:
    """How much of the differences between feasible candidates each knob explains. None where nothing is known."""
    shown = [one for one in context.importance if one.share >= _LEAST_SHARE][:_MOST_KNOBS]
    if not shown:
        return None
    rows = [(one.knob, one.share, LIGHT["feasible"]) for one in shown]
    rest = context.unexplained or 0.0
    rows += [("no knob alone: noise and interactions", rest, LIGHT["line"])]
    drawn = figure(_ROW * len(rows) + 16, showlegend=False, margin={"l": 8, "r": 56, "t": 8, "b": 8})
    drawn.add_bar(
        x=[size for _, size, _ in rows],
        y=list(range(len(rows))),
        orientation="h",
        width=0.34,
        marker={"color": [color for _, _, color in rows]},
        text=[share(size) for _, size, _ in rows],
        textposition="outside",
        cliponaxis=False,
        textfont={"size": 12, "color": LIGHT["ink"]},
        hovertext=[hover(wrapped(name), f"{share(size)} of the differences") for name, size, _ in rows],
        hoverinfo="text",
    )
    labels_above(drawn, [short(name) for name, _, _ in rows])
    drawn.update_layout(
        xaxis=bare(range=[0, max(0.05, *[size for _, size, _ in rows])]),
        yaxis=bare(range=[len(rows) - 0.6, -0.75]),
    )
    return drawn


def effects(context: ContextFacts) -> go.Figure | None:
    """What each value does against its knob's default, with 95 % intervals. None where nothing is known."""
    shown = [one for one in context.effects if abs(one.gain) > 5e-4][:_MOST_EFFECTS]
    if not shown:
        return None
    drawn = figure(_ROW * len(shown) + 64, showlegend=False, margin={"l": 12, "r": 20, "t": 8, "b": 44})
    drawn.add_vline(x=0, line={"color": LIGHT["muted"], "width": 1.2, "dash": "dot"})
    for row, one in enumerate(shown):
        color = LIGHT[_role(one)]
        drawn.add_scatter(
            x=[100 * math.expm1(one.low), 100 * math.expm1(one.high)],
            y=[row, row],
            mode="lines",
            line={"color": color, "width": 3},
            hoverinfo="skip",
        )
        drawn.add_scatter(
            x=[100 * math.expm1(one.gain)],
            y=[row],
            mode="markers",
            marker={"color": color, "size": 10, "line": {"color": LIGHT["paper"], "width": 1.5}},
            hovertext=[_effect_hover(one)],
            hoverinfo="text",
        )
    labels_above(drawn, [short(f"{one.knob}={one.value}", 46) for one in shown], rise=0.2)
    drawn.update_layout(
        xaxis=axis("change of the figure against the knob's default", ticksuffix=" %", nticks=6, showline=False),
        yaxis=bare(range=[len(shown) - 0.5, -0.8]),
    )
    return drawn


def pairing(context: ContextFacts, which: PairingFacts) -> go.Figure:
    """Two knobs, every value against every value, the others' effects taken out."""
    gains = [[None if cell.gain is None else 100 * math.expm1(cell.gain) for cell in row] for row in which.cells]
    known = [abs(gain) for row in gains for gain in row if gain is not None]
    reach = max([*known, 0.1])
    across = [short(value, _LABEL) for value in which.second_values]
    slanted = sum(map(len, across)) > _ACROSS
    rise = 5 * max(map(len, across)) if slanted else 0
    drawn = figure(60 + rise + 38 * len(which.first_values), showlegend=False, margin={"l": 8, "r": 8, "t": 8, "b": 8})
    drawn.add_heatmap(
        z=gains,
        x=across,
        y=[short(value, _LABEL) for value in which.first_values],
        zmin=-reach,
        zmax=reach,
        colorscale=[[0, LIGHT["rejected"]], [0.5, LIGHT["paper"]], [1, LIGHT["feasible"]]],
        showscale=False,
        xgap=3,
        ygap=3,
        hoverongaps=False,
        hovertext=_cell_hovers(which),
        hoverinfo="text",
    )
    for row, line in enumerate(gains):
        for column, gain in enumerate(line):
            strong = gain is not None and abs(gain) > 0.55 * reach
            text = "·" if gain is None else _short_percent(gain)
            color = LIGHT["paper"] if strong else LIGHT["muted"] if gain is None else LIGHT["ink"]
            drawn.add_annotation(x=column, y=row, text=text, showarrow=False, font={"size": 12, "color": color})
    drawn.update_layout(
        xaxis=axis("", side="bottom", autotickangles=[0, -40], showgrid=False, showline=False, type="category"),
        yaxis=axis("", showgrid=False, showline=False, autorange="reversed", type="category"),
    )
    return drawn


def _short_percent(gain: float) -> str:
    """Percent without its sign, for a small cell."""
    return f"{gain:+.0f}".replace("-", "−") if abs(gain) >= 9.95 else f"{gain:+.1f}".replace("-", "−")


def _role(one: EffectFacts) -> str:
    """Better, worse, or not to be told from nothing."""
    return "feasible" if one.low > 0 else "rejected" if one.high < 0 else "failed"


def _effect_hover(one: EffectFacts) -> str:
    return hover(
        wrapped(f"{one.knob}={one.value}"),
        wrapped(f"instead of {one.default}"),
        f"{percent(one.gain)} ({percent(one.low)} to {percent(one.high)})",
        f"in {count(one.n_trials, 'feasible trial')}",
    )


def _cell_hovers(which: PairingFacts) -> list[list[str]]:
    return [
        [
            hover(
                wrapped(f"{which.first}={which.first_values[row]}"),
                wrapped(f"{which.second}={which.second_values[column]}"),
                "no feasible trial"
                if cell.gain is None
                else f"{percent(cell.gain)} in {count(cell.n_trials, 'trial')}",
            )
            for column, cell in enumerate(line)
        ]
        for row, line in enumerate(which.cells)
    ]


def pairing_words(which: PairingFacts) -> str:
    """What a heat map shows, in a sentence; not safe for figures."""
    return (
        f"{which.first} against {which.second}: what two values do together differs from what they do by themselves "
        f"by {share(math.expm1(which.extra))} at most"
    )
