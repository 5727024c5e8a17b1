"""The command tree: every command under its group.

Flow: cli.main -> HERE -> the command's own file. Imports click and the command files only; those import the rest when
they run.
"""

from __future__ import annotations

import click

from tuner import __version__
from tuner.cli.check import check
from tuner.cli.completion import completion
from tuner.cli.dashboard import dashboard
from tuner.cli.db import db
from tuner.cli.demo import demo
from tuner.cli.engine import engine
from tuner.cli.inspect import env, knobs
from tuner.cli.report import report
from tuner.cli.study import study
from tuner.cli.trtexec import trtexec

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.group(context_settings=CONTEXT)
@click.version_option(__version__, prog_name="tuner")
def app() -> None:
    """Bayesian optimization of inference engines.

    A study searches the settings of a runtime or compiler for the fastest engine whose outputs stay right. Every trial
    is kept in a database: stop a study at any moment, `study run` goes on.

    \b
    Example:
      python -m tuner study create ocr --model det.onnx --shapes x:1x3x640x640
      python -m tuner study run ocr
      python -m tuner study best ocr
      python -m tuner report ocr
    """


for command in (study, report, dashboard, engine, check, knobs, env, db, demo, trtexec, completion):
    app.add_command(command)


def _settle(command: click.Command) -> None:
    """The same settings everywhere, not only where a parent hands them down: click keeps what it sees first."""
    command.context_settings = {**CONTEXT, **command.context_settings}
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        _settle(inner)


_settle(app)
