"""Handover: how the values of knobs reach a program: as arguments, as environment variables, or as parts of one.

Flow: command_file.py reads how -> command.py gives values -> Launch HERE: what is added to the command and to the
environment. A value may hand over nothing at all: the safest way to say "as the program does by itself".
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class Handover:
    """How one knob is handed over. `variable` is empty for arguments; `joined`: its parts are added to the variable.

    `parts`: what each value gives; one that is not there gives nothing.
    """

    knob: str
    variable: str
    joined: bool
    parts: Mapping[str, tuple[str, ...]]


class Launch(msgspec.Struct, frozen=True):
    """What a candidate adds to a program's command and environment."""

    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}
    joined: Mapping[str, tuple[str, ...]] = {}

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """`given` with the variables set and the joined ones extended: what the user had there comes first."""
        added = {name: " ".join([given.get(name, ""), *parts]).strip() for name, parts in self.joined.items()}
        return {**given, **self.variables, **added}

    def script(self, program: Sequence[str], files: Sequence[str]) -> str:
        """A shell script that runs `program`, with its `files` in the script's folder, as the candidate does."""
        lines = ["#!/bin/sh", 'cd "$(dirname "$0")" || exit 1']
        if program[0] in files:
            program = [f"./{program[0]}", *program[1:]]
            lines.append(f"chmod +x {shlex.quote(program[0])}")
        lines += [f"export {name}={shlex.quote(value)}" for name, value in self.variables.items()]
        lines += [f'export {name}="${{{name}-}} "{shlex.quote(" ".join(parts))}' for name, parts in self.joined.items()]
        return "\n".join([*lines, f'exec {shlex.join([*program, *self.arguments])} "$@"']) + "\n"


def launch(handovers: Sequence[Handover], values: Mapping[str, str]) -> Launch:
    """What `values`, one for every knob, add; arguments and parts come in the order of the knobs."""
    arguments: list[str] = []
    variables: dict[str, str] = {}
    joined: dict[str, tuple[str, ...]] = {}
    for one in handovers:
        parts = one.parts.get(values[one.knob], ())
        if one.joined:
            joined[one.variable] = (*joined.get(one.variable, ()), *parts)
        elif one.variable:
            variables |= dict.fromkeys([one.variable] * len(parts), "".join(parts))
        else:
            arguments += parts
    return Launch(tuple(arguments), variables, {name: parts for name, parts in joined.items() if parts})


def handed_over(handovers: Sequence[Handover], values: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the knobs of which the program is told something."""
    return tuple(one.knob for one in handovers if one.parts.get(values[one.knob]))
