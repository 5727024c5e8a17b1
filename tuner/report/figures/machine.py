"""Figures of the machine: drift of the default over the session, and the default against itself.

Flow: ContextFacts -> HERE -> plotly figures, drawn by the page and by the dashboard.
"""

from __future__ import annotations

import math

import plotly.graph_objects as go

from tuner.report.facts import ContextFacts, ControlFacts
from tuner.report.figures.theme import axis, figure, hover, series, short
from tuner.report.palette import LIGHT
from tuner.report.words import milliseconds, share

_UNITS = ((3600.0, "h"), (60.0, "min"))


def drift(context: ContextFacts) -> go.Figure | None:
    """Re-timings of the default through the session, and what of them is believed to be drift. None below two."""
    found = [one for one in context.machine.controls if one.purpose == "drift"]
    if len(found) < 2:
        return None
    longest = max(one.at_s for one in found)
    unit, words = next(((s, w) for s, w in _UNITS if longest >= 2 * s), (1.0, "s"))
    several = len({one.device for one in found}) > 1
    drawn = figure(320)
    if context.machine.drift:
        drawn.add_scatter(
            x=[one / unit for one in context.machine.drift_s],
            y=[100 * math.expm1(one) for one in context.machine.drift],
            mode="lines",
            name=f"believed drift of {short(context.machine.home, 20)}" if several else "believed drift",
            line={"color": LIGHT["third"], "width": 2},
            hoverinfo="skip",
        )
    for place, device in enumerate(dict.fromkeys(one.device for one in found)):
        group = [one for one in found if one.device == device]
        middle = sorted(one.latency_ms for one in group)[len(group) // 2]
        drawn.add_scatter(
            x=[one.at_s / unit for one in group],
            y=[100 * (one.latency_ms / middle - 1) for one in group],
            mode="markers",
            name=f"the default on {short(device, 20)}" if several else "the default, timed again",
            marker=series(place, 9),
            hovertext=[_hover(one, middle) for one in group],
            hoverinfo="text",
        )
    drawn.add_hline(y=0, line={"color": LIGHT["muted"], "width": 1.2, "dash": "dot"})
    drawn.update_layout(
        xaxis=axis(f"time since the first timing ({words})", nticks=6, showgrid=False),
        yaxis=axis("latency against the median", ticksuffix=" %", nticks=6),
    )
    return drawn


def against_itself(context: ContextFacts) -> go.Figure | None:
    """The default in fresh processes and rebuilds, before anything was compared with it. None if it was not run."""
    found = [one for one in context.machine.controls if one.purpose == "noise"]
    if not found:
        return None
    middle = sorted(one.latency_ms for one in found)[len(found) // 2]
    builds = sorted({one.build for one in found})
    drawn = figure(84 + 46 * len(builds), showlegend=False)
    for row, build in enumerate(builds):
        group = [one for one in found if one.build == build]
        drawn.add_scatter(
            x=[100 * (one.latency_ms / middle - 1) for one in group],
            y=[row] * len(group),
            mode="markers",
            marker=series(row, 10),
            hovertext=[
                hover(f"build {one.build + 1}, process {one.session + 1}", _hover(one, middle)) for one in group
            ],
            hoverinfo="text",
        )
    names = [f"build {one + 1}" for one in builds]
    drawn.update_layout(
        margin={"l": 56, "r": 20, "t": 8, "b": 44},
        xaxis=axis("latency of a fresh process against the median", ticksuffix=" %", nticks=6),
        yaxis={**axis("", tickvals=list(range(len(builds))), ticktext=names, showgrid=False)}
        | {"range": [len(builds) - 0.4, -0.6]},
    )
    return drawn


def _hover(one: ControlFacts, middle: float) -> str:
    return f"{milliseconds(one.latency_ms)}, {share(one.latency_ms / middle - 1, signed=True)}"
