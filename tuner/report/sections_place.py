"""Sections about where and how: the machine's noise, lineage over contexts, environment, how to make it again.

Flow: page.py -> HERE -> parts.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from tuner.report import advice
from tuner.report.facts import ContextFacts, StudyFacts
from tuner.report.figures import lineage_drawing, machine_drawings
from tuner.report.html import Child, Markup, tag
from tuner.report.parts import NUMBER, TEXT, commands, drawing, facts, folded, grid, nothing, section, table
from tuner.report.words import count, drift_words, figure, percent, share, size, times


def machine(context: ContextFacts) -> Markup:
    """Noise, drift and quality flags."""
    title = "Noise and drift"
    if not context.objective.is_timed:
        return section("machine", title, nothing(f"Nothing is timed for {context.objective.value}: there is no drift."))
    found = context.machine
    drawn = {one.key: one for one in machine_drawings(context)}
    pairs: list[tuple[str, Child]] = []
    if found.run_sd is not None:
        levels = (("rounds of a process", found.run_sd), ("processes", found.load_sd), ("builds", found.build_sd))
        pairs.append(("noise", ", ".join(f"{share(level)} between {of}" for of, level in levels)))
    if found.detectable is not None:
        pairs.append(("can be shown", f"a gain of {share(found.detectable)} or more, by a usual confirmation"))
    if found.drift_range is not None:
        pairs.append(("drift", drift_words(found)))
    pairs += [
        (one.device, f"{percent(one.level)} latency against the default's own device; {count(one.n_trials, 'trial')}")
        for one in found.devices
    ]
    lead = "What the machine did to every candidate alike; it is taken out of the figures before they are compared."
    boxes = grid(drawing(drawn["drift"]), drawing(drawn["noise"]))
    return section("machine", title, facts(pairs) if pairs else None, boxes, _flags(context), lead=lead)


def lineage(study: StudyFacts) -> Markup:
    """Contexts: the same study in other environments, or judged in another way."""
    title = "Versions and hardware"
    if not study.contexts:
        return section("lineage", title, nothing("The study has not been opened anywhere yet."))
    lead = (
        "A context is the study in one environment, judged in one way. Timings of different contexts are never mixed."
    )
    drawn = lineage_drawing(study)
    box = drawing(drawn) if drawn.figure is not None else None
    head = [("context", ""), ("environment", TEXT), ("limits", TEXT), ("trials", NUMBER), ("default", NUMBER)]
    head += [("best seen", NUMBER), ("verdict", "")]
    rows = [_context_row(one, depth, study) for one, depth in _tree(study)]
    told = [_origin(one) for one in study.contexts if one.carried or one.opened_because]
    return section("lineage", title, table("Contexts", head, rows), box, told, lead=lead)


def environment(study: StudyFacts, context: ContextFacts | None) -> Markup:
    """Where this was measured, and how to make it again."""
    limits = "–" if context is None else ", ".join(f"{one.label} ≤ {one.limit:g}" for one in context.limits)
    shapes = ", ".join(f"{name}: {'×'.join(map(str, shape))}" for name, shape in study.shapes.items())
    pairs: list[tuple[str, Child]] = [
        ("study", f"{study.name}, created {study.created_at}"),
        ("model", f"{study.model}, {size(study.model_bytes)}"),
        ("model digest", tag("code", study.model_digest, class_="digest")),
        ("timed shapes", shapes or "as the model says"),
        ("judged on", f"{count(study.n_pairs, 'input')}; limits: {limits}"),
        ("searched by", f"{study.search}, seed {study.seed}, budget {study.budget}"),
    ]
    more: list[Child] = []
    if context is not None:
        pairs += [(key, value) for key, value in context.identity.items()]
        pairs += [("environment digest", tag("code", context.environment_digest, class_="digest"))]
        if context.details:
            more.append(folded("What else is recorded of the machine", facts(list(context.details.items()))))
        more.append(folded(f"All {context.n_knobs} knobs and their values", _knobs(context)))
    again = commands(advice.reproduction(study, context))
    return section("environment", "Environment and how to make this again", facts(pairs), more, again)


def _flags(context: ContextFacts) -> Markup:
    found = context.machine
    if not found.n_timed:
        return nothing("No candidate has been timed.")
    if not found.flags:
        return nothing(f"None of {count(found.n_timed, 'timed trial')} carries a quality flag.")
    rows = [
        [tag("code", one.flag), f"{one.n_trials}", share(one.n_trials / found.n_timed), one.meaning]
        for one in found.flags
    ]
    head = [("quality flag", ""), ("trials", NUMBER), ("of those timed", NUMBER), ("meaning", TEXT)]
    return table("Quality flags of the search's timings", head, rows)


def _tree(study: StudyFacts) -> Iterator[tuple[ContextFacts, int]]:
    known = {one.number for one in study.contexts}

    def below(parent: int | None, depth: int) -> Iterator[tuple[ContextFacts, int]]:
        for one in study.contexts:
            if (one.parent if one.parent in known else None) == parent:
                yield one, depth
                yield from below(one.number, depth + 1)

    return below(None, 0)


def _context_row(one: ContextFacts, depth: int, study: StudyFacts) -> list[Child]:
    head = one.headline
    shown = f" {times(head.speedup)}" if head.speedup is not None else ""
    return [
        tag("span", "└ " if depth else "", f"context {one.number}", " (this page)" if one.number == study.shown else "",
            style=f"padding-left:{max(depth - 1, 0)}em"),
        one.place,
        ", ".join(f"{limit.label} ≤ {limit.limit:g}" for limit in one.limits),
        f"{len(one.trials)}",
        figure(one.default.corrected if one.default else None, one.objective),
        figure(one.best.corrected if one.best else None, one.objective),
        f"{head.answer.value}{shown}",
    ]  # fmt: skip


def _origin(one: ContextFacts) -> Markup:
    because = f": {one.opened_because}" if one.opened_because else ""
    lines = tag("ul", [tag("li", line) for line in one.carried]) if one.carried else None
    return tag("div", tag("p", tag("strong", f"context {one.number}"), because), lines, class_="origin")


def _knobs(context: ContextFacts) -> Markup:
    rows = [
        [
            tag("code", str(knob["name"])),
            str(knob["kind"]),
            tag("code", str(knob["default"])),
            tag("span", ", ".join(map(str, knob["values"]))),
        ]
        for knob in context.knobs
    ]
    return table("Knobs", [("knob", ""), ("kind", ""), ("default", ""), ("values", TEXT)], rows)
