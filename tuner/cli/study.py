"""`study`: create, list, show, run, best, delete."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any, NoReturn

import click

from tuner.cli.options import (
    artifacts_option,
    budget_options,
    create_options,
    json_option,
    storage_option,
    to_budget,
    to_study_options,
)


@click.group()
def study() -> None:
    """Create, run and look at studies.

    \b
    Example:
      python -m tuner study create mnist --model mnist.onnx --n-trials 40
      python -m tuner study run mnist
      python -m tuner study show mnist
    """


@study.command()
@click.argument("name")
@click.option("--model", required=True, type=click.Path(path_type=Path), metavar="FILE", help="The model: m.onnx.")
@create_options
@storage_option
@artifacts_option
@json_option
def create(name: str, model: Path, storage: str, artifacts: Path | None, as_json: bool, **flags: Any) -> None:
    """Create the study NAME.

    Everything is checked before anything is stored: the model is read and run once, input data are made or read,
    reference outputs computed. No candidate is tried yet.

    \b
    Example:
      python -m tuner study create ocr --model det.onnx --shapes x:1x3x640x640 \\
          --max-loss rel_l2=1e-2 --n-trials 60 --timeout 30m
    """
    from tuner.api import create_study
    from tuner.cli import as_json as to_json
    from tuner.cli import render

    created = create_study(name, model, to_study_options(flags), storage=storage, artifacts=artifacts)
    render.emit(to_json.created_json(created) if as_json else render.created_lines(created, storage))


@study.command()
@click.argument("name")
@budget_options
@storage_option
@artifacts_option
@json_option
def run(
    name: str, n_trials: int | None, timeout: str | None, storage: str, artifacts: Path | None, as_json: bool
) -> None:
    """Run the study NAME until its budget is spent; goes on where it stopped.

    With --n-trials or --timeout the study gets this budget from now on, earlier trials counted in.

    \b
    Example:
      python -m tuner study run ocr
      python -m tuner study run ocr --n-trials 200
    """
    from tuner.api import run_study
    from tuner.cli import as_json as to_json
    from tuner.cli import render
    from tuner.cli.progress import make_progress

    signal.signal(signal.SIGTERM, _interrupt)
    with make_progress(quiet=as_json) as progress:
        summary = run_study(
            name, storage=storage, artifacts=artifacts, budget=to_budget(n_trials, timeout), progress=progress
        )
    render.emit(to_json.summary_json(summary) if as_json else render.result_lines(name, summary))


@study.command("list")
@storage_option
@json_option
def list_(storage: str, as_json: bool) -> None:
    """List the studies of a database.

    \b
    Example:
      python -m tuner study list --storage sqlite:///tuner.db
    """
    from tuner.api import list_studies
    from tuner.cli import as_json as to_json
    from tuner.cli import render

    found = list_studies(storage=storage)
    render.emit([to_json.study_json(one, with_trials=False) for one in found] if as_json else render.list_lines(found))


@study.command()
@click.argument("name")
@storage_option
@json_option
def show(name: str, storage: str, as_json: bool) -> None:
    """Show the study NAME: contexts, default and best, every trial with its outcome and reason.

    \b
    Example:
      python -m tuner study show ocr
      python -m tuner study show ocr --json
    """
    from tuner.api import show_study
    from tuner.cli import as_json as to_json
    from tuner.cli import render

    found = show_study(name, storage=storage)
    render.emit(to_json.study_json(found) if as_json else render.show_lines(found))


@study.command()
@click.argument("name")
@storage_option
@artifacts_option
@json_option
def best(name: str, storage: str, artifacts: Path | None, as_json: bool) -> None:
    """Show the fastest feasible candidate of the study NAME in its latest context.

    What the search saw is not yet a confirmed result: the best of many noisy measurements looks better than it is.

    \b
    Example:
      python -m tuner study best ocr
    """
    from tuner.api import best_of
    from tuner.cli import as_json as to_json
    from tuner.cli import render

    found = best_of(name, storage=storage, artifacts=artifacts)
    render.emit(to_json.best_json(found) if as_json else render.best_lines(found))


@study.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@storage_option
@artifacts_option
def delete(name: str, yes: bool, storage: str, artifacts: Path | None) -> None:
    """Delete the study NAME with its trials and engines.

    \b
    Example:
      python -m tuner study delete ocr --yes
    """
    from tuner.api import delete_study, show_study

    found = show_study(name, storage=storage)
    trials = sum(len(context.trials) for context in found.contexts)
    if not yes:
        click.confirm(f"Delete study {name!r} with {trials} trial(s)?", abort=True)
    delete_study(name, storage=storage, artifacts=artifacts)
    click.echo(f"deleted study {name!r} with {trials} trial(s)")


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt
