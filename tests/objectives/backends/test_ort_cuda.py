"""ONNX Runtime on CUDA over the FAKE provider: the contract, what is asked for, read back, captured and given back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from objectives.backends import ort_cuda_provider, ort_errors
from objectives.backends.base import Backend
from objectives.backends.ort_cuda import OnnxRuntimeCudaBackend
from objectives.backends.ort_cuda_io import ELEMENTS
from objectives.backends.ort_cuda_session import OrtCudaSession
from objectives.errors import BackendUnavailableError, CandidateError, HarnessError, KnobError
from objectives.outcome import EngineFile, FailureKind
from objectives.tensors import Array, dtype_of
from tests import onnx_models
from tests.contracts.backend_contract import BackendContract
from tests.objectives.backends.fake_cuda import FakeCuda
from tests.objectives.backends.fake_ort_cuda import FakeProvider, install

X = {"x": np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)}
tells_placement = pytest.mark.skipif(
    not ort_cuda_provider.can_tell_placement(), reason="the installed onnxruntime does not say which node runs where"
)


@pytest.fixture
def cuda() -> FakeCuda:
    return FakeCuda(memory_bytes=1 << 24)


@pytest.fixture(autouse=True)
def provider(monkeypatch: pytest.MonkeyPatch, cuda: FakeCuda) -> Iterator[FakeProvider]:
    found = FakeProvider(cuda)
    install(monkeypatch, found)
    yield found
    ort_cuda_provider._probe.cache_clear()


@pytest.fixture
def one() -> OnnxRuntimeCudaBackend:
    return OnnxRuntimeCudaBackend()


def opened(one: OnnxRuntimeCudaBackend, path: Path, folder: Path, **values: str) -> OrtCudaSession:
    session = one.open(one.build(path, values, folder), values)
    assert isinstance(session, OrtCudaSession)
    return session


class TestFakeOrtCudaContract(BackendContract):
    @pytest.fixture
    def backend(self, cuda: FakeCuda) -> Iterator[Backend]:
        yield OnnxRuntimeCudaBackend()
        assert cuda.live == {}, "what was taken from the device is not given back"

    @pytest.fixture
    def model_path(self, tmp_path: Path) -> Path:
        folder = tmp_path / "modèle ü"
        folder.mkdir()
        return onnx_models.conv(folder)

    @pytest.fixture
    def inputs(self) -> dict[str, Array]:
        return {"image": np.random.default_rng(0).random((2, 3, 16, 16)).astype(np.float32)}


class TestFakeOrtCudaContractWithExternalWeights(TestFakeOrtCudaContract):
    @pytest.fixture
    def model_path(self, tmp_path: Path) -> Path:
        return onnx_models.external(tmp_path)

    @pytest.fixture
    def inputs(self) -> dict[str, Array]:
        return X


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 3)])
def test_every_type_goes_through(
    one: OnnxRuntimeCudaBackend, tmp_path: Path, kind: str, shape: tuple[int, ...]
) -> None:
    array = (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(dtype_of(kind))
    with opened(one, onnx_models.identity(tmp_path, kind, shape), tmp_path) as session:
        found = session.run({"x": array})["y"]
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)


def test_element_types_cover_what_our_models_hold() -> None:
    assert set(onnx_models.DTYPES) - {"string"} <= set(ELEMENTS)


def test_strings_stay_off_the_gpu(one: OnnxRuntimeCudaBackend, tmp_path: Path, cuda: FakeCuda) -> None:
    with opened(one, onnx_models.identity(tmp_path, "string"), tmp_path) as session:
        with pytest.raises(CandidateError, match="string cannot be kept on the GPU") as caught:
            session.run({"x": np.array(["a"], object)})
        assert caught.value.kind == FailureKind.UNSUPPORTED
    assert cuda.live == {}


def test_outputs_whose_size_the_data_tells(one: OnnxRuntimeCudaBackend, tmp_path: Path) -> None:
    helper = onnx_models.helper
    nodes = [helper.make_node("NonZero", ["ids"], ["where"])]
    inputs = [onnx_models.value("ids", "int64", ("m",))]
    path = onnx_models.write(tmp_path / "n.onnx", nodes, inputs, [onnx_models.value("where", "int64", (1, "k"))])
    with opened(one, path, tmp_path) as session:
        assert session.run({"ids": np.array([0, 3, 4])})["where"].tolist() == [[1, 2]]
        assert session.run({"ids": np.array([0, 0, 4])})["where"].tolist() == [[2]]


def test_everything_asked_for_reaches_the_provider(
    one: OnnxRuntimeCudaBackend, provider: FakeProvider, tmp_path: Path
) -> None:
    values = {"use_tf32": "off", "cudnn_conv_algo_search": "HEURISTIC", "sdpa_kernel": "cudnn", "tunable_op": "tune"}
    with opened(one, onnx_models.mlp(tmp_path), tmp_path, **values) as session:
        found = provider.opened[-1].get_provider_options()[ort_cuda_provider.CUDA]
        assert {name: session.effective[name] for name in values} == values
    assert found["use_tf32"] == "0"
    assert found["cudnn_conv_algo_search"] == "HEURISTIC"
    assert found["sdpa_kernel"] == "8"
    assert found["tunable_op_enable"] == found["tunable_op_tuning_enable"] == "1"
    assert int(found["user_compute_stream"]) != 0


def test_the_baseline_sets_nothing_but_the_stream(
    one: OnnxRuntimeCudaBackend, provider: FakeProvider, tmp_path: Path
) -> None:
    with opened(one, onnx_models.mlp(tmp_path), tmp_path):
        found = provider.opened[-1].get_provider_options()[ort_cuda_provider.CUDA]
    assert {name for name, value in found.items() if value != provider.defaults[name]} == {"user_compute_stream"}


def test_an_option_that_did_not_take_is_a_fallback(
    one: OnnxRuntimeCudaBackend, provider: FakeProvider, tmp_path: Path, cuda: FakeCuda
) -> None:
    provider.ignored = ("prefer_nhwc",)
    with pytest.raises(CandidateError, match="prefer_nhwc=1, the provider has 0") as caught:
        opened(one, onnx_models.conv(tmp_path), tmp_path, prefer_nhwc="on")
    assert caught.value.kind == FailureKind.FALLBACK
    assert cuda.live == {}


def test_a_session_on_the_cpu_alone_is_a_fallback(
    one: OnnxRuntimeCudaBackend, provider: FakeProvider, tmp_path: Path, cuda: FakeCuda
) -> None:
    engine = one.build(onnx_models.mlp(tmp_path), {}, tmp_path)
    provider.loads = False
    with pytest.raises(CandidateError, match="runs on CPUExecutionProvider alone") as caught:
        one.open(engine, {})
    assert caught.value.kind == FailureKind.FALLBACK
    assert cuda.live == {}


@tells_placement
def test_nodes_on_the_cpu_are_counted(one: OnnxRuntimeCudaBackend, provider: FakeProvider, tmp_path: Path) -> None:
    path = onnx_models.mlp(tmp_path)
    with opened(one, path, tmp_path, graph_optimization_level="disable_all") as session:
        assert session.effective["cpu_nodes"] == "0"
        assert session.effective["cuda_nodes"] == "7"
    provider.on_cpu = ("Erf", "Mul")
    with opened(one, path, tmp_path, graph_optimization_level="disable_all") as session:
        assert session.effective["cpu_nodes"] == "3"
        assert session.effective["cpu_operators"] == "Erf:1 Mul:2"


@tells_placement
def test_a_model_that_lands_on_the_cpu_as_a_whole_is_a_fallback(
    one: OnnxRuntimeCudaBackend, provider: FakeProvider, tmp_path: Path
) -> None:
    engine = one.build(onnx_models.identity(tmp_path, "float32"), {"graph_optimization_level": "disable_all"}, tmp_path)
    provider.on_cpu = ("Identity",)
    with pytest.raises(CandidateError, match="none of the model's 1 nodes") as caught:
        one.open(engine, {"graph_optimization_level": "disable_all"})
    assert caught.value.kind == FailureKind.FALLBACK


def test_a_version_that_does_not_tell_is_asked_otherwise(
    one: OnnxRuntimeCudaBackend, provider: FakeProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ort_cuda_provider, "can_tell_placement", lambda: False)
    with opened(one, onnx_models.mlp(tmp_path), tmp_path) as session:
        # The session behind the fake is on the CPU as a whole, and the option forbids just that.
        assert session.effective["cpu_nodes"] == "some"


def test_what_the_provider_refuses_is_an_outcome(
    one: OnnxRuntimeCudaBackend, provider: FakeProvider, tmp_path: Path
) -> None:
    engine = one.build(onnx_models.mlp(tmp_path), {}, tmp_path)
    provider.refuses = "This session cannot use the graph capture feature as requested by the user"
    with pytest.raises(CandidateError, match="as requested by the user") as caught:
        one.open(engine, {})
    assert caught.value.kind == FailureKind.UNSUPPORTED
    provider.refuses = "CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED"
    with pytest.raises(CandidateError) as caught:
        one.open(engine, {})
    assert caught.value.kind == FailureKind.OUT_OF_MEMORY


def test_each_feed_has_a_graph_of_its_own(one: OnnxRuntimeCudaBackend, provider: FakeProvider, tmp_path: Path) -> None:
    with opened(one, onnx_models.mlp(tmp_path), tmp_path, cuda_graph="on") as session:
        session.bind(X)
        session.measure(2)
        session.run(X)
        session.measure(1)
        below = provider.opened[-1]
        assert below.graphs == ["-1", "1", "1", "1", "-1", "2", "1"]
        assert below.released == [2]
    assert below.released == [2, 1]


def test_without_a_graph_inferences_have_no_number(
    one: OnnxRuntimeCudaBackend, provider: FakeProvider, tmp_path: Path
) -> None:
    with opened(one, onnx_models.mlp(tmp_path), tmp_path) as session:
        session.run(X)
        assert set(provider.opened[-1].graphs) == {""}
        assert provider.opened[-1].released == []


def test_a_fault_on_the_device_is_told_in_the_words_of_the_first(
    one: OnnxRuntimeCudaBackend, provider: FakeProvider, tmp_path: Path, cuda: FakeCuda
) -> None:
    with opened(one, onnx_models.mlp(tmp_path), tmp_path) as session:
        session.bind(X)
        provider.opened[-1].fails = "CUDA failure 700: an illegal memory access was encountered"
        cuda.fail["cudaStreamSynchronize"] = cuda.fail["cudaStreamDestroy"] = 700
        with pytest.raises(CandidateError, match="illegal memory access") as caught:
            session.measure(1)
    assert caught.value.kind == FailureKind.RUN_FAILED


def test_timing_is_the_devices(one: OnnxRuntimeCudaBackend, tmp_path: Path) -> None:
    with opened(one, onnx_models.mlp(tmp_path), tmp_path) as session:
        assert session.clock == "cuda_event"
        session.bind(X)
        assert session.effective["inputs"] == "resident"
        assert session.measure(3) == pytest.approx(1.5e-3)


def test_measure_before_bind_and_after_close_is_our_mistake(one: OnnxRuntimeCudaBackend, tmp_path: Path) -> None:
    session = opened(one, onnx_models.mlp(tmp_path), tmp_path)
    with pytest.raises(HarnessError, match="before bind"):
        session.measure(1)
    session.close()
    session.close()
    with pytest.raises(HarnessError, match="closed"):
        session.measure(1)


def test_memory_that_runs_out_is_told_apart(one: OnnxRuntimeCudaBackend, tmp_path: Path, cuda: FakeCuda) -> None:
    with opened(one, onnx_models.mlp(tmp_path), tmp_path) as session:
        cuda.memory_bytes = 100
        with pytest.raises(CandidateError) as caught:
            session.run(X)
        assert caught.value.kind == FailureKind.OUT_OF_MEMORY
    assert cuda.live == {}


@pytest.mark.parametrize(("precision", "weights"), [("fp16", "float16"), ("bf16", "bfloat16")])
def test_precision_is_a_variant_of_the_model(
    one: OnnxRuntimeCudaBackend, tmp_path: Path, precision: str, weights: str
) -> None:
    engine = one.build(onnx_models.mlp(tmp_path), {"precision": precision}, tmp_path)
    kinds = {onnx.TensorProto.DataType.Name(x.data_type).lower() for x in onnx.load(engine.path).graph.initializer}
    assert kinds == {weights}


def test_an_engine_opened_as_what_it_is_not_is_a_fallback(one: OnnxRuntimeCudaBackend, tmp_path: Path) -> None:
    engine = one.build(onnx_models.mlp(tmp_path), {"precision": "fp16"}, tmp_path)
    with pytest.raises(CandidateError, match="precision=fp32 was asked for, the engine has fp16") as caught:
        one.open(engine, {})
    assert caught.value.kind == FailureKind.FALLBACK


def test_a_foreign_file_is_no_engine(one: OnnxRuntimeCudaBackend, tmp_path: Path) -> None:
    with pytest.raises(CandidateError, match="not built by this backend"):
        one.open(EngineFile(str(onnx_models.mlp(tmp_path)), "", 0, "onnx"), {})


def test_knobs_of_an_operator_need_it(one: OnnxRuntimeCudaBackend, tmp_path: Path) -> None:
    mlp, conv = onnx_models.mlp(tmp_path), onnx_models.conv(tmp_path)
    of_mlp, of_conv = ({knob.name for knob in one.knobs(x, one.describe(x)).knobs} for x in (mlp, conv))
    assert "cudnn_conv_algo_search" in of_conv - of_mlp
    assert "sdpa_kernel" not in of_mlp | of_conv
    assert {"use_tf32", "cuda_graph", "tunable_op", "precision"} <= of_mlp & of_conv


def test_an_option_that_the_version_lacks_is_no_knob(provider: FakeProvider, tmp_path: Path) -> None:
    for name in ("prefer_nhwc", "tunable_op_tuning_enable"):
        del provider.defaults[name]
    one, path = OnnxRuntimeCudaBackend(), onnx_models.conv(tmp_path)
    knobs = {knob.name: knob for knob in one.knobs(path, one.describe(path)).knobs}
    assert "prefer_nhwc" not in knobs
    assert knobs["tunable_op"].values == ("off", "use")
    with pytest.raises(KnobError):
        one.build(path, {"prefer_nhwc": "on"}, tmp_path)


def test_the_default_is_the_providers_own(provider: FakeProvider, tmp_path: Path) -> None:
    provider.defaults |= {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"}
    one, path = OnnxRuntimeCudaBackend(), onnx_models.conv(tmp_path)
    knobs = {knob.name: knob for knob in one.knobs(path, one.describe(path)).knobs}
    assert (knobs["use_tf32"].default, knobs["use_tf32"].values) == ("off", ("off", "on"))
    assert knobs["cudnn_conv_algo_search"].default == "HEURISTIC"


def test_the_environment_names_gpu_and_libraries(one: OnnxRuntimeCudaBackend) -> None:
    found = one.environment()
    assert found.identity["gpu"] == "NVIDIA Fake"
    assert {"built_for_cuda", "cudnn", "cublas"} <= found.identity.keys()
    assert found.device.startswith("cuda:GPU-")
    assert one.cannot_run() == ""


def test_without_the_provider_nothing_is_offered(
    one: OnnxRuntimeCudaBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    assert "without its CUDA provider" in one.cannot_run()
    for attempt in (one.environment, lambda: one.build(onnx_models.mlp(tmp_path), {}, tmp_path)):
        with pytest.raises(BackendUnavailableError, match="without its CUDA provider") as caught:
            attempt()
        assert "onnxruntime-cuda" in caught.value.hint


def test_without_a_driver_nothing_is_offered(one: OnnxRuntimeCudaBackend, cuda: FakeCuda) -> None:
    cuda.fail["cudaGetDeviceCount"] = 35
    with pytest.raises(BackendUnavailableError, match="cudaErrorInsufficientDriver"):
        one.environment()


def test_a_process_goes_on_after_a_refusal_if_the_gpu_is_well(one: OnnxRuntimeCudaBackend, cuda: FakeCuda) -> None:
    for kind in (FailureKind.UNSUPPORTED, FailureKind.FALLBACK, FailureKind.BUILD_FAILED, FailureKind.RUN_FAILED):
        assert one.is_sound(kind)
    assert not one.is_sound(FailureKind.OUT_OF_MEMORY)
    cuda.fail["cudaDeviceSynchronize"] = 700  # an illegal address: the context is lost
    with pytest.raises(CandidateError, match="cudaErrorIllegalAddress"):
        one.is_sound(FailureKind.RUN_FAILED)


def test_a_provider_that_does_not_load_is_found_out(one: OnnxRuntimeCudaBackend, provider: FakeProvider) -> None:
    provider.loads = False
    # The loader's own words where the provider's library is, the session's where it is not.
    assert "CUDA provider cannot be used" in one.cannot_run()
    with pytest.raises(BackendUnavailableError):
        one.environment()


def test_the_words_for_what_cuda_says() -> None:
    with (
        pytest.raises(CandidateError) as caught,
        ort_errors.translate_errors(FailureKind.RUN_FAILED),
    ):
        raise RuntimeError("CUDA failure 2: out of memory ; GPU=0")
    assert caught.value.kind == FailureKind.OUT_OF_MEMORY
