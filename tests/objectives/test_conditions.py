"""Conditions: what other load, a hypervisor or a hot GPU does to the figures and flags of a timing."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace

import psutil
import pytest

from objectives import conditions
from objectives.conditions import GpuWatch, HostWatch, merge

CORES = 4


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[dict[str, float], tuple[str, ...]]]:
    """A machine of four cores that runs for ten seconds; figures are core seconds."""

    def run(wall: float = 10.0, idle: float = 0.0, own: float = 0.0, steal: float = 0.0, iowait: float = 0.0):  # type: ignore[no-untyped-def]
        times = iter([SimpleNamespace(idle=100.0, iowait=1.0, steal=5.0)])
        later = SimpleNamespace(idle=100.0 + idle, iowait=1.0 + iowait, steal=5.0 + steal)
        clock, process = iter([50.0]), iter([7.0])
        monkeypatch.setattr(psutil, "cpu_times", lambda: next(times, later))
        monkeypatch.setattr(conditions.time, "monotonic", lambda: next(clock, 50.0 + wall))
        monkeypatch.setattr(conditions.time, "process_time", lambda: next(process, 7.0 + own))
        monkeypatch.setattr(os, "cpu_count", lambda: CORES)
        monkeypatch.setattr(os, "getloadavg", lambda: (1.234, 0.0, 0.0))
        return HostWatch().stop()

    return run


class TestHost:
    def test_a_quiet_machine(self, machine) -> None:  # type: ignore[no-untyped-def]
        figures, flags = machine(idle=30.0, own=10.0)
        assert figures == {"other_cpu_share": 0.0, "steal_share": 0.0, "load_average": 1.23}
        assert flags == ()

    def test_one_core_that_somebody_else_keeps_busy(self, machine) -> None:  # type: ignore[no-untyped-def]
        figures, flags = machine(idle=20.0, own=10.0)
        assert figures["other_cpu_share"] == 0.25
        assert flags == ("other_load",)

    def test_our_own_threads_are_not_somebody_elses(self, machine) -> None:  # type: ignore[no-untyped-def]
        assert machine(own=40.0)[1] == ()

    def test_time_that_was_stolen(self, machine) -> None:  # type: ignore[no-untyped-def]
        figures, flags = machine(idle=28.0, own=10.0, steal=2.0)
        assert figures["steal_share"] == 0.05
        assert flags == ("stolen_time",)

    def test_waiting_for_a_disk_is_idle(self, machine) -> None:  # type: ignore[no-untyped-def]
        assert machine(idle=10.0, iowait=20.0, own=10.0)[0]["other_cpu_share"] == 0.0

    def test_too_short_a_time_says_nothing(self, machine) -> None:  # type: ignore[no-untyped-def]
        assert machine(wall=0.05)[1] == ()

    def test_shares_stay_shares(self, machine) -> None:  # type: ignore[no-untyped-def]
        for own in (0.0, 100.0):
            assert 0 <= machine(own=own)[0]["other_cpu_share"] <= 1

    def test_a_real_one(self) -> None:
        figures, _ = HostWatch().stop()
        assert set(figures) == {"other_cpu_share", "steal_share", "load_average"}


class FakeNvml(SimpleNamespace):
    """NVML as far as it is asked; the bits are those of its header file."""

    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    nvmlClocksThrottleReasonSwPowerCap = 0x4
    nvmlClocksThrottleReasonHwSlowdown = 0x8
    nvmlClocksThrottleReasonSwThermalSlowdown = 0x20
    nvmlClocksThrottleReasonHwThermalSlowdown = 0x40
    nvmlClocksThrottleReasonHwPowerBrakeSlowdown = 0x80


def nvml(reasons: int, *pids: int) -> FakeNvml:
    return FakeNvml(
        nvmlDeviceGetComputeRunningProcesses=lambda handle: [SimpleNamespace(pid=pid) for pid in pids],
        nvmlDeviceGetClockInfo=lambda handle, clock: {1: 1980, 2: 2619}[clock],
        nvmlDeviceGetTemperature=lambda handle, sensor: {0: 51}[sensor],
        nvmlDeviceGetPowerUsage=lambda handle: 350_500,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: reasons,
        NVML_TEMPERATURE_GPU=0,
    )


class TestGpu:
    def test_figures_have_their_units(self) -> None:
        figures, flags = GpuWatch(nvml(0, os.getpid()), object()).stop()
        assert figures == {
            "sm_clock_mhz": 1980.0,
            "memory_clock_mhz": 2619.0,
            "temperature_c": 51.0,
            "power_w": 350.5,
            "other_processes": 0.0,
        }
        assert flags == ()

    @pytest.mark.parametrize(
        ("reasons", "flags"),
        [
            (0x1, ()),  # idle
            (0x2, ()),  # application clocks, as set by a user
            (0x4, ("throttled:power_cap",)),
            (0x8, ("throttled:hw_slowdown",)),
            (0x20 | 0x40, ("throttled:thermal", "throttled:hw_thermal")),
            (0x80 | 0x1, ("throttled:power_brake",)),
        ],
    )
    def test_what_makes_it_slower_than_asked_for_is_a_flag(self, reasons: int, flags: tuple[str, ...]) -> None:
        assert GpuWatch(nvml(reasons), object()).stop()[1] == flags

    def test_other_processes_are_counted(self) -> None:
        figures, flags = GpuWatch(nvml(0, os.getpid(), 1, 2), object()).stop()
        assert figures["other_processes"] == 2.0
        assert flags == ("other_process",)


def test_watches_are_merged() -> None:
    assert merge(({"a": 1.0}, ("x",)), ({"b": 2.0}, ("y", "z"))) == ({"a": 1.0, "b": 2.0}, ("x", "y", "z"))
    assert merge() == ({}, ())
