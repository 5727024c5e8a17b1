"""The command blocks of README and docs work as they stand, page by page, each in a folder with the files it names.

A block without a language, or of a shell, is commands. What cannot run everywhere (a GPU, a server, hours) has a line
`<!-- not run: why -->` right above it; `test_docs.py` parses it all the same. Only what a command costs is cut down.
"""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from onnx import TensorProto, helper, save

from objectives import trtexec_flags
from tests import test_examples
from tests.test_docs import DOCUMENTS, ROOT

SHELLS = ("", "sh", "bash", "shell", "console")
OTHERS = ("python", "toml", "yaml", "text", "json")  # what is no commands says its language
_MARK = re.compile(r"<!-- not run: (\S.*?) -->")
_INDENTED = re.compile(r"^ {4,}(?:\$ )?(?:python3?|pip|make|tuner|optuna-dashboard|trtexec|docker) ")
_FLAG = re.compile(r"--[A-Za-z0-9]+")
_EXTRAS = re.compile(r"\[([a-z0-9,-]+)\]")
# Beside those of tests/test_examples.py.
CHEAPER = {
    "--n-trials 30": "--n-trials 3",
    "promote ocr 17": "promote ocr 2",
}
NEEDS = {"--backend tensorrt-rtx": "tensorrt_rtx"}


class Block(NamedTuple):
    """A fenced block: where it stands, its language, the line above it, its text."""

    line: int
    language: str
    above: str
    body: str

    @property
    def is_commands(self) -> bool:
        return self.language in SHELLS

    @property
    def why_not(self) -> str | None:
        mark = _MARK.fullmatch(self.above)
        return mark[1] if mark else None

    @property
    def commands(self) -> list[str]:
        """Each command in one line, without what stands behind a blank and a hash."""
        lines = self.body.replace("\\\n", " ").splitlines()
        return [found for line in lines if (found := re.sub(r"(^|\s+)# .*", "", line).removeprefix("$ ").strip())]


def blocks(text: str) -> Iterator[Block]:
    """Every fenced block. Raises: AssertionError for a fence that is never closed."""
    lines = text.splitlines()
    opened: int | None = None
    for index, line in enumerate(lines):
        if opened is None and line.startswith("```"):
            opened = index
        elif opened is not None and line == "```":
            above = lines[opened - 1] if opened else ""
            yield Block(opened + 1, lines[opened][3:].strip(), above, "\n".join(lines[opened + 1 : index]))
            opened = None
    assert opened is None, f"the fence in line {opened} is never closed"


