"""What makes a GPU another one, as CUDA and a made-up NVML tell it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from objectives.backends import gpu_facts
from objectives.backends.cuda_runtime import Gpu
from objectives.backends.gpu_facts import gpu_details, gpu_identity

WHOLE = Gpu("NVIDIA H100 80GB HBM3", "GPU-1", "9.0", 132, 80 << 30, 50 << 20, 0, "13.0")
SLICE = Gpu("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "GPU-2", "9.0", 16, 10 << 30, 6 << 20, 0, "12.8")


class NvmlError(Exception):
    """As pynvml's."""


def _nvml(**known: Any) -> Any:
    def handle(uuid: str) -> str:
        if uuid not in ("GPU-1", "MIG-2"):
            raise NvmlError(uuid)
        return uuid

    def parent(found: str) -> str:
        if found != "MIG-2":
            raise NvmlError(found)
        return "GPU-1"

    def limit(found: str) -> int:
        if found != "GPU-1":
            raise NvmlError(found)
        return 700_000

    return SimpleNamespace(
        NVMLError=NvmlError,
        NVML_CLOCK_SM=1,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=handle,
        nvmlDeviceGetDeviceHandleFromMigDeviceHandle=parent,
        nvmlDeviceGetPowerManagementLimit=limit,
        nvmlDeviceGetMaxClockInfo=lambda found, kind: 1980,
        nvmlSystemGetDriverVersion=lambda: "580.65.06",
        **known,
    )


@pytest.fixture(autouse=True)
def nvml(monkeypatch: pytest.MonkeyPatch) -> Any:
    found = _nvml()
    monkeypatch.setattr(gpu_facts, "pynvml", found)
    return found


def test_a_whole_gpu() -> None:
    identity = gpu_identity(WHOLE)
    assert identity["power_limit_w"] == "700"
    assert identity["cuda_generation"] == "13"
    assert "mig" not in identity
    details = gpu_details(WHOLE)
    assert (details["driver"], details["cuda"], details["max_sm_clock_mhz"]) == ("580.65.06", "13.0", "1980")
    assert details["uuid"] == "GPU-1"


def test_a_slice_of_it_is_another_one_and_has_its_power_limit() -> None:
    identity = gpu_identity(SLICE)
    assert (identity["mig"], identity["power_limit_w"], identity["multiprocessors"]) == ("1g.10gb", "700", "16")


def test_a_patch_of_the_driver_is_only_recorded(nvml: Any) -> None:
    before = gpu_identity(WHOLE)
    nvml.nvmlSystemGetDriverVersion = lambda: "580.99"
    assert gpu_identity(WHOLE) == before
    assert gpu_details(WHOLE)["driver"] == "580.99"


def test_without_nvml_the_rest_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_facts, "pynvml", None)
    assert gpu_identity(SLICE)["mig"] == "1g.10gb"
    assert "power_limit_w" not in gpu_identity(WHOLE)
    assert gpu_details(WHOLE)["driver"] == "unknown"
