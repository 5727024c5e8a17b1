"""The blocks of Python in README and docs work as they stand, in a folder with the study and the model they speak of.

Only what they cost is cut down. Blocks of commands are run by test_pages.py.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import TensorProto, helper, save

from tests import test_examples
from tests.test_docs import DOCUMENTS

pytestmark = pytest.mark.slow

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
_CHEAPER = {
    "(1, 3, 224, 224)": "(1, 3, 32, 32)",
    "n_trials=60": "n_trials=3",
    "ConfirmOptions(min_gain=0.02": "ConfirmOptions(min_gain=0.02, timeout_s=5.0",
    "CheckOptions(": "CheckOptions(timeout_s=5.0, ",
}


def _any_size(folder: Path) -> None:
    """`model.onnx`: mean over a picture (n, 3, h, w)."""
    nodes = [helper.make_node("Relu", ["input"], ["r"]), helper.make_node("GlobalAveragePool", ["r"], ["y"])]
    x = helper.make_tensor_value_info("input", TensorProto.FLOAT, ["n", 3, "h", "w"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3, 1, 1])
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=opset, ir_version=8)
    save(model, str(folder / "model.onnx"))


PREPARED: dict[str, Callable[[Path], None]] = {"README.md": _any_size}
# The program of command.md is run by its commands.
PAGES = [path for path in DOCUMENTS if path.name != "command.md" and _BLOCK.search(path.read_text())]


_prepared = test_examples._prepared  # a folder with the studies `ocr` and `detector`


@pytest.fixture
def folder(_prepared: Path, tmp_path: Path) -> Path:
    """A folder of its own, with what the examples of the command line have."""
    shutil.copytree(_prepared, tmp_path / "here")
    return tmp_path / "here"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_python_of_a_page_works(path: Path, folder: Path) -> None:
    PREPARED.get(path.name, lambda _: None)(folder)
    for body in _BLOCK.findall(path.read_text()):
        for costly, cheap in _CHEAPER.items():
            body = body.replace(costly, cheap)
        (folder / "block.py").write_text(body)
        test_examples._require("python block.py", folder)
