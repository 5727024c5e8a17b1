"""The backend `trtexec` passes the backend contract over the FAKE program, which proves nothing about NVIDIA's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from objectives.backends.base import Backend
from objectives.backends.trtexec import TrtexecBackend
from objectives.tensors import Array
from tests import onnx_models
from tests.contracts.backend_contract import BackendContract
from tests.objectives.backends import fake_trtexec

# Options whose values make their way like those of others: each value costs two builds.
FEWER = [
    *("builderOptimizationLevel", "maxAuxStreams", "maxTactics", "memPoolSize", "l2LimitForTiling", "sparsity"),
    *("hardwareCompatibilityLevel", "distributiveIndependence", "allocationStrategy"),
]


class TestTrtexecContract(BackendContract):
    @pytest.fixture
    def backend(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Backend:
        program = fake_trtexec.install(tmp_path / "bin ü", without=FEWER)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        return TrtexecBackend()

    @pytest.fixture
    def model_path(self, tmp_path: Path) -> Path:
        folder = tmp_path / "modèle ü, a"
        folder.mkdir()
        return onnx_models.identity(folder, "float32", (4, 8))

    @pytest.fixture
    def inputs(self) -> dict[str, Array]:
        return {"x": np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)}
