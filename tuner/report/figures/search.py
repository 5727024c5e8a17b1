"""Figures of the search: accuracy against throughput, the best so far, what became of the candidates.

Flow: ContextFacts -> HERE -> plotly figures, drawn by the page and by the dashboard.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import plotly.graph_objects as go

from tuner.report.facts import Answer, ContextFacts, Outcome, TrialFacts
from tuner.report.figures.theme import axis, bare, figure, hover, marker, note, safe, wrapped
from tuner.report.palette import LIGHT
from tuner.report.words import count, duration, loss, share, times
from tuner.report.words import figure as value_words

_STRIP = 0.09  # height of the strip of what was not timed, as a share of the plot
_MOST_TICKS = 6
_NAMES = {Outcome.FEASIBLE: "feasible", Outcome.REJECTED: "rejected", Outcome.FAILED: "failed"}


def tradeoff(context: ContextFacts, limit: int | None = None) -> go.Figure | None:
    """Loss against the objective's figure; `limit`: which limit's loss, by default the one that rejects most.

    None without limits or while no candidate has a loss.
    """
    place = binding_limit(context) if limit is None else limit
    judged = [one for one in context.trials if place is not None and len(one.losses) > place]
    judged = [one for one in judged if one.losses[place or 0] is not None]
    if place is None or not judged:
        return None
    bound = context.limits[place]
    scale = _Scale([one.losses[place] or 0.0 for one in judged], bound.limit)
    drawn = figure(430)
    timed = [one for one in judged if one.corrected is not None]
    for outcome in (Outcome.REJECTED, Outcome.FEASIBLE):
        group = [one for one in timed if one.outcome is outcome and not _is_marked(one, context)]
        _points(drawn, group, context, lambda one: scale.at(one.losses[place]), _NAMES[outcome], outcome.value)
    _front(drawn, timed, scale, place, context)
    _marked(drawn, timed, context, lambda one: scale.at(one.losses[place]))
    left_out = [one for one in judged if one.corrected is None]
    _strip(drawn, left_out, context, lambda one: scale.at(one.losses[place]))
    drawn.add_vline(x=scale.at(bound.limit), line={"color": LIGHT["rejected"], "width": 1.5, "dash": "dash"})
    drawn.add_annotation(
        note(
            f"limit {loss(bound.limit)}",
            x=scale.at(bound.limit),
            y=1,
            yref="paper",
            yanchor="top",
            xanchor="right" if scale.at(bound.limit) > scale.middle else "left",
            xshift=-5 if scale.at(bound.limit) > scale.middle else 5,
            font={"size": 12, "color": LIGHT["rejected"]},
            bgcolor=LIGHT["paper"],
        )
    )
    title = f"worst loss: {safe(bound.label)} (less is better)"
    anchor = "y2" if left_out else "y"
    drawn.update_layout(
        xaxis=axis(title, tickvals=scale.ticks, ticktext=scale.words, range=scale.range, anchor=anchor),
        yaxis=axis(context.objective.metric, **_upwards(context, strip=bool(left_out))),
    )
    return drawn


def progress(context: ContextFacts, *, over_time: bool = False) -> go.Figure | None:
    """Every candidate and the best feasible one so far, over trials or over the time spent in them.

    None while no feasible candidate has a figure.
    """
    feasible = [one for one in context.trials if one.outcome is Outcome.FEASIBLE and one.corrected is not None]
    if not feasible:
        return None
    unit, unit_words = _time_unit(context.spent_s)

    def x(one: TrialFacts) -> float:
        return one.at_s / unit if over_time else one.number

    drawn = figure(360)
    _points(drawn, [one for one in feasible if not _is_marked(one, context)], context, x, "feasible", "feasible")
    best = _best_so_far(sorted(feasible, key=x), context)
    last = max(x(one) for one in context.trials)
    drawn.add_scatter(
        x=[*[x(one) for one in best], last],
        y=[*[one.corrected for one in best], best[-1].corrected],
        mode="lines",
        name="best so far",
        line={"color": LIGHT["winner"], "width": 2.5, "shape": "hv"},
        hoverinfo="skip",
    )
    _marked(drawn, feasible, context, x)
    left_out = [one for one in context.trials if one.corrected is None]
    _strip(drawn, left_out, context, x)
    if context.default is not None and context.default.corrected is not None:
        drawn.add_hline(y=context.default.corrected, line={"color": LIGHT["muted"], "width": 1.2, "dash": "dot"})
    title = f"time spent in trials ({unit_words})" if over_time else "trial"
    anchor = "y2" if left_out else "y"
    drawn.update_layout(
        xaxis=axis(title, anchor=anchor, nticks=_MOST_TICKS, showgrid=False, rangemode="tozero"),
        yaxis=axis(context.objective.metric, **_upwards(context, strip=bool(left_out))),
    )
    return drawn


def outcomes(context: ContextFacts) -> go.Figure | None:
    """One bar for each way in which trials ended. None without trials."""
    if not context.trials:
        return None
    rows = [("feasible", context.count(Outcome.FEASIBLE), "feasible")]
    rows += [
        (f"{one.kind}{f' in {one.stage}' if one.stage else ''}", one.n_trials, one.outcome.value)
        for one in context.failures
    ]
    total = len(context.trials)
    drawn = figure(46 + 30 * len(rows), showlegend=False, margin={"l": 8, "r": 72, "t": 8, "b": 8})
    drawn.add_bar(
        x=[n for _, n, _ in rows],
        y=[name for name, _, _ in rows],
        orientation="h",
        marker={"color": [LIGHT[role] for _, _, role in rows]},
        width=0.62,
        text=[f"{n} ({share(n / total)})" for _, n, _ in rows],
        textposition="outside",
        cliponaxis=False,
        textfont={"size": 12, "color": LIGHT["ink"]},
        hovertext=[f"{safe(name)}: {count(n, 'trial')} of {total}" for name, n, _ in rows],
        hoverinfo="text",
    )
    drawn.update_layout(
        xaxis=bare(range=[0, max(n for _, n, _ in rows) * 1.02]),
        yaxis=axis("", autorange="reversed", showline=False, showgrid=False, tickfont={"size": 12.5}),
    )
    return drawn


def binding_limit(context: ContextFacts) -> int | None:
    """Index of the limit that rejects most candidates; of equals the one that the losses come closest to."""

    def pressure(place: int) -> tuple[int, float]:
        limit = context.limits[place].limit
        losses = [one.losses[place] for one in context.trials if len(one.losses) > place]
        known = [value for value in losses if value is not None]
        over = sum(value > limit for value in known)
        return over, max((value / limit for value in known if limit > 0 and math.isfinite(value)), default=0.0)

    return max(range(len(context.limits)), key=pressure, default=None)


def pareto(trials: Sequence[TrialFacts], limit: int, *, maximize: bool) -> list[TrialFacts]:
    """Trials that no other beats in both loss and figure, by growing loss."""
    known = [one for one in trials if one.corrected is not None and (one.losses[limit] or 0.0) < math.inf]
    front: list[TrialFacts] = []
    for one in sorted(known, key=lambda one: (one.losses[limit] or 0.0, -_merit(one, maximize))):
        if not front or _merit(one, maximize) > _merit(front[-1], maximize):
            front.append(one)
    return front


class _Scale:
    """Losses on a line: their logarithms, zero a decade below the smallest, what is not finite beyond the largest."""

    def __init__(self, losses: Sequence[float], limit: float) -> None:
        positive = [value for value in (*losses, limit) if 0 < value < math.inf]
        low, high = (min(positive), max(positive)) if positive else (1e-3, 1.0)
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        has_zero = min(*losses, limit) <= 0
        has_infinite = math.inf in losses
        self._zero, self._infinite = first - 1.0, max(last, first + 1) + 0.7
        step = max(1, math.ceil((last - first + 1) / _MOST_TICKS))
        decades = list(range(first, last + 1, step))
        ends = [self._zero] * has_zero, [self._infinite] * has_infinite
        self.ticks = [*ends[0], *[float(one) for one in decades], *ends[1]]
        plain = all(-3 <= one <= 3 for one in decades)
        self.words = ["0"] * has_zero + [_decade(one, plain) for one in decades] + ["not finite"] * has_infinite
        span = (self._zero if has_zero else math.log10(low), self._infinite if has_infinite else math.log10(high))
        pad = 0.06 * max(span[1] - span[0], 0.5)
        self.range = [span[0] - pad, span[1] + pad]
        self.middle = 0.5 * (span[0] + span[1])

    def at(self, value: float | None) -> float:
        if value is None or value <= 0:
            return self._zero
        return math.log10(value) if math.isfinite(value) else self._infinite


def _decade(exponent: int, plain: bool) -> str:
    return f"{10.0**exponent:g}" if plain else f"10<sup>{exponent}</sup>".replace("-", "−")


def _points(
    drawn: go.Figure,
    trials: Sequence[TrialFacts],
    context: ContextFacts,
    x: Callable[[TrialFacts], float],
    name: str,
    role: str,
) -> None:
    if trials:
        drawn.add_scatter(
            x=[x(one) for one in trials],
            y=[one.corrected for one in trials],
            mode="markers",
            name=name,
            marker=marker(role, opacity=0.85),
            hovertext=[trial_hover(one, context) for one in trials],
            hoverinfo="text",
        )


def _marked(
    drawn: go.Figure, trials: Sequence[TrialFacts], context: ContextFacts, x: Callable[[TrialFacts], float]
) -> None:
    """The default and the winner (or the best that was seen), each as itself."""
    winner = _winner(context)
    confirmed = context.headline.answer is Answer.FASTER
    for one in trials:
        if one.is_default:
            look, name = {"symbol": "diamond", "color": LIGHT["ink"], "size": 13}, "default"
        elif winner is not None and one.number == winner.number:
            look = {"symbol": "star" if confirmed else "star-open", "color": LIGHT["winner"], "size": 16}
            name = "winner" if confirmed else "best seen"
        else:
            continue
        drawn.add_scatter(
            x=[x(one)],
            y=[one.corrected],
            mode="markers",
            name=name,
            marker={"line": {"color": LIGHT["paper"] if look["symbol"] != "star-open" else look["color"], "width": 1.2}}
            | look,
            hovertext=[trial_hover(one, context)],
            hoverinfo="text",
            cliponaxis=False,  # the default lies on the axis
        )


def _strip(
    drawn: go.Figure, trials: Sequence[TrialFacts], context: ContextFacts, x: Callable[[TrialFacts], float]
) -> None:
    """What has no figure, in a strip of its own below the plot; nothing where all have one."""
    if not trials:
        return
    for outcome in (Outcome.REJECTED, Outcome.FAILED):
        group = [one for one in trials if one.outcome is outcome]
        if group:
            drawn.add_scatter(
                x=[x(one) for one in group],
                y=[0.0] * len(group),
                yaxis="y2",
                mode="markers",
                name=f"{_NAMES[outcome]}, not timed" if context.objective.is_timed else _NAMES[outcome],
                marker=marker(outcome.value, size=8, opacity=0.8),
                hovertext=[trial_hover(one, context) for one in group],
                hoverinfo="text",
            )
    drawn.update_layout(yaxis2=bare(domain=[0, _STRIP], range=[-1, 1], anchor="x"))


def _front(drawn: go.Figure, timed: Sequence[TrialFacts], scale: _Scale, place: int, context: ContextFacts) -> None:
    front = pareto(timed, place, maximize=context.objective.is_timed)
    if len(front) > 1:
        drawn.add_scatter(
            x=[scale.at(one.losses[place]) for one in front],
            y=[one.corrected for one in front],
            mode="lines",
            name="Pareto front",
            line={"color": LIGHT["second"], "width": 1.8, "shape": "hv"},
            hoverinfo="skip",
        )


def trial_hover(one: TrialFacts, context: ContextFacts) -> str:
    """Candidate and outcome of a trial, in lines."""
    reached = ""
    if one.value is not None:
        reached = f"{value_words(one.value, context.objective)}, {times(one.ratio)} the default"
    losses = [
        f"{safe(limit.label)} {loss(value)} (limit {loss(limit.limit)})"
        for limit, value in zip(context.limits, one.losses, strict=False)
        if value is not None
    ]
    words = wrapped(one.words, most=4) if one.words else ""
    status = _NAMES[one.outcome] if one.outcome is Outcome.FEASIBLE else f"{_NAMES[one.outcome]}: {safe(one.status)}"
    head = f"<b>trial {one.number}</b>, {status}"
    return hover(head, wrapped(one.candidate), reached, *losses, words, safe(", ".join(one.flags)))


def _winner(context: ContextFacts) -> TrialFacts | None:
    if context.headline.answer is Answer.FASTER:
        return next((one for one in context.trials if one.number == context.headline.trial), None)
    return context.best


def _is_marked(one: TrialFacts, context: ContextFacts) -> bool:
    winner = _winner(context)
    return one.is_default or (winner is not None and winner.number == one.number)


def _best_so_far(ordered: Sequence[TrialFacts], context: ContextFacts) -> list[TrialFacts]:
    best: list[TrialFacts] = []
    for one in ordered:
        if not best or _merit(one, context.objective.is_timed) > _merit(best[-1], context.objective.is_timed):
            best.append(one)
    return best


def _merit(one: TrialFacts, maximize: bool) -> float:
    value = one.corrected or 0.0
    return value if maximize else -value


def _upwards(context: ContextFacts, *, strip: bool) -> dict[str, object]:
    """The better is always higher up; the strip of what was not timed, if there is one, lies below."""
    turned: dict[str, object] = {} if context.objective.is_timed else {"autorange": "reversed"}
    return {"domain": [_STRIP + 0.03 if strip else 0, 1], "nticks": _MOST_TICKS, "tickformat": ",~g", **turned}


def _time_unit(longest_s: float) -> tuple[float, str]:
    for seconds, words in ((3600.0, "h"), (60.0, "min")):
        if longest_s >= 2 * seconds:
            return seconds, words
    return 1.0, "s"


def spent_words(context: ContextFacts) -> str:
    """`60 trials in 14 min 3 s`."""
    return f"{count(len(context.trials), 'trial')} in {duration(context.spent_s)}"
