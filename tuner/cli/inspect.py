"""`knobs` and `env`: what there is to tune, and where we are."""

from __future__ import annotations

from pathlib import Path

import click

from tuner.cli import parse
from tuner.cli.completion import backends
from tuner.cli.options import backend_option, backend_option_option, chosen_backend, json_option, storage_option
from tuner.errors import UsageError


@click.command()
@click.option(
    "--model",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The model: m.onnx; or a program's description: tune.toml.",
)
@backend_option
@backend_option_option
@click.option("--knobs", "patterns", multiple=True, metavar="PATTERN", help="Show what this selection leaves.")
@storage_option
@json_option
def knobs(
    model: Path,
    backend: str | None,
    backend_options: tuple[str, ...],
    patterns: tuple[str, ...],
    storage: str,
    as_json: bool,
) -> None:
    """Show the knobs that this installation offers for a model: names, values, defaults, help.

    \b
    Example:
      python -m tuner knobs --model mnist.onnx
      python -m tuner knobs --model mnist.onnx --knobs runtime,-intra_op_threads
    """
    from tuner.api import describe
    from tuner.cli import as_json as to_json
    from tuner.cli import render
    from tuner.selection import expand, select

    found = describe(chosen_backend(backend, model), model, parse.assignments("--backend-option", backend_options))
    assert found.knobs is not None, "a model was given"
    space = select(found.knobs, expand(parse.knob_patterns(patterns), found.knobs, storage))
    render.emit(to_json.knobs_json(found, space) if as_json else render.knobs_lines(found, space))


@click.command()
@click.option("--backend", shell_complete=backends, metavar="NAME", help="Only this backend.  [default: all]")
@click.option(
    "--check",
    "checked",
    shell_complete=backends,
    metavar="NAME",
    help="Check what this backend promises, on tiny models.",
)
@click.option(
    "--backend-option",
    "backend_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Check it with this option of the backend; `env --backend NAME` lists what there is.",
)
@storage_option
@json_option
def env(
    backend: str | None, checked: str | None, backend_options: tuple[str, ...], storage: str, as_json: bool
) -> None:
    """Show this machine and its backends: what is installed, and the fingerprint that makes a context.

    "identity" is what makes it another environment, in which a study opens another context; "recorded" is only noted.
    If --storage is there, its studies follow, and what `study run` would do with each of them here.

    With --check, prove a backend on this machine: every check runs in a process of its own with a deadline, a crash is
    a failed check. What it prints can be pasted into an issue. Exit code 1 if a check failed.

    \b
    Example:
      python -m tuner env
      python -m tuner env --backend onnxruntime --json
      python -m tuner env --check tensorrt
    """
    from tuner.api import environments, runnable_here
    from tuner.cli import as_json as to_json
    from tuner.cli import lineage, render

    if checked is not None:
        from tuner.cli.checks import check

        if backend is not None:
            raise UsageError("--check and --backend exclude one another", hint=f"python -m tuner env --check {checked}")
        check(checked, parse.assignments("--backend-option", backend_options), as_json)
        return
    if backend_options:
        raise UsageError("--backend-option goes with --check", hint="python -m tuner env --check NAME")
    found = environments(backend)
    here = runnable_here(backend, storage=storage)
    if as_json:
        render.emit([*to_json.env_json(found), to_json.here_json(here)] if here else to_json.env_json(found))
    else:
        render.emit(render.env_lines(found) + lineage.here_lines(here))
