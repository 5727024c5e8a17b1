"""Advice: what to ship, and the commands that verify, load, rebuild and reproduce it. Pure.

Flow: StudyFacts -> HERE -> page.py, markdown.py, as_json.py. Every command is one that this version has.
"""

from __future__ import annotations

import shlex

import msgspec

from tuner.report.facts import Answer, ContextFacts, EngineFacts, StudyFacts

DEFAULT_STORAGE = "sqlite:///tuner.db"
_ORT_DISABLED = "ort.GraphOptimizationLevel.ORT_DISABLE_ALL"
_LOADERS = {"tensorrt": "trtexec", "trtexec": "trtexec", "tensorrt-rtx": "tensorrt_rtx"}


class Command(msgspec.Struct, frozen=True):
    """What a command is for, and the command (or a few lines of Python)."""

    purpose: str
    text: str


class Shipping(msgspec.Struct, frozen=True):
    """What to ship: a sentence, the engine if there is one, and what to type."""

    sentence: str
    engine: EngineFacts | None
    commands: tuple[Command, ...]


def shipping(study: StudyFacts, context: ContextFacts) -> Shipping:
    """What may be shipped on the strength of what is known."""
    answer = context.headline.answer
    if answer is Answer.NOTHING:
        return Shipping("Nothing yet: run the study first.", None, (Command("run it", tuner(study, "study run")),))
    if answer is Answer.UNCONFIRMED:
        return Shipping(
            "The default, until a confirmation says otherwise.",
            _engine(context, "default"),
            (Command("confirm the best candidates", tuner(study, "study confirm")),),
        )
    reason = {Answer.FASTER: "confirmed", Answer.OBSERVED: "best"}.get(answer, "default")
    engine = _engine(context, reason)
    if engine is None:
        number = context.headline.trial
        words = "Its engine is not kept any more." if reason == "confirmed" else "No engine is kept."
        again = () if number is None else (Command("build it again", tuner(study, "engine promote", str(number))),)
        return Shipping(words, None, again)
    sentence = {
        "confirmed": f"The confirmed engine file of trial {engine.trial}: this file, not a rebuild of it.",
        "best": f"The engine file of trial {engine.trial}.",
        "default": "The default: nothing has been shown to be faster.",
    }[reason]
    return Shipping(sentence, engine, _commands(study, context, engine))


def reproduction(study: StudyFacts, context: ContextFacts | None) -> tuple[Command, ...]:
    """How to make this again: here, elsewhere, and as a page."""
    file = f"{plain_name(study.name)}.study"
    newest = max((one.number for one in study.contexts), default=None)
    about = () if study.shown in (None, newest) else ("--context", str(study.shown))
    found = [Command("go on with the search, or start it in another environment", tuner(study, "study run"))]
    done = None if context is None else context.confirmation
    gain = () if done is None else ("--min-gain", f"{100 * done.min_gain:g}%")
    if study.objective.is_timed:
        found.append(Command("confirm again, with fresh builds and samples", tuner(study, "study confirm", *gain)))
        found.append(Command("check what ships after an upgrade, or in CI", tuner(study, "check")))
    found += [
        Command("every trial with raw samples and losses", tuner(study, "study show", "--json")),
        Command("take the study to another database", tuner(study, "db export", "-o", file)),
        Command("this report again", tuner(study, "report", *about)),
    ]
    return tuple(found)


def tuner(study: StudyFacts, verb: str, *more: str) -> str:
    """A command line about a study."""
    storage = () if study.storage == DEFAULT_STORAGE else ("--storage", study.storage)
    return shlex.join(["python", "-m", "tuner", *verb.split(), study.name, *more, *storage])


def _engine(context: ContextFacts, reason: str) -> EngineFacts | None:
    wanted = context.headline.trial if reason == "confirmed" else None
    found = [one for one in context.engines if reason in one.reasons]
    return next((one for one in found if wanted in (None, one.trial)), None)


def _commands(study: StudyFacts, context: ContextFacts, engine: EngineFacts) -> tuple[Command, ...]:
    folder = f"{plain_name(study.name)}-engine"
    # Both commands are about the latest context; of another one only the database tells.
    if context.number != max(one.number for one in study.contexts):
        return ()
    found = [
        Command(
            "write it with its manifest", tuner(study, "engine export", "--trial", str(engine.trial), "-o", folder)
        ),
        Command(
            "verify the bytes that were handed on", f"python -m tuner engine verify --folder {shlex.quote(folder)}"
        ),
        Command("verify its outputs too", tuner(study, "engine verify", "--trial", str(engine.trial), "--run")),
    ]
    found += _loading(context, engine, folder)
    again = engine.rebuild or tuner(study, "engine promote", str(engine.trial))
    words = "build it again: other bytes, and another speed, as a rule" if engine.rebuild else "build it if it is gone"
    return (*found, Command(words, again))


def _loading(context: ContextFacts, engine: EngineFacts, folder: str) -> list[Command]:
    file = f"{folder}/{engine.file}"
    program = _LOADERS.get(context.backend)
    if program is not None:
        return [Command("load and time it", shlex.join([program, f"--loadEngine={file}"]))]
    if context.backend.startswith("onnxruntime"):
        lines = (
            "import onnxruntime as ort",
            "options = ort.SessionOptions()",
            f"options.graph_optimization_level = {_ORT_DISABLED}  # done already",
            f"session = ort.InferenceSession({file!r}, options)",
        )
        return [Command("load it", "\n".join(lines))]
    return []


def plain_name(name: str) -> str:
    """A name for a file."""
    kept = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)
    return kept.strip("-.") or "study"
