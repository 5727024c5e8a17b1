"""`study`: create, clone, list, show, run, watch, confirm, best, retarget, delete."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any, NoReturn

import click

from tuner.cli.clone import clone
from tuner.cli.options import (
    artifacts_option,
    budget_options,
    confirm_options,
    create_options,
    devices_option,
    json_option,
    limit_option,
    only_limits_options,
    storage_option,
    study_argument,
    to_budget,
    to_confirm_options,
    to_devices,
    to_limits,
    to_study_options,
)
from tuner.cli.watch import watch


@click.group()
def study() -> None:
    """Create, run and look at studies.

    \b
    Example:
      python -m tuner study create mnist --model mnist.onnx --n-trials 40
      python -m tuner study run mnist
      python -m tuner study show mnist
    """


study.add_command(clone)
study.add_command(watch)


@study.command()
@click.argument("name")
@click.option(
    "--model",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The model: m.onnx; or a program's description: tune.toml.",
)
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
      python -m tuner study create mine --model tune.toml --max-loss error=1e-3
    """
    from tuner.api import create_study
    from tuner.cli import as_json as to_json
    from tuner.cli import render

    created = create_study(name, model, to_study_options(flags, model), storage=storage, artifacts=artifacts)
    render.emit(to_json.created_json(created) if as_json else render.created_lines(created, storage))


