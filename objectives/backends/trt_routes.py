"""Build routes: TensorRT's own list of compiler decisions, read, classified, and written back as one string.

Flow: config.all_build_routes -> read_routes HERE -> route knobs -> a candidate's values -> route_string HERE ->
config.build_route. Pure text in and out; knows no library. The installed library's list is the only authority: no
knob is known by name.
Source: the format is documented in the header of TensorRT 11.1 (IBuilderConfig::getAllBuildRoutes); the forms of
`allowed_values` are those seen in public material.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from objectives.errors import KnobError
from objectives.knobs import Knob, KnobKind

PREFIX = "route:"
UNSET = "unset"  # the default of a knob whose list names none: the token is left out
Ladders = Mapping[str, tuple[int, ...]]  # values for open-ended integers, by knob name without its dash
_INTEGER_WORDS = frozenset({"int", "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t"})
_INTEGER = re.compile(r"-?\d+")
_TOKEN = re.compile(r"-([^\s=]+)=(\S+)")
_LADDER_STEPS = 5


class Form(StrEnum):
    """How `allowed_values` describes what a knob takes."""

    LISTED = "listed"  # [on|off]
    OPEN_INTEGER = "open_integer"  # int32_t, [1|2|...], [-1|int]
    TEXT = "text"  # [string], <file>: not tuned


class RouteKnob(msgspec.Struct, frozen=True):
    """One entry of the list. `listed` are the values it names, for an open-ended integer only the first few."""

    name: str  # without the leading dash
    form: Form
    listed: tuple[str, ...]
    default: str
    help: str


class RouteDatabase(msgspec.Struct, frozen=True):
    """The list of one installation: knobs in its order, and entries that cannot be tuned with the reason."""

    tuner_version: str = ""
    knobs: tuple[RouteKnob, ...] = ()
    left_out: Mapping[str, str] = {}


def read_routes(text: str) -> RouteDatabase:
    """The list in `text`; empty text is an empty list, as versions and platforms without the feature give it.

    As tolerant as NVIDIA's own reader: odd entries are left out, of a repeated knob the last definition counts.
    Raises: KnobError if the text holds no list at all.
    """
    if not text.strip():
        return RouteDatabase()
    entries = _entries(text)
    knobs: dict[str, RouteKnob] = {}
    left_out: dict[str, str] = {}
    for entry in entries["tuner_options"]:
        name = _field(entry, "option").removeprefix("-")
        if not name or re.search(r"[\s=]", name):
            continue
        form, listed = _classify(_field(entry, "allowed_values"))
        knobs[name] = RouteKnob(name, form, listed, _field(entry, "default_value"), _field(entry, "help"))
        left_out.pop(name, None)
        if reason := _unusable(knobs[name]):
            left_out[name] = reason
    kept = tuple(knob for name, knob in knobs.items() if name not in left_out)
    version = entries.get("tuner_version")
    return RouteDatabase(version if isinstance(version, str) else "unknown", kept, left_out)


def route_knobs(database: RouteDatabase, ladders: Ladders) -> tuple[Knob, ...]:
    """The knobs to tune, in the list's order. Raises: KnobError for a ladder of a knob that takes none."""
    open_ended = {knob.name for knob in database.knobs if knob.form == Form.OPEN_INTEGER}
    if database.knobs and (unknown := set(ladders) - open_ended):
        names = ", ".join(sorted(unknown))
        raise KnobError(f"{names}: no open-ended build-route knob has this name", hint="give ranges for those only")
    offered = (_knob(knob, ladders.get(knob.name)) for knob in database.knobs)
    return tuple(knob for knob in offered if len(knob.values) > 1)


def route_string(values: Mapping[str, str], knobs: Iterable[Knob]) -> str:
    """The canonical route of `values`: only what differs from the default, in the list's order, single blanks."""
    chosen = ((knob.name, values.get(knob.name, knob.default), knob.default) for knob in knobs)
    return " ".join(
        f"-{name.removeprefix(PREFIX)}={value}"
        for name, value, default in chosen
        if name.startswith(PREFIX) and value != default
    )


