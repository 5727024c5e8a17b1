"""What stands in the blocks of README and docs works when it is typed, page by page, in a folder with the files that
the page speaks of. Only what one costs is cut down.

A block that cannot run here has the reason before it, `<!-- not run by the tests: REASON -->`; whether its commands and
flags exist is looked at all the same (test_docs.py).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import TensorProto, helper, save

from tests.test_docs import DOCUMENTS, ROOT
from tests.test_examples import _cheap, _prepared, _require  # noqa: F401 - a fixture among them

pytestmark = pytest.mark.slow

_BLOCK = re.compile(
    r"(?:<!-- not run by the tests: (?P<why>[^>]+) -->\n+)?^```(?P<lang>\w*)\n(?P<body>.*?)^```", re.M | re.S
)
_COMMANDS = ("python ", "make ", "pip ", "cd ", "optuna-dashboard ", "chromium ")
_SHELLS = ("", "sh", "bash", "shell", "console")
_CHEAPER = {
    "--n-trials 100": "--n-trials 2",
    "--n-trials 30": "--n-trials 3",
    "ocr 17": "ocr 3",
    "1x3x224x224": "1x3x32x32",
    "(1, 3, 224, 224)": "(1, 3, 32, 32)",
    "n_trials=60": "n_trials=3",
    "ConfirmOptions(min_gain=0.02": "ConfirmOptions(min_gain=0.02, timeout_s=5.0",
    "CheckOptions(": "CheckOptions(timeout_s=5.0, ",
    "--timeout 10m": "--timeout 5s",
}


def _model(path: Path, name: str, *dims: int | str) -> None:
    """Mean over a picture (n, 3, h, w)."""
    nodes = [helper.make_node("Relu", [name], ["r"]), helper.make_node("GlobalAveragePool", ["r"], ["y"])]
    x = helper.make_tensor_value_info(name, TensorProto.FLOAT, list(dims))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [dims[0], 3, 1, 1])
    opset = [helper.make_opsetid("", 17)]
    save(helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=opset, ir_version=8), str(path))


def _fixed(folder: Path) -> None:
    _model(folder / "model.onnx", "input", 1, 3, 32, 32)


def _any_size(folder: Path) -> None:
    _model(folder / "model.onnx", "input", "n", 3, "h", "w")


def _as_written(folder: Path) -> None:
    """The program and its description are the page's own."""
    text = (ROOT / "docs" / "command.md").read_text()
    for language, name in (("python", "measure.py"), ("toml", "tune.toml")):
        (folder / name).write_text(next(m["body"] for m in _BLOCK.finditer(text) if m["lang"] == language))


PREPARED: dict[str, Callable[[Path], None]] = {"README.md": _any_size, "command.md": _as_written}


def blocks(path: Path, *languages: str) -> list[tuple[str, str]]:
    """Bodies of the blocks that hold commands (or Python), each with the reason why it is not run, if there is one."""
    found = [m for m in _BLOCK.finditer(path.read_text()) if m["lang"] in languages]
    return [
        (m["body"], m["why"] or "") for m in found if "python" in languages or m["body"].lstrip().startswith(_COMMANDS)
    ]


def _lines(body: str) -> list[str]:
    joined = body.replace("\\\n", " ").splitlines()
    return [line for line in joined if line.strip() and not line.startswith("pip install")]  # needs an index


def _removes_what_it_makes(line: str, folder: Path) -> None:
    """The examples of the command line have left their own."""
    words = line.split()
    if "-o" in words:
        target = folder / words[words.index("-o") + 1]
        shutil.rmtree(target, ignore_errors=True)
        target.unlink(missing_ok=True)


def _cut(text: str) -> str:
    for costly, cheap in _CHEAPER.items():
        text = text.replace(costly, cheap)
    return text


@pytest.fixture
def folder(_prepared: Path, tmp_path: Path) -> Path:  # noqa: F811
    """A folder of its own, with what the examples of the command line have."""
    shutil.copytree(_prepared, tmp_path / "here")
    return tmp_path / "here"


PAGES = [path for path in DOCUMENTS if any(not why for _, why in blocks(path, *_SHELLS))]
SCRIPTS = [path for path in DOCUMENTS if path.name != "command.md" and blocks(path, "python")]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_commands_of_a_page_work_in_their_order(path: Path, folder: Path) -> None:
    PREPARED.get(path.name, _fixed)(folder)
    for body, why in blocks(path, *_SHELLS):
        for line in _lines(body) if not why else ():
            _removes_what_it_makes(line, folder)
            _require(_cheap(_cut(line)), folder)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_the_python_of_a_page_works(path: Path, folder: Path) -> None:
    PREPARED.get(path.name, _fixed)(folder)
    for body, why in blocks(path, "python"):
        if not why:
            (folder / "block.py").write_text(_cut(body))
            _require("python block.py", folder)


def test_what_is_not_run_says_why() -> None:
    reasons = [why for path in DOCUMENTS for _, why in blocks(path, *_SHELLS) if why]
    assert len(reasons) <= 6
    assert all(len(why.split()) >= 3 for why in reasons)
