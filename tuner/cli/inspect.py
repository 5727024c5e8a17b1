"""`knobs` and `env`: what there is to tune, and where we are."""

from __future__ import annotations

from pathlib import Path

import click

from tuner.cli import parse
from tuner.cli.options import backend_option, backend_option_option, json_option, storage_option


@click.command()
@click.option("--model", required=True, type=click.Path(path_type=Path), metavar="FILE", help="The model: m.onnx.")
@backend_option
@backend_option_option
@click.option("--knobs", "patterns", multiple=True, metavar="PATTERN", help="Show what this selection leaves.")
@storage_option
@json_option
def knobs(
    model: Path, backend: str, backend_options: tuple[str, ...], patterns: tuple[str, ...], storage: str, as_json: bool
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

    found = describe(backend, model, parse.assignments("--backend-option", backend_options))
    assert found.knobs is not None, "a model was given"
    space = select(found.knobs, expand(parse.knob_patterns(patterns), found.knobs, storage))
    render.emit(to_json.knobs_json(found, space) if as_json else render.knobs_lines(found, space))


@click.command()
@click.option("--backend", metavar="NAME", help="Only this backend.  [default: all]")
@json_option
def env(backend: str | None, as_json: bool) -> None:
    """Show this machine and its backends: what is installed, and the fingerprint that makes a context.

    \b
    Example:
      python -m tuner env
      python -m tuner env --backend onnxruntime --json
    """
    from tuner.api import environments
    from tuner.cli import as_json as to_json
    from tuner.cli import render

    found = environments(backend)
    render.emit(to_json.env_json(found) if as_json else render.env_lines(found))
