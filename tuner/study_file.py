"""Study file: one study as one `.tar.gz`: rows as lines of JSON, large files by digest, and a list of digests.

Flow: moving.py gathers -> write HERE -> a file on another machine -> read HERE, trusting nothing in it -> moving.py.

Members, in this order: `header.json`; `rows/TABLE.jsonl`, one row a line; `files/KIND/DIGEST[/NAME]`, as artifacts lie
in their folder; `digests.json`, the SHA-256 of each member before it.
Versions: 1, the first.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

import msgspec

from tuner.errors import UsageError

FORMAT, VERSION = "tuner-study", 1
_HEADER, _DIGESTS = "header.json", "digests.json"
_ROWS = re.compile(r"rows/(tuner_[a-z_]+)\.jsonl")
_FILE = re.compile(r"files/(models|tensors|engines|confirm)/([0-9a-f]{64})(?:/(.+))?", re.DOTALL)
_COMPRESSION = 4  # weights hardly get smaller, and more takes its time
_CHUNK = 1 << 20


class Header(msgspec.Struct, frozen=True):
    """What a file holds. `schema`: revision of the database it came from; `engines`: whether their files are inside."""

    study: str
    tuner_version: str
    schema: str
    engines: bool
    created_at: str
    format: str = FORMAT
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Stored:
    """A large file of a study: `name` is empty where the artifact is a single file."""

    kind: str
    digest: str
    name: str
    path: Path

    @property
    def member(self) -> str:
        return "/".join(part for part in ("files", self.kind, self.digest, self.name) if part)


@dataclass(frozen=True, slots=True)
class Contents:
    """A study file that was read and found whole. `files` lie in the folder that was given."""

    header: Header
    rows: Mapping[str, Sequence[dict[str, Any]]]
    files: tuple[Stored, ...]


def write(
    target: Path, header: Header, rows: Mapping[str, Sequence[Mapping[str, Any]]], files: Iterable[Stored]
) -> None:
    """Write a study file, all or nothing. Raises: UsageError if it exists or cannot be written."""
    if target.exists():
        raise UsageError(f"{target} exists", hint="name another file with -o")
    if target.suffix == ".zst":
        raise UsageError(f"{target}: study files are compressed with gzip", hint="name it .tar.gz")
    try:
        with tempfile.TemporaryDirectory(dir=target.resolve().parent, prefix=f".{target.name}.") as folder:
            whole = Path(folder) / target.name
            with tarfile.open(whole, "w:gz", compresslevel=_COMPRESSION) as archive:
                _write(archive, header, rows, files)
            os.replace(whole, target)
    except OSError as error:
        raise UsageError(
            f"{target} cannot be written: {error.strerror or error}", hint="name another with -o"
        ) from error


def read(source: Path, folder: Path) -> Contents:
    """Read a study file; its large files go to `folder`, under names of our own.

    Raises: UsageError for what is no study file, one of another version, and one that is damaged or was tampered with.
    """
    if not source.is_file():
        raise UsageError(f"there is no file {str(source)!r}", hint="give what `db export` wrote")
    with _readable(source), tarfile.open(source, "r:gz") as archive:
        return _read(archive, source, folder)


def _write(
    archive: tarfile.TarFile, header: Header, rows: Mapping[str, Sequence[Mapping[str, Any]]], files: Iterable[Stored]
) -> None:
    digests: dict[str, str] = {}

    def add(name: str, content: bytes) -> None:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
        digests[name] = hashlib.sha256(content).hexdigest()

    add(_HEADER, msgspec.json.encode(header))
    for table, found in rows.items():
        lines = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in found)
        add(f"rows/{table}.jsonl", "".join(f"{line}\n" for line in lines).encode())
    for one in files:
        with one.path.open("rb") as stream:
            digests[one.member] = hashlib.file_digest(stream, "sha256").hexdigest()
            member = tarfile.TarInfo(one.member)
            member.size = stream.seek(0, os.SEEK_END)
            stream.seek(0)
            archive.addfile(member, stream)
    add(_DIGESTS, msgspec.json.encode(digests))


def _read(archive: tarfile.TarFile, source: Path, folder: Path) -> Contents:
    header: Header | None = None
    digests: dict[str, str] = {}
    listed: dict[str, str] | None = None
    rows: dict[str, list[dict[str, Any]]] = {}
    files: list[Stored] = []
    for member, stream in _members(archive, source):
        if header is None:
            content = stream.read(_CHUNK)
            header = _header(source, member, content)
            digests[member] = hashlib.sha256(content).hexdigest()
        elif listed is not None or member in digests:
            raise _damaged(source, f"unexpected member {member!r}")
        elif member == _DIGESTS:
            listed = msgspec.json.decode(stream.read(), type=dict[str, str])
        elif match := _ROWS.fullmatch(member):
            content = stream.read()
            rows[match[1]] = _parsed(source, content)
            digests[member] = hashlib.sha256(content).hexdigest()
        else:
            stored = _stored(source, member, folder / str(len(files)))
            digests[member] = _copy(stream, stored.path)
            files.append(stored)
    if header is None or listed is None:
        raise _damaged(source, "it ends too early")
    if listed != digests:
        wrong = sorted(name for name in {*listed, *digests} if listed.get(name) != digests.get(name))
        raise _damaged(source, f"{', '.join(wrong[:3])} is not what was written")
    return Contents(header, rows, tuple(files))


def _members(archive: tarfile.TarFile, source: Path) -> Iterator[tuple[str, IO[bytes]]]:
    for member in archive:
        stream = archive.extractfile(member) if member.isreg() else None
        if stream is None:
            raise _damaged(source, f"{member.name!r} is no plain file")
        yield member.name, stream


def _header(source: Path, member: str, content: bytes) -> Header:
    found = msgspec.json.decode(content) if member == _HEADER else None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise UsageError(f"{source} holds no study", hint="give what `db export` wrote")
    if found.get("version") != VERSION:
        raise UsageError(
            f"{source} is of version {found.get('version')}, this version of the tuner reads {VERSION}",
            hint="use the version of the tuner that wrote it, or export again with this one",
        )
    return msgspec.convert(found, Header)


def _stored(source: Path, member: str, path: Path) -> Stored:
    """A large file by its member's name, which must not lead out of its artifact."""
    match = _FILE.fullmatch(member)
    name = (match[3] or "") if match else ""
    parts = name.split("/") if name else []
    if not match or "\\" in name or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise _damaged(source, f"{member!r} is not the name of a file inside an artifact")
    return Stored(match[1], match[2], str(PurePosixPath(name)) if name else "", path)


def _copy(stream: IO[bytes], path: Path) -> str:
    hasher = hashlib.sha256()
    with path.open("wb") as target:
        while chunk := stream.read(_CHUNK):
            hasher.update(chunk)
            target.write(chunk)
    return hasher.hexdigest()


def _parsed(source: Path, content: bytes) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in content.split(b"\n") if line]
    if not all(isinstance(row, dict) and isinstance(row.get("id"), int) for row in rows):
        raise _damaged(source, "a row is none")
    return rows


@contextmanager
def _readable(source: Path) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, msgspec.MsgspecError, ValueError) as error:
        raise _damaged(source, str(error)) from error


def _damaged(source: Path, words: str) -> UsageError:
    return UsageError(f"{source} is damaged or no study file: {words}", hint="copy it again, or export again")
