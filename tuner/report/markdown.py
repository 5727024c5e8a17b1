"""Report as Markdown: words and tables for a pull request or a note, no figures. Pure.

Flow: StudyFacts -> HERE -> text. Whatever users or libraries wrote stands in code, or is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tuner.report import advice
from tuner.report.cautions import cautions
from tuner.report.facts import Answer, ContextFacts, StudyFacts, TrialFacts
from tuner.report.words import count, drift_words, duration, figure, interval, loss, percent, share, size, times

_MOST_KNOBS, _MOST_EFFECTS, _MOST_FAILURES = 5, 8, 8
_MOST_WORDS = 160  # characters of a library's sentence


def markdown(studies: Sequence[StudyFacts]) -> str:
    """One study, or several with a table of what each found in front."""
    if len(studies) == 1:
        blocks = _study(studies[0], 2)
    else:
        blocks = ["## tuner report: what each study found", _compared(studies)]
        for one in studies:
            blocks += _study(one, 3)
    made = f"made {studies[0].made_at} by tensorrt-tuner {studies[0].tuner_version}"
    return "\n\n".join([*blocks, f"<sub>{text(made)}</sub>"]) + "\n"


def text(words: str) -> str:
    """Words as they are, in one line: nothing of them is Markdown, HTML or a mention of somebody."""
    flat = re.sub(r"([\\`*_{}\[\]#|~])", r"\\\1", " ".join(words.split()))
    return flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")


def code(words: str) -> str:
    """Words in a code span that they cannot leave, safe in a table."""
    flat = " ".join(words.split()).replace("|", "¦")
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", flat)), default=0))
    pad = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{pad}{flat}{pad}{fence}" if flat else ""


def _study(study: StudyFacts, level: int) -> list[str]:
    context = study.context
    title = f"{'#' * level} {text(study.name)}"
    if context is None:
        return [title, "The study has not been opened in any environment yet: there is nothing to report."]
    head = context.headline
    about = f"{text(study.model)}, {text(context.place)}"
    blocks = [title, f"**{text(head.sentence)}**", text(head.basis)]
    if head.changes:
        closest = head.answer in (Answer.NOT_FASTER, Answer.UNDECIDED)
        blocks.append(f"{'Closest finalist' if closest else 'It changes'}: {_candidate(head.changes)}")
    blocks += [f"> {text(line)}" for line in cautions(study, context)]
    blocks += [about, _numbers(study, context), *_ship(study, context, level + 1)]
    blocks += [*_confirmation(context, level + 1), *_knobs(context, level + 1), *_failures(context, level + 1)]
    return [*blocks, *_machine(context, level + 1), *_contexts(study, level + 1), *_again(study, context, level + 1)]


def _numbers(study: StudyFacts, context: ContextFacts) -> str:
    head = ["trial", "what", study.objective.metric, "of the default"]
    head += [f"loss {one.label} (limit {loss(one.limit)})" for one in context.limits]
    chosen = next((one for one in context.trials if one.number == context.headline.trial), context.best)
    rows = []
    for what, one in (("default", context.default), (_role(context), chosen)):
        if one is not None and (what == "default" or not one.is_default):
            value = figure(one.corrected, study.objective)
            rows.append([f"{one.number}", what, value, times(one.ratio), *_losses(one, context)])
    tried = f"{count(len(context.trials), 'trial')} in {duration(context.spent_s)}"
    if not rows:
        return f"{tried}; no figure of any candidate."
    how = "the machine's drift taken out; ratios are to the median of all timings of the default"
    return f"In the search ({tried}), {how}:\n\n{_table(head, rows)}"


def _losses(one: TrialFacts, context: ContextFacts) -> list[str]:
    return [loss(value) for value in one.losses] or ["–"] * len(context.limits)


def _role(context: ContextFacts) -> str:
    answer = context.headline.answer
    return {Answer.FASTER: "winner", Answer.NOT_FASTER: "closest finalist", Answer.UNDECIDED: "closest finalist"}.get(
        answer, "best seen"
    )


def _ship(study: StudyFacts, context: ContextFacts, level: int) -> list[str]:
    found = advice.shipping(study, context)
    blocks = [_title("What to ship", level), text(found.sentence)]
    if found.engine is not None:
        one = found.engine
        blocks.append(f"{code(one.file)}, {size(one.size_bytes)}, SHA-256 {code(one.digest)}")
    return [*blocks, _commands(found.commands)] if found.commands else blocks


def _confirmation(context: ContextFacts, level: int) -> list[str]:
    found = context.confirmation
    if found is None:
        return [_title("Confirmation", level), "Nothing has been confirmed in this context."]
    if not found.finalists:
        return [_title("Confirmation", level), f"No finalist: {text(found.reason)}."]
    level_words = "interval" if found.confidence is None else f"{share(found.confidence)} interval"
    rows = [
        [
            f"{one.trial}",
            one.verdict.replace("_", " ").upper() or "running",
            times(one.speedup),
            interval(one.low, one.high) if one.speedup is not None else "–",
            f"{one.n_pairs}",
            _candidate(one.changes),
        ]
        for one in found.finalists
    ]
    asked = f"Asked for: a gain of {share(found.min_gain)} or more. {count(found.n_pairs, 'process pair')}, "
    asked += f"{count(found.n_builds, 'build')} of the default."
    return [
        _title("Confirmation", level),
        asked,
        _table(["trial", "verdict", "speed-up", level_words, "pairs", "candidate"], rows),
    ]


def _knobs(context: ContextFacts, level: int) -> list[str]:
    title = _title("Which knobs matter", level)
    if not context.importance:
        return [title, "Too few feasible candidates to tell what a knob does."]
    top = ", ".join(f"{code(one.knob)} {share(one.share)}" for one in context.importance[:_MOST_KNOBS])
    rest = "" if context.unexplained is None else f"; by none alone {share(context.unexplained)}"
    rows = [
        [code(f"{one.knob}={one.value}"), code(one.default), percent(one.gain),
         f"{percent(one.low)} to {percent(one.high)}", f"{one.n_trials}"]
        for one in context.effects[:_MOST_EFFECTS]
    ]  # fmt: skip
    said = (
        f"Share of the differences that each explains: {top}{rest}. A model of the search's single timings, no proof."
    )
    return [title, said, _table(["value", "default", "gain", "95 % interval", "trials"], rows)]


def _failures(context: ContextFacts, level: int) -> list[str]:
    if not context.failures:
        return []
    rows = [
        [text(one.kind), text(one.stage) or "–", f"{one.n_trials}", code(_cut(one.words)), code(one.common)]
        for one in context.failures[:_MOST_FAILURES]
    ]
    more = len(context.failures) - len(rows)
    left = [f"{count(more, 'further kind')} left out."] if more > 0 else []
    return [
        _title("What went wrong", level),
        _table(["what", "stage", "trials", "in the words of the first", "in common"], rows),
        *left,
    ]


def _machine(context: ContextFacts, level: int) -> list[str]:
    found, lines = context.machine, []
    if found.run_sd is not None:
        lines.append(f"- noise: {share(found.run_sd)} between rounds, {share(found.load_sd)} between processes, "
                     f"{share(found.build_sd)} between builds")  # fmt: skip
    if found.detectable is not None:
        lines.append(f"- a usual confirmation can show a gain of {share(found.detectable)} or more")
    if found.drift_range is not None:
        lines.append(f"- drift: {drift_words(found)}")
    lines += [f"- {code(one.device)}: {percent(one.level)} latency against the default's own device, "
              f"{count(one.n_trials, 'trial')}" for one in found.devices]  # fmt: skip
    lines += [f"- {code(one.flag)} on {one.n_trials} of {found.n_timed}: {text(one.meaning)}" for one in found.flags]
    return [_title("Noise and drift", level), "\n".join(lines)] if lines else []


def _contexts(study: StudyFacts, level: int) -> list[str]:
    if len(study.contexts) < 2:
        return []
    rows = [
        [
            f"{one.number}{' (this report)' if one.number == study.shown else ''}",
            text(one.place),
            text(", ".join(f"{limit.label} ≤ {limit.limit:g}" for limit in one.limits)),
            f"{len(one.trials)}",
            f"{one.headline.answer.value} {times(one.headline.speedup) if one.headline.speedup else ''}".strip(),
        ]
        for one in study.contexts
    ]
    return [_title("Contexts", level), _table(["context", "environment", "limits", "trials", "verdict"], rows)]


def _again(study: StudyFacts, context: ContextFacts, level: int) -> list[str]:
    lines = [f"- model {code(study.model)}, SHA-256 {code(study.model_digest)}"]
    lines += [f"- {text(key)}: {text(value)}" for key, value in context.identity.items()]
    lines.append(f"- environment {code(context.environment_digest[:12])}, search {text(study.search)}, "
                 f"seed {study.seed}, budget {text(study.budget)}")  # fmt: skip
    return [_title("Again", level), "\n".join(lines), _commands(advice.reproduction(study, context))]


def _compared(studies: Sequence[StudyFacts]) -> str:
    rows = []
    for one in studies:
        context = one.context
        if context is None:
            rows.append([text(one.name), "not opened yet", "–", "–", "0", "–", text(one.model)])
            continue
        head = context.headline
        gain = interval(head.low, head.high) if head.low is not None else "–"
        tail = [f"{len(context.trials)}", text(context.place), text(one.model)]
        rows.append([text(one.name), head.answer.value, times(head.speedup), gain, *tail])
    return _table(["study", "verdict", "gain", "interval", "trials", "environment", "model"], rows)


def _candidate(changes: Mapping[str, str]) -> str:
    return " ".join(code(f"{name}={value}") for name, value in changes.items()) or "default"


def _commands(found: Sequence[advice.Command]) -> str:
    """A block of code that no command can end."""
    lines = [f"# {one.purpose}\n{one.text}" for one in found]
    whole = "\n".join(lines)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", whole)), default=0))
    return f"{fence}\n{whole}\n{fence}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are escaped already; those of the head are ours and those of limits, escaped here."""
    lines = [[text(name) for name in head], ["---"] * len(head), *[[cell or "–" for cell in row] for row in rows]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _title(words: str, level: int) -> str:
    return f"{'#' * level} {words}"


def _cut(words: str) -> str:
    flat = " ".join(words.split())
    return flat if len(flat) <= _MOST_WORDS else f"{flat[: _MOST_WORDS - 1]}…"
