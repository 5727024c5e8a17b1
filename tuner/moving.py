"""Moving: a whole study out of one database and into another, of any kind, without loss.

Flow: `db export` -> rows of storage/dump.py and artifacts -> study_file.py -> `db import` -> the same rows and
artifacts elsewhere -> Optuna's studies are drawn again from them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from objectives.digest import digest_of_file
from storage import migrate
from storage.artifacts import ArtifactFolder, default_folder
from storage.dump import dump_study, load_study
from storage.errors import AlreadyExistsError, CorruptError, NotFoundError
from storage.studies import get_study, list_studies
from tuner import __version__, study_file
from tuner.ask import MODELS
from tuner.context import contexts, draw
from tuner.dashboard import pages
from tuner.engines import CONFIRM_KIND, KIND
from tuner.errors import UsageError
from tuner.home import DEFAULT_STORAGE, Home, create_home, open_home, require_usable
from tuner.limits import isolation_for
from tuner.loop import StudyLoop
from tuner.progress import Progress
from tuner.spec import StudySpec, read_spec, require_name
from tuner.study_file import Contents, Header, Stored
from tuner.workload import KIND as TENSORS

_STUDY, _ENGINES, _CONFIRMATIONS = "tuner_study", "tuner_engine", "tuner_confirmation"
Rows = Mapping[str, Sequence[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Moved:
    """A study that was exported or imported: how many rows of each table, how many files and bytes."""

    study: str
    file: Path
    rows: Mapping[str, int]
    files: int
    size_bytes: int
    engines: bool  # whether engine files came along

    @property
    def trials(self) -> int:
        return self.rows.get("tuner_trial", 0)


def export_study(
    name: str,
    file: str | Path,
    *,
    engines: bool = True,
    storage: str = DEFAULT_STORAGE,
    artifacts: str | Path | None = None,
) -> Moved:
    """Write a study with all that belongs to it to one file, which must not exist.

    Without `engines` their files are left out; what was written of them stays in the file, but an import does not
    register them. Raises: NotFoundError (the study, an artifact), UsageError (the file), CorruptError (an artifact).
    """
    target = Path(file)
    with open_home(storage, None if artifacts is None else Path(artifacts)) as home:
        spec = read_spec(get_study(home.database, name).spec)
        with home.artifacts.at_work():
            rows = dump_study(home.database, name)
            files = list(_artifacts(home.artifacts, spec, rows, engines))
            now = datetime.now(UTC).isoformat(timespec="seconds")
            study_file.write(target, Header(name, __version__, migrate.head(), engines, now), rows, files)
    return _moved(name, target, rows, files, engines)


def import_study(
    file: str | Path,
    *,
    name: str | None = None,
    storage: str = DEFAULT_STORAGE,
    artifacts: str | Path | None = None,
) -> Moved:
    """Bring the study of a file in, as `name` if that is given; the database is made if it is not there.

    An engine is native code: import only files that you trust. Raises: AlreadyExistsError if the name is taken;
    UsageError for a file that is damaged, of another version, or no study file; nothing is changed then.
    """
    source, folder = Path(file), None if artifacts is None else Path(artifacts)
    room = ArtifactFolder(folder or default_folder(storage))
    room.require_writable()
    is_new = not require_usable(storage)
    wanted = None if name is None else require_name(name)
    if wanted is not None and not is_new:
        _require_free(wanted, storage)
    with _reading_room(room) as scratch:
        contents = study_file.read(source, scratch)
        wanted = require_name(wanted or contents.header.study)
        if not is_new:
            _require_free(wanted, storage)
        spec = _spec(source, contents, wanted)
        with create_home(storage, folder) as home, home.artifacts.at_work():
            _put_all(home.artifacts, contents.files)
            rows = _fitted(home.artifacts, contents, spec)
            try:
                load_study(home.database, rows, wanted)
            except CorruptError as error:
                raise UsageError(f"{source} does not fit this version: {error}", hint=error.hint) from error
            _draw_all(home, spec)
            pages.redraw(home, spec.name)
    return _moved(wanted, source, rows, contents.files, contents.header.engines)


def _artifacts(artifacts: ArtifactFolder, spec: StudySpec, rows: Rows, engines: bool) -> Iterator[Stored]:
    """Every large file that the study needs. Raises: CorruptError, NotFoundError if one is not as recorded."""
    yield from _group(artifacts, MODELS, spec.model_digest)
    for digest in sorted(_tensors(spec)):
        yield Stored(TENSORS, digest, "", artifacts.verified(TENSORS, digest))
    if engines:
        for digest in sorted({row["digest"] for row in rows[_ENGINES]}):
            yield from _group(artifacts, KIND, digest)
        for digest in sorted({build["digest"] for row in rows[_CONFIRMATIONS] for build in _open_builds(row)}):
            yield from _group(artifacts, CONFIRM_KIND, digest)


def _group(artifacts: ArtifactFolder, kind: str, digest: str) -> Iterator[Stored]:
    folder = artifacts.path(kind, digest)
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    if not found:
        raise NotFoundError(f"artifact {kind}/{digest} is not in {artifacts.root}", hint="was the folder moved?")
    for path in found:
        yield Stored(kind, digest, path.relative_to(folder).as_posix(), path)


def _tensors(spec: StudySpec) -> set[str]:
    return {digest for pair in spec.pairs for digest in (pair.inputs, pair.reference)} | set(spec.calibration)


def _open_builds(confirmation: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Engines of a confirmation that goes on: those of one that is over are gone."""
    if confirmation["state"] == "done":
        return []
    return [build for finalist in confirmation["finalists"] for build in finalist["builds"]]


