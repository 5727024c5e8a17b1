"""The description of a program to tune: a TOML or JSON file, read and checked as a whole.

Flow: command.py gets `--model tune.toml` -> read HERE -> Description: what is run, its knobs, and how each value is
handed over. Everything that is wrong is said with the file, the knob and what to do, before any program is started.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from objectives.backends.command_handover import Handover
from objectives.errors import KnobError, ModelError
from objectives.knobs import Knob, KnobKind, KnobSpace
from objectives.model import require_file

RESERVED = ("command.json", "command.sh")  # what a build writes beside the program's files
_FORMAT = 1
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:+-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DEVICE = re.compile(r"[A-Za-z0-9_.:-]*")
Scalar = str | bool | int | float


class _RawKnob(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    values: list[Scalar]
    default: Scalar
    kind: str = KnobKind.BUILDER.value
    help: str = ""
    flag: str | None = None
    flags: dict[str, str | list[str]] | None = None
    variable: str | None = None
    join: str | None = None
    omit: Scalar | list[Scalar] | None = None


class _RawFile(msgspec.Struct, forbid_unknown_fields=True):
    program: list[str]
    knobs: list[dict[str, Any]]
    format: int = _FORMAT
    files: list[str] = []
    environment: list[str] = []
    device: str = "cpu"
    rounds: bool = False


@dataclass(frozen=True, slots=True)
class Description:
    """A program with its knobs. `files` lie in the description's folder, and belong to its identity."""

    program: tuple[str, ...]
    files: tuple[str, ...]
    environment: tuple[str, ...]  # a program that prints what makes it another environment; empty: none
    device: str
    rounds: bool
    space: KnobSpace
    handovers: tuple[Handover, ...]  # one a knob, in order

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of environment variables that the knobs set or add to."""
        return tuple(dict.fromkeys(one.variable for one in self.handovers if one.variable))


def read_description(path: Path) -> Description:
    """Raises: ModelError or KnobError, naming the file, the knob and a remedy."""
    raw = _convert(_parse(require_file(path)), _RawFile, f"{path.name!r}")
    if raw.format != _FORMAT:
        raise ModelError(
            f"{path.name!r} has format {raw.format}, this version reads {_FORMAT}", hint="upgrade the tuner"
        )
    _require_program(path, raw)
    files = _files(path, raw)
    if not _DEVICE.fullmatch(raw.device):
        raise ModelError(f"{path.name!r}: {raw.device!r} is no device", hint='write device = "cpu" or "cuda:0"')
    found = [_knob(path, index, one) for index, one in enumerate(raw.knobs, start=1)]
    if not found:
        raise KnobError(f"{path.name!r} has no knobs", hint="add [[knobs]] with name, values, default and flag")
    handovers = tuple(handover for _, handover in found)
    _require_apart(path, handovers)
    try:
        space = KnobSpace(tuple(knob for knob, _ in found))
    except KnobError as error:
        raise KnobError(f"{path.name!r}: {error}", hint="give each knob a name of its own") from None
    return Description(tuple(raw.program), files, tuple(raw.environment), raw.device, raw.rounds, space, handovers)


def text_of(value: Scalar) -> str:
    """A value as a knob has it: booleans in small letters, numbers as they are written."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse(path: Path) -> Any:
    form = "JSON" if path.suffix.lower() == ".json" else "TOML"
    try:
        text = path.read_text(encoding="utf-8")
        return msgspec.json.decode(text) if form == "JSON" else tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(
            f"cannot read {str(path)!r}: {error}", hint="the backend command takes a TOML or JSON file"
        ) from None
    except (tomllib.TOMLDecodeError, msgspec.DecodeError) as error:
        raise ModelError(
            f"{str(path)!r} is not {form}: {error}",
            hint="the backend command takes a description of a program: see docs/command.md",
        ) from None


