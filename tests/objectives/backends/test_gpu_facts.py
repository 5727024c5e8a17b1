"""What makes a GPU another one, as CUDA and a made-up NVML tell it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from objectives.backends import gpu_facts
from objectives.backends.cuda_runtime import Gpu
from objectives.backends.gpu_facts import gpu_details, gpu_devices, gpu_identity, new_gpu_watch
from objectives.devices import choose
from objectives.errors import BackendUnavailableError, InputError

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
        nvmlDeviceGetMaxMigDeviceCount=lambda found: 0,
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


# ---- devices


SECOND = Gpu("NVIDIA H100 80GB HBM3", "GPU-5f3c2a1b-0000-1111-2222-333344445555", "9.0", 132, 80 << 30, 0, 0, "13.0")


def test_every_visible_gpu_is_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    first, second = gpu_devices((WHOLE, SECOND))
    assert (first.name, first.key, first.model) == ("0", "cuda:GPU-1", WHOLE.name)
    assert dict(second.variables) == {"CUDA_VISIBLE_DEVICES": SECOND.uuid}


def _cut(nvml: Any) -> None:
    """Slices 0 and 2 of the first GPU."""
    nvml.nvmlDeviceGetMaxMigDeviceCount = lambda handle: 7

    def by_index(handle: str, number: int) -> str:
        if (handle, number) not in (("GPU-1", 0), ("GPU-1", 2)):
            raise NvmlError("not found")
        return f"MIG-{2 + number}"

    nvml.nvmlDeviceGetMigDeviceHandleByIndex = by_index
    nvml.nvmlDeviceGetUUID = lambda handle: handle.encode()
    nvml.nvmlDeviceGetName = lambda handle: b"NVIDIA H100 80GB HBM3 MIG 1g.10gb"


def test_slices_are_devices_of_their_own(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    _cut(nvml)
    found = gpu_devices((SLICE,))  # CUDA shows one
    assert [(one.name, one.key) for one in found] == [("0:0", "cuda:GPU-2"), ("0:2", "cuda:GPU-4")]
    assert [dict(one.variables) for one in found] == [
        {"CUDA_VISIBLE_DEVICES": "MIG-2"},
        {"CUDA_VISIBLE_DEVICES": "MIG-4"},
    ]


def test_what_the_user_has_made_visible_is_not_widened(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-2")
    _cut(nvml)
    (found,) = gpu_devices((SLICE,))
    assert (found.name, found.key, dict(found.variables)) == ("0", "cuda:GPU-2", {"CUDA_VISIBLE_DEVICES": "MIG-2"})


@pytest.mark.parametrize(
    "word", ["1", "cuda:1", SECOND.uuid, f"cuda:{SECOND.uuid}", "GPU-5f3c2a1b", "gpu-5f3c"], ids=lambda word: word[:12]
)
def test_a_gpu_is_found_by_number_and_uuid(word: str) -> None:
    offered = gpu_devices((WHOLE, SECOND))
    assert choose("b", offered, [word]) == (offered[1],)


@pytest.mark.parametrize(
    ("words", "message"),
    [(["2"], "'2' is no device"), (["GPU"], "stands for 2 devices"), (["0", "GPU-1"], "named twice")],
    ids=["unknown", "ambiguous", "twice"],
)
def test_words_that_name_no_one_gpu_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        choose("b", gpu_devices((WHOLE, SECOND)), words)


def test_where_there_is_no_gpu_none_can_be_named() -> None:
    with pytest.raises(BackendUnavailableError, match="finds no device"):
        choose("b", gpu_devices(()), ["0"])


def test_a_slice_is_watched_on_its_gpu_with_its_own_processes(nvml: Any) -> None:
    asked: list[tuple[str, str]] = []

    def note(name: str, value: Any) -> Any:
        def answer(handle: str, *_: Any) -> Any:
            asked.append((name, handle))
            return value

        return answer

    nvml.nvmlDeviceGetClockInfo = note("clock", 1980)
    nvml.nvmlDeviceGetTemperature = note("temperature", 50)
    nvml.nvmlDeviceGetPowerUsage = note("power", 300_000)
    nvml.nvmlDeviceGetComputeRunningProcesses = note("processes", [])
    figures, _ = new_gpu_watch(SLICE)().stop()
    assert figures["sm_clock_mhz"] == 1980.0
    assert dict(asked) == {
        "clock": "GPU-1",
        "temperature": "GPU-1",
        "power": "GPU-1",
        "processes": "MIG-2",
    }
