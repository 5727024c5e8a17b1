"""Artifacts: large files by content, beside the database: models, tensors, engines.

Flow: `study create` puts the model and its data -> trials put engines worth keeping -> everything reads by digest.
A file appears under its name only when it is whole, and what is read is checked against its digest.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from storage.database import sqlite_path
from storage.errors import CorruptError, DatabaseUnusableError, NotFoundError

_SCRATCH, _PUT = "scratch-", "put-"  # beginnings of temporary folders
_DIGEST = re.compile(r"[0-9a-f]{64}")


def default_folder(url: str) -> Path:
    """Where the artifacts of a database lie unless told otherwise: beside an SQLite file, else `tuner.artifacts`."""
    path = sqlite_path(url)
    return Path("tuner.artifacts") if path is None else path.with_suffix(".artifacts")


class ArtifactFolder:
    """A folder of files (`kind/digest`) and of file groups (`kind/digest/name`), never changed once written."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def require_writable(self) -> None:
        """Check that artifacts could be written, changing nothing. Raises: DatabaseUnusableError."""
        existing = next(path for path in (self.root, *self.root.parents) if path.exists())
        if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK) or _is_virtual(existing):
            raise DatabaseUnusableError(
                f"cannot write artifacts in {self.root}: {existing} is no folder that may be written",
                hint="check permissions, or choose another folder with --artifacts",
            )

    def path(self, kind: str, digest: str, name: str = "") -> Path:
        """Where an artifact lies or will lie. Raises: NotFoundError for anything that could leave the folder."""
        path = self.root / kind / digest / name if name else self.root / kind / digest
        if not _DIGEST.fullmatch(digest) or not path.resolve().is_relative_to(self.root):
            raise NotFoundError(f"{kind}/{digest}/{name} is not the name of an artifact")
        return path

    def put(self, kind: str, digest: str, source: Path) -> Path:
        """Copy the file `source` in as `kind/digest`, unless it is there. Raises: DatabaseUnusableError."""
        target = self.path(kind, digest)
        if not target.exists():
            with self._writable(), self._temporary(_PUT) as folder:
                shutil.copyfile(source, folder / digest)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(folder / digest, target)
        return target

    def put_group(self, kind: str, digest: str, folder: Path, names: tuple[str, ...]) -> Path:
        """Copy the files `names` of `folder` in as `kind/digest/name`, unless they are there."""
        target = self.path(kind, digest)
        for name in names:
            if not (target / name).resolve().is_relative_to(target):
                raise NotFoundError(f"{name!r} is not the name of a file inside an artifact")
        if not target.exists():
            with self._writable(), self._temporary(_PUT) as temporary:
                for name in names:
                    (temporary / digest / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(folder / name, temporary / digest / name)
                target.parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.replace(temporary / digest, target)
                except OSError:
                    if not target.exists():  # another process has put the same group in the meantime: all is well
                        raise
        return target

    def verified(self, kind: str, digest: str) -> Path:
        """The path of a single file whose bytes have just been checked. Raises: NotFoundError, CorruptError."""
        path = self.path(kind, digest)
        if not path.is_file():
            raise NotFoundError(f"artifact {kind}/{digest} is not in {self.root}", hint="was the folder moved?")
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != digest:
            raise CorruptError(f"artifact {path} has digest {found}", hint="the file was changed or damaged")
        return path

    def digests(self, kind: str) -> set[str]:
        """Every artifact of a kind."""
        folder = self.root / kind
        return {entry.name for entry in folder.iterdir() if _DIGEST.fullmatch(entry.name)} if folder.is_dir() else set()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Say that this process may have files here that no database knows of yet."""
        with self._writable():
            self.root.mkdir(parents=True, exist_ok=True)
        with _locked(self.root, fcntl.LOCK_SH):
            yield

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether no process of this host is at work here; none can begin while inside."""
        if not self.root.is_dir():
            yield False
            return
        with ExitStack() as stack:
            try:
                stack.enter_context(_locked(self.root, fcntl.LOCK_EX | fcntl.LOCK_NB))
            except OSError:
                yield False
                return
            yield True

    def clear_scratch(self) -> None:
        """Remove the temporary folders of processes that were killed; those of living ones are locked."""
        for entry in self.root.iterdir() if self.root.is_dir() else ():
            if entry.name.startswith((_SCRATCH, _PUT)):
                with suppress(OSError), _locked(entry, fcntl.LOCK_EX | fcntl.LOCK_NB):  # gone by now, or at work
                    shutil.rmtree(entry, ignore_errors=True)

    def remove(self, kind: str, digest: str) -> None:
        """Delete an artifact; nothing happens if it is not there."""
        path = self.path(kind, digest)
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """An empty folder on the same disk, gone afterwards."""
        with self._writable():
            self.root.mkdir(parents=True, exist_ok=True)
        with self._temporary(_SCRATCH) as folder:
            yield folder

    @contextmanager
    def _temporary(self, prefix: str) -> Iterator[Path]:
        self.root.mkdir(parents=True, exist_ok=True)
        try:
            with (
                tempfile.TemporaryDirectory(dir=self.root, prefix=prefix, ignore_cleanup_errors=True) as folder,
                _locked(Path(folder)),
            ):
                yield Path(folder)
        except BaseException:
            self.clear_scratch()  # an interrupt may come in the middle of making the folder, or of removing it
            raise

    @contextmanager
    def _writable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DatabaseUnusableError(
                f"cannot write artifacts in {self.root}: {error.strerror or error}",
                hint="free space, check permissions, or choose another folder with --artifacts",
            ) from error


def _is_virtual(folder: Path) -> bool:
    """Whether this is a file system of the kernel's, which claims to be writable and is not."""
    return any(folder == root or root in folder.parents for root in (Path("/proc"), Path("/sys")))


@contextmanager
def _locked(folder: Path, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Hold the lock of a folder; the operating system releases it when we are killed."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)
