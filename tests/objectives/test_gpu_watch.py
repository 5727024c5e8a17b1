"""What a GPU does meanwhile: figures and flags from a replayed NVML, and what is left when it does not tell."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from objectives import gpu_watch
from objectives.gpu_watch import GpuWatch

OTHER_PID = 4_000_000


class NvmlError(Exception):
    """As pynvml's."""


class Nvml:
    """A made-up NVML; `refuse` names functions that this GPU does not answer."""

    NVMLError = NvmlError

    def __init__(self) -> None:
        self.reasons = 0
        self.energy_mj = 1_000_000
        self.below_ns = {0: 0, 1: 0, 3: 0, 5: 0}
        self.pids: dict[str, tuple[int, ...]] = {"gpu": (os.getpid(),)}
        self.refuse: set[str] = set()
        self.answers: dict[str, Callable[..., Any]] = {
            "nvmlDeviceGetClockInfo": lambda handle, kind: {1: 1980, 2: 3201}[kind],
            "nvmlDeviceGetTemperature": lambda handle, sensor: 61,
            "nvmlDeviceGetPowerUsage": lambda handle: 421_500,
            "nvmlDeviceGetTotalEnergyConsumption": lambda handle: self.energy_mj,
            "nvmlDeviceGetViolationStatus": lambda handle, n: SimpleNamespace(violationTime=self.below_ns[n]),
            "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: self.reasons,
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: [SimpleNamespace(pid=p) for p in self.pids[handle]],
        }

    def __getattr__(self, name: str) -> Any:
        if name in self.refuse:
            return self._not_supported
        if name not in self.answers:
            raise AttributeError(name)
        return self.answers[name]

    def _not_supported(self, *_: Any) -> Any:
        raise NvmlError("Not Supported")


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    found = Nvml()
    clock = count(100.0, 2.0)
    monkeypatch.setattr(gpu_watch.time, "monotonic", lambda: next(clock))
    return found


def test_a_quiet_gpu(nvml: Nvml) -> None:
    watch = GpuWatch(nvml, "gpu")
    nvml.reasons = 1  # idle, which slows nobody
    nvml.energy_mj += 800_000  # in two seconds
    figures, flags = watch.stop()
    assert figures == {
        "sm_clock_mhz": 1980.0,
        "memory_clock_mhz": 3201.0,
        "temperature_c": 61.0,
        "power_w": 421.5,
        "mean_power_w": 400.0,
        "other_processes": 0.0,
    }
    assert flags == ()


def test_a_throttled_and_shared_gpu(nvml: Nvml) -> None:
    watch = GpuWatch(nvml, "gpu")
    nvml.reasons = 0x4 | 0x40
    nvml.pids["gpu"] = (os.getpid(), OTHER_PID)
    figures, flags = watch.stop()
    assert flags == ("throttled:power_cap", "throttled:hw_thermal", "other_process")
    assert figures["other_processes"] == 1.0


@pytest.mark.parametrize(("below_s", "flags"), [(0.02, ()), (0.5, ("throttled:thermal",))])
def test_throttling_that_is_over_when_one_looks_is_found(nvml: Nvml, below_s: float, flags: tuple[str, ...]) -> None:
    nvml.below_ns[1] = 7_000_000_000  # long ago
    watch = GpuWatch(nvml, "gpu")
    nvml.below_ns[1] += int(below_s * 1e9)
    figures, found = watch.stop()
    assert figures["throttled_share:thermal"] == pytest.approx(below_s / 2)
    assert found == flags


def test_a_cause_is_named_once(nvml: Nvml) -> None:
    watch = GpuWatch(nvml, "gpu")
    nvml.reasons, nvml.below_ns[0] = 0x4, 2_000_000_000
    assert watch.stop()[1] == ("throttled:power_cap",)


@pytest.mark.parametrize(
    ("pids", "others"), [((), 0), ((OTHER_PID,), 0), ((OTHER_PID, OTHER_PID + 1), 1), ((OTHER_PID,) * 2, 0)]
)
def test_in_a_container_one_of_the_processes_is_ours(nvml: Nvml, pids: tuple[int, ...], others: int) -> None:
    nvml.pids["gpu"] = pids
    figures, flags = GpuWatch(nvml, "gpu").stop()
    assert figures["other_processes"] == others
    assert ("other_process" in flags) is (others > 0)


def test_processes_on_other_slices_are_no_neighbours(nvml: Nvml) -> None:
    nvml.pids = {"gpu": (os.getpid(), OTHER_PID), "slice": (os.getpid(),)}
    assert GpuWatch(nvml, "gpu", "slice").stop()[1] == ()


def test_what_nvml_does_not_tell_is_left_out(nvml: Nvml) -> None:
    everything = set(GpuWatch(nvml, "gpu").stop()[0])
    for name in nvml.answers:
        nvml.refuse = {name}
        assert set(GpuWatch(nvml, "gpu").stop()[0]) <= everything
    nvml.refuse = set(nvml.answers)
    assert GpuWatch(nvml, "gpu").stop() == ({}, ())


def test_an_older_package_has_older_names(nvml: Nvml) -> None:
    nvml.answers["nvmlDeviceGetCurrentClocksThrottleReasons"] = lambda handle: 0x8
    del nvml.answers["nvmlDeviceGetCurrentClocksEventReasons"]
    assert GpuWatch(nvml, "gpu").stop()[1] == ("throttled:hw_slowdown",)
