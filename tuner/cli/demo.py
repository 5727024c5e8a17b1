"""`demo`: the main job on a real model, on the CPU."""

from __future__ import annotations

from pathlib import Path

import click

from tuner.cli.options import artifacts_option

_CONFIRM_S = 60.0


@click.command()
@click.option("--timeout", default="60s", show_default=True, metavar="TIME", help="Time budget of the trials.")
@click.option("--n-trials", type=int, default=60, show_default=True, metavar="N", help="Most trials.")
@click.option("--name", default="demo", show_default=True, help="Name of the study.")
@click.option(
    "--storage", metavar="URL", default="sqlite:///tuner-demo.db", show_default=True, help="Database of the demo."
)
@artifacts_option
def demo(timeout: str, n_trials: int, name: str, storage: str, artifacts: Path | None) -> None:
    """Tune a real network on this machine's CPU, in about two minutes, and confirm the result.

    The network tells file types (magika, from its PyPI package); it is judged on real files of this installation: the
    same label for every file, and outputs within a relative error of 5e-2. Run it again to go on where it stopped.

    \b
    Example:
      python -m tuner demo
      python -m tuner demo --timeout 10m --n-trials 300
    """
    from tuner.answers import ConfirmOptions
    from tuner.api import best_of, confirm_study, run_study
    from tuner.cli import parse, render
    from tuner.cli.progress import make_progress
    from tuner.demo import prepare
    from tuner.spec import Budget

    budget = Budget(n_trials, parse.duration_s(timeout))
    news = prepare(name, budget, storage=storage, artifacts=artifacts)
    for line in news:
        click.echo(line, err=True)
    with make_progress() as progress:
        run_study(name, storage=storage, artifacts=artifacts, budget=budget, progress=progress)
        options = ConfirmOptions(finalists=1, timeout_s=_CONFIRM_S)
        confirm_study(name, options, storage=storage, artifacts=artifacts, progress=progress)
    render.emit(render.best_lines(best_of(name, storage=storage, artifacts=artifacts)))
    at = "" if storage == "sqlite:///tuner.db" else f" --storage {storage}"
    click.echo("what next:")
    click.echo(f"  python -m tuner study show {name}{at}      every trial with its reason")
    click.echo(f"  python -m tuner study best {name}{at}      the engine file")
    click.echo("  python -m tuner study create NAME --model your.onnx      your own model")
