"""Opening databases, transactions, and the translation of SQLAlchemy's errors."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.orm import exc as orm_exc

from storage import database as module
from storage.database import Database, open_engine, sqlite_path, translated
from storage.errors import AlreadyExistsError, DatabaseBusyError, DatabaseUnusableError, NotFoundError, StorageError
from storage.migrate import create_database, upgrade
from storage.schema import Environment, Trial
from storage.studies import list_studies
from tests.storage.conftest import study_record

URL = "sqlite:///tuner.db"


def _descendants(kind: type[Exception]) -> Iterator[type[Exception]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _descendants(child)


def _example(kind: type[Exception], words: str = "words of the driver") -> Exception:
    if issubclass(kind, exc.DBAPIError):
        return kind("select 1", {}, Exception(words))
    if issubclass(kind, exc.StatementError):
        return kind(words, "select 1", {}, Exception(words))
    error = kind.__new__(kind, words)  # some take the objects that they are about; the words are what matters here
    error.code = None  # type: ignore[attr-defined]
    return error


EVERY_ERROR = sorted({*_descendants(exc.SQLAlchemyError), orm_exc.StaleDataError}, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", EVERY_ERROR, ids=lambda kind: kind.__name__)
def test_no_error_of_sqlalchemy_comes_through(kind: type[Exception]) -> None:
    original = _example(kind)
    with pytest.raises(StorageError) as caught, translated(URL):
        raise original
    assert caught.value.__cause__ is original
    if isinstance(original, exc.OperationalError | exc.InterfaceError):
        assert caught.value.hint


@pytest.mark.parametrize(
    ("kind", "words", "expected", "code"),
    [
        (exc.IntegrityError, "UNIQUE constraint failed: tuner_study.name", AlreadyExistsError, 2),
        (exc.OperationalError, "database is locked", DatabaseBusyError, 1),
        (exc.OperationalError, "unable to open database file", DatabaseUnusableError, 2),
        (exc.OperationalError, "attempt to write a readonly database", DatabaseUnusableError, 2),
        (
            exc.OperationalError,
            "connection failed: Connection refused\nIs the server running?",
            DatabaseUnusableError,
            2,
        ),
        (exc.DatabaseError, "file is not a database", DatabaseUnusableError, 2),
    ],
)
def test_the_usual_errors_have_a_class_a_code_and_a_hint(
    kind: type[exc.DBAPIError], words: str, expected: type[StorageError], code: int
) -> None:
    with pytest.raises(expected) as caught, translated(URL):
        raise _example(kind, words)
    assert caught.value.exit_code == code
    assert "\n" not in str(caught.value)
    assert words.splitlines()[0] in str(caught.value) or caught.value.hint


def test_errors_of_this_room_pass_unchanged() -> None:
    error = NotFoundError("gone", hint="look elsewhere")
    with pytest.raises(NotFoundError) as caught, translated(URL):
        raise error
    assert caught.value is error


@pytest.mark.parametrize(
    "url",
    ["", "nonsense", "sqlite:/tuner.db", "nosuchdb://host/name", "postgresql+nosuchdriver://host/name"],
)
def test_a_url_that_makes_no_sense(url: str) -> None:
    with pytest.raises(DatabaseUnusableError) as caught:
        open_engine(url)
    assert repr(url) in str(caught.value)
    assert "sqlite:///" in caught.value.hint


def test_a_missing_driver_says_what_to_install_and_no_password() -> None:
    with pytest.raises(DatabaseUnusableError) as caught:
        open_engine("postgresql+pg8000://me:secret@host/name")
    assert "pip install" in caught.value.hint
    assert "secret" not in f"{caught.value} {caught.value.hint}"


def test_a_server_that_does_not_answer_says_so_without_the_password() -> None:
    pytest.importorskip("psycopg")
    database = open_engine("postgresql+psycopg://me:secret@127.0.0.1:1/name?connect_timeout=5")
    with pytest.raises(DatabaseUnusableError) as caught:
        list_studies(database)
    database.close()
    assert "127.0.0.1" in str(caught.value)
    assert "secret" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:"])
def test_a_database_in_memory_is_refused(url: str) -> None:
    with pytest.raises(DatabaseUnusableError, match="memory"):
        open_engine(url)
    assert sqlite_path(url) is None


def test_a_missing_folder_is_named_and_not_made(tmp_path: Path) -> None:
    folder = tmp_path / "no" / "where"
    with pytest.raises(DatabaseUnusableError) as caught:
        open_engine(f"sqlite:///{folder}/tuner.db")
    assert str(folder) in str(caught.value)
    assert not folder.parent.exists()


def test_a_file_that_is_no_database_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("These are notes, not a database. " * 100)
    before = path.read_bytes()
    with pytest.raises(DatabaseUnusableError) as caught:
        create_database(f"sqlite:///{path}")
    assert str(path) in str(caught.value)
    assert "another path" in caught.value.hint
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_written_is_refused() -> None:
    # No user may make files in /proc, root included, which is who runs the tests in many containers.
    with pytest.raises(DatabaseUnusableError) as caught:
        create_database("sqlite:////proc/tuner.db")
    assert "/proc" in str(caught.value)
    assert caught.value.hint


def test_sqlite_uses_a_write_ahead_log(home_url: str) -> None:
    create_database(home_url).close()
    # Asked by a connection that is not ours: it is a property of the file.
    connection = sqlite3.connect(str(sqlite_path(home_url)))
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_a_trial_without_context_is_refused(database: Database) -> None:
    trial: dict[str, Any] = {"uid": "u", "number": 0, "candidate": [], "candidate_digest": "c", "source": "tpe"}
    statement = sa.insert(Trial).values(context_id=77, started_at=study_record().created_at, **trial)
    with pytest.raises(StorageError), database.writing() as session:
        session.execute(statement)
    with database.reading() as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(Trial)) == 0


def test_what_a_failing_transaction_wrote_is_undone(database: Database) -> None:
    with pytest.raises(ZeroDivisionError), database.writing() as session:
        session.add(_environment("first"))
        session.flush()
        raise ZeroDivisionError
    with database.reading() as session:
        assert session.scalars(sa.select(Environment)).all() == []


def test_writers_wait_for_each_other_and_lose_nothing(home_url: str) -> None:
    # Reads, then writes what it read plus one: a transaction that takes its lock late loses updates or is locked out.
    database = create_database(home_url)
    with database.writing() as session:
        session.add(_environment("0"))
    errors: list[BaseException] = []

    def count_up() -> None:
        try:
            for _ in range(25):
                with database.writing() as session:
                    row = session.scalars(sa.select(Environment)).one()
                    row.backend_version = str(int(row.backend_version) + 1)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=count_up) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with database.reading() as session:
        assert session.scalars(sa.select(Environment)).one().backend_version == "100"
    database.close()


def test_a_reader_sees_one_state(database: Database) -> None:
    with database.writing() as session:
        session.add(_environment("before"))
    version = sa.select(Environment.backend_version)
    with database.reading() as reader:
        assert reader.scalar(version) == "before"
        with database.writing() as writer:
            writer.execute(sa.update(Environment).values(backend_version="after"))
        assert reader.scalar(version) == "before"
    with database.reading() as reader:
        assert reader.scalar(version) == "after"


@pytest.fixture
def holder(home_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[sqlite3.Connection]:
    """Another program's connection to a file without our tables, and a time-out that does not try our patience."""
    monkeypatch.setattr(module, "BUSY_TIMEOUT_S", 0.05)
    connection = sqlite3.connect(str(sqlite_path(home_url)), isolation_level=None)
    connection.execute("CREATE TABLE other (id INTEGER)")
    yield connection
    connection.close()


def test_a_locked_database_is_busy(home_url: str, holder: sqlite3.Connection) -> None:
    holder.execute("BEGIN EXCLUSIVE")
    database = open_engine(home_url)
    with pytest.raises(DatabaseBusyError) as caught, database.writing():
        pass
    database.close()
    assert caught.value.exit_code == 1
    assert "again" in caught.value.hint


def test_a_reader_in_the_way_of_an_upgrade_makes_it_busy(home_url: str, holder: sqlite3.Connection) -> None:
    # A shared lock: enough to keep the file from changing over to the write-ahead log.
    holder.execute("BEGIN")
    holder.execute("SELECT * FROM other").fetchall()
    database = open_engine(home_url)
    with pytest.raises(DatabaseBusyError):
        upgrade(database)
    database.close()


def _environment(version: str) -> Environment:
    return Environment(digest="e" * 64, backend="b", backend_version=version, device="", identity={}, details={})
