"""`dashboard`: Optuna Dashboard on a database of studies."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import NoReturn

import click

from tuner.cli.options import artifacts_option, storage_option


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="Port; 0: any free one.")
@click.option("--refresh", is_flag=True, help="Only draw all notes, figures and attributes again; serve nothing.")
@storage_option
@artifacts_option
def dashboard(host: str, port: int, refresh: bool, storage: str, artifacts: Path | None) -> None:
    """Show the studies of a database in Optuna Dashboard, until Ctrl-C.

    Each context has the verdict as a note, our figures beside Optuna's, the manifests of its engines as artifacts, and
    losses, speed-up and reasons as attributes of its trials. It is read-only: studies change by `study ...` alone.
    After each run and confirmation the same is written to the database, so that `optuna-dashboard URL` shows it too;
    --refresh does that by hand. There are no users and no passwords: whoever reaches the address sees everything.

    \b
    Example:
      python -m tuner dashboard
      python -m tuner dashboard --storage sqlite:///tuner.db --port 8081
      python -m tuner dashboard --refresh
    """
    from tuner.dashboard import page, pages, serve
    from tuner.home import open_home

    signal.signal(signal.SIGTERM, _interrupt)
    page.require_installed()
    with open_home(storage, artifacts) as home:
        pages.require_studies(home)
        if refresh:
            n_drawn = pages.draw_all(home, lambda name: None, again=True)
            click.echo(f"brought {n_drawn} page{'' if n_drawn == 1 else 's'} up to date")
            return
        with serve.taken(host, port) as server:
            if not serve.is_loopback(host):
                _say(f"warning: {host} can be reached by others: whoever reaches it sees every study, without password")
            for trouble in pages.draw_as_far_as_possible(home, lambda name: _say(f"drawing {name}")):
                _say(f"warning: {trouble}")
            try:
                serve.serve(server, home, lambda url: _say(f"dashboard at {url} (read-only); Ctrl-C ends it"))
            except KeyboardInterrupt:
                _say("dashboard ended")


def _say(line: str) -> None:
    click.echo(line, err=True)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt
