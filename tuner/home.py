"""Home: where studies live: a database and its artifact folder, opened together.

Flow: `--storage` and `--artifacts` -> HERE -> every verb.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from storage.artifacts import ArtifactFolder, default_folder
from storage.database import Database, open_engine, sqlite_path
from storage.errors import DatabaseUnusableError
from storage.migrate import create_database, creation_lock, open_database, require_current, revision
from tuner.search import projection

DEFAULT_STORAGE = "sqlite:///tuner.db"


@dataclass(frozen=True, slots=True)
class Home:
    """An open database with its artifacts."""

    database: Database
    artifacts: ArtifactFolder

    @property
    def url(self) -> str:
        return self.database.url


@contextmanager
def open_home(url: str, artifacts: Path | None = None) -> Iterator[Home]:
    """An existing home. Raises: storage errors (not there, other schema, unusable)."""
    database = open_database(url)
    try:
        yield Home(database, ArtifactFolder(artifacts or default_folder(url)))
    finally:
        database.close()


@contextmanager
def create_home(url: str, artifacts: Path | None = None) -> Iterator[Home]:
    """A home that is made if it is not there. Raises: storage errors (other schema, unusable)."""
    database = create_database(url)
    try:
        with creation_lock(database):
            projection.prepare(url)
        yield Home(database, ArtifactFolder(artifacts or default_folder(url)))
    finally:
        database.close()


def require_usable(url: str) -> bool:
    """Check before expensive work, changing nothing; True if the home exists already.

    Raises: DatabaseUnusableError if it could not be written, SchemaError if it is of another version.
    """
    database = open_engine(url)
    try:
        path = sqlite_path(url)
        if path is not None:
            _require_writable(path)
            if not path.exists():
                return False  # connecting would make the file
        if revision(database) is None:
            return False
        require_current(database)
        return True
    finally:
        database.close()


def _require_writable(path: Path) -> None:
    target = path if path.exists() else path.resolve().parent
    if not os.access(target, os.W_OK):
        raise DatabaseUnusableError(
            f"{str(target)!r} may not be written", hint="check permissions, or give another --storage"
        )
