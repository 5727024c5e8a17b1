"""The backend `command`: any program as the objective, with knobs from a file; it brings its own data and stopwatch.

Flow: command_file.py reads the description -> evaluate.py -> build (what is run, as a file beside copies of the
program's files) -> open -> command_session.py runs the program and reads its answers. Isolation, deadlines, limits,
statistics and resume are those of every backend. docs/command.md is for users.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from objectives.backends.base import NO_TERMS, Backend, BuildTerms, Environment, OpenEngine, Values
from objectives.backends.command_environment import device_facts, facts_of_program
from objectives.backends.command_file import Description, read_description
from objectives.backends.command_handover import Launch, handed_over, launch
from objectives.backends.command_process import inherited
from objectives.backends.command_session import CommandSession, Run
from objectives.digest import digest_of, digest_of_file
from objectives.errors import BackendUnavailableError, CandidateError, HarnessError, WorkloadError
from objectives.knobs import KnobSpace
from objectives.model import ModelSpec
from objectives.outcome import EngineFile, FailureKind
from objectives.tensors import Array, Tensors
from objectives.tiny import TinyModels

VERSION = "1"  # of the protocol
_ENGINE, _SCRIPT = "command.json", "command.sh"


class _Engine(msgspec.Struct, frozen=True):
    """What a candidate runs; `files`: digests by name, so that other files make another engine."""

    program: tuple[str, ...]
    launch: Launch
    rounds: bool
    values: dict[str, str]
    told: tuple[str, ...]
    files: dict[str, str]
    version: str = VERSION


class CommandBackend(Backend):
    name = "command"

    def environment(self) -> Environment:
        return Environment(self.name, VERSION, "cpu", _machine(), {"python": platform.python_version()})

    def environment_for(self, path: Path) -> Environment:
        described = read_description(path)
        device, identity, details = device_facts(described.device)
        identity = {**_machine(), **identity}
        # What the user has there reaches the program, so another value makes other timings.
        given = inherited()
        identity |= {f"${name}": given[name] for name in described.variables if given.get(name)}
        identity |= facts_of_program(described.environment, _files(path, described))
        return Environment(self.name, VERSION, device, identity, {**details, "program": _found(described)})

    def cannot_check(self) -> str:
        return "its library is a program of yours: `study create` runs it once and says what is wrong with its answer"

    def tiny_models(self, folder: Path) -> TinyModels:
        raise BackendUnavailableError("this backend has no tiny models", hint=self.cannot_check())

    def describe(self, path: Path) -> ModelSpec:
        described = read_description(path)
        files = _files(path, described)
        sizes = [path.stat().st_size, *(one.stat().st_size for one in files.values())]
        return ModelSpec(
            # The description itself may be renamed without becoming another one.
            digest=digest_of([digest_of_file(path), _digests(files)]),
            name=path.stem,
            format="command",
            inputs=(),
            outputs=(),
            files=(path.name, *files),
            size_bytes=sum(sizes),
            measures_itself=True,
        )

    def knobs(self, path: Path, model: ModelSpec) -> KnobSpace:
        return read_description(path).space

    def reference(self, path: Path, inputs: Tensors) -> dict[str, Array]:
        raise WorkloadError("a program judges its own outputs", hint="let it report losses, see docs/command.md")

    def build(self, path: Path, values: Values, workdir: Path, terms: BuildTerms = NO_TERMS) -> EngineFile:
        described = read_description(path)
        full = described.space.values(described.space.candidate(values))
        files = _files(path, described)
        added = launch(described.handovers, full)
        told = handed_over(described.handovers, full)
        content = _Engine(described.program, added, described.rounds, full, told, _digests(files))
        for name, source in files.items():
            (workdir / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, workdir / name)
        (workdir / _SCRIPT).write_text(added.script(described.program, described.files))
        engine = workdir / _ENGINE
        engine.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2))
        sidecars = {name: digest_of_file(workdir / name) for name in (_SCRIPT, *files)}
        size = sum((workdir / name).stat().st_size for name in (_ENGINE, *sidecars))
        return EngineFile(str(engine), digest_of_file(engine), size, "command", sidecars)

    def open(self, engine: EngineFile, values: Values) -> OpenEngine:
        path = Path(engine.path)
        try:
            content = msgspec.json.decode(path.read_bytes(), type=_Engine)
        except (OSError, msgspec.MsgspecError) as error:
            raise HarnessError(f"{path} is no candidate of the backend {self.name!r}: {error}") from error
        for name, value in values.items():
            if content.values.get(name) != value:
                words = f"{name}={value} was asked for, the engine has {content.values.get(name)}"
                raise CandidateError(FailureKind.FALLBACK, words)
        files = {name: path.parent / name for name in content.files}
        return CommandSession(Run(content.program, files, content.launch, content.rounds, content.values, content.told))


def _files(path: Path, described: Description) -> dict[str, Path]:
    return {name: path.parent / name for name in described.files}


def _digests(files: Mapping[str, Path]) -> dict[str, str]:
    return {name: digest_of_file(file) for name, file in files.items()}


def _machine() -> dict[str, str]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"architecture": platform.machine(), "usable_cores": str(cores)}


def _found(described: Description) -> str:
    """Where the program is. Raises: BackendUnavailableError if it is not there."""
    word = described.program[0]
    if word in described.files:
        return word
    found = shutil.which(word)
    if found is None:
        raise BackendUnavailableError(
            f"there is no program {word!r}",
            hint="install it, put it on PATH, or write its whole path in the description",
        )
    return found
