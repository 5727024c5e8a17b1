"""The CUDA half: how our code calls cuda.bindings, on a FAKE of it; and the same on a real GPU where there is one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from objectives.backends import cuda_runtime
from objectives.backends.cuda_runtime import Buffer, Stream
from objectives.errors import CandidateError
from objectives.outcome import FailureKind
from objectives.tensors import dtype_of
from tests.objectives.backends.fake_cuda import FakeCuda


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    cuda = FakeCuda()
    monkeypatch.setattr(cuda_runtime, "runtime", cuda)
    return cuda


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.gpu)])
def cuda(request: pytest.FixtureRequest) -> Any:
    """The fake, and the real device."""
    if request.param == "fake":
        return request.getfixturevalue("fake")
    if reason := cuda_runtime.why_unavailable():
        pytest.skip(reason)
    return None


def test_why_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch, fake: FakeCuda) -> None:
    assert cuda_runtime.why_unavailable() == ""
    fake.devices = 0
    assert "shows no GPU" in cuda_runtime.why_unavailable()
    fake.fail["cudaGetDeviceCount"] = 35
    assert "cudaErrorInsufficientDriver: words of CUDA" in cuda_runtime.why_unavailable()
    monkeypatch.setattr(fake, "cudaGetDeviceCount", _no_driver)
    assert "no usable NVIDIA driver: libcuda" in cuda_runtime.why_unavailable()
    monkeypatch.setattr(cuda_runtime, "runtime", None)
    assert "cuda-bindings cannot be imported" in cuda_runtime.why_unavailable()
    assert cuda_runtime.gpu() is None


def _no_driver() -> tuple[int, int]:
    raise RuntimeError("libcuda.so.1 not found")


def test_the_gpu_is_described(fake: FakeCuda) -> None:
    gpu = cuda_runtime.gpu()
    assert gpu is not None
    assert (gpu.name, gpu.sm, gpu.capability, gpu.driver) == ("NVIDIA Fake", "SM89", "8.9", "13.1")
    assert gpu.uuid == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"


def test_the_gpu_has_a_name_and_a_size(cuda: Any) -> None:
    gpu = cuda_runtime.gpu()
    assert gpu is not None
    assert gpu.name.startswith("NVIDIA")
    assert gpu.sm == "SM" + gpu.capability.replace(".", "")
    assert gpu.memory_bytes >= 1 << 20
    assert len(gpu.uuid) == 40


@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (1000,)])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "bfloat16", "float8_e4m3fn"])
def test_arrays_go_there_and_back(cuda: Any, shape: tuple[int, ...], dtype: str) -> None:
    array = (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(dtype_of(dtype))
    with Stream() as stream:
        buffer = Buffer(array.nbytes)
        stream.upload(buffer, array)
        back = stream.download(buffer, array.shape, array.dtype)
        buffer.close()
        buffer.close()
    assert back.dtype == array.dtype
    assert np.array_equal(back, array)
    if cuda is not None:
        assert cuda.live == {}


def test_work_is_timed_and_replayed(cuda: Any) -> None:
    first, second = np.arange(8, dtype=np.float32), np.arange(8, 16, dtype=np.float32)
    host = first.copy()
    with Stream() as stream:
        buffer = Buffer(host.nbytes)
        assert stream.seconds(lambda: stream.upload(buffer, host)) >= 0
        stream.synchronize()
        graph = stream.capture(lambda: stream.upload(buffer, host))
        host[:] = second
        assert np.array_equal(stream.download(buffer, (8,), host.dtype), first)  # captured, not done
        graph.launch()
        assert np.array_equal(stream.download(buffer, (8,), host.dtype), second)
        graph.close()
        buffer.close()
    cuda_runtime.synchronize()
    if cuda is not None:
        assert cuda.live == {}


def test_what_fails_while_capturing_ends_the_capture(cuda: Any) -> None:
    def fail() -> None:
        raise ValueError("inside")

    with Stream() as stream:
        with pytest.raises(ValueError, match="inside"):
            stream.capture(fail)
        buffer = Buffer(4)
        stream.upload(buffer, np.ones(1, np.float32))
        assert stream.download(buffer, (1,), np.dtype(np.float32))[0] == 1
        buffer.close()


def test_memory_that_is_not_there(cuda: Any) -> None:
    with pytest.raises(CandidateError, match="cudaErrorMemoryAllocation") as caught:
        Buffer(1 << 50)
    assert caught.value.kind == FailureKind.OUT_OF_MEMORY


def test_other_errors_are_failed_runs(fake: FakeCuda) -> None:
    fake.fail["cudaStreamSynchronize"] = 700
    stream = Stream()
    with pytest.raises(CandidateError, match="cudaErrorIllegalAddress: words of CUDA") as caught:
        stream.synchronize()
    assert caught.value.kind == FailureKind.RUN_FAILED
