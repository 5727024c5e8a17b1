"""Facts about the NVIDIA GPU at hand, and a watch over it, for every backend that runs on one.

Flow: a GPU backend -> HERE -> identity and details of its Environment, and the watch of its sessions. CUDA tells what
the GPU is (cuda_runtime.py), NVML how it is set and what it does; without NVML those facts are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from objectives.backends.cuda_runtime import Gpu
from objectives.conditions import GpuWatch, HostWatch, Watch, merge

try:
    import pynvml
except ImportError:
    pynvml = None


def gpu_identity(gpu: Gpu) -> dict[str, str]:
    """What makes it another GPU; a power limit does, since it changes every timing."""
    identity = {
        "gpu": gpu.name,
        "compute_capability": gpu.capability,
        "multiprocessors": str(gpu.multiprocessors),
        "memory_mib": str(gpu.memory_bytes >> 20),
    }
    handle = _handle(gpu)
    if handle is not None:
        with suppress(pynvml.NVMLError):  # not every GPU has a limit that can be set
            identity["power_limit_w"] = f"{pynvml.nvmlDeviceGetPowerManagementLimit(handle) / 1e3:g}"
    return identity


def gpu_details(gpu: Gpu) -> dict[str, str]:
    """What is only recorded."""
    return {"cuda": gpu.driver, "l2_bytes": str(gpu.l2_bytes), "driver": _driver_version()}


def new_gpu_watch(gpu: Gpu | None) -> Callable[[], Watch]:
    """Makes watches over host and GPU; over the host alone where NVML is missing."""
    handle = None if gpu is None else _handle(gpu)
    if handle is None:
        return HostWatch
    return lambda: HostAndGpuWatch(HostWatch(), GpuWatch(pynvml, handle))


class HostAndGpuWatch:
    """Both watches at once."""

    def __init__(self, host: Watch, gpu: Watch) -> None:
        self._parts = (host, gpu)

    def stop(self) -> tuple[dict[str, float], tuple[str, ...]]:
        """Figures and flags of both."""
        return merge(*(part.stop() for part in self._parts))


def _handle(gpu: Gpu) -> Any:
    """NVML's handle; None where it has none: a MIG instance has another identifier, a container may hide NVML."""
    if pynvml is None:
        return None
    try:
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
    except pynvml.NVMLError:
        return None


def _driver_version() -> str:
    if pynvml is None:
        return "unknown"
    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return "unknown"
