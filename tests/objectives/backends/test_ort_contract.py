"""ONNX Runtime passes the backend contract, on a float network and on a model of odd names and types."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from objectives.backends.base import Backend
from objectives.backends.ort import OnnxRuntimeBackend
from objectives.tensors import Array
from tests import onnx_models
from tests.contracts.backend_contract import BackendContract


class TestOnnxRuntimeContract(BackendContract):
    @pytest.fixture
    def backend(self) -> Backend:
        return OnnxRuntimeBackend()

    @pytest.fixture
    def model_path(self, tmp_path: Path) -> Path:
        folder = tmp_path / "modèle ü"
        folder.mkdir()
        return onnx_models.mlp(folder)

    @pytest.fixture
    def inputs(self) -> dict[str, Array]:
        return {"x": np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)}


class TestOnnxRuntimeContractWithExternalWeights(TestOnnxRuntimeContract):
    @pytest.fixture
    def model_path(self, tmp_path: Path) -> Path:
        return onnx_models.external(tmp_path)


class TestOnnxRuntimeContractWithConvolutions(TestOnnxRuntimeContract):
    @pytest.fixture
    def model_path(self, tmp_path: Path) -> Path:
        return onnx_models.conv(tmp_path)

    @pytest.fixture
    def inputs(self) -> dict[str, Array]:
        return {"image": np.random.default_rng(0).random((2, 3, 16, 16)).astype(np.float32)}


class TestOnnxRuntimeContractWithControlFlow(TestOnnxRuntimeContract):
    @pytest.fixture
    def model_path(self, tmp_path: Path) -> Path:
        return onnx_models.control_flow(tmp_path)

    @pytest.fixture
    def inputs(self) -> dict[str, Array]:
        return {
            "x": np.ones((2, 16), np.float32),
            "steps": np.array(3, np.int64),
            "flip": np.array(True),
        }


class TestOnnxRuntimeContractWithMixedTypes(TestOnnxRuntimeContract):
    @pytest.fixture
    def model_path(self, tmp_path: Path) -> Path:
        return onnx_models.mixed(tmp_path)

    @pytest.fixture
    def inputs(self) -> dict[str, Array]:
        return onnx_models.mixed_inputs()
