"""What the machine does meanwhile: figures and flags from a replayed machine and a replayed GPU."""

from __future__ import annotations

import os
from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import pytest

from objectives import conditions
from objectives.conditions import GpuWatch, HostWatch, merge

Times = namedtuple("Times", "user system idle iowait steal")


class Machine:
    """Two cores whose counters move as `spend` says, over ten seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall = 100.0
        self.times = Times(0.0, 0.0, 0.0, 0.0, 0.0)
        self.own = 0.0
        monkeypatch.setattr(conditions.time, "monotonic", lambda: self.wall)
        monkeypatch.setattr(conditions, "cpu_s", lambda: self.own)
        monkeypatch.setattr(conditions.psutil, "cpu_times", lambda: self.times)
        monkeypatch.setattr(os, "cpu_count", lambda: 2)

    def spend(self, own: float, others: float, steal: float = 0.0, seconds: float = 10.0) -> None:
        self.wall += seconds
        self.own += own
        busy = own + others
        idle = 2 * seconds - busy - steal
        t = self.times
        self.times = Times(t.user + busy, t.system, t.idle + idle, t.iowait, t.steal + steal)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_our_own_work_is_no_other_load(machine: Machine) -> None:
    watch = HostWatch()
    machine.spend(own=19.0, others=0.2)
    figures, flags = watch.stop()
    assert figures["other_cpu_share"] == pytest.approx(0.01)
    assert flags == ()


def test_somebody_else_on_one_of_two_cores(machine: Machine) -> None:
    watch = HostWatch()
    machine.spend(own=10.0, others=9.0)
    figures, flags = watch.stop()
    assert figures["other_cpu_share"] == pytest.approx(0.45)
    assert flags == ("other_load",)


def test_time_that_the_hypervisor_gave_away(machine: Machine) -> None:
    watch = HostWatch()
    machine.spend(own=10.0, others=0.0, steal=2.0)
    figures, flags = watch.stop()
    assert figures["steal_share"] == pytest.approx(0.1)
    assert figures["other_cpu_share"] == pytest.approx(0.0)
    assert flags == ("stolen_time",)


def test_a_moment_is_too_short_to_say_anything(machine: Machine) -> None:
    watch = HostWatch()
    machine.spend(own=0.0, others=0.02, seconds=0.02)
    assert watch.stop()[1] == ()


def gpu(reasons: int = 0, pids: tuple[int, ...] = ()) -> Any:
    return SimpleNamespace(
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        NVML_TEMPERATURE_GPU=0,
        nvmlClocksThrottleReasonSwPowerCap=4,
        nvmlClocksThrottleReasonHwSlowdown=8,
        nvmlClocksThrottleReasonSwThermalSlowdown=32,
        nvmlClocksThrottleReasonHwThermalSlowdown=64,
        nvmlClocksThrottleReasonHwPowerBrakeSlowdown=128,
        nvmlDeviceGetClockInfo=lambda handle, kind: {1: 1980, 2: 3201}[kind],
        nvmlDeviceGetTemperature=lambda handle, kind: 61,
        nvmlDeviceGetPowerUsage=lambda handle: 421_500,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: reasons,
        nvmlDeviceGetComputeRunningProcesses=lambda handle: [SimpleNamespace(pid=pid) for pid in pids],
    )


def test_a_quiet_gpu() -> None:
    figures, flags = GpuWatch(gpu(reasons=1, pids=(os.getpid(),)), "handle").stop()  # 1: idle, which slows nobody
    assert figures == {
        "sm_clock_mhz": 1980.0,
        "memory_clock_mhz": 3201.0,
        "temperature_c": 61.0,
        "power_w": 421.5,
        "other_processes": 0.0,
    }
    assert flags == ()


def test_a_throttled_and_shared_gpu() -> None:
    _, flags = GpuWatch(gpu(reasons=4 | 64, pids=(os.getpid(), 4_000_000)), "handle").stop()
    assert flags == ("throttled:power_cap", "throttled:hw_thermal", "other_process")


def test_watches_are_merged() -> None:
    assert merge(({"a": 1.0}, ("x",)), ({"b": 2.0}, ())) == ({"a": 1.0, "b": 2.0}, ("x",))
