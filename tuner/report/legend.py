"""Legend: the names in a figure as words of the page, each with its sign; they wrap, and screen readers read them.

Flow: parts.py gives a figure -> HERE -> a list in HTML. Figures keep plotly's own legend for whoever shows them
elsewhere.
"""

from __future__ import annotations

import html
from typing import Any

import plotly.graph_objects as go

from tuner.report.html import Markup, tag
from tuner.report.palette import LIGHT

_ROLES = {color: role for role, color in LIGHT.items()}
_SHAPES = {
    "circle": '<circle cx="8" cy="8" r="4.5"/>',
    "square": '<rect x="4" y="4" width="8" height="8"/>',
    "diamond": '<path d="M8 2l6 6-6 6-6-6z"/>',
    "triangle-up": '<path d="M8 3l5.5 10h-11z"/>',
    "pentagon": '<path d="M8 2.5l5.5 4-2.1 6.5H4.6L2.5 6.5z"/>',
    "star": '<path d="M8 1l2 4.7 5 .4-3.8 3.3 1.2 5L8 11.7l-4.4 2.7 1.2-5L1 6.1l5-.4z"/>',
    "x": '<path d="M3.5 5.5l2-2L8 6l2.5-2.5 2 2L10 8l2.5 2.5-2 2L8 10l-2.5 2.5-2-2L6 8z"/>',
    "cross-thin": '<path d="M8 3v10M3 8h10" fill="none" stroke="currentColor" stroke-width="2"/>',
}
_LINE = '<path d="M1 8h14" fill="none" stroke="currentColor" stroke-width="2.5"/>'


def legend(drawn: go.Figure) -> Markup | None:
    """The named traces of a figure; None where it wants no legend, or there is nothing to tell apart."""
    named = [trace for trace in drawn.data if trace.name and trace.showlegend is not False]
    if drawn.layout.showlegend is False or not named:
        return None
    return tag("ul", [tag("li", _sign(trace), html.unescape(trace.name)) for trace in named], class_="legend")


def _sign(trace: Any) -> Markup:
    """A small drawing of a trace: its line, or its marker."""
    is_line = trace.mode == "lines"
    color = trace.line.color if is_line else trace.marker.color
    symbol = "line" if is_line else str(trace.marker.symbol or "circle")
    shape = _LINE if is_line else _SHAPES[symbol.removesuffix("-open")]
    hollow = ' fill="none" stroke="currentColor" stroke-width="1.5"' if symbol.endswith("-open") else ""
    if hollow:
        shape = shape.replace("/>", f"{hollow}/>")
    return Markup(
        f'<svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" fill="currentColor" '
        f'style="color:var(--{_ROLES[color]})">{shape}</svg>'
    )
