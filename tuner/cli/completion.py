"""`completion`: what a shell offers after TAB: commands, options, names of studies, knobs and backends."""

from __future__ import annotations

import os
from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem, get_completion_class

VARIABLE = "_TUNER_COMPLETE"  # how the shell's function asks the program, see `cli.main`
_PROGRAM = "tuner"
_SHELLS = ("bash", "zsh", "fish")
_STORAGE = "sqlite:///tuner.db"
_SEARCHES = ("auto", "tpe", "gp", "nsgaii", "random", "fast", "mixed", "full", "optuna:")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print what makes SHELL complete the words of the command `tuner`.

    Put it where the shell reads it when it starts. Names of studies and knobs come from --storage or TUNER_STORAGE
    where that is an SQLite file. `python -m tuner` is not completed: those words belong to Python.

    \b
    Example:
      python -m tuner completion bash >> ~/.bashrc
      python -m tuner completion zsh >> ~/.zshrc
      python -m tuner completion fish > ~/.config/fish/completions/tuner.fish
    """
    found = get_completion_class(shell)
    assert found is not None, "click knows each of these"
    root = click.get_current_context().find_root().command
    click.echo(found(root, {}, _PROGRAM, VARIABLE).source())


def studies(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the studies in the database that the words so far name."""
    from storage.names import study_names

    return _items(study_names(_storage(context)), incomplete)


def knobs(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of knobs that any study of the database has; after a comma another one."""
    from storage.names import knob_names

    before, comma, last = incomplete.rpartition(",")
    sign = last[:1] if last[:1] in ("-", "!") else ""
    return _items(knob_names(_storage(context)), incomplete, before + comma + sign)


def backends(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the backends that are installed."""
    from objectives.backends import available

    return _items(available(), incomplete)


def searches(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of searches."""
    return _items(_SEARCHES, incomplete)


def _items(names: Iterable[str], incomplete: str, before: str = "") -> list[CompletionItem]:
    return [CompletionItem(before + name) for name in names if (before + name).startswith(incomplete)]


def _storage(context: click.Context) -> str:
    return context.params.get("storage") or os.environ.get("TUNER_STORAGE") or _STORAGE
