"""`db`: the database's schema."""

from __future__ import annotations

import click

from tuner.cli.options import storage_option


@click.group()
def db() -> None:
    """Upgrade and check the database.

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
