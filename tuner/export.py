"""Export: an engine in a folder of its own, with everything that says what it is and how it was made.

Flow: `engine export` -> HERE -> engine files, `manifest.json` (what it is bound to, raw samples, the verdict, how to
build it again). `verify_folder` compares such a folder with itself and with a database: a plan that neither knows is
not to be loaded, since loading one runs native code.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from objectives.errors import EngineFileError
from objectives.knobs import KnobKind
from objectives.outcome import EngineFile, Measured, require_intact
from storage.engines import all_digests
from tuner import engines
from tuner.errors import UsageError
from tuner.home import DEFAULT_STORAGE, open_home, require_usable
from tuner.kept import KeptEngine, choose_engine, opened
from tuner.ledger import Trial
from tuner.spec import StudySpec
from tuner.trtexec import replay_command
from tuner.views import ContextView

MANIFEST = "manifest.json"
_PROGRAMS = {"tensorrt": "trtexec", "trtexec": "trtexec", "tensorrt-rtx": "tensorrt_rtx"}


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: the folder, the engine's file in it, and the command that builds it again, if there is one."""

    folder: Path
    engine: Path
    trial: int
    reasons: tuple[str, ...]
    rebuild: str
    notes: tuple[str, ...]


def export_engine(
    name: str,
    folder: str | Path,
    trial: int | None = None,
    *,
    storage: str = DEFAULT_STORAGE,
    artifacts: str | Path | None = None,
) -> Exported:
    """Write an engine of a study's latest context into `folder`, which must not exist or be empty.

    Without `trial`: the confirmed one, else a promoted one, else the best that the search saw.
    Raises: NotFoundError, UsageError (the folder), EngineFileError (what is kept is damaged).
    """
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{folder} exists and is no empty folder", hint="name a new one with -o")
    if not os.access(next(one for one in target.resolve().parents if one.exists()), os.W_OK):
        raise UsageError(f"{folder} cannot be written", hint="name another with -o")
    with opened(name, storage, artifacts) as (home, spec, view):
        kept = choose_engine(home, name, view, trial)
        engine = engines.to_file(home, kept.record)
        require_intact(engine)
        rebuild, notes = rebuild_of(spec, view, kept.trial)
        content = _manifest(spec, view, kept, rebuild, notes)
    _write(target, engine, content)
    return Exported(target, target / Path(engine.path).name, kept.trial.number, kept.reasons, rebuild, notes)


def verify_folder(folder: str | Path, storage: str | None = None) -> list[str]:
    """What is wrong with an exported engine, in words; empty when all is well.

    With `storage` it must also be an engine that some study of that database keeps, where there is such a database.
    Raises: UsageError if the folder holds no exported engine.
    """
    path = Path(folder)
    try:
        manifest: dict[str, Any] = msgspec.json.decode((path / MANIFEST).read_bytes())
        found = manifest["engine"]
        engine = EngineFile(str(path / found["file"]), found["digest"], found["size_bytes"], "", found["sidecars"])
    except (OSError, msgspec.DecodeError, KeyError, TypeError) as error:
        raise UsageError(
            f"{folder} holds no exported engine ({type(error).__name__}: {error})",
            hint="give the folder that `engine export` wrote",
        ) from error
    troubles = []
    try:
        require_intact(engine)
    except EngineFileError as error:
        troubles.append(str(error))
    if storage is not None and require_usable(storage):
        with open_home(storage) as home:
            if engine.digest not in all_digests(home.database):
                troubles.append(f"no study of {storage} keeps an engine with digest {engine.digest}")
    return troubles


def _manifest(
    spec: StudySpec, view: ContextView, kept: KeptEngine, rebuild: str, notes: tuple[str, ...]
) -> dict[str, Any]:
    space, outcome = view.context.space, kept.trial.outcome
    at_run_time = {knob.name for knob in space.knobs if knob.kind is KnobKind.RUNTIME}
    values: Mapping[str, str] = space.values(kept.trial.candidate)
    rounds = msgspec.to_builtins(outcome.samples.rounds) if isinstance(outcome, Measured) else []
    return {
        **kept.record.manifest,
        "kept_because": list(kept.reasons),
        "open_with": {name: value for name, value in values.items() if name in at_run_time},
        "samples_ms": rounds,
        "verdict": None if view.verdict is None else dict(view.verdict),
        "rebuild": {"command": rebuild, "notes": list(notes)},
        "data": msgspec.to_builtins(spec.pairs),
    }


def rebuild_of(spec: StudySpec, view: ContextView, trial: Trial) -> tuple[str, tuple[str, ...]]:
    """The command that builds a trial's engine again, empty where the backend has none, and notes about it."""
    environment = view.context.record.environment
    program = _PROGRAMS.get(environment.backend)
    again = f"`python -m tuner engine promote {spec.name} {trial.number}` builds it again once it is pruned"
    if program is None:
        return "", (again,)
    replay = replay_command(
        trial.candidate,
        view.context.space,
        backend=environment.backend,
        version=environment.backend_version,
        model=spec.model_file,
        shapes=spec.ranges,
    )
    return replay.command.replace("trtexec", program, 1), (*replay.notes, again)


def _write(target: Path, engine: EngineFile, content: Mapping[str, Any]) -> None:
    """All or nothing: the folder appears under its name when it is whole."""
    source = Path(engine.path).parent
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as scratch:
        whole = Path(scratch) / target.name
        whole.mkdir()
        for name in (Path(engine.path).name, *engine.sidecars):
            (whole / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, whole / name)
        text = msgspec.json.format(msgspec.json.encode(content), indent=2)
        (whole / MANIFEST).write_bytes(text + b"\n")
        os.replace(whole, target)
