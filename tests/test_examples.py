"""The examples in the help of every command work as they stand: typed into a shell, where the files they name are.

Only what one costs is cut down, and what a machine need not have (TensorRT, two GPUs, somebody's database server) is
left out, in the lists here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from onnx import TensorProto, helper, save

from tests.programs import describe
from tests.test_docs import example_lines, tree
from tuner.cli.app import app

pytestmark = pytest.mark.slow

CHEAPER = {
    "--n-trials 60": "--n-trials 3",
    "--n-trials 40": "--n-trials 2",
    "--n-trials 200": "--n-trials 5",
    "--n-trials 300": "--n-trials 3",
    "--finalists 5": "--finalists 1",
    "--confirm-timeout 10m": "--confirm-timeout 2s",
    "--timeout 10m": "--timeout 2s",
    "-m tuner study create ocr": "-m tuner study create ocr --n-trials 3",
    "-m tuner study create": "-m tuner study create --noise-sessions 0 --timing-budget 50ms",
    "-m tuner demo": "-m tuner demo --n-trials 2",
    "-m tuner study run": "-m tuner study run --confirm-timeout 2s",
    "-m tuner study confirm": "-m tuner study confirm --confirm-timeout 2s",
    "-m tuner check": "-m tuner check --timeout 2s",
    "1x3x640x640": "1x3x64x64",
    "8x3x640x640": "8x3x64x64",
}
NOT_HERE = ("postgresql", "--check tensorrt", "--devices", "-m tuner trtexec")
AGAIN = "-m tuner demo --timeout"  # the same minute of confirmation as the example before it
ENDLESS = ("-m tuner dashboard",)  # tests of its own start and end it
REFUSED = 1  # how a gate says no: `check` may, of a study that was confirmed for two seconds


def _run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TUNER_")}
    environment |= {"HOME": str(folder), "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
    command = ["bash", "-c", line]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def _require(line: str, folder: Path) -> None:
    ended = _run(line, folder)
    allowed = (0, REFUSED) if "-m tuner check" in line else (0,)
    assert ended.returncode in allowed, f"{line}\n{ended.stdout}\n{ended.stderr}"
    assert "Traceback" not in ended.stderr


def _detector(path: Path) -> None:
    """`x` (n, 3, h, w) -> mean over the picture -> `y`."""
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("GlobalAveragePool", ["r"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3, 1, 1])
    opset = [helper.make_opsetid("", 17)]
    save(helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=opset, ir_version=8), str(path))


def _digits(path: Path) -> None:
    """`x` (1, 784) -> `y`."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 784])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 784])
    nodes = [helper.make_node("Softmax", ["x"], ["y"])]
    opset = [helper.make_opsetid("", 17)]
    save(helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=opset, ir_version=8), str(path))


@pytest.fixture(scope="session")
def _prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every file and study that the examples name."""
    folder = tmp_path_factory.mktemp("examples")
    for name in ("det.onnx", "det-v2.onnx"):
        _detector(folder / name)
    _digits(folder / "mnist.onnx")
    program = describe(folder / "program")
    (folder / "measure.py").write_bytes((program.parent / "measure.py").read_bytes())
    (folder / "tune.toml").write_text(
        'program = ["python3", "measure.py"]\n[[knobs]]\nname = "level"\nvalues = [1, 2, 3]\ndefault = 1\n'
        'flag = "--level={value}"\n'
    )
    (folder / ".config/fish/completions").mkdir(parents=True)
    for name in ("ocr", "detector"):
        create = f"study create {name} --model det.onnx --shapes x:1x3x64x64 --n-trials 4 --noise-sessions 0 --pairs 1"
        create += " --timing-budget 50ms"
        _require(f"python -m tuner {create} --no-early-end --knobs graph_optimization_level,mem_pattern", folder)
        _require(f"python -m tuner study run {name} --no-confirm", folder)
    _require("python -m tuner study confirm ocr --finalists 1 --builds 2 --confirm-timeout 2s", folder)
    _require(
        "python -m tuner engine promote ocr 3", folder
    )  # whichever won: not the default, which has nothing to check
    _require("python -m tuner engine export ocr -o ocr-engine", folder)
    _require("python -m tuner db export ocr -o ocr.tar.gz", folder)
    return folder


@pytest.fixture
def folder(_prepared: Path, tmp_path: Path) -> Path:
    """That folder, to be changed."""
    shutil.copytree(_prepared, tmp_path / "here")
    return tmp_path / "here"


def _cheap(line: str) -> str:
    for costly, cheap in CHEAPER.items():
        line = line.replace(costly, cheap)
    return line


def _makes_room(line: str, folder: Path) -> None:
    """What an example makes, or imports, may not be there before."""
    words = line.split()
    if "-o" in words:
        target = folder / words[words.index("-o") + 1]
        shutil.rmtree(target, ignore_errors=True)
        target.unlink(missing_ok=True)
    if "tuner study create ocr" in line or ("db import" in line and "--as" not in line):
        _require("python -m tuner study delete ocr --yes", folder)


CASES = [
    pytest.param(
        [line for line in example_lines(command) if not any(word in line for word in (*NOT_HERE, AGAIN))],
        id=" ".join(words),
    )
    for words, command in tree(app)
    if not any(word in line for line in example_lines(command) for word in ENDLESS)
]


@pytest.mark.parametrize("lines", CASES)
def test_the_examples_of_a_commands_help_work(lines: list[str], folder: Path) -> None:
    for line in lines:
        _makes_room(line, folder)
        _require(_cheap(line), folder)


def test_what_is_left_out_is_little() -> None:
    left_out = [words for words, command in tree(app) if isinstance(command, click.Command)]
    covered = [case for case in CASES if case.values[0]]
    assert len(covered) >= len(left_out) - 4  # three of trtexec, dashboard
