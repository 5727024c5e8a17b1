"""Note: what the page of a context says above its plots, in Markdown. Pure.

Flow: report/gather.py has the facts -> HERE -> page.py writes it as the note of the Optuna study.
Words of users and libraries stand between backticks, where nothing is markup.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from tuner.report.facts import Answer, ContextFacts, Outcome, StudyFacts
from tuner.report.words import count, duration, figure, loss, share, size, times

_MOST_FAILURES = 6
_REASON_CHARS = 160
_DEFAULT_STORAGE = "sqlite:///tuner.db"


def note(study: StudyFacts, context: ContextFacts) -> str:
    """The verdict, what ships, what became of the trials, where it was measured, and how to read the page."""
    headline = context.headline
    parts = [
        f"## {headline.sentence}",
        headline.basis,
        *_candidates(context),
        "### Trials",
        *_trials(study, context),
        "### Environment",
        *_environment(study, context),
        "### Commands",
        _commands(study, context),
        "### How to read this page",
        *_reading(context),
    ]
    return "\n\n".join(part for part in parts if part)


def _candidates(context: ContextFacts) -> list[str]:
    """What was decided about, or the best so far; and the engines that are kept."""
    headline, lines = context.headline, []
    if headline.trial is not None and headline.changes:
        what = {Answer.FASTER: "Winner", Answer.UNDECIDED: "Closest finalist", Answer.NOT_FASTER: "Closest finalist"}
        name = what.get(headline.answer, "Best in the search")
        changes = _listed(f"{_code(f'{knob}={value}')}" for knob, value in headline.changes.items())
        lines.append(f"**{name}: trial {headline.trial}**, the default but for {changes}.")
    kept = [
        f"- trial {one.trial} ({', '.join(one.reasons) or 'kept'}): {size(one.size_bytes)}, {_code(one.digest[:12])}"
        for one in context.engines
    ]
    return [*lines, *(["Engines kept, their manifests among the artifacts:\n\n" + "\n".join(kept)] if kept else [])]


def _trials(study: StudyFacts, context: ContextFacts) -> list[str]:
    numbers = {outcome: context.count(outcome) for outcome in Outcome}
    told = ", ".join(f"{number} {outcome.value}" for outcome, number in numbers.items())
    lines = [f"{count(len(context.trials), 'trial')} in {duration(context.spent_s)} (budget {study.budget}): {told}."]
    if context.default is not None and context.default.value is not None:
        lines.append(f"Default: {figure(context.default.value, context.objective)}.")
    limits = _listed(f"{_code(one.label)} at most {loss(one.limit)}" for one in context.limits)
    lines.append(f"Limits: {limits}." if limits else "Outputs are not checked.")
    rows = [
        f"- {one.n_trials} × {one.kind}{f' in {one.stage}' if one.stage else ''}: {_code(one.words[:_REASON_CHARS])}"
        for one in context.failures[:_MOST_FAILURES]
    ]
    return [" ".join(lines), "\n".join(rows)]


def _environment(study: StudyFacts, context: ContextFacts) -> list[str]:
    identity = [f"{name} {_code(value)}" for name, value in context.identity.items()]
    lines = [f"{context.backend} {context.backend_version} on {_code(context.device)}: {_listed(identity)}."]
    lines += [f"Model {_code(study.model)} ({size(study.model_bytes)}), {count(context.n_knobs, 'knob')}, "]
    lines[-1] += f"{context.n_candidates:,} candidates, search {_code(study.search)}, seed {study.seed}."
    machine = context.machine
    if machine.run_sd is not None and machine.load_sd is not None and machine.build_sd is not None:
        noise = f"run {share(machine.run_sd)}, load {share(machine.load_sd)}, build {share(machine.build_sd)}"
        lines.append(f"Noise of the default: {noise}.")
    if machine.drift_range is not None:
        lines.append(f"The machine's speed moved by {share(machine.drift_range)}; it is taken out of every figure.")
    if context.opened_because:
        lines.append(f"Context {context.number} was opened because: {_code(context.opened_because)}.")
    return [" ".join(lines)]


def _commands(study: StudyFacts, context: ContextFacts) -> str:
    name = shlex.quote(study.name)
    at = "" if study.storage == _DEFAULT_STORAGE else f" --storage {shlex.quote(study.storage)}"
    verbs = {
        Answer.FASTER: [f"engine export {name} -o {name}-engine{at}", f"check {name}{at}"],
        Answer.UNCONFIRMED: [f"study confirm {name}{at}"],
        Answer.UNDECIDED: [f"study confirm {name}{at}"],
        Answer.NOTHING: [f"study run {name}{at}"],
    }
    lines = [*verbs.get(context.headline.answer, []), f"study show {name}{at}", f"report {name} -o report.html{at}"]
    return "```\n" + "\n".join(f"python -m tuner {line}" for line in lines) + "\n```"


def _reading(context: ContextFacts) -> list[str]:
    shown = context.objective.metric
    best = "" if context.best is None else f" Here it is trial {context.best.number}, {times(context.best.ratio)}."
    lines = [
        f"- Each trial shows {shown}, the machine's drift taken out as far as it was known then. **Best trial** is the "
        f"best feasible one of the search, which is no verdict.{best}",
        "- A trial that failed or breaks a limit is infeasible: grey in the plots, with attribute "
        "`feasible` false and the reason beside it. It has no speed, so it stands a little below the best feasible "
        "trial at most, mostly at the default's figure. Importance and the empirical distribution count it there.",
        "- The trial being evaluated is not shown until it is finished.",
        "- Figures named by words (`tradeoff`, `effects`, ...) are the tuner's own; they know all of this.",
    ]
    if context.best is None:
        lines.insert(1, "- **No trial is feasible: what the page calls the best trial is none.**")
    return ["\n".join(lines)]


def _code(text: str) -> str:
    """Text of users or libraries in one line, as code."""
    flat = " ".join(text.split()).replace("`", "'")
    return f"`{flat}`" if flat else "(nothing)"


def _listed(parts: Iterable[str]) -> str:
    return ", ".join(parts)
