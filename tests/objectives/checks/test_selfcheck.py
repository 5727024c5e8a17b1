"""The self-check with real child processes: what works passes, what is broken is found where it is broken."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from objectives.checks.asking import CheckPlan
from objectives.checks.result import Report, Result, Status
from objectives.checks.selfcheck import Listener, self_check
from objectives.errors import BackendUnavailableError
from tests.contracts import faulty

ROOT = Path(__file__).parents[3]
PLAN = CheckPlan(short_s=1.0)
CHECKS = (
    *("environment", "model", "knobs", "unknown values", "build", "ranged build", "outputs", "ranged outputs"),
    *("fresh outputs", "read-only inputs", "two sessions", "timing", "graph capture", "build route", "bad route"),
    *("build cache", "builder options", "precision", "runtime options", "deadline", "cancelling"),
)
RUNS = {
    *("outputs", "ranged outputs", "fresh outputs", "read-only inputs", "two sessions", "timing"),
    *("graph capture", "runtime options"),
}


@pytest.fixture
def _faulty(tmp_path: Path) -> Iterator[None]:
    faulty.install(tmp_path / "site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), str(tmp_path / "site"))))
        yield


def named(report: Report) -> dict[str, Result]:
    assert tuple(result.name for result in report.results) == CHECKS
    assert all(result.detail and "\n" not in result.detail and result.seconds >= 0 for result in report.results)
    return {result.name: result for result in report.results}


def names(report: Report, status: Status) -> set[str]:
    return {result.name for result in report.having(status)}


class _Ear(Listener):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_start(self, name: str, index: int, total: int) -> None:
        self.heard.append(f"start {index}/{total} {name}")

    def on_note(self, words: str) -> None:
        self.heard.append(words)

    def on_result(self, result: Result, index: int, total: int) -> None:
        self.heard.append(f"end {index}/{total} {result.name}")


def test_the_synthetic_backend_keeps_its_promises() -> None:
    ear = _Ear()
    report = self_check("synthetic", plan=PLAN, listener=ear)
    assert report.failed == ()
    assert names(report, Status.UNSUPPORTED) == {"ranged build", "ranged outputs", "bad route", "build cache"}
    found = named(report)
    assert found["knobs"].detail == "5 knobs: 1 route, 2 builder, 1 precision, 1 runtime"
    refused = "2 values tried: 1 good, 1 refused; precision=quarter refused: this combination is not supported"
    assert found["precision"].detail.startswith(refused)
    assert "'simulated'" in found["timing"].detail
    assert report.environment is not None
    assert report.software["python"]
    total = len(CHECKS)
    assert ear.heard[:2] == [f"start 1/{total} environment", f"end 1/{total} environment"]
    assert "2 of 2: fusion=off" in ear.heard


def test_onnx_runtime_keeps_its_promises() -> None:
    report = self_check("onnxruntime", plan=PLAN)
    assert report.failed == ()
    assert names(report, Status.UNSUPPORTED) == {"graph capture", "build route", "bad route", "build cache"}
    found = named(report)
    assert "1x3x16x16 to 8x3x16x16, best at 4x3x16x16" in found["ranged build"].detail
    assert "rel_l2" in found["ranged outputs"].detail
    assert found["model"].detail == "image 4x3x16x16 float32 -> logits 4x10 float32"


def test_tensorrt_rtx_builds_where_it_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorrt_rtx", reason="tensorrt-rtx is not installed: pip install 'tensorrt-tuner[test]'")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    report = self_check("tensorrt-rtx", plan=PLAN)
    assert report.failed == ()
    assert "cannot be run here" in report.cannot_run
    found = named(report)
    assert names(report, Status.UNSUPPORTED) == {*RUNS, "build route", "bad route", "build cache"}
    assert {found[name].detail for name in RUNS} == {report.cannot_run}
    assert "tensorrt-plan" in found["build"].detail
    assert "8 values tried: 8 good" in found["builder options"].detail
    assert found["deadline"].detail.endswith("; build right afterwards")


@pytest.mark.usefixtures("_faulty")
def test_a_faulty_backend_is_found_out_where_it_is_faulty() -> None:
    report = self_check(faulty.NAME, plan=CheckPlan(step_s=6.0, short_s=1.0))
    found = named(report)
    wrong = {
        "environment": "read twice, it differs: process: ",
        "unknown values": "no such knob=on was taken",
        "ranged build": "timed out: ",
        "ranged outputs": "timed out: ",
        "fresh outputs": "output 'y' was changed by the next inference",
        "read-only inputs": "input 'x' was written to",
        "two sessions": "ValueError: the device is busy",
        "timing": "1 inference took 0.0 s, says the clock",
        "graph capture": "1 value tried: 1 failed; graph=abort failed: crashed: was killed by SIGABRT",
        "bad route": "an engine was built with -no_such_knob",
        "builder options": "2 values tried: 1 good, 1 failed; dropped=b failed: dropped=b was asked for, a took effect",
        "precision": "1 value tried: 1 failed; number=nan failed: output 'y' is not finite where the reference is",
        "runtime options": "memory=killed failed: crashed: was killed by SIGKILL",
    }
    assert names(report, Status.FAIL) == set(wrong)
    assert {name for name, words in wrong.items() if words not in found[name].detail} == set()
    assert names(report, Status.UNSUPPORTED) == {"build cache"}
    assert names(report, Status.PASS) == set(CHECKS) - set(wrong) - {"build cache"}


@pytest.mark.usefixtures("_faulty")
def test_a_backend_that_crashes_at_once_is_a_failed_check() -> None:
    report = self_check(faulty.CRASHING, plan=PLAN)
    assert report.environment is None
    assert names(report, Status.FAIL) == {"environment"}
    assert "SIGSEGV" in named(report)["environment"].detail


@pytest.mark.parametrize("name", ["nothing", "trtexec"])
def test_a_backend_that_is_not_here_is_no_failed_check(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BackendUnavailableError, match=name) as caught:
        self_check(name, plan=PLAN)
    assert caught.value.hint
