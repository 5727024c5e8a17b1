"""ONNX Runtime on a real GPU: the contract, what takes effect, graphs, fallbacks. Skipped with the reason elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from objectives.backends.base import Backend
from objectives.backends.ort_cuda import OnnxRuntimeCudaBackend
from objectives.backends.ort_cuda_provider import default_options
from objectives.backends.ort_cuda_session import OrtCudaSession
from objectives.errors import CandidateError
from objectives.knobs import BASELINE
from objectives.outcome import FailureKind
from objectives.tensors import Array
from tests import onnx_models
from tests.contracts.backend_contract import BackendContract
from tests.objectives.backends.evaluation import trained
from tests.objectives.backends.fake_ort_cuda import DEFAULTS

pytestmark = pytest.mark.gpu
IMAGE = {"image": np.random.default_rng(0).random((2, 3, 16, 16)).astype(np.float32)}
X = {"x": np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)}


@pytest.fixture
def backend() -> OnnxRuntimeCudaBackend:
    found = OnnxRuntimeCudaBackend()
    if reason := found.cannot_run():
        pytest.skip(reason)
    return found


def opened(backend: OnnxRuntimeCudaBackend, path: Path, folder: Path, **values: str) -> OrtCudaSession:
    target = folder / f"engine-{len(list(folder.iterdir()))}"
    target.mkdir()
    session = backend.open(backend.build(path, values, target), values)
    assert isinstance(session, OrtCudaSession)
    return session


class TestOrtCudaContract(BackendContract):
    @pytest.fixture
    def backend(self, backend: OnnxRuntimeCudaBackend) -> Backend:
        return backend

    @pytest.fixture
    def model_path(self, tmp_path: Path) -> Path:
        folder = tmp_path / "modèle ü"
        folder.mkdir()
        return onnx_models.conv(folder)

    @pytest.fixture
    def inputs(self) -> dict[str, Array]:
        return IMAGE


class TestOrtCudaContractWithExternalWeights(TestOrtCudaContract):
    @pytest.fixture
    def model_path(self, tmp_path: Path) -> Path:
        return onnx_models.external(tmp_path)

    @pytest.fixture
    def inputs(self) -> dict[str, Array]:
        return X


def test_the_recorded_options_are_the_providers(backend: OnnxRuntimeCudaBackend) -> None:
    found = default_options()
    print(json.dumps(dict(found), indent=1))
    assert {name: found.get(name) for name in DEFAULTS} == DEFAULTS


def test_the_environment(backend: OnnxRuntimeCudaBackend) -> None:
    found = backend.environment()
    print(found)
    assert found.device.startswith("cuda:")
    assert "unknown" not in (found.identity["cudnn"], found.identity["cublas"])


@pytest.mark.parametrize("graph", ["off", "on"])
def test_answers_and_timing(backend: OnnxRuntimeCudaBackend, tmp_path: Path, graph: str) -> None:
    path = onnx_models.conv(tmp_path)
    other = {"image": IMAGE["image"][:, :, ::-1].copy()}
    with opened(backend, path, tmp_path, cuda_graph=graph, use_tf32="off") as session:
        for inputs in (IMAGE, other, IMAGE):
            expected = backend.reference(path, inputs)["logits"]
            assert np.allclose(session.run(inputs)["logits"], expected, rtol=1e-4, atol=1e-5)
        session.bind(IMAGE)
        samples = [session.measure(20) / 20 for _ in range(5)]
        print(graph, [f"{1e6 * one:.1f} us" for one in samples], session.effective)
        assert 0 < min(samples) < 0.1
        assert session.effective["cpu_nodes"] == "0"
        assert np.allclose(session.run(other)["logits"], backend.reference(path, other)["logits"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("precision", "loss"), [("fp16", 2e-2), ("bf16", 1e-1)])
def test_sixteen_bit_is_used(backend: OnnxRuntimeCudaBackend, tmp_path: Path, precision: str, loss: float) -> None:
    path = onnx_models.mlp(tmp_path)
    expected = backend.reference(path, X)["y"]
    with opened(backend, path, tmp_path, precision=precision) as session:
        error = np.abs(session.run(X)["y"] - expected).max()
    assert 0 < error < loss


def test_memory_that_cannot_be_had_is_an_outcome(backend: OnnxRuntimeCudaBackend, tmp_path: Path) -> None:
    inputs = {"x": np.ones(1, np.float32), "shape": np.array([2**46], np.int64)}  # 256 TiB
    with opened(backend, onnx_models.expand(tmp_path), tmp_path) as session:
        with pytest.raises(CandidateError) as caught:
            session.run(inputs)
        assert caught.value.kind == FailureKind.OUT_OF_MEMORY


def test_control_flow_and_graphs(backend: OnnxRuntimeCudaBackend, tmp_path: Path) -> None:
    path = onnx_models.control_flow(tmp_path)
    inputs = {"x": np.ones((2, 16), np.float32), "steps": np.array(3, np.int64), "flip": np.array(True)}
    expected = backend.reference(path, inputs)["y"]
    with opened(backend, path, tmp_path, use_tf32="off") as session:
        assert np.allclose(session.run(inputs)["y"], expected, rtol=1e-3, atol=1e-3)
        print(session.effective)
    with pytest.raises(CandidateError) as caught:
        opened(backend, path, tmp_path, cuda_graph="on")
    print(caught.value.kind, caught.value)


@pytest.mark.parametrize(
    ("file", "shape"),
    [("ch_PP-OCRv4_rec_infer.onnx", (1, 3, 48, 320)), ("ch_PP-OCRv4_det_infer.onnx", (1, 3, 320, 320))],
)
def test_trained_networks(backend: OnnxRuntimeCudaBackend, tmp_path: Path, file: str, shape: tuple[int, ...]) -> None:
    path = trained("rapidocr_onnxruntime", f"models/{file}")
    inputs = {"x": np.random.default_rng(0).random(shape).astype(np.float32)}
    (expected,) = backend.reference(path, inputs).values()
    knobs = backend.knobs(path, backend.describe(path))
    with opened(backend, path, tmp_path, **knobs.values(BASELINE)) as session:
        (found,) = session.run(inputs).values()
        print(session.effective, np.linalg.norm(found - expected) / np.linalg.norm(expected))
    # The detector sees nothing in noise: its map is zero but for some 1e-6, where TF32 is a few per cent off.
    assert np.allclose(found, expected, rtol=1e-2, atol=1e-3)