@contextmanager
def _reading_room(artifacts: ArtifactFolder) -> Iterator[Path]:
    """A folder on the artifacts' disk; a folder of artifacts that was made for it goes with it if it stays empty."""
    was_there = artifacts.root.exists()
    try:
        with artifacts.scratch() as folder:
            yield folder
    finally:
        if not was_there:
            with suppress(OSError):
                artifacts.root.rmdir()


def _spec(source: Path, contents: Contents, name: str) -> StudySpec:
    """The study's specification under its new name, with everything that it needs in the file. Raises: UsageError."""
    found = contents.rows.get(_STUDY, ())
    stored = found[0].get("spec") if len(found) == 1 else None
    if not isinstance(stored, dict):
        raise UsageError(f"{source} does not hold one study", hint="export again")
    try:
        spec = msgspec.structs.replace(read_spec(stored), name=name)
    except msgspec.ValidationError as error:
        raise UsageError(f"{source}: {error}", hint="was it written by a newer version?") from error
    inside = {(one.kind, one.digest) for one in contents.files}
    needed = {(MODELS, spec.model_digest), *((TENSORS, digest) for digest in _tensors(spec))}
    if missing := sorted(f"{kind}/{digest}" for kind, digest in needed - inside):
        raise UsageError(f"{source} lacks {missing[0]}", hint="export again")
    for one in contents.files:
        if not one.name and digest_of_file(one.path) != one.digest:
            raise UsageError(f"{source}: {one.member} is not what its name says", hint="export again")
    return spec


def _put_all(artifacts: ArtifactFolder, files: Sequence[Stored]) -> None:
    groups: dict[tuple[str, str], list[Stored]] = {}
    for one in files:
        groups.setdefault((one.kind, one.digest), []).append(one)
    for (kind, digest), found in groups.items():
        if not found[0].name:
            artifacts.put(kind, digest, found[0].path)
            continue
        folder = found[0].path.with_name(f"group-{found[0].path.name}")
        for one in found:
            (folder / one.name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(one.path, folder / one.name)
        artifacts.put_group(kind, digest, folder, tuple(one.name for one in found))


def _fitted(artifacts: ArtifactFolder, contents: Contents, spec: StudySpec) -> dict[str, Sequence[dict[str, Any]]]:
    """The rows with the new name, with engines registered only if their files are here, and paths of this home."""
    rows = dict(contents.rows)
    inside = {(one.kind, one.digest) for one in contents.files}
    rows[_STUDY] = [{**rows[_STUDY][0], "spec": {**rows[_STUDY][0]["spec"], "name": spec.name}}]
    rows[_ENGINES] = [row for row in rows.get(_ENGINES, ()) if (KIND, row["digest"]) in inside]
    rows[_CONFIRMATIONS] = [_going_on(artifacts, row, inside) for row in rows.get(_CONFIRMATIONS, ())]
    return rows


def _going_on(artifacts: ArtifactFolder, row: dict[str, Any], inside: set[tuple[str, str]]) -> dict[str, Any]:
    """An unfinished confirmation goes on with its engines where they are now; without them it ends unanswered."""
    if not (builds := _open_builds(row)):
        return row
    if not all((CONFIRM_KIND, build["digest"]) in inside for build in builds):
        return {**row, "state": "done"}

    def here(build: dict[str, Any]) -> dict[str, Any]:
        return {**build, "path": str(artifacts.path(CONFIRM_KIND, build["digest"], Path(build["path"]).name))}

    return {
        **row,
        "finalists": [{**one, "builds": [here(build) for build in one["builds"]]} for one in row["finalists"]],
    }


def _draw_all(home: Home, spec: StudySpec) -> None:
    """Optuna's studies, each trial told anew. What is drawn does not depend on how the study searches."""
    asked = msgspec.structs.replace(spec, search="random")
    for context in contexts(home, spec.name):
        draw(home, spec, context)
        with StudyLoop(home, asked, context, lambda: isolation_for(spec), Progress()) as loop:
            loop.load()


def _require_free(name: str, storage: str) -> None:
    with open_home(storage) as home:
        if name in {record.name for record in list_studies(home.database)}:
            raise AlreadyExistsError(f"a study named {name!r} exists", hint="give another name with --as")


def _moved(name: str, file: Path, rows: Rows, files: Sequence[Stored], engines: bool) -> Moved:
    counts = {table: len(found) for table, found in rows.items()}
    return Moved(name, file, counts, len(files), file.stat().st_size, engines)
