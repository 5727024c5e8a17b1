"""Drawn: which figures of a report a dashboard gets, titled, and small enough to be loaded with every look.

Flow: report/figures has drawings of a context -> HERE -> page.py attaches them to the Optuna study.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tuner.report.facts import ContextFacts
from tuner.report.figures import Drawing, drawings
from tuner.report.figures.theme import figure, note
from tuner.report.palette import LIGHT

KEYS = ("tradeoff", "progress-trials", "effects", "outcomes", "intervals", "drift")
_TITLE_HEIGHT, _MOST_HEIGHT = 44, 450  # pixels; the dashboard cuts off what is higher
_MOST_EFFECTS = 10  # as many as that height holds
_MOST_POINTS = 200  # with whole hover texts; the dashboard sends all figures with every look at a study
_HOVER_LINES, _DIGITS = 2, 6


def figures(context: ContextFacts) -> Iterator[tuple[str, Any]]:
    """Name and Plotly figure of each; where there is nothing to draw, a sentence in its place."""
    for drawing in drawings(msgspec.structs.replace(context, effects=context.effects[:_MOST_EFFECTS])):
        if drawing.key in KEYS:
            yield drawing.key, _titled(drawing)


def _titled(drawing: Drawing) -> Any:
    drawn = _said(drawing.empty) if drawing.figure is None else drawing.figure
    for trace in drawn.data:
        _shrink(trace)
    top = (drawn.layout.margin.t or 0) + _TITLE_HEIGHT
    title = {"text": drawing.title, "x": 0.0, "xref": "paper", "y": 1.0, "yref": "container", "yanchor": "top"}
    drawn.update_layout(title={**title, "pad": {"t": 12}, "font": {"size": 16}}, margin={"t": top})
    if drawn.layout.height is not None:
        drawn.update_layout(height=min(drawn.layout.height + _TITLE_HEIGHT, _MOST_HEIGHT))
    return drawn


def _said(sentence: str) -> Any:
    """A figure that says why there is none."""
    drawn = figure(120)
    where = {"x": 0, "y": 0.5, "xref": "paper", "yref": "paper", "xanchor": "left"}
    drawn.add_annotation(note(sentence, **where, font={"size": 14, "color": LIGHT["muted"]}))
    hidden = {"visible": False}
    drawn.update_layout(xaxis=hidden, yaxis=hidden)
    return drawn


def _shrink(trace: Any) -> None:
    """Round what is drawn, and cut what is said of each of many points."""
    for axis in ("x", "y"):
        values = getattr(trace, axis, None)
        if values is not None:
            trace[axis] = [float(f"{one:.{_DIGITS}g}") if isinstance(one, float) else one for one in values]
    texts = getattr(trace, "hovertext", None)
    if isinstance(texts, (list, tuple)) and len(texts) > _MOST_POINTS:
        trace["hovertext"] = ["<br>".join(str(text).split("<br>")[:_HOVER_LINES]) for text in texts]
