"""Sections of a page that compares studies: what each found, against its own default.

Flow: page.py -> HERE -> parts.py. Throughputs of different models or environments are not compared, ratios are.
"""

from __future__ import annotations

from collections.abc import Sequence

from tuner.report import advice
from tuner.report.facts import StudyFacts
from tuner.report.figures import Drawing, lineage
from tuner.report.html import Child, Markup, tag
from tuner.report.parts import NUMBER, badge, candidate, commands, drawing, grid, section, table
from tuner.report.sections_result import ROLES
from tuner.report.words import count, figure, interval, times


def compare_drawings(studies: Sequence[StudyFacts]) -> list[Drawing]:
    """Gains with intervals, and the best so far of each."""
    told = "; ".join(f"{one.name}: {one.context.headline.answer}" for one in studies if one.context is not None)
    none = "None of these studies has a feasible candidate that looked better than its default."
    return [
        Drawing("compared", "Gain over the default", f"Gain of each study. {told}.", lineage.compared(studies), none),
        Drawing("compared-progress", "Best so far, by trial", "Best seen against the study's own default, by trial.",
                lineage.progress(studies), none),
    ]  # fmt: skip


def sections(studies: Sequence[StudyFacts], drawn: Sequence[Drawing]) -> list[Child]:
    """The sections of the page."""
    head = [
        ("study", ""),
        ("verdict", ""),
        ("gain", NUMBER),
        ("interval", NUMBER),
        ("default", NUMBER),
        ("trials", NUMBER),
    ]
    head += [("environment", ""), ("model", "")]
    lead = "Each gain is over the study's own default, in its own environment. " + _unlike(studies)
    notes = ("Filled with an interval: confirmed. Hollow: seen in the search only, which flatters.", None)
    boxes = [drawing(one, note) for one, note in zip(drawn, notes, strict=True)]
    return [
        section(
            "compare",
            "What each found",
            table("Studies", head, [_row(one) for one in studies]),
            grid(*boxes),
            lead=lead,
        ),
        section("each", "One by one", [_one(one) for one in studies]),
    ]


def _row(study: StudyFacts) -> list[Child]:
    context = study.context
    if context is None:
        return [study.name, "not opened yet", "–", "–", "–", "0", "–", study.model]
    told = context.headline
    return [
        study.name,
        badge(told.answer.value, ROLES.get(told.answer, "failed")),
        times(told.speedup),
        interval(told.low, told.high) if told.low is not None else "–",
        figure(context.default.value if context.default else None, study.objective),
        f"{len(context.trials)}",
        context.place,
        study.model,
    ]


def _one(study: StudyFacts) -> Markup:
    context = study.context
    if context is None:
        return tag("article", tag("h3", study.name), tag("p", "The study has not been opened in any environment yet."))
    return tag(
        "article",
        tag("h3", study.name),
        tag("p", context.headline.sentence, class_="strong"),
        tag("p", context.headline.basis, class_="muted"),
        candidate(context.headline.changes) if context.headline.changes else None,
        commands((advice.Command("its own report", advice.tuner(study, "report")),)),
    )


def _unlike(studies: Sequence[StudyFacts]) -> str:
    models = {one.model_digest for one in studies}
    places = {one.context.environment_digest for one in studies if one.context is not None}
    objectives = {one.objective for one in studies}
    found = [count(len(models), "model")] if len(models) > 1 else []
    found += [count(len(places), "environment")] if len(places) > 1 else []
    found += [count(len(objectives), "objective")] if len(objectives) > 1 else []
    if not found:
        return "They share model and environment."
    return f"They are of {' and '.join(found)}: defaults and throughputs are not to be compared."
