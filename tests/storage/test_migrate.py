"""The schema: made, upgraded, refused when it is another, and living beside Optuna's tables in one database."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from optuna import create_study
from optuna.storages import RDBStorage

from storage import migrate
from storage.database import Database, open_engine
from storage.errors import NotFoundError, SchemaError
from storage.migrate import create_database, differences, integrity, open_database, revision, upgrade
from storage.schema import TABLE_PREFIX, Base
from storage.studies import add_study, list_studies
from tests.conftest import Cli
from tests.storage.assets.make import FOLDER, LANDSCAPE, STUDY
from tests.storage.conftest import study_record

ASSETS = sorted(FOLDER.glob("*.db"))


def _tables(database: Database) -> set[str]:
    return set(sa.inspect(database.engine).get_table_names())


def _set_revision(database: Database, value: str) -> None:
    with database.writing() as session:
        session.execute(sa.text(f"UPDATE {migrate.VERSION_TABLE} SET version_num = :value"), {"value": value})


def test_a_new_database_has_this_versions_schema(database: Database) -> None:
    assert revision(database) == migrate.head()
    assert set(Base.metadata.tables) <= _tables(database)
    assert differences(database) == []
    assert integrity(database) == []
    migrate.require_current(database)


def test_every_table_of_ours_can_be_told_by_its_name(database: Database) -> None:
    assert {name for name in _tables(database) if not name.startswith(TABLE_PREFIX)} == set()


def test_an_upgrade_of_a_current_schema_changes_nothing(database: Database) -> None:
    add_study(database, study_record())
    before = list_studies(database)
    upgrade(database)
    assert revision(database) == migrate.head()
    assert list_studies(database) == before


def test_a_difference_is_found(database: Database) -> None:
    with database.writing() as session:
        session.execute(sa.text("ALTER TABLE tuner_study ADD COLUMN extra INTEGER"))
        session.execute(sa.text("DROP TABLE tuner_verdict"))
    found = " ".join(differences(database))
    assert "extra" in found
    assert "tuner_verdict" in found


def test_damage_is_found(home_url: str) -> None:
    database = create_database(home_url)
    with database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
        connection.rollback()
    raw = sqlite3.connect(home_url.removeprefix("sqlite:///"))
    columns = "(id, study_id, number, environment_id, knob_space_id, judging, judging_digest, optuna_study, created_at)"
    raw.execute(f"INSERT INTO tuner_context {columns} VALUES (1, 9, 1, 9, 9, '{{}}', 'j', 'o', '2030-01-01')")
    raw.commit()
    raw.close()
    assert any("tuner_context" in trouble for trouble in integrity(database))
    database.close()


def test_a_database_that_is_not_there_is_not_made_by_opening_it(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        open_database(f"sqlite:///{tmp_path}/tuner.db")
    assert "study create" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_database_without_our_tables_says_how_to_make_them(any_url: str) -> None:
    RDBStorage(any_url).engine.dispose()
    with pytest.raises(NotFoundError) as caught:
        open_database(any_url)
    assert "study create" in caught.value.hint


def test_a_schema_that_nobody_here_knows_is_newer(database: Database, any_url: str) -> None:
    _set_revision(database, "9999")
    for access in (open_database, create_database):
        with pytest.raises(SchemaError, match="9999") as caught:
            access(any_url)
        assert "newer" in caught.value.hint
        assert "upgrade the tuner" in caught.value.hint
    assert revision(database) == "9999"


def test_an_older_schema_is_refused_until_it_is_upgraded(
    database: Database, any_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "head", lambda: "9999")
    for access in (open_database, create_database):
        with pytest.raises(SchemaError, match="9999") as caught:
            access(any_url)
        assert "db upgrade" in caught.value.hint


@pytest.mark.parametrize("access", [open_database, create_database])
def test_a_refused_database_is_closed(
    access: Callable[[str], Database], database: Database, any_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _set_revision(database, "9999")
    opened: list[Database] = []

    def note(url: str) -> Database:
        opened.append(open_engine(url))
        return opened[-1]

    monkeypatch.setattr(migrate, "open_engine", note)
    with pytest.raises(SchemaError):
        access(any_url)
    assert [one.engine.pool.checkedin() for one in opened] == [0]  # type: ignore[attr-defined]
    for one in opened:
        one.close()


@pytest.mark.parametrize("first", ["optuna", "tuner"])
def test_optuna_and_we_live_in_one_database(any_url: str, first: str) -> None:
    if first == "optuna":
        theirs = _use_optuna(any_url, "theirs")
        database = create_database(any_url)
    else:
        database = create_database(any_url)
        theirs = _use_optuna(any_url, "theirs")
    with database.reading() as session:
        assert session.scalar(sa.text("SELECT version_num FROM alembic_version")) == theirs
    upgrade(database)
    assert revision(database) == migrate.head()
    assert differences(database) == []
    database.close()
    # Both still open, and both can still write.
    assert _use_optuna(any_url, "more") == theirs
    database = open_database(any_url)
    add_study(database, study_record())
    database.close()


def _use_optuna(url: str, study: str) -> str:
    """Open Optuna's tables (which checks their revision), make a study; returns the revision."""
    storage = RDBStorage(url)
    create_study(storage=storage, study_name=study).add_trials([])
    assert storage.get_current_version() == storage.get_head_version()
    with storage.engine.connect() as connection:
        found = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar_one()
    storage.engine.dispose()
    return str(found)


