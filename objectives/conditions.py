"""Conditions: what the machine was doing while samples were taken.

Flow: the worker watches HERE around a timing -> figures and flags in Samples. Nothing is dropped because of a flag: it
says how far a figure can be trusted, and the verdict's interleaving deals with the rest.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Protocol

import psutil

from objectives.processes import cpu_s

_BUSY_SHARE = 0.15  # of the machine's cores, taken by others: one busy core in six is felt
_STEAL_SHARE = 0.02  # of time that the hypervisor gave to somebody else
_HOT_REASONS = {  # bits of NVML's throttle reasons that mean "slower than asked for", by name
    "nvmlClocksThrottleReasonSwPowerCap": "power_cap",
    "nvmlClocksThrottleReasonHwSlowdown": "hw_slowdown",
    "nvmlClocksThrottleReasonSwThermalSlowdown": "thermal",
    "nvmlClocksThrottleReasonHwThermalSlowdown": "hw_thermal",
    "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": "power_brake",
}


class Watch(Protocol):
    """Something that watches until it is told to stop."""

    def stop(self) -> tuple[dict[str, float], tuple[str, ...]]:
        """Figures by name, and flags."""


class HostWatch:
    """Load on this machine that is not ours nor of a program that we have started: from creation to `stop`."""

    def __init__(self) -> None:
        self._wall = time.monotonic()
        self._all = psutil.cpu_times()
        self._own = cpu_s()

    def stop(self) -> tuple[dict[str, float], tuple[str, ...]]:
        """Figures (shares of the machine's core time) and flags."""
        seconds = max(time.monotonic() - self._wall, 1e-6) * (os.cpu_count() or 1)
        now = psutil.cpu_times()
        idle = _idle(now) - _idle(self._all)
        steal = float(getattr(now, "steal", 0.0) - getattr(self._all, "steal", 0.0))
        own = cpu_s() - self._own
        other = max(0.0, 1.0 - (idle + own + steal) / seconds)
        figures = {
            "other_cpu_share": round(min(other, 1.0), 4),
            "steal_share": round(max(0.0, steal) / seconds, 4),
            "load_average": round(os.getloadavg()[0], 2),
        }
        flags = ["other_load"] if figures["other_cpu_share"] > _BUSY_SHARE else []
        flags += ["stolen_time"] if figures["steal_share"] > _STEAL_SHARE else []
        # Below a few clock ticks the kernel's counters say nothing.
        return figures, tuple(flags) if time.monotonic() - self._wall > 0.1 else ()


class GpuWatch:
    """State of one NVIDIA GPU through NVML: clocks, temperature, power, throttle reasons, other processes."""

    def __init__(self, nvml: ModuleType | Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle

    def stop(self) -> tuple[dict[str, float], tuple[str, ...]]:
        """Figures (MHz, degrees Celsius, watts, a count) and flags."""
        nvml, handle = self._nvml, self._handle
        others = [p for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle) if p.pid != os.getpid()]
        figures = {
            "sm_clock_mhz": float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            "memory_clock_mhz": float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            "temperature_c": float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            "power_w": nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
            "other_processes": float(len(others)),
        }
        reasons = int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        hot = [word for name, word in _HOT_REASONS.items() if reasons & int(getattr(nvml, name, 0))]
        flags = [f"throttled:{word}" for word in hot] + (["other_process"] if others else [])
        return figures, tuple(flags)


def merge(*parts: tuple[Mapping[str, float], tuple[str, ...]]) -> tuple[dict[str, float], tuple[str, ...]]:
    """Figures and flags of several watches as one."""
    figures: dict[str, float] = {}
    for found, _ in parts:
        figures |= found
    return figures, tuple(flag for _, flags in parts for flag in flags)


def _idle(times: Any) -> float:
    return float(times.idle + getattr(times, "iowait", 0.0))
