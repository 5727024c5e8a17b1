"""Sessions over the FAKE library and FAKE CUDA: data in and out for every type, graphs, ownership, refusals.

Engines of the fake only copy, but through real addresses: an order, a size or a type that is wrong shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from objectives.backends import cuda_runtime, trt_io
from objectives.backends.base import Backend, BuildTerms
from objectives.backends.trt import TrtBackend
from objectives.backends.trt_io import TYPES
from objectives.backends.trt_session import TrtSession
from objectives.errors import BackendUnavailableError, CandidateError, HarnessError
from objectives.outcome import EngineFile, FailureKind
from objectives.shapes import ShapeRange
from objectives.tensors import Array, dtype_of
from tests import onnx_models
from tests.contracts.backend_contract import BackendContract
from tests.objectives.backends import fake_tensorrt
from tests.objectives.backends.fake_cuda import FakeCuda
from tests.objectives.backends.fake_tensorrt import DataType, FakeTensorRT
from tests.objectives.backends.trt_fakes import ROUTES, backend, identity, two

X = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}


@pytest.fixture(autouse=True)
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    found = FakeCuda()
    monkeypatch.setattr(cuda_runtime, "runtime", found)
    return found


@pytest.fixture
def library(cuda: FakeCuda) -> FakeTensorRT:
    return FakeTensorRT(routes=ROUTES, cuda=cuda)


@pytest.fixture
def one(library: FakeTensorRT) -> TrtBackend:
    return backend(library)


def opened(one: TrtBackend, path: Path, folder: Path, **values: str) -> TrtSession:
    session = one.open(one.build(path, values, folder), values)
    assert isinstance(session, TrtSession)
    return session


class TestFakeTensorRtContract(BackendContract):
    """The contract, but for one list of route knobs short enough to try every value."""

    @pytest.fixture
    def backend(self, cuda: FakeCuda) -> Iterator[Backend]:
        yield backend(FakeTensorRT(cuda=cuda))
        assert cuda.live == {}, "what was taken from the device is not given back"

    @pytest.fixture
    def model_path(self, tmp_path: Path) -> Path:
        return two(tmp_path)

    @pytest.fixture
    def inputs(self) -> dict[str, Array]:
        return {"a": np.array([1.5, -2], np.float32), "b": np.array([1, 2, 2**40], np.int64)}


@pytest.mark.parametrize("kind", sorted({*TYPES.values(), "float64"} - {"float8_e4m3fn"}))
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 3)])
def test_every_type_goes_through(one: TrtBackend, tmp_path: Path, kind: str, shape: tuple[int, ...]) -> None:
    array = (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(dtype_of(kind))
    with opened(one, identity(tmp_path, kind, shape), tmp_path) as session:
        found = session.run({"x": array})["y"]
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)


def test_types_map_both_ways() -> None:
    assert trt_io.numpy_type(DataType["FP8"]) == dtype_of("float8_e4m3fn")
    with pytest.raises(CandidateError, match="type INT4 are not supported"):
        trt_io.numpy_type(DataType["INT4"])


def test_integers_that_do_not_fit_are_refused(one: TrtBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Before TensorRT 10 there is no int64, and the parser makes int32 of it.
    monkeypatch.setitem(trt_io.TYPES, "INT64", "int32")
    monkeypatch.setitem(fake_tensorrt.SIZES, "INT64", 4)
    with opened(one, identity(tmp_path, "int64", (2,)), tmp_path) as session:
        assert session.run({"x": np.array([1, -5], np.int64)})["y"].tolist() == [1, -5]
        with pytest.raises(CandidateError, match="integers that the engine's type int32 does not"):
            session.run({"x": np.array([1, 2**40], np.int64)})


def test_inputs_that_are_not_contiguous(one: TrtBackend, tmp_path: Path) -> None:
    given = np.arange(6, dtype=np.float32).reshape(3, 2).T
    with opened(one, identity(tmp_path), tmp_path) as session:
        assert np.array_equal(session.run({"x": given})["y"], given)


def test_measure_is_device_time_of_the_resident_inputs(one: TrtBackend, tmp_path: Path) -> None:
    with opened(one, identity(tmp_path), tmp_path) as session:
        with pytest.raises(HarnessError, match="before bind"):
            session.measure(1)
        session.bind(X)
        assert session.measure(4) == pytest.approx(4 * 0.5e-3)
        session.run({"x": X["x"] + 1})
        assert session.measure(2) == pytest.approx(2 * 0.5e-3)
        session._execute(3)
        assert session.clock == "cuda_event"
        assert session.watch().stop()


def test_a_captured_graph_runs_and_is_reported(one: TrtBackend, tmp_path: Path, cuda: FakeCuda) -> None:
    with opened(one, identity(tmp_path), tmp_path, cuda_graph="capture") as session:
        session.bind(X)
        assert session.measure(3) == pytest.approx(3 * 0.5e-3)
        assert np.array_equal(session.run(X)["y"], X["x"])
        other = {"x": X["x"] * 2}
        assert np.array_equal(session.run(other)["y"], other["x"])
        assert session.effective["graph"] == "captured"
    assert cuda.live == {}


def test_a_graph_that_cannot_be_captured_is_a_failure(one: TrtBackend, tmp_path: Path, cuda: FakeCuda) -> None:
    cuda.fail["cudaStreamEndCapture"] = 700
    with opened(one, identity(tmp_path), tmp_path, cuda_graph="capture") as session:
        with pytest.raises(CandidateError, match="cudaErrorIllegalAddress"):
            session.run(X)
        cuda.fail.clear()


def test_outputs_whose_size_the_data_decides(
    one: TrtBackend, library: FakeTensorRT, tmp_path: Path, cuda: FakeCuda
) -> None:
    library.unknown_sizes = True
    large = {"x": np.arange(600, dtype=np.float32).reshape(200, 3)}
    path, shapes = identity(tmp_path, shape=("n", 3)), {"x": ShapeRange((1, 3), (2, 3), (200, 3))}
    for graph in ("off", "capture"):
        values = {"cuda_graph": graph}
        with one.open(one.build(path, values, tmp_path, BuildTerms(shapes=shapes)), values) as session:
            if graph == "off":
                for inputs in (X, large, X):
                    assert np.array_equal(session.run(inputs)["y"], inputs["x"])
                session.bind(X)
                assert "depends on the data" in session.effective["outputs"]
            else:
                with pytest.raises(CandidateError, match="cannot be captured"):
                    session.run(X)
    assert cuda.live == {}


def test_memory_that_an_output_does_not_get(
    one: TrtBackend, library: FakeTensorRT, tmp_path: Path, cuda: FakeCuda
) -> None:
    library.unknown_sizes = True
    with opened(one, identity(tmp_path, shape=(200, 3)), tmp_path) as session:
        cuda.memory_bytes = 3000  # enough for the input, 2400 bytes, and nothing else
        with pytest.raises(CandidateError, match="cudaErrorMemoryAllocation") as caught:
            session.run({"x": np.zeros((200, 3), np.float32)})
        assert caught.value.kind == FailureKind.OUT_OF_MEMORY


def test_inputs_that_are_not_taken_leave_nothing_bound(one: TrtBackend, tmp_path: Path, cuda: FakeCuda) -> None:
    with opened(one, identity(tmp_path), tmp_path) as session:
        session.bind(X)
        cuda.memory_bytes = 0
        with pytest.raises(CandidateError, match="cudaErrorMemoryAllocation"):
            session.bind(X)
        with pytest.raises(HarnessError, match="before bind"):
            session.measure(1)


def test_closing_after_a_fault_keeps_the_first_words(one: TrtBackend, tmp_path: Path, cuda: FakeCuda) -> None:
    with pytest.raises(CandidateError, match="shape") as caught, opened(one, identity(tmp_path), tmp_path) as session:
        session.run(X)
        cuda.fail["cudaStreamDestroy"] = 700
        session.run({"x": np.zeros(99, np.float32)})
    assert caught.value.kind == FailureKind.RUN_FAILED
    session.close()


def test_tensors_that_live_on_the_host(one: TrtBackend, tmp_path: Path) -> None:
    node = onnx_models.helper.make_node("Identity", ["host in"], ["host out"])
    given, made = (onnx_models.value(name, "int64", (2,)) for name in ("host in", "host out"))
    path = onnx_models.write(tmp_path / "host.onnx", [node], [given], [made])
    with opened(one, path, tmp_path) as session:
        assert session.run({"host in": np.array([4, 5], np.int64)})["host out"].tolist() == [4, 5]


def test_refusals_carry_the_librarys_words(one: TrtBackend, tmp_path: Path) -> None:
    with opened(one, identity(tmp_path), tmp_path) as session:
        with pytest.raises(CandidateError, match=r"shape \(99,\) of 'x' is refused"):
            session.run({"x": np.zeros(99, np.float32)})
        assert session._loaded is not None
        session._loaded.context.refuses = True
        with pytest.raises(CandidateError, match="the address of an input is missing") as caught:
            session.run(X)
        assert caught.value.kind == FailureKind.RUN_FAILED
        session._loaded.context.refuses = False


def test_what_took_effect(one: TrtBackend, tmp_path: Path) -> None:
    values = {"route:peep:max": "4", "nvtx_verbosity": "off", "l2_persistence": "half"}
    with opened(one, identity(tmp_path), tmp_path, **values) as session:
        effective = session.effective
        assert values.items() <= effective.items()
        assert effective["build_route"] == "-peep:max=4"
        assert effective["build_route_used"] == "-conv_lowering=on -peep:max=4"
        assert effective["engine.layers"] == "2"
        assert effective["engine.layer_types"] == "gemm kgen"
        assert session._loaded is not None
        assert session._loaded.context.persistent_cache_limit == 1 << 18


@pytest.mark.parametrize("told", ["not json", "[]", '{"Layers": ["names", "only"]}'])
def test_an_inspector_of_other_words(one: TrtBackend, library: FakeTensorRT, tmp_path: Path, told: str) -> None:
    library.inspector = told
    with opened(one, identity(tmp_path), tmp_path) as session:
        assert len(session.effective["engine.inspector"]) == 16
        assert "engine.layer_types" not in session.effective


def test_an_engine_opened_as_what_it_is_not_is_a_fallback(one: TrtBackend, tmp_path: Path) -> None:
    engine = one.build(identity(tmp_path), {}, tmp_path)
    with pytest.raises(CandidateError, match=r"route:peep:max=4 was asked for, the engine has 1") as caught:
        one.open(engine, {"route:peep:max": "4"})
    assert caught.value.kind == FailureKind.FALLBACK


def test_a_damaged_plan(one: TrtBackend, tmp_path: Path) -> None:
    engine = one.build(identity(tmp_path), {}, tmp_path)
    Path(engine.path).write_bytes(b"garbage")
    with pytest.raises(CandidateError, match="magicTagRead"):
        one.open(engine, {})


def test_without_a_gpu_nothing_opens(one: TrtBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = one.build(identity(tmp_path), {}, tmp_path)
    monkeypatch.setattr(cuda_runtime, "runtime", None)
    with pytest.raises(BackendUnavailableError, match="cuda-bindings"):
        one.open(EngineFile(engine.path, engine.digest, engine.size_bytes, engine.format, engine.sidecars), {})


def test_the_environment_names_the_gpu(one: TrtBackend, library: FakeTensorRT, cuda: FakeCuda) -> None:
    found = one.environment()
    assert found.device == "cuda:GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert found.identity["gpu"] == "NVIDIA Fake"
    assert found.identity["compute_capability"] == "8.9"
    assert found.details["build_routes"] == "0.0.0-invented"
    cuda.capability = (9, 0)
    assert backend(library).environment().digest != found.digest
