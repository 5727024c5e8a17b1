"""CUDA for the backends that run on a GPU: memory, streams, events and graphs through NVIDIA's cuda-bindings.

Flow: a GPU session -> HERE -> cuda.bindings.runtime. Nothing here knows an inference library. The package and a
driver may both be missing: `why_unavailable` says so in a sentence, and everything else is called only after it said
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from objectives.errors import CandidateError
from objectives.outcome import FailureKind
from objectives.tensors import Array

try:
    from cuda.bindings import runtime
except ImportError as error:
    runtime, _MISSING = None, str(error)
else:
    _MISSING = ""

_OUT_OF_MEMORY = "cudaErrorMemoryAllocation"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A visible GPU. A MIG instance says so in its name, and has a UUID and a size of its own."""

    name: str
    uuid: str
    capability: str  # "9.0"
    multiprocessors: int
    memory_bytes: int
    l2_bytes: int
    persisting_l2_bytes: int  # how much of the L2 cache may be set aside; 0: none
    driver: str  # the CUDA version that the driver supports, "13.0"

    @property
    def sm(self) -> str:
        """The compute capability as NVIDIA's enumerations spell it: `SM90`."""
        return "SM" + self.capability.replace(".", "")


def why_unavailable() -> str:
    """Why there is no usable GPU here, in a sentence; empty if there is one."""
    if runtime is None:
        return f"NVIDIA's cuda-bindings cannot be imported ({_MISSING}): pip install 'tensorrt-tuner[gpu]'"
    try:
        count = _call(runtime.cudaGetDeviceCount)
    # The bindings look the driver up themselves, and raise a builtin class when it is not there.
    except (CandidateError, RuntimeError) as error:
        return f"there is no usable NVIDIA driver: {error}"
    return "" if count else "the NVIDIA driver is there, but shows no GPU"


def gpu() -> Gpu | None:
    """The first visible GPU, or None."""
    return None if why_unavailable() else _gpu(0)


def gpus() -> tuple[Gpu, ...]:
    """Every visible GPU in CUDA's order."""
    return () if why_unavailable() else tuple(_gpu(index) for index in range(_call(runtime.cudaGetDeviceCount)))


def _gpu(index: int) -> Gpu:
    found = _call(runtime.cudaGetDeviceProperties, index)
    return Gpu(
        name=_text(found.name),
        uuid=_uuid(bytes(found.uuid.bytes)),
        capability=f"{found.major}.{found.minor}",
        multiprocessors=int(found.multiProcessorCount),
        memory_bytes=int(found.totalGlobalMem),
        l2_bytes=int(found.l2CacheSize),
        persisting_l2_bytes=int(found.persistingL2CacheMaxSize),
        driver=_version(_call(runtime.cudaDriverGetVersion)),
    )


def synchronize() -> None:
    """Wait for everything on the device. Raises: CandidateError, also for errors of work started before."""
    _call(runtime.cudaDeviceSynchronize)


class Buffer:
    """Device memory of at least one byte, owned until `close`."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.pointer = int(_call(runtime.cudaMalloc, max(size_bytes, 1)))

    def close(self) -> None:
        pointer, self.pointer = self.pointer, 0
        if pointer:
            _call(runtime.cudaFree, pointer)


class Stream:
    """A stream that does not wait for the default one."""

    def __init__(self) -> None:
        self._stream = _call(runtime.cudaStreamCreateWithFlags, runtime.cudaStreamNonBlocking)

    @property
    def handle(self) -> int:
        """The address that libraries take for a stream."""
        return int(self._stream)

    def upload(self, buffer: Buffer, array: Array) -> None:
        """Copy a contiguous array into `buffer`; the array must stay until the stream is synchronized."""
        self._copy(buffer.pointer, array.ctypes.data, array.nbytes, runtime.cudaMemcpyKind.cudaMemcpyHostToDevice)

    def download(self, buffer: Buffer, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """A new array with the content of `buffer`, after everything on the stream before it."""
        array = np.empty(shape, dtype)
        kind = runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost
        self._copy(array.ctypes.data, buffer.pointer, array.nbytes, kind)
        self.synchronize()
        return array

    def _copy(self, target: int, source: int, size_bytes: int, kind: Any) -> None:
        if size_bytes:
            _call(runtime.cudaMemcpyAsync, target, source, size_bytes, kind, self._stream)

    def synchronize(self) -> None:
        """Wait for everything on the stream. Raises: CandidateError in CUDA's words."""
        _call(runtime.cudaStreamSynchronize, self._stream)

    def seconds(self, work: Callable[[], None]) -> float:
        """Device time between the start and the end of what `work` puts on the stream."""
        with _event() as start, _event() as end:
            _call(runtime.cudaEventRecord, start, self._stream)
            work()
            _call(runtime.cudaEventRecord, end, self._stream)
            _call(runtime.cudaEventSynchronize, end)
            return float(_call(runtime.cudaEventElapsedTime, start, end)) * 1e-3

    def capture(self, work: Callable[[], None]) -> Graph:
        """What `work` puts on the stream, as a graph. Raises: CandidateError if it cannot be captured."""
        mode = runtime.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        _call(runtime.cudaStreamBeginCapture, self._stream, mode)
        try:
            work()
        except BaseException:
            runtime.cudaStreamEndCapture(self._stream)  # or the stream stays in capture mode for ever
            raise
        captured = _call(runtime.cudaStreamEndCapture, self._stream)
        try:
            return Graph(_call(runtime.cudaGraphInstantiate, captured, 0), self._stream)
        finally:
            _call(runtime.cudaGraphDestroy, captured)

    def close(self) -> None:
        _call(runtime.cudaStreamDestroy, self._stream)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Graph:
    """A captured piece of work; launched on the stream that it was captured from."""

    def __init__(self, executable: Any, stream: Any) -> None:
        self._executable = executable
        self._stream = stream

    def launch(self) -> None:
        _call(runtime.cudaGraphLaunch, self._executable, self._stream)

    def close(self) -> None:
        _call(runtime.cudaGraphExecDestroy, self._executable)


@contextmanager
def _event() -> Iterator[Any]:
    event = _call(runtime.cudaEventCreate)
    try:
        yield event
    finally:
        _call(runtime.cudaEventDestroy, event)


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a CUDA function. Raises: CandidateError in CUDA's words."""
    code, *values = function(*arguments)
    if int(code) != 0:
        name = _text(runtime.cudaGetErrorName(code)[1])
        words = f"{name}: {_text(runtime.cudaGetErrorString(code)[1])}"
        raise CandidateError(FailureKind.OUT_OF_MEMORY if name == _OUT_OF_MEMORY else FailureKind.RUN_FAILED, words)
    return values[0] if values else None


def _text(words: bytes | str) -> str:
    return words.decode(errors="replace").rstrip("\0") if isinstance(words, bytes) else words


def _uuid(raw: bytes) -> str:
    digits = raw.hex()
    return "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
