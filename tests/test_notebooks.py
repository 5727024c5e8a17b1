"""The notebooks run as they are, show what they showed, and tell nothing of the machine they ran on."""

from __future__ import annotations

import getpass
import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from objectives.backends.base import Backend
from objectives.tensors import Array
from tests.contracts.backend_contract import BackendContract

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
# An absolute path but not a URL, a fraction (`1/s`) or a tag.
_PATH = re.compile(r"(?<![\w.:/<])/(?:home|root|tmp|usr|opt|work|private|var|mnt|Users)\b[^\s'\"]*")


def _read(path: Path) -> Any:
    return json.loads(path.read_text())


def _sources(path: Path, kind: str = "code") -> list[str]:
    return ["".join(cell["source"]) for cell in _read(path)["cells"] if cell["cell_type"] == kind]


def _outputs(path: Path) -> list[Any]:
    return [output for cell in _read(path)["cells"] for output in cell.get("outputs", [])]


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) == 5


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path) -> None:
    """In a process of its own: kernels bring event loops and warnings of their own."""
    command = [sys.executable, str(FOLDER / "execute.py"), "--check", path.name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    assert f"{path.name}: ran" in done.stdout


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_was_run_in_order(path: Path) -> None:
    counts = [cell["execution_count"] for cell in _read(path)["cells"] if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert _outputs(path)
    assert not [output for output in _outputs(path) if output["output_type"] == "error"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_tell_nothing_of_the_machine(path: Path) -> None:
    told = json.dumps(_outputs(path))
    assert _PATH.findall(told) == []
    words = set(re.findall(r"\w[\w.-]*", told))
    assert not words & ({socket.gethostname(), socket.getfqdn(), getpass.getuser()} - {"localhost"})
    assert _read(path)["metadata"].keys() == {"kernelspec"}
    assert all(cell["metadata"] == {} for cell in _read(path)["cells"])


@pytest.mark.parametrize("text", ["in /tmp/x.db", "'/home/me/model.onnx'", "open:\n/root/a"])
def test_a_path_would_be_noticed(text: str) -> None:
    assert _PATH.search(text)
    assert not _PATH.search("https://example.org/home 3 queries/s sqlite:///tuner.db")


class TestOwnBackend(BackendContract):
    """The backend that a notebook shows how to write passes the whole contract."""

    @pytest.fixture
    def module(self, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
        told: dict[str, Any] = {"__name__": "notebook"}
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(tmp_path_factory.mktemp("notebook"))
            exec(_sources(FOLDER / "4-own-backend.ipynb")[0], told)
        module = ModuleType("numpy_backend")
        exec(told["SOURCE"], module.__dict__)
        return module

    @pytest.fixture
    def backend(self, module: ModuleType) -> Backend:
        made: Backend = module.NumpyBackend()
        return made

    @pytest.fixture
    def model_path(self, backend: Backend, tmp_path: Path) -> Path:
        return backend.tiny_models(tmp_path).fixed.path

    @pytest.fixture
    def inputs(self) -> dict[str, Array]:
        return {"x": np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)}
