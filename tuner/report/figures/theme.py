"""Theme: one look for every figure.

Flow: the figures of this package -> HERE, with the light palette -> page.js puts the dark one in its place. No figure
tells anything by colour alone: outcomes have shapes too. Text of users and libraries goes through `safe`, `short` or
`wrapped`.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from tuner.report.palette import FONT, LIGHT

SYMBOLS = {"feasible": "circle", "rejected": "x", "failed": "cross-thin"}
SERIES = ("feasible", "second", "third", "winner", "rejected", "failed")  # order of colours for what has no role
_SERIES_SYMBOLS = ("circle", "square", "triangle-up", "diamond", "x", "pentagon")
_HOVER_WIDTH = 44  # characters: a telephone shows no more


def figure(height: int, **layout: Any) -> go.Figure:
    """An empty figure of our look; `height` in pixels, the width is the page's."""
    drawn = go.Figure()
    drawn.update_layout(
        template="none",
        height=height,
        autosize=True,
        margin={"l": 56, "r": 16, "t": 36, "b": 48},
        paper_bgcolor=LIGHT["paper"],
        plot_bgcolor=LIGHT["paper"],
        font={"family": FONT, "size": 13, "color": LIGHT["ink"]},
        hoverlabel={
            "bgcolor": LIGHT["paper"],
            "bordercolor": LIGHT["line"],
            "font": {"family": FONT, "size": 12, "color": LIGHT["ink"]},
            "align": "left",
            "namelength": 0,
        },
        legend={
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.0,
            "yanchor": "bottom",
            "font": {"size": 12, "color": LIGHT["muted"]},
            "itemsizing": "constant",
            "bgcolor": LIGHT["paper"],
        },
        hovermode="closest",
        dragmode=False,
        showlegend=True,
        separators=".,",
    )
    drawn.update_layout(**layout)
    return drawn


def axis(title: str = "", **settings: Any) -> dict[str, Any]:
    """An axis with a light grid and a quiet title."""
    return {
        "title": {"text": title, "font": {"size": 12, "color": LIGHT["muted"]}, "standoff": 8},
        "tickfont": {"size": 12, "color": LIGHT["muted"]},
        "gridcolor": LIGHT["grid"],
        "linecolor": LIGHT["line"],
        "zeroline": False,
        "showline": True,
        "ticks": "",
        "automargin": True,
        "fixedrange": True,
        **settings,
    }


def bare(**settings: Any) -> dict[str, Any]:
    """An axis of which nothing is seen."""
    return {"visible": False, "fixedrange": True, "zeroline": False, "showgrid": False, **settings}


def note(text: str, **where: Any) -> dict[str, Any]:
    """A small label in the plot; `text` is ours, not the user's, unless it went through `safe`."""
    return {"text": text, "showarrow": False, "font": {"size": 12, "color": LIGHT["muted"]}, **where}


def marker(role: str, size: int = 9, **more: Any) -> dict[str, Any]:
    """Marker of an outcome by colour and shape."""
    color = LIGHT[role]
    outline = {"color": color, "width": 2} if role == "failed" else {"color": LIGHT["paper"], "width": 1}
    return {"color": color, "size": size, "symbol": SYMBOLS.get(role, "circle"), "line": outline, **more}


def series(index: int, size: int = 8) -> dict[str, Any]:
    """Marker of the n-th of several equals."""
    place = index % len(SERIES)
    return {
        "color": LIGHT[SERIES[place]],
        "size": size,
        "symbol": _SERIES_SYMBOLS[place],
        "line": {"color": LIGHT["paper"], "width": 1},
    }


def safe(text: str) -> str:
    """Text of users and libraries for a figure, which reads some HTML: as it is, nothing of it is markup."""
    return html.escape(text, quote=False)


def wrapped(text: str, width: int = _HOVER_WIDTH, most: int = 8) -> str:
    """Text of users and libraries in lines for a hover box; safe."""
    lines = textwrap.wrap(text, width, break_long_words=True, break_on_hyphens=False) or [""]
    kept = lines if len(lines) <= most else [*lines[: most - 1], "…"]
    return "<br>".join(safe(line) for line in kept)


def short(text: str, width: int = 44) -> str:
    """Text of users and libraries in one line for a label, its middle left out where it is too long; safe."""
    if len(text) > width:
        half = (width - 1) // 2
        text = f"{text[:half]}…{text[-(width - 1 - half) :]}"
    return safe(text)


def hover(*parts: str) -> str:
    """Lines of a hover box; the parts are safe already, empty ones are left out."""
    return "<br>".join(part for part in parts if part)


def labels_above(drawn: go.Figure, labels: Sequence[str], *, rise: float = 0.26) -> None:
    """Write the label of each row (row 0 on top of a reversed axis) above what it holds: long ones fit a telephone."""
    for row, label in enumerate(labels):
        where = {"x": 0, "xref": "paper", "xanchor": "left", "y": row - rise, "yanchor": "bottom"}
        drawn.add_annotation(
            note(
                label,
                **where,
                font={"size": 12.5, "color": LIGHT["ink"]},
                align="left",
                bgcolor=LIGHT["paper"],
                borderpad=1,
            )
        )
