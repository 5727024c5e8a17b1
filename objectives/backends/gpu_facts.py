"""Facts about the NVIDIA GPU at hand, and a watch over it, for every backend that runs on one.

Flow: a GPU backend -> HERE -> identity and details of its Environment, and the watch of its sessions. CUDA tells what
the GPU is (cuda_runtime.py), NVML how it is set and what it does; without NVML those facts are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from objectives.backends.cuda_runtime import Gpu
from objectives.conditions import GpuWatch, HostWatch, Watch, merge
from objectives.devices import Device, told

try:
    import pynvml
except ImportError:
    pynvml = None


_VISIBLE = "CUDA_VISIBLE_DEVICES"
_MIG = " MIG "  # how CUDA names a slice: "NVIDIA H100 80GB HBM3 MIG 1g.10gb"


def gpu_identity(gpu: Gpu) -> dict[str, str]:
    """What makes it another GPU: a slice of one and a power limit do, since they change every timing.

    Of the driver only the generation of CUDA counts, which decides about compilers and libraries; patches do not.
    """
    identity = {
        "gpu": gpu.name,
        "compute_capability": gpu.capability,
        "multiprocessors": str(gpu.multiprocessors),
        "memory_mib": str(gpu.memory_bytes >> 20),
        "cuda_generation": gpu.driver.partition(".")[0],
    }
    if _MIG in gpu.name:
        identity["mig"] = gpu.name.partition(_MIG)[2].strip()
    handle = _handle(gpu)
    if handle is not None:
        with suppress(pynvml.NVMLError):  # not every GPU has a limit that can be set
            identity["power_limit_w"] = f"{pynvml.nvmlDeviceGetPowerManagementLimit(handle) / 1e3:g}"
    return identity


def gpu_devices(gpus: Sequence[Gpu]) -> tuple[Device, ...]:
    """Devices that a process can be given alone, of the GPUs that CUDA shows.

    CUDA shows a process one slice of a GPU at most, so slices are asked of NVML, named `0:1` after GPU and slice; not
    so where CUDA_VISIBLE_DEVICES has chosen already. Names count what is visible, as CUDA does.
    """
    found = []
    for index, gpu in enumerate(gpus):
        slices = [] if told(_VISIBLE) is not None else _slices(gpu)
        found += [_device(f"{index}:{number}", uuid, model) for number, uuid, model in slices]
        if not slices:
            found.append(_device(str(index), gpu.uuid, gpu.name))
    return tuple(found)


def _device(name: str, uuid: str, model: str) -> Device:
    # CUDA calls a slice GPU-..., the variable wants MIG-...
    visible = uuid.replace("GPU-", "MIG-", 1) if _MIG in model else uuid
    return Device(name, f"cuda:{uuid}", model, {_VISIBLE: visible})


def _slices(gpu: Gpu) -> list[tuple[int, str, str]]:
    """Number, UUID as CUDA tells it and name of each slice of the GPU that `gpu` is or is a slice of."""
    handle = _handle(gpu)
    if handle is None:
        return []
    found = []
    with suppress(pynvml.NVMLError):  # not every GPU can be cut
        for number in range(int(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle))):
            with suppress(pynvml.NVMLError):  # numbers may have gaps
                one = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
                uuid = _words(pynvml.nvmlDeviceGetUUID(one)).replace("MIG-", "GPU-", 1)
                found.append((number, uuid, _words(pynvml.nvmlDeviceGetName(one))))
    return found


def gpu_details(gpu: Gpu) -> dict[str, str]:
    """What is only recorded."""
    details = {"uuid": gpu.uuid, "cuda": gpu.driver, "l2_bytes": str(gpu.l2_bytes), "driver": _driver_version()}
    handle = _handle(gpu)
    if handle is not None:
        with suppress(pynvml.NVMLError):
            details["max_sm_clock_mhz"] = str(pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM))
    return details


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
    """NVML's handle, of the whole GPU for a slice of one; None where it has none: a container may hide NVML."""
    if pynvml is None:
        return None
    try:
        pynvml.nvmlInit()
        if _MIG not in gpu.name:
            return pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
        own = pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid.replace("GPU-", "MIG-", 1))
        return pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(own)
    except pynvml.NVMLError:
        return None


def _words(text: bytes | str) -> str:
    return text.decode(errors="replace") if isinstance(text, bytes) else text


def _driver_version() -> str:
    if pynvml is None:
        return "unknown"
    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return "unknown"
