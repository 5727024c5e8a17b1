"""Command line: words in, one call of the API, lines out.

Flow: __main__ -> main HERE -> a command parses and calls -> render.py makes lines. Errors end in one sentence with a
remedy; the exit code belongs to the error's class (0 done, 1 a job failed, 2 wrong use or bad input, 130 interrupted).
Nothing heavy is imported before a command runs, so that `--help` is quick.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from objectives.errors import ObjectiveError
from storage.errors import StorageError
from tuner.cli.app import app
from tuner.cli.completion import VARIABLE
from tuner.errors import TunerError

INTERRUPTED = 130


def main(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit code."""
    try:
        # Without standalone mode click returns the code of an Exit instead of raising it.
        code = app.main(args=list(arguments), prog_name="python -m tuner", complete_var=VARIABLE, standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        error.show()
        return 2
    except (TunerError, ObjectiveError, StorageError) as error:
        hint = error.hint or (_help_of(arguments) if error.exit_code == 2 else "")
        _say(f"error: {error}", f"  hint: {hint}" if hint else "")
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        _say("interrupted; what is finished is kept, and `study run` goes on from there")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone; Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _help_of(arguments: Sequence[str]) -> str:
    """The command whose help says what can be asked for instead."""
    words: list[str] = []
    command: click.Command = app
    for word in arguments:
        found = command.commands.get(word) if isinstance(command, click.Group) else None
        if found is None:
            break
        words.append(word)
        command = found
    return f"python -m tuner {' '.join([*words, '--help'])}"


def _say(*lines: str) -> None:
    for line in lines:
        if line:
            click.echo(line, err=True)
