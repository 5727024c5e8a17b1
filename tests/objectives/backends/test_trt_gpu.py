"""The contract on a real GPU, with whichever of the two libraries is installed. Skipped with the reason elsewhere."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
import pytest

from objectives.backends.base import Backend
from objectives.tensors import Array
from tests import onnx_models
from tests.contracts.backend_contract import BackendContract

pytestmark = pytest.mark.gpu


def usable(package: str, module: str, name: str) -> Backend:
    """The backend, if its library is installed and its engines can be run here; else the test is skipped."""
    pytest.importorskip(package)
    backend: Backend = getattr(import_module(f"objectives.backends.{module}"), name)()
    if reason := backend.cannot_run():
        pytest.skip(reason)
    return backend


def fixed(path: Path, size: int) -> Path:
    """The model in `path` with every dynamic dimension of its inputs and outputs set to `size`."""
    model = onnx.load(str(path))
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_value = size
    onnx.save(model, str(path))
    return path


class TestTensorRtContract(BackendContract):
    @pytest.fixture
    def backend(self) -> Backend:
        return usable("tensorrt", "trt_enterprise", "TensorRtBackend")

    @pytest.fixture
    def model_path(self, tmp_path: Path) -> Path:
        return fixed(onnx_models.mlp(tmp_path), 4)

    @pytest.fixture
    def inputs(self) -> dict[str, Array]:
        return {"x": np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)}


class TestTensorRtRtxContract(TestTensorRtContract):
    @pytest.fixture
    def backend(self) -> Backend:
        return usable("tensorrt_rtx", "trt_rtx", "TensorRtRtxBackend")