def parse_route(text: str) -> dict[str, str]:
    """Knob names (without dash) to values, in order.

    Raises: KnobError for a token that is not `-name=value`, and for a knob named twice (no rule says which would
    count).
    """
    found: dict[str, str] = {}
    for token in text.split():
        match = _TOKEN.fullmatch(token)
        if match is None:
            raise KnobError(f"build-route token {token!r} is not of the form -name=value")
        if match[1] in found:
            raise KnobError(f"the build route sets {match[1]!r} twice", hint="name every knob once")
        found[match[1]] = match[2]
    return found


def _entries(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise KnobError(f"TensorRT's list of build routes is not JSON ({error})", hint="report this version") from error
    if not isinstance(found, dict) or not isinstance(found.get("tuner_options"), list):
        raise KnobError("TensorRT's list of build routes has no 'tuner_options'", hint="report this version")
    found["tuner_options"] = [entry for entry in found["tuner_options"] if isinstance(entry, dict)]
    return found


def _field(entry: Mapping[str, Any], name: str) -> str:
    value = entry.get(name)
    return value.strip() if isinstance(value, str) else ""


def _classify(allowed: str) -> tuple[Form, tuple[str, ...]]:
    """Form and listed values of a value description such as `-k=[0|1|...]`."""
    _, _, description = allowed.partition("=")
    inner = re.search(r"\[([^\]]*)\]", description)
    if inner is None:
        return (Form.OPEN_INTEGER if description.strip() in _INTEGER_WORDS else Form.TEXT), ()
    tokens = dict.fromkeys(token.strip() for token in inner[1].split("|") if token.strip())
    listed = tuple(token for token in tokens if token != "..." and token not in _INTEGER_WORDS)
    numeric = all(_INTEGER.fullmatch(token) for token in listed)
    # NVIDIA's reader takes [-1|int] for a list with the value "int"; it can only mean any integer.
    if len(listed) < len(tokens):
        return (Form.OPEN_INTEGER if numeric else Form.TEXT), listed
    is_text = not listed or any(token in ("string", "float", "double") or " " in token for token in listed)
    return (Form.TEXT if is_text else Form.LISTED), listed


def _unusable(knob: RouteKnob) -> str:
    if knob.form == Form.TEXT:
        return "takes free text"
    if not knob.default and UNSET in knob.listed:
        return "has no default, and a value of the name that would stand for it"
    if knob.form == Form.OPEN_INTEGER and knob.default and not _INTEGER.fullmatch(knob.default):
        return f"takes integers, but its default is {knob.default!r}"
    return ""


def _knob(knob: RouteKnob, ladder: tuple[int, ...] | None) -> Knob:
    default = knob.default or UNSET
    if knob.form == Form.OPEN_INTEGER:
        values = tuple(str(step) for step in ladder) if ladder is not None else _default_ladder(knob)
    else:
        values = knob.listed
    # A default outside the list is never written into a route, so offering it is harmless.
    values = tuple(dict.fromkeys(values if default in values else (default, *values)))
    words = knob.help or "Compiler decision; this version says no more."
    return Knob(PREFIX + knob.name, values, default, KnobKind.ROUTE, words)


def _default_ladder(knob: RouteKnob) -> tuple[str, ...]:
    """Values of an open-ended integer when the user gives none: what is listed, then doublings.

    `[1|2|...]` gives 1 2 4 8 16; a bare type gives half, once, twice and four times a positive default, and
    1 2 4 8 beside a default that is zero or negative, which stands for "decide yourself" wherever we saw one.
    """
    if any(int(value) > 0 for value in knob.listed):
        steps = [int(value) for value in knob.listed]
        while len(steps) < _LADDER_STEPS:
            steps.append(max(1, steps[-1] * 2))
        return tuple(str(step) for step in steps)
    default = int(knob.default or 0)
    steps = [max(1, default // 2), default, default * 2, default * 4] if default > 0 else [1, 2, 4, 8]
    return (*knob.listed, *(str(step) for step in steps if str(step) not in knob.listed))
