"""Sections about the result: the verdict, what ships, the confirmation it rests on.

Flow: page.py -> HERE -> parts.py.
"""

from __future__ import annotations

from tuner.report import advice
from tuner.report.cautions import cautions
from tuner.report.facts import Answer, ConfirmationFacts, ContextFacts, FinalistFacts, Outcome, StudyFacts, TrialFacts
from tuner.report.figures import Drawing, pair_drawings
from tuner.report.figures.confirmation import gain_words
from tuner.report.html import Child, Markup, tag
from tuner.report.parts import (
    NUMBER,
    TEXT,
    badge,
    candidate,
    commands,
    drawing,
    facts,
    folded,
    grid,
    nothing,
    section,
    table,
)
from tuner.report.words import count, duration, figure, interval, loss, milliseconds, share, size, times

ROLES = {
    Answer.FASTER: "winner",
    Answer.NOT_FASTER: "rejected",
    Answer.UNDECIDED: "third",
    Answer.UNCONFIRMED: "third",
    Answer.OBSERVED: "feasible",
}
_VERDICTS = {"faster": "winner", "not_faster": "rejected", "undecided": "third"}


def verdict(study: StudyFacts, context: ContextFacts) -> Markup:
    """What people read first."""
    head = context.headline
    changed: Child = None
    if head.changes:
        about = "the closest finalist" if head.answer in (Answer.NOT_FASTER, Answer.UNDECIDED) else "what it changes"
        changed = tag("p", tag("span", f"{about}: ", class_="muted"), candidate(head.changes), class_="changes")
    return tag(
        "section",
        tag("h2", badge(head.answer.value, ROLES.get(head.answer, "failed")), id="verdict-title"),
        tag("p", head.sentence, class_="sentence"),
        tag("p", head.basis, class_="basis"),
        _strip(context),
        changed,
        _cautions(study, context),
        _tiles(study, context),
        id="verdict",
        class_=f"verdict {ROLES.get(head.answer, 'failed')}",
        aria_labelledby="verdict-title",
    )


def ship(study: StudyFacts, context: ContextFacts) -> Markup:
    """The engine that ships, and what to type."""
    found = advice.shipping(study, context)
    engine: Child = None
    if found.engine is not None:
        one = found.engine
        engine = facts(
            [
                ("engine", tag("code", one.file)),
                ("SHA-256", tag("code", one.digest, class_="digest")),
                ("size", f"{size(one.size_bytes)}, {one.format}"),
                ("trial", f"{one.trial}, kept because: {', '.join(one.reasons) or 'all are kept'}"),
                *([("open with", candidate(one.open_with))] if one.open_with else []),
            ]
        )
    lead = "Loading an engine runs native code: load only bytes whose digest is the one below." if engine else ""
    told = tag("p", found.sentence, class_="strong")
    return section("ship", "What to ship", told, engine, commands(found.commands), _kept(context), lead=lead)


def confirmation(context: ContextFacts) -> Markup:
    """The confirmation that decides, with every pair that it took."""
    found, title = context.confirmation, "Confirmation"
    if found is None:
        why = "Nothing has been confirmed in this context."
        if not context.objective.is_timed:
            why = f"A confirmation compares speed; this study is about {context.objective.value}: there is none."
        return section("confirmation", title, nothing(why))
    drawn = {one.key: one for one in pair_drawings(context)}
    lead = (
        "Finalists and default were built afresh and restarted for every pair, and timed in turn with fresh samples. "
        "A pair is one restarted process of each side; the verdict rests on pairs alone, not on the search."
    )
    children: list[Child] = [_asked(found)]
    if not found.finalists:
        return section("confirmation", title, *children, nothing(f"No finalist: {found.reason}."), lead=lead)
    children += [_finalists(found), drawing(drawn["intervals"], gain_words(found)), _spans(found)]
    for place, one in enumerate(found.finalists):
        boxes = _pair_boxes(one, found, drawn)
        name = f"Every pair of trial {one.trial}"
        children.append(boxes if place == 0 else folded(name, boxes))
    return section("confirmation", title, *children, _earlier(context, found), lead=lead)


def _strip(context: ContextFacts) -> Markup | None:
    """The interval on a line with the default and the smallest gain that matters, drawn without a script."""
    head, decided = context.headline, context.confirmation
    if head.speedup is None or not head.low or head.high is None or decided is None:
        return None
    ends = (head.low, head.high, 1.0, 1.0 + decided.min_gain)
    low, wide = min(ends), max(max(ends) - min(ends), 1e-6)

    def at(value: float) -> str:
        return f"{2 + 96 * (value - low) / wide:.2f}%"

    alt = f"Interval {interval(head.low, head.high)}, estimate {times(head.speedup)}; the default is at 1×."
    width = f"{96 * (head.high - head.low) / wide:.2f}%"
    return tag(
        "div",
        tag("span", class_="track"),
        tag("span", class_="least", style=f"left:{at(1.0 + decided.min_gain)}") if decided.min_gain else None,
        tag("span", class_="one", style=f"left:{at(1.0)}"),
        tag("span", class_="span", style=f"left:{at(head.low)};width:{width}"),
        tag("span", class_="dot", style=f"left:{at(head.speedup)}"),
        tag("span", "default", class_="mark", style=f"left:{at(1.0)}") if low == 1.0 else None,
        class_="strip",
        role="img",
        aria_label=alt,
        title=alt,
    )


def _cautions(study: StudyFacts, context: ContextFacts) -> Markup | None:
    found = cautions(study, context)
    return tag("ul", [tag("li", line) for line in found], class_="cautions") if found else None


def _tiles(study: StudyFacts, context: ContextFacts) -> Markup:
    chosen = _chosen(context)
    tiles = _speeds(study, context, chosen)
    for limit, value in zip(context.limits, () if chosen is None else chosen.losses, strict=False):
        if value is not None:
            tiles.append(
                (f"loss, {limit.label}", loss(value), f"limit {loss(limit.limit)}, worst of {study.n_pairs} inputs")
            )
    n = len(context.trials)
    detail = f"{context.count(Outcome.FEASIBLE)} feasible, {context.count(Outcome.REJECTED)} rejected, "
    tiles.append(("trials", f"{n}", f"{detail}{context.count(Outcome.FAILED)} failed, {duration(context.spent_s)}"))
    return tag(
        "ul",
        [
            tag(
                "li",
                tag("span", name, class_="name"),
                tag("span", value, class_="value"),
                tag("span", more, class_="more"),
            )
            for name, value, more in tiles
        ],
        class_="tiles",
    )


def _speeds(study: StudyFacts, context: ContextFacts, chosen: TrialFacts | None) -> list[tuple[str, str, str]]:
    """Default and chosen, from the confirmation where there is one: only there they were timed side by side."""
    decided = context.confirmation
    closest = next((one for one in decided.finalists if one.trial == context.headline.trial), None) if decided else None
    medians = (None, None) if closest is None else (closest.median_ms("baseline"), closest.median_ms("candidate"))
    if closest is not None and medians[0] and medians[1]:
        word = "winner" if closest.is_winner else "closest finalist"
        return [
            (name, figure(1e3 / one, study.objective), f"median of the confirmation, {milliseconds(one)}")
            for name, one in (("default", medians[0]), (word, medians[1]))
        ]
    taken = "in the search, drift taken out" if study.objective.is_timed else "as it was built"
    found = []
    if context.default is not None and context.default.corrected is not None:
        found.append(("default", figure(context.default.corrected, study.objective), taken))
    if chosen is not None and not chosen.is_default and chosen.corrected is not None:
        found.append(("best seen", figure(chosen.corrected, study.objective), f"trial {chosen.number}, {taken}"))
    return found


def _chosen(context: ContextFacts) -> TrialFacts | None:
    if context.headline.answer is Answer.FASTER:
        return next((one for one in context.trials if one.number == context.headline.trial), None)
    return context.best


def _kept(context: ContextFacts) -> Markup | None:
    if len(context.engines) < 2:
        return None
    rows = [
        [
            f"{one.trial}",
            ", ".join(one.reasons) or "all are kept",
            size(one.size_bytes),
            tag("code", one.digest[:12]),
            candidate(one.changes),
        ]
        for one in context.engines
    ]
    head = [("trial", NUMBER), ("kept because", ""), ("size", NUMBER), ("digest", ""), ("candidate", TEXT)]
    return folded(f"All {len(rows)} engines that are kept", table("Engines that are kept", head, rows))


def _asked(found: ConfirmationFacts) -> Markup:
    state = "still running; nothing is decided" if found.state != "done" else found.verdict.replace("_", " ")
    winner = next((one.trial for one in found.finalists if one.is_winner), None)
    why = found.reason if winner is None else f"trial {winner} is faster beyond doubt"
    return facts(
        [
            ("answer", f"{state}{f': {why}' if why else ''}"),
            ("asked for", f"a gain of {share(found.min_gain)} or more"),
            ("taken", f"{count(found.n_pairs, 'process pair')}, {count(found.n_builds, 'build')} of the default"
                      f"{f', in {duration(found.spent_s)}' if found.spent_s else ''}"),
            ("started", found.started_at),
        ]
    )  # fmt: skip


def _finalists(found: ConfirmationFacts) -> Markup:
    rows = [
        [
            f"{one.trial}",
            badge(one.verdict.replace("_", " ") or "running", _VERDICTS.get(one.verdict, "failed")),
            times(one.speedup),
            interval(one.low, one.high) if one.speedup is not None else "–",
            f"{one.n_pairs}",
            tag("span", candidate(one.changes), tag("br"), tag("span", one.reason, class_="muted")),
        ]
        for one in found.finalists
    ]
    level = "interval" if found.confidence is None else f"{share(found.confidence)} interval"
    head = [
        ("trial", NUMBER),
        ("verdict", ""),
        ("speed-up", NUMBER),
        (level, NUMBER),
        ("pairs", NUMBER),
        ("candidate", TEXT),
    ]
    return table("Finalists and their verdicts", head, rows)


def _spans(found: ConfirmationFacts) -> Markup | None:
    if not found.spans:
        return None
    rows = [[one.words, times(one.speedup), interval(one.low, one.high)] for one in found.spans]
    head = [("what", TEXT), ("speed-up", NUMBER), ("95 % interval, each by itself", NUMBER)]
    return table("What may be said of the file, of the route and of luck", head, rows, hide=False)


def _pair_boxes(one: FinalistFacts, found: ConfirmationFacts, drawn: dict[str, Drawing]) -> Markup:
    pairs, rounds = drawn[f"pairs-{one.trial}"], drawn[f"rounds-{one.trial}"]
    shown = "Band and line: interval and speed-up. " if one.low and one.high is not None else ""
    return grid(drawing(pairs, f"{shown}{gain_words(found)}"), drawing(rounds, "Default and candidate in turn, raw."))


def _earlier(context: ContextFacts, found: ConfirmationFacts) -> Markup | None:
    others = [one for one in context.confirmations if one is not found]
    if not others:
        return None
    rows = [
        [
            one.started_at,
            one.purpose,
            one.verdict.replace("_", " ") or one.state,
            share(one.min_gain),
            f"{one.n_pairs}",
            one.reason,
        ]
        for one in others
    ]
    head = [
        ("started", ""),
        ("purpose", ""),
        ("answer", ""),
        ("gain asked for", NUMBER),
        ("pairs", NUMBER),
        ("reason", TEXT),
    ]
    return folded(f"{count(len(others), 'other confirmation')}", table("Other confirmations", head, rows))
