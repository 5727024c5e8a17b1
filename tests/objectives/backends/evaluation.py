"""One candidate evaluated without the harness around it, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from objectives.backends.ort import OnnxRuntimeBackend
from objectives.tensors import Array, Tensors

BACKEND = OnnxRuntimeBackend()


def evaluate(path: Path, inputs: Tensors, folder: Path, **values: str) -> tuple[dict[str, Array], Mapping[str, str]]:
    """Outputs and effective values of one candidate, built into `folder`."""
    with BACKEND.open(BACKEND.build(path, values, folder), values) as session:
        return session.run(inputs), dict(session.effective)


def trained(package: str, file: str) -> Path:
    """A trained network that an installed package ships; skips the test where it is not installed."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    return Path(spec.submodule_search_locations[0]) / file
