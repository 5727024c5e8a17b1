"""Cautions: what somebody who doubts should know before the figures are believed. Pure.

Flow: StudyFacts -> HERE -> page.py, markdown.py, as_json.py.
"""

from __future__ import annotations

from collections import Counter

from tuner.report.facts import Answer, ContextFacts, StudyFacts
from tuner.report.words import count, share

_MUCH_DRIFT = 0.1  # of the machine's speed
_MANY = 0.25  # of the timed trials
_ABOUT_MACHINE = ("other_load", "stolen_time", "other_process", "throttled")


def cautions(study: StudyFacts, context: ContextFacts) -> tuple[str, ...]:
    """Sentences, none where there is nothing to say."""
    return (
        *_elsewhere(study, context),
        *_asked_again(context),
        *_machine(context),
        *_unsettled(context),
    )


def _elsewhere(study: StudyFacts, context: ContextFacts) -> list[str]:
    others = [one.number for one in study.contexts if one.number > context.number]
    if not others:
        return []
    return [f"This is about context {context.number}; the study has gone on in context {others[-1]}."]


def _asked_again(context: ContextFacts) -> list[str]:
    """The intervals of a confirmation hold for one confirmation, not for the one of several that pleases."""
    decided = context.confirmation
    done = [one for one in context.confirmations if one.state == "done" and one is not decided]
    others = Counter(one.verdict for one in done if decided is not None and one.verdict != decided.verdict)
    if not others:
        return []
    told = " and ".join(
        f"{count(n, 'earlier confirmation')} said {verdict.replace('_', ' ').upper()}" for verdict, n in others.items()
    )
    return [
        f"In this context {told}: the interval is that of the last one alone, and asking until an answer pleases errs "
        "more often than it says."
    ]


def _machine(context: ContextFacts) -> list[str]:
    found = context.machine
    lines = []
    if found.drift_range is not None and found.drift_range > _MUCH_DRIFT:
        lines.append(
            f"The machine's speed moved by {share(found.drift_range)} during the search. Figures have it taken out; "
            "a verdict does not rest on them."
        )
    lines += [
        f"{one.n_trials} of {found.n_timed} timed trials are flagged {one.flag}: {one.meaning}."
        for one in found.flags
        if one.flag.startswith(_ABOUT_MACHINE) and one.n_trials > _MANY * found.n_timed
    ]
    return lines


def _unsettled(context: ContextFacts) -> list[str]:
    lines = []
    decided, best, head = context.confirmation, context.best, context.headline
    if decided is not None and decided.state == "done" and any(one.state != "done" for one in context.confirmations):
        lines.append("Another confirmation has begun and not ended.")
    if decided is not None and best is not None and not best.is_default and head.answer is not Answer.UNCONFIRMED:
        known = {one.trial for one in decided.finalists}
        confirmed = next((one for one in context.trials if one.number == head.trial), None)
        bar = 1.0 if confirmed is None else confirmed.ratio or 1.0
        if best.number not in known and (best.ratio or 0.0) > bar:
            lines.append(f"Trial {best.number} looks better in the search and has not been confirmed.")
    if context.n_unfinished:
        lines.append(f"{count(context.n_unfinished, 'trial')} without an end: running, or interrupted.")
    return lines