@study.command()
@study_argument
@budget_options
@click.option("--no-early-end", is_flag=True, help="Go on, now and later, when the search says it is not worth it.")
@click.option("--no-transfer", is_flag=True, help="From now on new contexts start from nothing that others have seen.")
@click.option("--no-confirm", is_flag=True, help="Stop after the search; `study confirm` can follow later.")
@devices_option
@confirm_options
@storage_option
@artifacts_option
@json_option
def run(
    name: str,
    n_trials: int | None,
    timeout: str | None,
    no_early_end: bool,
    no_transfer: bool,
    no_confirm: bool,
    devices: str | None,
    storage: str,
    artifacts: Path | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Run the study NAME until its budget is spent; goes on where it stopped. Then confirm the best candidates.

    On another machine, or after an upgrade of the runtime, a new context of the study opens by itself. It measures the
    winners of the others again first, and its search knows what they have learnt; --no-transfer starts from nothing.

    With --n-trials or --timeout the study gets this budget from now on, earlier trials counted in.

    With --devices trials run on several devices at once, one process on each; --timeout counts their time together. The
    default is timed on each, so that what one device is slower than another is taken out. A device that keeps failing
    is given up with a warning, and the others go on.

    \b
    Example:
      python -m tuner study run ocr
      python -m tuner study run ocr --n-trials 200 --min-gain 2%
      python -m tuner study run ocr --devices 0,1
    """
    from tuner.api import best_of, confirm_study, run_study
    from tuner.cli import as_json as to_json
    from tuner.cli import render
    from tuner.cli.progress import make_progress

    signal.signal(signal.SIGTERM, _interrupt)
    budget = to_budget(n_trials, timeout)
    to_confirm_options(flags)  # what is wrong with these flags is said before the search, not after it
    with make_progress(quiet=as_json) as progress:
        summary = run_study(
            name,
            storage=storage,
            artifacts=artifacts,
            budget=budget,
            early_end=False if no_early_end else None,
            transfer=False if no_transfer else None,
            devices=to_devices(devices),
            progress=progress,
        )
        if not no_confirm and summary.objective.is_timed:
            options = to_confirm_options(flags, summary.spent_s)
            confirm_study(
                name, options, storage=storage, artifacts=artifacts, devices=to_devices(devices), progress=progress
            )
    found = best_of(name, storage=storage, artifacts=artifacts)
    render.emit(to_json.best_json(found) if as_json else render.best_lines(found))


@study.command()
@study_argument
@click.option("--minimize", is_flag=True, help="Then drop the winner's changes that do not contribute.")
@devices_option
@confirm_options
@storage_option
@artifacts_option
@json_option
def confirm(
    name: str,
    minimize: bool,
    devices: str | None,
    storage: str,
    artifacts: Path | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Decide whether the best candidates of the study NAME are faster than the default.

    Finalists and default are built afresh and restarted many times, checked again, and timed in turn with fresh
    samples. The answer is FASTER, NOT FASTER or UNDECIDED, with the speed-up and its 95 % confidence interval.
    With --devices pairs are timed on several devices at once, both sides of each on the same one.

    \b
    Example:
      python -m tuner study confirm ocr
      python -m tuner study confirm ocr --min-gain 0.5% --finalists 5 --confirm-timeout 10m
    """
    from tuner.api import best_of, confirm_study, minimize_study
    from tuner.cli import as_json as to_json
    from tuner.cli import render
    from tuner.cli.progress import make_progress

    signal.signal(signal.SIGTERM, _interrupt)
    options = to_confirm_options(flags)
    with make_progress(quiet=as_json) as progress:
        verb = minimize_study if minimize else confirm_study
        confirmed = verb(
            name, options, storage=storage, artifacts=artifacts, devices=to_devices(devices), progress=progress
        )
    found = best_of(name, storage=storage, artifacts=artifacts)
    render.emit(to_json.best_json(found) if as_json else render.confirmed_lines(confirmed) + render.best_lines(found))


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
@study_argument
@storage_option
@json_option
def show(name: str, storage: str, as_json: bool) -> None:
    """Show the study NAME: its contexts and how they descend from one another, default and best, every trial.

    \b
    Example:
      python -m tuner study show ocr
      python -m tuner study show ocr --json
    """
    from tuner.api import show_study
    from tuner.cli import as_json as to_json
    from tuner.cli import lineage, render

    found = show_study(name, storage=storage)
    if as_json:
        render.emit(to_json.study_json(found))
        return
    shown = render.show_lines(found, lineage.carried_lines)
    render.emit([*shown[:2], *lineage.tree_lines(found), *shown[2:]])


@study.command()
@study_argument
@storage_option
@artifacts_option
@json_option
def best(name: str, storage: str, artifacts: Path | None, as_json: bool) -> None:
    """Show the confirmed winner of the study NAME in its latest context; without one, the best that the search saw.

    What the search saw is no result yet: the best of many noisy measurements looks better than it is.

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
@study_argument
@limit_option
@only_limits_options
@storage_option
@artifacts_option
@json_option
def retarget(
    name: str, max_loss: tuple[str, ...], storage: str, artifacts: Path | None, as_json: bool, **others: Any
) -> None:
    """Give the study NAME other limits, and judge anew what it has measured; nothing is built.

    What was measured keeps its samples. What was over the old limits and is within the new ones was never timed: the
    next `study run` measures that first. Only limits can change: other data, metrics or shapes are another study.

    \b
    Example:
      python -m tuner study retarget ocr --max-loss rel_l2=1e-3
      python -m tuner study retarget ocr --max-loss rel_l2=5e-3 --max-loss top1=0
    """
    from tuner.api import retarget_study
    from tuner.cli import as_json as to_json
    from tuner.cli import lineage, render

    found = retarget_study(name, to_limits(max_loss, others), storage=storage, artifacts=artifacts)
    view = found.latest
    if as_json:
        render.emit(to_json.study_json(found, with_trials=False))
        return
    limits = ", ".join(str(limit) for limit in found.spec.judging.limits)
    lines = [f"study {name!r} now has the limits {limits}"]
    if view is not None:
        summary = view.summary
        lines.append(f"context {view.context.record.number}: {summary.n_trials} trials: {render.counts(summary)}")
        lines += lineage.carried_lines(view) + render.standing_lines(summary, view.limits, summary.best)
    render.emit([*lines, f"next: python -m tuner study run {name}"])


@study.command()
@study_argument
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
