"""Database: a URL becomes transactions; foreign errors become ours.

Flow: repositories ask for `reading()` or `writing()` -> HERE -> SQLAlchemy. The only place that knows drivers, pragmas
and SQLAlchemy's exceptions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.engine import Connection, Engine, make_url
from sqlalchemy.orm import Session

from storage.errors import AlreadyExistsError, DatabaseBusyError, DatabaseUnusableError, StorageError

BUSY_TIMEOUT_S = 60.0
_WRITE = "tuner_write"


class Database:
    """An open database. Thread-safe; every transaction is short, so no other process waits for a measurement."""

    def __init__(self, engine: Engine, url: str) -> None:
        self.engine = engine
        self.url = url

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A transaction that sees one state of the database. Raises: StorageError."""
        with translated(self.url), Session(self.engine, expire_on_commit=False) as session:
            if self.engine.dialect.name != "sqlite":  # SQLite's transactions see one state anyway
                session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """A transaction that holds the right to write from its first moment; commits unless the body raises."""
        with (
            translated(self.url),
            Session(self.engine, expire_on_commit=False) as session,
            session.begin(),
        ):
            session.connection(execution_options={_WRITE: True})
            yield session

    def close(self) -> None:
        """Give every connection back."""
        self.engine.dispose()


def open_engine(url: str) -> Database:
    """Connect to `url` without looking at the schema.

    Raises: DatabaseUnusableError for a malformed URL, a missing driver, a folder that does not exist or may not be
    written, or a file that is no database.
    """
    with _good_url(url):
        parsed = make_url(url)
        is_sqlite = parsed.get_backend_name() == "sqlite"
        arguments: dict[str, Any] = {"connect_args": {"timeout": BUSY_TIMEOUT_S}} if is_sqlite else {}
        engine = sa.create_engine(parsed, pool_pre_ping=not is_sqlite, **arguments)
    if is_sqlite:
        _require_folder(parsed.database)
        event.listen(engine, "connect", _on_connect)
        event.listen(engine, "begin", _on_begin)
    return Database(engine, url)


@contextmanager
def _good_url(url: str) -> Iterator[None]:
    try:
        yield
    except (exc.ArgumentError, exc.NoSuchModuleError, ImportError) as error:
        raise DatabaseUnusableError(
            f"cannot use the database URL {shown(url)!r}: {error}",
            hint="write sqlite:///file.db, or postgresql+psycopg://user@host/name with pip install "
            "'tensorrt-tuner[postgres]'",
        ) from error


def shown(url: str) -> str:
    """A URL without its password; what cannot be read as one is not shown beyond its first part."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except exc.ArgumentError:
        return url.partition("@")[0].partition("://")[0] + "://..." if "@" in url else url


def sqlite_path(url: str) -> Path | None:
    """The file behind an SQLite URL; None for other databases and for one in memory. Raises: DatabaseUnusableError."""
    with _good_url(url):
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    if backend != "sqlite" or parsed.database in (None, "", ":memory:"):
        return None
    return Path(str(parsed.database))


def _require_folder(database: str | None) -> None:
    if database in (None, "", ":memory:"):
        raise DatabaseUnusableError(
            "an SQLite database in memory would be gone with the process",
            hint="give a file: sqlite:///tuner.db",
        )
    folder = Path(str(database)).resolve().parent
    if not folder.is_dir():
        raise DatabaseUnusableError(f"folder {str(folder)!r} does not exist", hint="create it, or use another path")


def _on_connect(connection: Any, _: Any) -> None:
    # The driver's own transaction handling starts writing transactions late; ours starts in _on_begin.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.execute("PRAGMA synchronous=NORMAL")  # with WAL: safe against a killed process, fast enough for each trial
    cursor.close()


def _on_begin(connection: Connection) -> None:
    # A transaction that reads first and writes later may find itself locked out in between: writers say so at once.
    write = connection.get_execution_options().get(_WRITE, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Turn SQLAlchemy's errors into this room's, chained; errors of this room pass unchanged."""
    try:
        yield
    except StorageError:
        raise
    except exc.IntegrityError as error:
        raise AlreadyExistsError(f"the database refuses a second entry: {error.orig}") from error
    except (exc.OperationalError, exc.InterfaceError, exc.DatabaseError) as error:
        raise _translate(error, url) from error
    except exc.SQLAlchemyError as error:
        raise StorageError(f"database error: {error}") from error
    except sqlite3.OperationalError as error:  # from the few statements that cannot run in a transaction
        raise _busy(shown(url)) from error


def _busy(url: str) -> DatabaseBusyError:
    return DatabaseBusyError(
        f"{url} was locked by another process for {BUSY_TIMEOUT_S:g} s",
        hint="run the command again; nothing is lost. For many workers use PostgreSQL",
    )


def _translate(error: exc.DBAPIError, url: str) -> StorageError:
    words = str(error.orig)
    if "database is locked" in words:
        return _busy(shown(url))
    hints = {
        "unable to open": "check the path and its permissions",
        "readonly": "the file or its folder may not be written; check permissions",
        "not a database": "the file is something else; give another path",
    }
    hint = next((text for key, text in hints.items() if key in words), "is the server reachable, and the URL right?")
    return DatabaseUnusableError(f"cannot use {shown(url)}: {words.splitlines()[0]}", hint=hint)
