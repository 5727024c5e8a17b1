"""A real change of version: a study runs in one ONNX Runtime and goes on in another, over one database."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests import onnx_models
from tests.conftest import SETTINGS

OTHER = "1.20.1"
_NEEDS = ("sympy", "mpmath")  # of that version, beside what is installed here
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the older version, from PyPI; put before all others on the path."""
    if version("onnxruntime") == OTHER:
        pytest.skip(f"the version that is installed is {OTHER} itself")
    folder = tmp_path_factory.mktemp("older")
    install = ["install", "--quiet", "--no-deps", "--target", str(folder), f"onnxruntime=={OTHER}", *_NEEDS]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--retries", "1", "--timeout", "10", *install]
    try:
        done = subprocess.run(pip, capture_output=True, text=True, timeout=90)
    except subprocess.TimeoutExpired:
        pytest.skip(f"onnxruntime {OTHER} cannot be had from PyPI: no answer in time")
    if done.returncode:
        pytest.skip(f"onnxruntime {OTHER} cannot be had from PyPI: {done.stderr.strip()[-200:]}")
    return folder


def _tuner(*words: object, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    environment |= {} if path is None else {"PYTHONPATH": str(path)}
    done = subprocess.run(
        [sys.executable, "-m", "tuner", *map(str, words)], capture_output=True, text=True, env=environment, timeout=150
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_study_goes_on_in_another_version_as_another_context(older: Path, tmp_path: Path, home_url: str) -> None:
    at = ("--storage", home_url)
    model = onnx_models.mlp(tmp_path)
    quick = (
        "--shapes",
        "x:1x64",
        "--no-hard-inputs",
        "--noise-sessions",
        0,
        "--control-every",
        0,
        "--timing-budget",
        "50ms",
    )
    create = ("study", "create", "s", "--model", model, "--n-trials", 6, "--search", "random", *quick, *at)
    _tuner(*create, path=older)
    _tuner("study", "run", "s", "--no-confirm", *at, path=older)
    ended = _tuner("study", "run", "s", "--no-confirm", *at)
    assert (
        f"onnxruntime {OTHER} became onnxruntime {version('onnxruntime')}; the knobs on offer changed" in ended.stderr
    )
    assert "it starts from context 1 (this device, another version)" in ended.stderr
    old, new = json.loads(_tuner("study", "show", "s", "--json", *at).stdout)["contexts"]
    assert [context["environment"]["backend_version"] for context in (old, new)] == [OTHER, version("onnxruntime")]
    assert (old["parent"], new["parent"]) == (None, 1)
    assert [len(context["trials"]) for context in (old, new)] == [6, 6]
    _require_reported(old, new)
    shown = _tuner("study", "show", "s", *at).stdout
    assert "└─ context 2" in shown
    assert "changed here: " in shown
    # And back again: the first context goes on where it was, without a trial more.
    back = _tuner("study", "run", "s", "--no-confirm", *at, path=older)
    assert "new context" not in back.stderr
    assert len(json.loads(_tuner("study", "show", "s", "--json", *at).stdout)["contexts"]) == 2


def _require_reported(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Every knob whose offer differs is named; what was carried is measured right after the default."""
    carried = new["carried"]
    changed = {change["knob"] for change in carried["changes"]}
    assert {"cast_chain_elimination", "intra_op_spinning"} & changed
    sources = [trial["source"] for trial in new["trials"]]
    wanted = [dict(one["changes"]) for one in carried["candidates"]]
    tried = [trial["candidate"] for trial in new["trials"] if trial["source"] == "carried"]
    assert sources[0] == "baseline"
    assert tried == wanted[: len(tried)]
    assert len(tried) >= min(1, len(wanted))
    assert all(one["reason"] for one in carried["dropped"])
