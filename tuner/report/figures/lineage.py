"""Figures over several contexts of a study, and over several studies.

Flow: StudyFacts -> HERE -> plotly figures, drawn by the page and by the dashboard.
"""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from tuner.report.facts import Answer, ContextFacts, Outcome, StudyFacts
from tuner.report.figures.theme import axis, bare, figure, hover, labels_above, series, short, wrapped
from tuner.report.palette import LIGHT
from tuner.report.words import count, times
from tuner.report.words import figure as value_words

_ROW = 50


def contexts(study: StudyFacts) -> go.Figure | None:
    """Default and best of each context, side by side. None with fewer than two that have measured both."""
    shown = [one for one in study.contexts if _value(one, "default") is not None and _value(one, "best") is not None]
    if len(shown) < 2:
        return None
    drawn = figure(_ROW * len(shown) + 96, margin={"l": 12, "r": 20, "t": 36, "b": 44})
    for row, one in enumerate(shown):
        drawn.add_scatter(
            x=[_value(one, "default"), _value(one, "best")],
            y=[row, row],
            mode="lines",
            line={"color": LIGHT["line"], "width": 3},
            hoverinfo="skip",
            showlegend=False,
        )
    looks = {
        "default": {"symbol": "diamond", "color": LIGHT["ink"], "size": 11},
        "best": {"symbol": "star", "color": LIGHT["winner"], "size": 14},
    }
    for what, look in looks.items():
        drawn.add_scatter(
            x=[_value(one, what) for one in shown],
            y=list(range(len(shown))),
            mode="markers",
            name="default" if what == "default" else "best that the search saw",
            marker=look,
            hovertext=[_hover(one, what) for one in shown],
            hoverinfo="text",
        )
    labels_above(drawn, [short(f"context {one.number}: {one.place}") for one in shown], rise=0.2)
    drawn.update_layout(
        xaxis=axis(study.objective.metric, nticks=6, tickformat=",~g"), yaxis=bare(range=[len(shown) - 0.5, -0.8])
    )
    return drawn


def compared(studies: Sequence[StudyFacts]) -> go.Figure | None:
    """What each study's latest context gained: with its interval where it is confirmed. None without any."""
    shown = [(one, one.context) for one in studies if one.context is not None]
    known = [(one, context) for one, context in shown if context.headline.speedup is not None]
    if not known:
        return None
    drawn = figure(_ROW * len(known) + 74, showlegend=False, margin={"l": 12, "r": 20, "t": 12, "b": 44})
    for row, (study, context) in enumerate(known):
        head = context.headline
        sure = head.low is not None and head.high is not None
        color = LIGHT[{Answer.FASTER: "winner", Answer.NOT_FASTER: "rejected"}.get(head.answer, "third")]
        if sure:
            drawn.add_scatter(
                x=[head.low, head.high], y=[row, row], mode="lines", line={"color": color, "width": 3}, hoverinfo="skip"
            )
        drawn.add_scatter(
            x=[head.speedup],
            y=[row],
            mode="markers",
            marker={"color": color, "size": 12, "symbol": "circle" if sure else "circle-open", "line": {"width": 2}},
            hovertext=[hover(f"<b>{short(study.name)}</b>", wrapped(head.sentence), wrapped(head.candidate))],
            hoverinfo="text",
        )
    drawn.add_vline(x=1.0, line={"color": LIGHT["muted"], "width": 1.2, "dash": "dot"})
    labels_above(drawn, [short(f"{one.name}: {context.headline.answer}") for one, context in known], rise=0.2)
    drawn.update_layout(
        xaxis=axis("gain over its own default", ticksuffix="×", nticks=6),
        yaxis=bare(range=[len(known) - 0.5, -0.8]),
    )
    return drawn


def progress(studies: Sequence[StudyFacts]) -> go.Figure | None:
    """Best so far of each study against its own default, over trials. None without any."""
    drawn = figure(360)
    for place, study in enumerate(studies):
        context = study.context
        best: list[tuple[int, float]] = []
        for one in () if context is None else context.trials:
            if one.outcome is Outcome.FEASIBLE and one.ratio is not None and (not best or one.ratio > best[-1][1]):
                best.append((one.number, one.ratio))
        if not best or context is None:
            continue
        look = series(place)
        drawn.add_scatter(
            x=[*[number for number, _ in best], context.trials[-1].number],
            y=[*[ratio for _, ratio in best], best[-1][1]],
            mode="lines+markers",
            name=short(study.name, 28),
            line={"color": look["color"], "width": 2, "shape": "hv"},
            marker=look,
            hovertext=[f"{short(study.name)}: {times(ratio)} at trial {number}" for number, ratio in [*best, best[-1]]],
            hoverinfo="text",
        )
    if not drawn.data:
        return None
    drawn.add_hline(y=1.0, line={"color": LIGHT["muted"], "width": 1.2, "dash": "dot"})
    drawn.update_layout(
        xaxis=axis("trial", nticks=6, showgrid=False, rangemode="tozero"),
        yaxis=axis("best seen against the default", ticksuffix="×", nticks=6),
    )
    return drawn


def _value(one: ContextFacts, what: str) -> float | None:
    trial = one.default if what == "default" else one.best
    return None if trial is None else trial.corrected


def _hover(one: ContextFacts, what: str) -> str:
    trial = one.default if what == "default" else one.best
    assert trial is not None, "only contexts that have both are drawn"
    return hover(
        f"<b>context {one.number}</b>, {count(len(one.trials), 'trial')}",
        wrapped(one.place),
        wrapped(trial.candidate),
        f"{value_words(trial.value, one.objective)}, {times(trial.ratio)} the default",
    )