def outside(text: str) -> list[str]:
    """The lines of a page that stand in no fenced block."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL).splitlines()


def extras(command: str) -> set[str]:
    """Extras of this project that a `pip install` names."""
    return {extra for found in _EXTRAS.findall(command) for extra in found.split(",")}


PAGES = [pytest.param(path, id=path.name if path.parent == ROOT else f"docs-{path.name}") for path in DOCUMENTS]
RUN = [
    page for page in PAGES if any(one.is_commands and one.why_not is None for one in blocks(page.values[0].read_text()))
]
INSTALLABLE = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def _model(path: Path) -> Path:
    """`input` (1, 3, 224, 224) -> mean over the picture -> `y`."""
    nodes = [helper.make_node("Relu", ["input"], ["r"]), helper.make_node("GlobalAveragePool", ["r"], ["y"])]
    given = helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 3, 224, 224])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, 1, 1])
    graph = helper.make_graph(nodes, "g", [given], [result])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


_prepared = test_examples._prepared  # a folder with the studies `ocr` and `detector`


@pytest.fixture
def folder(_prepared: Path, tmp_path: Path) -> Path:
    """That folder and `model.onnx`, to be changed."""
    here = tmp_path / "here"
    shutil.copytree(_prepared, here)
    for made in ("ocr-engine", "ocr.tar.gz"):  # the pages make these
        path = here / made
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    _model(here / "model.onnx")
    return here


def _write_files(path: Path, here: Path) -> None:
    """What a page shows as a file is there: `NAME` in backticks in the last line of text before the block."""
    text = path.read_text()
    for block in blocks(text):
        if block.language not in ("python", "toml") or "import tuner" in block.body:
            continue
        before = "\n".join(text.splitlines()[: block.line - 1]).rstrip().rpartition("\n\n")[2]
        names = re.findall(rf"`([\w./-]+\.{'py' if block.language == 'python' else 'toml'})`", before)
        if names:
            (here / names[0]).parent.mkdir(exist_ok=True)
            (here / names[0]).write_text(block.body + "\n")


def _run(command: str, here: Path) -> None:
    if command.startswith("pip install"):
        return  # `test_what_is_installed_can_be` looks at it
    for costly, cheap in {**CHEAPER, **test_examples.CHEAPER}.items():
        command = command.replace(costly, cheap)
    for words, module in NEEDS.items():
        if words in command and find_spec(module) is None:
            return
    test_examples._require(command, here)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", RUN)
def test_the_commands_of_a_page_work(path: Path, folder: Path) -> None:
    _write_files(path, folder)
    for block in blocks(path.read_text()):
        if block.is_commands and block.why_not is None:
            for command in block.commands:
                _run(command, folder)


@pytest.mark.parametrize("path", PAGES)
def test_every_block_is_run_marked_or_no_commands(path: Path) -> None:
    """Blocks that are no commands say their language; commands stand in blocks, not merely indented."""
    for block in blocks(path.read_text()):
        where = f"{path.name}:{block.line}"
        if not block.is_commands:
            assert block.language in OTHERS, f"{where}: {block.language} is not a language that these pages use"
            assert not _START_OF_COMMAND.match(block.body), f"{where}: commands in a block of {block.language}"
        elif block.why_not is None:
            unknown = [one for one in block.commands if not _START_OF_COMMAND.match(one)]
            assert not unknown, f"{where}: neither a command that is run nor marked: {unknown[0]}"
    assert [line for line in outside(path.read_text()) if _INDENTED.match(line)] == []


_START_OF_COMMAND = re.compile(r"(?:[A-Z_]+=\S+ )*(?:python3? -m tuner|pip install|sh [\w./-]+)\b")


@pytest.mark.parametrize("path", PAGES)
def test_a_marker_stands_above_a_block_of_commands(path: Path) -> None:
    text = path.read_text()
    assert text.count("<!-- not run") == len([one for one in blocks(text) if one.is_commands and one.why_not])


@pytest.mark.parametrize("path", PAGES)
def test_what_is_installed_can_be(path: Path) -> None:
    """Extras, targets of make and scripts that a page names exist, in marked blocks too."""
    for block in blocks(path.read_text()):
        for command in block.commands if block.is_commands else ():
            first, _, rest = command.partition(" ")
            if command.startswith("pip install"):
                assert extras(command) <= INSTALLABLE.keys(), command
            elif first == "make":
                assert set(rest.split()) <= TARGETS, command
            elif first in ("python", "python3") and not rest.startswith("-"):
                assert (ROOT / rest.split()[0]).is_file(), command


def test_blocks_are_found() -> None:
    marked = "<!-- not run: a GPU -->\n```sh\nx\n```\n"
    text = f"a\n```\npython -m tuner env  # why\n$ make \\\ndemo\n```\n{marked}```toml\n```\n"
    first, second, third = blocks(text)
    assert (first.commands, first.why_not, first.is_commands) == (["python -m tuner env", "make  demo"], None, True)
    assert (second.commands, second.why_not, second.line) == (["x"], "a GPU", 8)
    assert not third.is_commands
    with pytest.raises(AssertionError, match="never closed"):
        list(blocks("```\nx\n"))


def test_a_page_with_an_unmarked_block_of_another_program_fails(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for bad in ("```\nnvidia-smi\n```\n", "```toml\npython -m tuner env\n```\n", "    python -m tuner env\n"):
        page.write_text(bad)
        with pytest.raises(AssertionError):
            test_every_block_is_run_marked_or_no_commands(page)
    page.write_text("```\npython -m tuner env\n```\n<!-- not run: a GPU -->\n```\nnvidia-smi\n```\n")
    test_every_block_is_run_marked_or_no_commands(page)


def test_most_pages_are_run() -> None:
    """Markers stay the exception."""
    marked = [one for page in PAGES for one in blocks(page.values[0].read_text()) if one.is_commands and one.why_not]
    run = [one for page in PAGES for one in blocks(page.values[0].read_text()) if one.is_commands and not one.why_not]
    assert len(run) >= 2 * len(marked)


def test_every_flag_of_trtexec_that_a_candidate_can_set_stands_on_its_page() -> None:
    known = set(_FLAG.findall(Path(trtexec_flags.__file__).read_text()))
    told = set(_FLAG.findall((ROOT / "docs" / "trtexec.md").read_text()))
    assert known - told == set()