def _convert(value: Any, kind: type[Any], where: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        known = ", ".join(kind.__struct_fields__)
        raise ModelError(f"{where}: {error}", hint=f"its keys are: {known}; see docs/command.md") from None


def _require_program(path: Path, raw: _RawFile) -> None:
    for key, words in (("program", raw.program), ("environment", raw.environment)):
        if (key == "program" and not words) or any(not word or "\0" in word for word in words):
            raise ModelError(
                f"{path.name!r}: {key} is no command", hint=f'write {key} = ["python3", "measure.py"]: a list of words'
            )
        for word in words:
            if word.startswith("../") or "/../" in word:
                raise ModelError(
                    f"{path.name!r}: {key} names {word!r}, outside the file's folder",
                    hint="put it into that folder, or write its whole path: a study keeps copies of the folder's files",
                )


def _files(path: Path, raw: _RawFile) -> tuple[str, ...]:
    """Files that belong to the description: those listed, and words of the commands that name one in its folder."""
    listed = [str(PurePosixPath(name)) for name in raw.files]
    words = [str(PurePosixPath(word)) for word in (*raw.program, *raw.environment) if _is_inside(path.parent, word)]
    for name in listed:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise ModelError(
                f"{path.name!r}: files names {name!r}, outside the file's folder",
                hint="list what lies in that folder; what lies elsewhere is named by its whole path and not copied",
            )
        if not (path.parent / name).is_file():
            raise ModelError(
                f"{path.name!r}: files names {name!r}, which is no file in {str(path.parent)!r}",
                hint="paths are relative to the description; folders are listed file by file",
            )
    found = tuple(dict.fromkeys((*words, *listed)))
    for name in found:
        if name in (*RESERVED, path.name):
            raise ModelError(f"{path.name!r}: the name {name!r} is taken", hint="give that file another name")
    return found


def _is_inside(folder: Path, word: str) -> bool:
    try:
        return not word.startswith("-") and not PurePosixPath(word).is_absolute() and (folder / word).is_file()
    except OSError:  # a word that no file can be called by
        return False


def _knob(path: Path, index: int, raw: dict[str, Any]) -> tuple[Knob, Handover]:
    name = raw.get("name")
    where = f"{path.name!r}, knob {name!r}" if isinstance(name, str) and name else f"{path.name!r}, knob number {index}"
    one: _RawKnob = _convert(raw, _RawKnob, where)
    if not _NAME.fullmatch(one.name):
        raise KnobError(
            f"{where}: this cannot be a name", hint="letters, digits and _ . : + -, a letter, digit or _ first"
        )
    if one.kind not in set(KnobKind):
        raise KnobError(f"{where}: there is no kind {one.kind!r}", hint=f"kinds: {', '.join(KnobKind)}")
    values = tuple(text_of(value) for value in one.values)
    if len(values) < 2:
        raise KnobError(f"{where}: there is nothing to choose from", hint="list two values or more")
    try:
        knob = Knob(one.name, values, text_of(one.default), KnobKind(one.kind), one.help or _help(one))
    except KnobError as error:
        raise KnobError(f"{path.name!r}: {error}", hint="values are compared as text") from None
    return knob, _handover(where, one, values)


def _help(one: _RawKnob) -> str:
    """What can be said about a knob that says nothing about itself."""
    if one.variable is not None:
        return f"sets {one.variable}"
    words = one.flag or "a flag for each value"
    return f"{words}, in {one.join}" if one.join else words


def _handover(where: str, one: _RawKnob, values: Sequence[str]) -> Handover:
    omitted = _omitted(where, one, values)
    ways = [key for key in ("flag", "flags", "variable") if getattr(one, key) is not None]
    if len(ways) != 1:
        given = f"it has {' and '.join(ways)}" if ways else "nothing says how its values reach the program"
        raise KnobError(
            f"{where}: {given}",
            hint='give one of: flag = "--name={value}", flags = { on = "--on", off = [] }, variable = "NAME"',
        )
    if one.join is not None and one.variable is not None:
        raise KnobError(f"{where}: join goes with flag or flags", hint=f"join = {one.join!r} collects their parts")
    for variable in (one.variable, one.join):
        if variable is not None and not _VARIABLE.fullmatch(variable):
            raise KnobError(f"{where}: {variable!r} is no environment variable", hint="letters, digits and _")
    parts = _parts(where, one, [value for value in values if value not in omitted])
    if any("\0" in part for found in parts.values() for part in found):
        raise KnobError(f"{where}: no program can be given a NUL character", hint="leave it out")
    return Handover(one.name, one.join or one.variable or "", one.join is not None, parts)


def _omitted(where: str, one: _RawKnob, values: Sequence[str]) -> set[str]:
    raw = [] if one.omit is None else one.omit if isinstance(one.omit, list) else [one.omit]
    omitted = {text_of(value) for value in raw}
    if unknown := sorted(omitted - set(values)):
        raise KnobError(
            f"{where}: omit names {', '.join(unknown)}, no value of it", hint=f"values: {', '.join(values)}"
        )
    return omitted


def _parts(where: str, one: _RawKnob, values: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """What each value hands over; values that are not named hand over nothing."""
    if one.variable is not None:
        return {value: (value,) for value in values}
    if one.flag is not None:
        if "{value}" not in one.flag:
            raise KnobError(
                f"{where}: flag {one.flag!r} does not say where the value goes",
                hint='write "--name={value}", or give flags: one for each value',
            )
        return {value: (one.flag.replace("{value}", value),) for value in values}
    flags = one.flags or {}
    if unknown := [value for value in flags if value not in values]:
        raise KnobError(
            f"{where}: flags names {', '.join(map(repr, unknown))}, no value of it that is handed over",
            hint=f"values: {', '.join(values)}",
        )
    if missing := [value for value in values if value not in flags]:
        raise KnobError(
            f"{where}: flags says nothing about {', '.join(map(repr, missing))}",
            hint="give it a flag; an empty list, or omit, hands over nothing",
        )
    return {value: tuple([part] if isinstance(part, str) else part) for value, part in flags.items() if part}


def _require_apart(path: Path, handovers: Sequence[Handover]) -> None:
    """A variable belongs to one knob, or is joined by all that name it."""
    for variable in {one.variable for one in handovers if one.variable}:
        users = [one for one in handovers if one.variable == variable]
        if len(users) > 1 and not all(one.joined for one in users):
            raise KnobError(
                f"{path.name!r}: knobs {', '.join(repr(one.knob) for one in users)} all set {variable}",
                hint=f'let each add its part: flag or flags with join = "{variable}"',
            )
