"""Migrations: bring a database to this version's schema, or say that it is not.

Flow: `study create` and `db upgrade` -> upgrade HERE; every other command -> open_database -> require_current.
Alembic runs under a version table of its own: Optuna keeps its revision in `alembic_version` of the same database.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from storage.database import Database, open_engine, sqlite_path, translated
from storage.errors import DatabaseUnusableError, NotFoundError, SchemaError
from storage.schema import TABLE_PREFIX, Base

VERSION_TABLE = "tuner_schema_version"
_LOCK_KEY = 0x74756E6572  # "tuner", for PostgreSQL's advisory locks
_SCRIPTS = Path(__file__).parent / "migrations"


def open_database(url: str) -> Database:
    """Open an existing database of this version's schema.

    Raises: NotFoundError if there is none, SchemaError if it is older or newer, DatabaseUnusableError.
    """
    path = sqlite_path(url)
    if path is not None and not path.exists():
        raise NotFoundError(
            f"there is no database {str(path)!r} yet",
            hint="`python -m tuner study create` makes it; or give --storage",
        )
    with _closed_on_error(open_engine(url)) as database:
        require_current(database)
    return database


def create_database(url: str) -> Database:
    """Open a database; make our tables where there are none.

    Raises: SchemaError if it has tables of another version: upgrading is a decision of its own (`db upgrade`).
    """
    with _closed_on_error(open_engine(url)) as database:
        with creation_lock(database):
            if revision(database) is None:
                upgrade(database)
        require_current(database)
    return database


def upgrade(database: Database) -> None:
    """Bring the schema to this version; each step in a transaction. Nothing happens when it is current."""
    with translated(database.url), database.engine.connect() as connection:
        if database.engine.dialect.name == "sqlite":
            _use_wal(connection)
        config = Config()
        config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def revision(database: Database) -> str | None:
    """The schema revision that the database has; None without our tables."""
    with translated(database.url), database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        return context.get_current_revision()


def head() -> str:
    """The schema revision of this version of the tuner."""
    newest = _scripts().get_current_head()
    assert newest is not None, "the package ships at least one migration"
    return newest


def require_current(database: Database) -> None:
    """Raises: NotFoundError without our tables, SchemaError for any other revision than ours."""
    found = revision(database)
    if found == head():
        return
    if found is None:
        raise NotFoundError(
            f"{database.engine.url.render_as_string()} holds no studies of the tuner",
            hint="`python -m tuner study create` makes the tables; or give another --storage",
        )
    known = {script.revision for script in _scripts().walk_revisions()}
    if found in known and (found := _when_settled(database)) == head():
        return
    if found in known:
        raise SchemaError(
            f"the database has schema {found}, this version of the tuner needs {head()}",
            hint="make a copy, then run `python -m tuner db upgrade`",
        )
    raise SchemaError(
        f"the database has schema {found}, which this version of the tuner does not know",
        hint="it was written by a newer version: upgrade the tuner",
    )


def _when_settled(database: Database) -> str | None:
    """The revision once nobody is making the tables any more: each migration is a transaction of its own."""
    with suppress(DatabaseUnusableError), creation_lock(database):  # who may not write there waits for nobody
        return revision(database)
    return revision(database)


def differences(database: Database) -> list[str]:
    """What tables of ours in the database differ from the schema of this version; empty when all is well."""
    with translated(database.url), database.engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "include_object": _is_ours}
        )
        return [str(change) for change in compare_metadata(context, Base.metadata)]


def integrity(database: Database) -> list[str]:
    """What the database itself finds wrong with its file (SQLite only); empty when all is well."""
    if database.engine.dialect.name != "sqlite":
        return []
    with translated(database.url), database.engine.connect() as connection:
        rows = [str(row[0]) for row in connection.execute(sa.text("PRAGMA integrity_check"))]
        broken = [
            f"foreign key of {row[0]} row {row[1]}" for row in connection.execute(sa.text("PRAGMA foreign_key_check"))
        ]
        return [row for row in rows if row != "ok"] + [row for row in broken if TABLE_PREFIX in row]


def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(_SCRIPTS))


def _is_ours(obj: object, name: str | None, kind: str, reflected: bool, other: object) -> bool:
    table = name if kind == "table" else getattr(getattr(obj, "table", None), "name", "")
    return (table or "").startswith(TABLE_PREFIX) and table != VERSION_TABLE


def _use_wal(connection: sa.Connection) -> None:
    # A property of the file, not of the connection: once is enough, and it cannot happen inside a transaction.
    raw = connection.connection.dbapi_connection
    assert raw is not None, "the connection is open"
    cursor = raw.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.close()


@contextmanager
def _closed_on_error(database: Database) -> Iterator[Database]:
    try:
        yield database
    except BaseException:
        database.close()
        raise


@contextmanager
def creation_lock(database: Database) -> Iterator[None]:
    """Two processes that make the tables of one database at once would trip over each other."""
    path = sqlite_path(database.url)
    if path is not None:
        with _folder_lock(path.resolve().parent):
            yield
    elif database.engine.dialect.name == "postgresql":
        with translated(database.url), database.engine.connect() as connection:
            connection.execute(sa.text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK_KEY})
            try:
                yield
            finally:
                connection.execute(sa.text("SELECT pg_advisory_unlock(:key)"), {"key": _LOCK_KEY})
    else:
        yield


@contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    # The folder itself, so that no lock file stays behind.
    if not os.access(folder, os.W_OK):
        raise DatabaseUnusableError(
            f"cannot write in {str(folder)!r}",
            hint="give a database in a folder that may be written: --storage sqlite:///path/to/tuner.db",
        )
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
