"""A FAKE cuda.bindings.runtime on host memory: pointers are real, streams run at once, graphs replay what was captured.

It checks how our code calls CUDA (order, ownership, errors), never what a GPU does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

ERRORS = {2: b"cudaErrorMemoryAllocation", 35: b"cudaErrorInsufficientDriver", 700: b"cudaErrorIllegalAddress"}


class FakeCuda:
    """One fake device with `memory_bytes`. `live` holds every buffer, event, graph and stream not yet given back."""

    cudaStreamNonBlocking = 1
    cudaMemcpyKind = SimpleNamespace(cudaMemcpyHostToDevice=1, cudaMemcpyDeviceToHost=2)
    cudaStreamCaptureMode = SimpleNamespace(cudaStreamCaptureModeThreadLocal=1)

    def __init__(self, memory_bytes: int = 1 << 20, capability: tuple[int, int] = (8, 9)) -> None:
        self.memory_bytes = memory_bytes
        self.capability = capability
        self.devices = 1
        self.live: dict[int, Any] = {}
        self.captured: list[Callable[[], None]] | None = None
        self.clock_ms = 0.0
        self.fail: dict[str, int] = {}  # function -> error code
        self.last_error = 0
        self._next = 1000

    def work(self, action: Callable[[], None]) -> None:
        """Something put on a stream: done now, or recorded while capturing."""
        if self.captured is not None:
            self.captured.append(action)
        else:
            action()

    def _own(self, thing: Any) -> int:
        self._next += 1
        self.live[self._next] = thing
        return self._next

    def cudaGetErrorName(self, code: int) -> tuple[int, bytes]:
        return 0, ERRORS.get(code, b"cudaErrorUnknown")

    def cudaGetErrorString(self, code: int) -> tuple[int, bytes]:
        return 0, b"words of CUDA"

    def cudaGetDeviceCount(self) -> tuple[int, ...]:
        code = self.fail.get("cudaGetDeviceCount", 0)
        return (code, self.devices)

    def cudaGetDeviceProperties(self, index: int) -> tuple[int, Any]:
        major, minor = self.capability
        return 0, SimpleNamespace(
            name=b"NVIDIA Fake",
            uuid=SimpleNamespace(bytes=bytes(range(16))),
            major=major,
            minor=minor,
            multiProcessorCount=10,
            totalGlobalMem=self.memory_bytes,
            l2CacheSize=1 << 20,
            persistingL2CacheMaxSize=1 << 19,
        )

    def cudaDriverGetVersion(self) -> tuple[int, int]:
        return 0, 13010

    def cudaGetLastError(self) -> tuple[int]:
        last, self.last_error = self.last_error, 0
        return (last,)

    def cudaDeviceSynchronize(self) -> tuple[int]:
        return (self.fail.get("cudaDeviceSynchronize", 0),)

    def cudaMalloc(self, size: int) -> tuple[int, int]:
        if sum(ctypes.sizeof(x) for x in self.live.values() if isinstance(x, ctypes.Array)) + size > self.memory_bytes:
            return 2, 0
        memory = ctypes.create_string_buffer(size)
        address = ctypes.addressof(memory)
        self.live[address] = memory
        return 0, address

    def cudaFree(self, pointer: int) -> tuple[int]:
        del self.live[pointer]
        return (0,)

    def cudaStreamCreateWithFlags(self, flags: int) -> tuple[int, int]:
        return 0, self._own("stream")

    def cudaStreamDestroy(self, stream: int) -> tuple[int]:
        del self.live[stream]
        return (self.fail.get("cudaStreamDestroy", 0),)

    def cudaStreamSynchronize(self, stream: int) -> tuple[int]:
        return (self.fail.get("cudaStreamSynchronize", 0),)

    def cudaMemcpyAsync(self, target: int, source: int, size: int, kind: int, stream: int) -> tuple[int]:
        self.work(lambda: ctypes.memmove(target, source, size) and None)
        return (0,)

    def cudaEventCreate(self) -> tuple[int, int]:
        return 0, self._own([0.0])

    def cudaEventDestroy(self, event: int) -> tuple[int]:
        del self.live[event]
        return (0,)

    def cudaEventRecord(self, event: int, stream: int) -> tuple[int]:
        self.live[event][0] = self.clock_ms
        return (0,)

    def cudaEventSynchronize(self, event: int) -> tuple[int]:
        return (0,)

    def cudaEventElapsedTime(self, start: int, end: int) -> tuple[int, float]:
        return 0, self.live[end][0] - self.live[start][0]

    def cudaStreamBeginCapture(self, stream: int, mode: int) -> tuple[int]:
        self.captured = []
        return (0,)

    def cudaStreamEndCapture(self, stream: int) -> tuple[int, int]:
        found, self.captured = self.captured, None
        return self.fail.get("cudaStreamEndCapture", 0), self._own(found)

    def cudaGraphInstantiate(self, graph: int, flags: int) -> tuple[int, int]:
        return 0, self._own(list(self.live[graph]))

    def cudaGraphDestroy(self, graph: int) -> tuple[int]:
        del self.live[graph]
        return (0,)

    def cudaGraphLaunch(self, executable: int, stream: int) -> tuple[int]:
        for action in self.live[executable]:
            action()
        return (0,)

    def cudaGraphExecDestroy(self, executable: int) -> tuple[int]:
        del self.live[executable]
        return (0,)
