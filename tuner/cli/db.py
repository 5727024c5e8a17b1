"""`db`: the database's schema, and studies as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli.options import artifacts_option, json_option, storage_option, study_argument

if TYPE_CHECKING:
    from tuner.moving import Moved

_MB = 1e6


@click.group()
def db() -> None:
    """Upgrade and check the database; move studies between databases.

    \b
    Example:
      python -m tuner db check
    """


@db.command()
@storage_option
def upgrade(storage: str) -> None:
    """Bring the tables of the tuner to this version's schema; make them where there are none.

    Make a copy first. Optuna's tables in the same database are Optuna's: `optuna storage upgrade`.

    \b
    Example:
      python -m tuner db upgrade --storage sqlite:///tuner.db
    """
    from tuner.api import upgrade_database

    before, after = upgrade_database(storage)
    click.echo(f"schema {after}: nothing to do" if before == after else f"schema {before or 'none'} -> {after}")


@db.command()
@storage_option
def check(storage: str) -> None:
    """Check schema, file and artifacts; exit code 1 if something is wrong.

    \b
    Example:
      python -m tuner db check --storage sqlite:///tuner.db
    """
    from tuner.api import check_database

    troubles = check_database(storage)
    for trouble in troubles:
        click.echo(trouble)
    click.echo("all is well" if not troubles else f"{len(troubles)} problem(s)")
    if troubles:
        raise click.exceptions.Exit(1)


@db.command("export")
@study_argument
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), metavar="FILE", help="A new file: ocr.tar.gz."
)
@click.option("--no-engines", is_flag=True, help="Leave engine files out; where they are needed they are built again.")
@storage_option
@artifacts_option
@json_option
def export_(name: str, output: Path, no_engines: bool, storage: str, artifacts: Path | None, as_json: bool) -> None:
    """Write the study NAME with all that belongs to it to one file: every trial and sample, verdicts, model, data,
    engines.

    \b
    Example:
      python -m tuner db export ocr -o ocr.tar.gz
    """
    from tuner.cli import render
    from tuner.moving import export_study

    found = export_study(name, output, engines=not no_engines, storage=storage, artifacts=artifacts)
    render.emit(_to_json(found) if as_json else [f"wrote {_words(found)} to {found.file}"])


@db.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--as", "name", metavar="NEWNAME", help="Name it so.  [default: the name that it had]")
@storage_option
@artifacts_option
@json_option
def import_(file: Path, name: str | None, storage: str, artifacts: Path | None, as_json: bool) -> None:
    """Bring in the study that `db export` wrote to FILE; `study run` goes on with it.

    Its engines are native code that will be loaded here: import only files that you trust.

    \b
    Example:
      python -m tuner db import ocr.tar.gz --storage postgresql+psycopg://team@host/tuner
      python -m tuner db import ocr.tar.gz --as ocr-laptop
    """
    from tuner.cli import render
    from tuner.moving import import_study

    found = import_study(file, name=name, storage=storage, artifacts=artifacts)
    render.emit(_to_json(found) if as_json else [f"imported {_words(found)}"])


def _words(found: Moved) -> str:
    left_out = "" if found.engines else ", without engine files"
    return (
        f"study {found.study!r}: {found.trials} trials, {found.files} files, {found.size_bytes / _MB:,.2f} MB{left_out}"
    )


def _to_json(found: Moved) -> dict[str, Any]:
    return {
        "study": found.study,
        "file": str(found.file),
        "rows": dict(found.rows),
        "files": found.files,
        "size_bytes": found.size_bytes,
        "engines": found.engines,
    }