def test_many_processes_make_one_database(any_url: str, tmp_path: Path) -> None:
    # Each announces itself and waits for the signal, and thinks a while before it makes the tables: without a lock all
    # of them find the database empty.
    script = """
import sys, time
from pathlib import Path
from storage import migrate
url, me, go = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
upgrade = migrate.upgrade
migrate.upgrade = lambda database: (time.sleep(0.3), upgrade(database))
me.touch()
while not go.exists():
    time.sleep(0.001)
migrate.create_database(url).close()
"""
    ready = [tmp_path / f"ready-{index}" for index in range(5)]
    go = tmp_path / "go"
    command = [sys.executable, "-c", script, any_url]
    processes = [subprocess.Popen([*command, str(flag), str(go)], stderr=subprocess.PIPE, text=True) for flag in ready]
    while not all(flag.exists() for flag in ready):
        assert all(process.poll() is None for process in processes)
        time.sleep(0.01)
    go.touch()
    ends = [(process.communicate()[1].strip().splitlines()[-1:], process.returncode) for process in processes]
    assert ends == [([], 0)] * len(processes)
    database = open_engine(any_url)
    assert revision(database) == migrate.head()
    assert differences(database) == []
    database.close()


def test_the_present_schema_has_a_stored_database() -> None:
    assert FOLDER / f"{migrate.head()}.db" in ASSETS, "run python -m tests.storage.assets.make"


@pytest.fixture(params=ASSETS, ids=lambda path: path.stem)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of each database that an earlier version (or this one) has left."""
    return Path(shutil.copy(request.param, tmp_path / "old.db"))


def test_an_old_database_is_upgraded(old: Path, cli: Cli) -> None:
    url = f"sqlite:///{old}"
    assert cli("db", "upgrade", "--storage", url).code == 0
    database = open_database(url)
    assert differences(database) == []
    assert integrity(database) == []
    database.close()


def test_an_old_study_is_shown(old: Path, cli: Cli) -> None:
    url = f"sqlite:///{old}"
    cli("db", "upgrade", "--storage", url)
    shown = cli("study", "show", STUDY, "--storage", url, "--json")
    assert shown.code == 0
    (context,) = json.loads(shown.out)["contexts"]
    trials: list[dict[str, Any]] = context["trials"]
    assert [trial["number"] for trial in trials] == list(range(6))
    assert sorted(trial["status"] for trial in trials) == ["build failed", "inaccurate", "inaccurate", "ok", "ok", "ok"]
    best, latency_ms = LANDSCAPE.best(max_loss=0.01)
    assert context["summary"]["best"]["candidate"] == dict(best.changes)
    assert context["summary"]["best"]["throughput"] == pytest.approx(1e3 / latency_ms, rel=0.01)
    assert all(len(trial["outcome"]["samples"]["rounds"]) > 1 for trial in trials if trial["status"] == "ok")
    plain = cli("study", "show", STUDY, "--storage", url)
    assert plain.code == 0
    assert "no implementation found for node 7" in plain.out


def test_the_optuna_study_of_an_old_database_opens(old: Path) -> None:
    storage = RDBStorage(f"sqlite:///{old}")
    (study,) = storage.get_all_studies()
    assert len(storage.get_all_trials(study._study_id)) == 6
    storage.engine.dispose()
