"""The documents do not lie: every command line in them parses, every link leads somewhere, every block of Python runs
as far as that can be told without running it."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import tuner
from tuner.cli.app import app

ROOT = Path(__file__).parents[1]
DOCUMENTS = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if path.exists()]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_START = re.compile(r"^\s*(?:\$ |- )?(?:[A-Z_]+=\S+ )*(?:\S*/)?python3? -m tuner\b(.*)")
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def _blocks(text: str, *languages: str) -> Iterator[str]:
    return (body for language, body in _BLOCK.findall(text) if language in languages)


def _commands(text: str) -> list[str]:
    """What follows `python -m tuner` in blocks of shell or of a CI's YAML, and in code between backticks."""
    lines = [line for body in _blocks(text, "", "sh", "bash", "shell", "console", "yaml") for line in _joined(body)]
    found = [match[1] for line in lines if (match := _START.match(line))]
    prose = _BLOCK.sub("", text)
    return [*found, *[match[1] for code in re.findall(r"`([^`\n]+)`", prose) if (match := _START.match(code))]]


def _joined(body: str) -> list[str]:
    return body.replace("\\\n", " ").splitlines()


def _words(command: str) -> list[str]:
    """The words before a pipe, a redirection or a comment."""
    words = shlex.split(command, comments=True)
    ends = [index for index, word in enumerate(words) if word in ("|", ">", ">>", "2>", "&&", ";", "&")]
    return words[: min(ends, default=len(words))]


def check(words: list[str]) -> None:
    """Parse a command line against the tree without running anything. Raises: click.UsageError."""
    command: click.Command = app
    context = click.Context(app, info_name="tuner")
    while isinstance(command, click.Group):
        if not words or words[0] in ("--help", "-h", "--version"):
            return
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        command, context = found, click.Context(found, info_name=name, parent=context)
    if "--help" not in words:
        # The command's own context settings matter to the parser; its callback is never called.
        command.make_context(context.info_name or "", list(words), parent=context.parent)


CASES = [
    pytest.param(command, id=f"{path.name}:{index}")
    for path in DOCUMENTS
    for index, command in enumerate(_commands(path.read_text()))
]


def test_there_are_documents() -> None:
    assert ROOT / "README.md" in DOCUMENTS


@pytest.mark.parametrize(
    "command",
    [
        "stduy list",
        "study crate x",
        "study create x",
        "study run x --n-trails 5",
        "study run x y",
        "study run x --n-trials many",
    ],
)
def test_a_wrong_command_would_be_noticed(command: str) -> None:
    with pytest.raises(click.UsageError):
        check(_words(command))


def test_commands_are_found_in_blocks_and_in_prose() -> None:
    text = (
        "Run `python -m tuner env` first, never `python -m tunerx`.\n\n```sh\n$ python -m tuner study create a \\\n"
        "    --model m.onnx  # why\nTUNER_STORAGE=x .venv/bin/python -m tuner study list | head\nmake demo\n```\n"
        "```python\npython -m tuner nothing\n```\n"
    )
    words = [_words(command) for command in _commands(text)]
    assert words == [["study", "create", "a", "--model", "m.onnx"], ["study", "list"], ["env"]]


@pytest.mark.parametrize("command", CASES)
def test_a_documented_command_parses(command: str) -> None:
    words = _words(command)
    if any(word in ("...", "…") or word.startswith("[") for word in words):
        words = words[: next(i for i, word in enumerate(words) if word in ("...", "…") or word.startswith("["))]
        # A form, not a command line: what can be told is that the command exists.
        with click.Context(app) as context:
            app.resolve_command(context, words) if words else None
        return
    check(words)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_documented_python_is_python_and_names_what_there_is(path: Path) -> None:
    for body in _blocks(path.read_text(), "python", "py"):
        for node in ast.walk(ast.parse(body)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "tuner":
                assert hasattr(tuner, node.attr), f"tuner.{node.attr}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_to_files_lead_somewhere(path: Path) -> None:
    targets = [target for target in _LINK.findall(path.read_text()) if "://" not in target and target[0] != "#"]
    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_the_page_of_the_python_api_is_what_the_docstrings_say() -> None:
    ended = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "make_api.py"), "--check"], capture_output=True, text=True, cwd=ROOT
    )
    assert ended.returncode == 0, f"{ended.stdout}{ended.stderr}: run `python docs/make_api.py`"


def test_every_page_stands_in_the_index() -> None:
    listed = set(_LINK.findall((ROOT / "docs" / "README.md").read_text()))
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert pages - listed == set()


def tree(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from tree(child, (*words, name))


def example_lines(command: click.Command) -> list[str]:
    """The lines of the example in a command's help, each whole."""
    _, _, example = (command.help or "").partition("Example:")
    return [" ".join(line.split()) for line in _joined(example) if line.strip()]


@pytest.mark.parametrize(
    ("words", "command"), list(tree(app)), ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_the_example_in_a_commands_own_help_parses(words: tuple[str, ...], command: click.Command) -> None:
    lines = [match[1] for line in example_lines(command) if (match := _START.match(line))]
    assert lines, f"{' '.join(words)} has no example that shows a command line"
    for line in lines:
        check(_words(line))
        assert tuple(_words(line)[: len(words)]) == words


@pytest.mark.parametrize(
    ("words", "command"), list(tree(app)), ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_every_option_says_what_it_does(words: tuple[str, ...], command: click.Command) -> None:
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    assert [option.name for option in options if not option.help] == []
