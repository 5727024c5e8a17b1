"""Sections about the search: accuracy against throughput, progress, knobs, failures, every trial.

Flow: page.py -> HERE -> parts.py.
"""

from __future__ import annotations

from tuner.report.facts import ContextFacts, FailureFacts, Outcome, TrialFacts
from tuner.report.figures import Drawing, knob_drawings, search_drawings
from tuner.report.html import Markup, tag
from tuner.report.parts import NUMBER, TEXT, badge, candidate, drawing, folded, grid, nothing, section, table
from tuner.report.words import count, duration, figure, loss, times

_MOST_ROWS = 2000  # more make a page slow; `study show --json` has all
_MOST_NUMBERS = 8
_ROLES = {Outcome.FEASIBLE: "winner", Outcome.REJECTED: "rejected", Outcome.FAILED: "failed"}


def tradeoff(context: ContextFacts) -> Markup:
    """Accuracy against the objective."""
    drawn = {one.key: one for one in search_drawings(context)}
    timed = context.objective.is_timed
    title = f"Accuracy against {context.objective.value.replace('-', ' ')}"
    lead = (
        "Each point is a candidate, timed once in the search; right of the limit nothing may ship. "
        "What was rejected is not timed as a rule: it lies in the strip below. "
        if timed
        else "Each point is a candidate; right of the limit nothing may ship. "
    ) + "The Pareto front joins candidates that no other beats in both."
    return section("accuracy", title, drawing(drawn["tradeoff"]), lead=lead)


def progress(context: ContextFacts) -> Markup:
    """Best so far, and what became of the candidates."""
    drawn = {one.key: one for one in search_drawings(context)}
    lead = "The best of many noisy measurements looks better than it is: these lines lean upwards."
    boxes = grid(drawing(drawn["progress-trials"]), drawing(drawn["progress-time"]))
    return section("search", "The search", boxes, lead=lead)


def knobs(context: ContextFacts) -> Markup:
    """Which knobs matter."""
    drawn = {one.key: one for one in knob_drawings(context)}
    lead = (
        "A linear model of the feasible candidates, timed once each: it says where to look, not what is true. "
        "Effects are against the knob's default with the other knobs' effects taken out; bars are 95 % intervals."
    )
    if drawn["importance"].figure is None and drawn["effects"].figure is None:
        return section("knobs", "Which knobs matter", nothing(drawn["importance"].empty))
    boxes = [drawing(drawn["importance"]), drawing(drawn["effects"])]
    pairs = [one for key, one in drawn.items() if key.startswith("pairing-")]
    return section("knobs", "Which knobs matter", grid(*boxes), _pairs(pairs), lead=lead)


def failures(context: ContextFacts) -> Markup:
    """What went wrong, in the library's words."""
    drawn = {one.key: one for one in search_drawings(context)}
    title = "What became of the candidates"
    if not context.trials:
        return section("outcomes", title, nothing(drawn["outcomes"].empty))
    box = drawing(drawn["outcomes"])
    if not context.failures:
        return section("outcomes", title, box, nothing("Every candidate was built, was right and could be timed."))
    lead = "A candidate that crashes, hangs or answers wrongly is a result: the search learns from it."
    head = [("what", ""), ("stage", ""), ("trials", NUMBER), ("in words", TEXT)]
    rows = [
        [badge(one.kind, one.outcome.value), one.stage or "–", f"{one.n_trials}", _words(one)]
        for one in context.failures
    ]
    return section("outcomes", title, box, table("Failures and rejections by kind", head, rows), lead=lead)


def trials(context: ContextFacts) -> Markup | None:
    """Every trial, folded away."""
    if not context.trials:
        return None
    metric = "throughput" if context.objective.is_timed else context.objective.value.replace("-", " ")
    head = [("trial", NUMBER), ("outcome", ""), (metric, NUMBER), ("of the default", NUMBER)]
    head += [(f"loss, {one.label}", NUMBER) for one in context.limits]
    head += [("took", NUMBER), ("candidate", TEXT)]
    shown = context.trials[:_MOST_ROWS]
    more = len(context.trials) - len(shown)
    rows = [_row(one, context) for one in shown]
    left = (
        nothing(f"{count(more, 'further trial')}: python -m tuner study show --json has all of them.") if more else None
    )
    note = tag(
        "p",
        "Ratios have the machine's drift taken out and are to the median of all timings of the default, so they differ "
        "from those of the figures here.",
        class_="lead",
    )
    return section(
        "trials", "Every trial", folded(count(len(context.trials), "trial"), note, table("Trials", head, rows), left)
    )


def _pairs(found: list[Drawing]) -> Markup | None:
    if not found:
        return None
    lead = (
        "Two knobs that matter at a time: the change against both defaults in percent, other knobs' effects taken "
        "out. The first knob is down, the second across; a dot: no feasible trial."
    )
    return tag("div", tag("p", lead, class_="lead"), tag("div", [drawing(one) for one in found], class_="grid"))


def _words(one: FailureFacts) -> Markup:
    numbers = ", ".join(str(number) for number in one.trials[:_MOST_NUMBERS])
    more = f" and {one.n_trials - _MOST_NUMBERS} more" if one.n_trials > _MOST_NUMBERS else ""
    common = f"; all of them, and no feasible one, have {one.common}" if one.common else ""
    which = f"{'trial' if one.n_trials == 1 else 'trials'} {numbers}{more}{common}"
    return tag("div", tag("pre", tag("code", one.words or "no words"), class_="said", tabindex=0),
               tag("span", which, class_="muted"))  # fmt: skip


def _row(one: TrialFacts, context: ContextFacts) -> list[Markup | str]:
    status = "feasible" if one.outcome is Outcome.FEASIBLE else one.status
    losses = [loss(value) for value in one.losses] or ["–"] * len(context.limits)
    notes = [*one.flags, *([f"started {one.starts} times"] if one.starts > 1 else [])]
    return [
        f"{one.number}",
        badge(status, _ROLES[one.outcome]),
        figure(one.value, context.objective),
        times(one.ratio),
        *losses,
        duration(one.spent_s),
        tag("span", candidate(one.changes), tag("span", f" {', '.join(notes)}", class_="muted") if notes else None),
    ]
