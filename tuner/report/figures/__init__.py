"""Figures: facts in, plotly figures out; what each shows in words, for those who cannot see it.

Flow: ContextFacts -> `drawings` HERE -> page.py places them, the dashboard attaches them. A drawing without a figure
says in a sentence why there is none.
"""

from __future__ import annotations

from dataclasses import dataclass

import plotly.graph_objects as go

from tuner.report.facts import ContextFacts, Outcome, StudyFacts
from tuner.report.figures import confirmation, knobs, lineage, machine, search
from tuner.report.words import count, share, times
from tuner.report.words import figure as value_words


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure with its title, what it shows in a sentence, and what to say where there is nothing to draw."""

    key: str
    title: str
    alt: str
    figure: go.Figure | None
    empty: str


def drawings(context: ContextFacts) -> list[Drawing]:
    """Every figure of a context in the order of the page; titles and sentences are plain text."""
    return [*search_drawings(context), *knob_drawings(context), *machine_drawings(context), *pair_drawings(context)]


def search_drawings(context: ContextFacts) -> list[Drawing]:
    """Accuracy against the objective, best so far, outcomes."""
    n, feasible = len(context.trials), context.count(Outcome.FEASIBLE)
    best = "" if context.best is None else f" The best is at {value_words(context.best.value, context.objective)}."
    none = "No trial has finished yet." if not n else "No feasible candidate yet: there is nothing to follow."
    unchecked = "Outputs were not checked: there is no loss to show." if n else "No trial has finished yet."
    place = search.binding_limit(context)
    limit = "" if place is None else f"the limit {context.limits[place].label} ≤ {context.limits[place].limit:g}"
    about = f"{count(n, 'trial')}, {feasible} feasible, {context.count(Outcome.REJECTED)} rejected, "
    about += f"{context.count(Outcome.FAILED)} failed."
    metric = context.objective.metric
    return [
        Drawing("tradeoff", "One point a candidate",
                f"Worst loss against {metric}, with {limit}. {about}{best}", search.tradeoff(context), unchecked),
        Drawing("progress-trials", "Best so far, by trial", f"Best {metric} after each trial. {about}{best}",
                search.progress(context), none),
        Drawing("progress-time", "Best so far, by time", f"Best {metric} over the time spent in trials.{best}",
                search.progress(context, over_time=True), none),
        Drawing("outcomes", "Trials by outcome", about, search.outcomes(context),
                "No trial has finished yet."),
    ]  # fmt: skip


def knob_drawings(context: ContextFacts) -> list[Drawing]:
    """Importance, effects, pairs of knobs."""
    few = "Too few feasible candidates to tell what a knob does."
    top = ", ".join(f"{one.knob} {share(one.share)}" for one in context.importance[:3])
    found = [
        Drawing("importance", "Share of the differences that a knob explains",
                f"Share of the differences that each knob explains: {top}.", knobs.importance(context), few),
        Drawing("effects", "What each value does", "Change against the knob's default, with 95 % intervals.",
                knobs.effects(context), few),
    ]  # fmt: skip
    return found + [
        Drawing(
            f"pairing-{place}",
            f"{one.first} × {one.second}",
            f"{knobs.pairing_words(one)}.",
            knobs.pairing(context, one),
            "",
        )
        for place, one in enumerate(context.pairings)
    ]


def machine_drawings(context: ContextFacts) -> list[Drawing]:
    """Drift, and the default against itself."""
    found = context.machine
    moved = "" if found.drift_range is None else f" The speed moved by {share(found.drift_range)}."
    return [
        Drawing("drift", "Drift of the machine", f"The default, timed again through the session.{moved}",
                machine.drift(context), "The default was not timed again: nothing is known of drift."),
        Drawing("noise", "The default against itself", "Latency of the default in fresh processes and rebuilds.",
                machine.against_itself(context), "The default was not timed against itself: the noise is not known."),
    ]  # fmt: skip


def pair_drawings(context: ContextFacts) -> list[Drawing]:
    """Intervals, pairs and rounds of the confirmation that decides; one sentence where there is none."""
    found = context.confirmation
    if found is None:
        nothing = "Nothing has been confirmed in this context."
        return [Drawing("intervals", "Finalists", "", None, nothing)]
    told = [f"trial {one.trial}: {times(one.speedup)}" for one in found.finalists if one.speedup is not None]
    drawn = [
        Drawing("intervals", "Finalists", f"Speed-up with interval. {'; '.join(told)}.", confirmation.intervals(found),
                "No finalist has an interval."),
    ]  # fmt: skip
    for one in found.finalists:
        name = f"trial {one.trial}"
        empty = f"No process pair of {name} was taken."
        drawn += [
            Drawing(f"pairs-{one.trial}", f"Process pairs, {name}", f"Ratio in each of {len(one.pairs)} pairs.",
                    confirmation.pairs(found, one), empty),
            Drawing(f"rounds-{one.trial}", f"Rounds, {name}", "Median latency of every round, default and candidate.",
                    confirmation.rounds(one), empty),
        ]  # fmt: skip
    return drawn


def lineage_drawing(study: StudyFacts) -> Drawing:
    """Default and best of each context."""
    return Drawing("contexts", "Contexts compared", f"Default and best of {len(study.contexts)} contexts.",
                   lineage.contexts(study), "There is one context: nothing to compare with yet.")  # fmt: skip
