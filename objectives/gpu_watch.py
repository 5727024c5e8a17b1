"""GPU watch: what an NVIDIA GPU was doing while samples were taken, as NVML tells it.

Flow: a GPU session starts a watch HERE before its timing and stops it after -> figures and flags in Samples. NVML is
an argument, so that tests replay one. What a GPU, a slice of one or a container does not tell is left out: one figure
less is no reason to lose a timing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from types import ModuleType
from typing import Any

# Bits of NVML's throttle reasons that mean "slower than asked for"; part of its binary interface, so the names of the
# Python package, which have changed, are not needed.
_REASONS = {0x4: "power_cap", 0x8: "hw_slowdown", 0x20: "thermal", 0x40: "hw_thermal", 0x80: "power_brake"}
_POLICIES = {0: "power_cap", 1: "thermal", 3: "board_limit", 5: "reliability"}  # whose time below the clock is counted
_FELT_SHARE = 0.02  # of a timing, spent below the clock that was asked for
_SM, _MEMORY, _SENSOR = 1, 2, 0  # NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU


class GpuWatch:
    """Clocks, temperature, power, throttling and other processes of one GPU, from creation to `stop`.

    `handle`: NVML's, of a whole GPU; `own`: of the slice of it that is used, whose processes count, if it is one.
    """

    def __init__(self, nvml: ModuleType | Any, handle: Any, own: Any = None) -> None:
        self._nvml = nvml
        self._handle = handle
        self._own = handle if own is None else own
        self._start = time.monotonic()
        self._energy_mj = self._ask("nvmlDeviceGetTotalEnergyConsumption", handle)
        self._below_ns = self._violations()

    def stop(self) -> tuple[dict[str, float], tuple[str, ...]]:
        """Figures (MHz, degrees Celsius, watts, shares of the time, a count) and flags."""
        handle, seconds = self._handle, max(time.monotonic() - self._start, 1e-6)
        found = {
            "sm_clock_mhz": self._ask("nvmlDeviceGetClockInfo", handle, _SM),
            "memory_clock_mhz": self._ask("nvmlDeviceGetClockInfo", handle, _MEMORY),
            "temperature_c": self._ask("nvmlDeviceGetTemperature", handle, _SENSOR),
            "power_w": _scaled(self._ask("nvmlDeviceGetPowerUsage", handle), 1e-3),
            "mean_power_w": self._mean_power_w(seconds),
            "other_processes": self._others(),
        }
        figures = {name: float(value) for name, value in found.items() if value is not None}
        reasons = int(self._reasons() or 0)
        throttled = dict.fromkeys(word for bit, word in _REASONS.items() if reasons & bit)
        for word, share in self._throttled(seconds).items():
            figures[f"throttled_share:{word}"] = share
            if share > _FELT_SHARE:
                throttled[word] = None
        flags = [f"throttled:{word}" for word in throttled]
        return figures, (*flags, *(["other_process"] if figures.get("other_processes") else []))

    def _ask(self, function: str, *arguments: Any) -> Any:
        """What NVML says; None where it does not say, or does not know the question."""
        try:
            return getattr(self._nvml, function)(*arguments)
        except (self._nvml.NVMLError, AttributeError):
            return None

    def _reasons(self) -> Any:
        newer = self._ask("nvmlDeviceGetCurrentClocksEventReasons", self._handle)
        return self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", self._handle) if newer is None else newer

    def _mean_power_w(self, seconds: float) -> float | None:
        now = self._ask("nvmlDeviceGetTotalEnergyConsumption", self._handle)
        return None if now is None or self._energy_mj is None else round((now - self._energy_mj) * 1e-3 / seconds, 1)

    def _violations(self) -> dict[str, int]:
        """Nanoseconds below the clock that was asked for, by cause, since the driver was loaded."""
        asked = {word: self._ask("nvmlDeviceGetViolationStatus", self._handle, n) for n, word in _POLICIES.items()}
        return {word: int(found.violationTime) for word, found in asked.items() if found is not None}

    def _throttled(self, seconds: float) -> Mapping[str, float]:
        """Shares of the time, by cause; without those that did not occur."""
        now = self._violations()
        shares = {word: (now[word] - before) * 1e-9 / seconds for word, before in self._below_ns.items() if word in now}
        return {word: round(min(share, 1.0), 4) for word, share in shares.items() if share > 0}

    def _others(self) -> int | None:
        """Processes beside ours that compute on the GPU, or on its slice.

        In a container NVML may know us by another number: then one of those that it tells is ours.
        """
        running = self._ask("nvmlDeviceGetComputeRunningProcesses", self._own)
        if running is None:
            return None
        pids = {process.pid for process in running}
        return len(pids - {os.getpid()}) if os.getpid() in pids else max(0, len(pids) - 1)


def _scaled(value: Any, factor: float) -> float | None:
    return None if value is None else float(value) * factor
