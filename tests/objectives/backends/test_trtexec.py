"""The backend `trtexec` over the FAKE program: arguments by version, failures, time limits, timing as a queue."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from objectives.backends import trtexec_session
from objectives.backends.base import BuildTerms
from objectives.backends.trt_manifest import read_manifest
from objectives.backends.trtexec import TrtexecBackend
from objectives.backends.trtexec_command import Offer
from objectives.backends.trtexec_process import run
from objectives.backends.trtexec_session import TrtexecSettings
from objectives.errors import BackendUnavailableError, CandidateError, HarnessError, WorkloadError
from objectives.outcome import FailureKind
from objectives.shapes import ShapeRange
from objectives.tensors import Array, save_tensors
from objectives.trtexec_flags import quoted
from tests import onnx_models
from tests.objectives.backends import fake_trtexec, modelopt
from tests.objectives.backends.fake_trtexec import V8, V10, V11

COPY, TILE = "route:copy_ppg", "route:kgen:codegen:cuda_tile"
INPUTS = {"x": np.linspace(-3, 3, 32, dtype=np.float32).reshape(4, 8)}


class World:
    """A backend over a fake of its own, a model, and what the fake was asked."""

    def __init__(self, folder: Path, limits: TrtexecSettings = TrtexecSettings(), **settings: Any) -> None:  # noqa: B008
        self._folder = folder
        self.log = folder / "calls"
        program = fake_trtexec.install(folder / "bin", log=str(self.log), **settings)
        self.backend = TrtexecBackend(program, limits)
        self.model = onnx_models.identity(folder, "float32", (4, 8))

    @property
    def calls(self) -> list[list[str]]:
        return fake_trtexec.calls(self.log)

    def build(self, model: Path | None = None, shapes: Any = None, **values: str) -> Any:
        workdir = self._folder / f"work-{time.monotonic_ns()}"
        workdir.mkdir()
        return self.backend.build(model or self.model, values, workdir, BuildTerms(shapes=shapes or {}))

    def session(self, **values: str) -> Any:
        return self.backend.open(self.build(**values), values)

    def failure(self, **values: str) -> CandidateError:
        with pytest.raises(CandidateError) as caught, self.session(**values) as session:
            session.run(INPUTS)
            session.bind(INPUTS)
            session.measure(1)
        return caught.value


def flags(arguments: list[str]) -> set[str]:
    """The options of one call, without what is a path."""
    return {one for one in arguments if "/" not in one}


# ---- finding the program


def test_a_program_that_is_missing_or_another_one_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "trtexec").write_text("#!/bin/sh\necho hello\n")
    with pytest.raises(BackendUnavailableError, match="there is no program") as caught:
        TrtexecBackend(tmp_path / "trtexec").environment()  # not executable
    assert "PATH" in caught.value.hint
    (tmp_path / "trtexec").chmod(0o755)
    with pytest.raises(BackendUnavailableError, match="does not answer like trtexec"):
        TrtexecBackend(tmp_path / "trtexec").environment()
    (tmp_path / "trtexec").write_bytes(b"\x00")
    with pytest.raises(BackendUnavailableError, match="cannot start"):
        TrtexecBackend(tmp_path / "trtexec").environment()


@pytest.mark.parametrize(("digits", "version"), [(V8, "8.6.1"), (V10, "10.16.0"), (V11, "11.1.0")])
def test_the_environment_names_the_version(tmp_path: Path, digits: str, version: str) -> None:
    found = World(tmp_path, digits=digits).backend.environment()
    assert (found.backend, found.backend_version) == ("trtexec", version)
    routes = "0.0.0-invented" if digits == V11 else "none: this version has no build routes"
    assert found.details["build_routes"] == routes
    assert found.device.startswith("cuda:")


def test_a_program_without_a_banner_is_asked_for_its_version(tmp_path: Path) -> None:
    world = World(tmp_path, rules=[("--help", "no_banner"), ("--version", "no_banner")])
    assert world.backend.environment().backend_version == "11.1.0"
    assert world.calls[1] == ["--version"]


def test_a_route_list_that_cannot_be_had_is_no_route_and_the_reason(tmp_path: Path) -> None:
    world = World(tmp_path, rules=[("--helpBuildRoute", "error")])
    assert "OutOfMemory" in world.backend.environment().details["build_routes"]
    assert not [knob for knob in world.backend.knobs(world.model, None).knobs if knob.kind == "route"]


# ---- knobs and arguments


def test_knobs_are_what_the_help_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modelopt.remove(monkeypatch)
    names: dict[str, dict[str, tuple[str, ...]]] = {}
    for digits in (V8, V10, V11):
        (tmp_path / digits).mkdir()
        world = World(tmp_path / digits, digits=digits)
        names[digits] = {knob.name: knob.values for knob in world.backend.knobs(world.model, None).knobs}
    assert names[V8]["precision"] == ("as-given", "fp16")
    assert names[V10]["precision"] == ("as-given", "fp16", "bf16", "strongly-typed")
    assert names[V11]["precision"] == ("as-given", "fp16", "fp16-mixed", "bf16", "bf16-mixed")
    assert "tiling" not in names[V8]
    assert names[V10]["tiling"][-1] == "full-l2-32MiB"
    assert {COPY, TILE} <= names[V11].keys() - names[V10].keys()
    assert all("cuda_graph" in found for found in names.values())


def test_a_model_is_quantized_before_the_program_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modelopt.install(tmp_path / "site", monkeypatch)
    model, inputs = onnx_models.mlp(tmp_path), tmp_path / "typical"
    save_tensors(inputs, {"x": np.linspace(-3, 3, 128, dtype=np.float32).reshape(2, 64)})
    terms = BuildTerms(shapes={"x": ShapeRange.fixed(2, 64)}, calibration=(inputs,))
    offered = {}
    for digits, expected in ((V8, {"--int8"}), (V10, {"--int8", "--fp16"}), (V11, set())):
        (tmp_path / digits).mkdir()
        world = World(tmp_path / digits, digits=digits)
        offered[digits] = world.backend.knobs(model, None).knobs[0].values
        world.backend.build(model, {"precision": "int8" if digits == V8 else "int8-fp16"}, tmp_path / digits, terms)
        (build,) = (call for call in world.calls if any(one.startswith("--onnx") for one in call))
        assert {one for one in build if one in ("--int8", "--fp16", "--fp8", "--stronglyTyped")} == expected
        assert next(one for one in build if one.startswith("--onnx")).endswith("/quantized.onnx")
        assert world.backend.environment().identity["modelopt"]
    assert "fp8" not in offered[V8]
    assert offered[V10][-3:] == ("fp8", "fp8-fp16", "strongly-typed")
    assert offered[V11][-2:] == ("fp8", "fp8-fp16")


@pytest.mark.parametrize("digits", [V8, V10, V11])
def test_every_argument_is_one_that_the_version_has(tmp_path: Path, digits: str) -> None:
    world = World(tmp_path, digits=digits)
    model = onnx_models.mlp(tmp_path)  # it has weights, which a conversion needs
    space = world.backend.knobs(model, None)
    values = {knob.name: next(v for v in knob.values[::-1] if v != knob.default) for knob in space.knobs}
    values["precision"] = "fp16"
    given = {"x": np.linspace(-3, 3, 128, dtype=np.float32).reshape(2, 64)}
    engine = world.build(model, {"x": ShapeRange.fixed(2, 64)}, **values)
    with world.backend.open(engine, values) as session:
        assert np.allclose(session.run(given)["y"], given["x"], rtol=1e-5)
        session.bind(given)
        assert session.measure(3) > 0
    build = next(call for call in world.calls if any(one.startswith("--onnx") for one in call))
    assert "--memPoolSize=workspace:1024,tacticSharedMem:0.09375" in build
    assert ("--fp16" in build) == (digits != V11)
    onnx = next(one for one in build if one.startswith("--onnx"))
    assert onnx.endswith("/mlp.onnx") == (digits != V11)  # from 11.0 on the model itself is converted


@pytest.mark.parametrize(
    ("digits", "graph", "checked", "timed"),
    [
        (V10, "off", {"--useSpinWait"}, {"--useSpinWait", "--noDataTransfers"}),
        (V10, "capture", {"--useSpinWait", "--useCudaGraph"}, {"--useSpinWait", "--noDataTransfers", "--useCudaGraph"}),
        (V11, "off", {"--noCudaGraph", "--includeDataTransfers"}, {"--noCudaGraph"}),
        (V11, "capture", {"--includeDataTransfers"}, set()),
    ],
)
def test_what_versions_take_differently_is_always_said(
    tmp_path: Path, digits: str, graph: str, checked: set[str], timed: set[str]
) -> None:
    world = World(tmp_path, digits=digits)
    with world.session(cuda_graph=graph) as session:
        session.run(INPUTS)
        session.bind(INPUTS)
        session.measure(1)
    build, check, timing = world.calls[-3:]
    assert "--avgTiming=8" in build
    assert flags(check) == {*checked, "--iterations=1", "--warmUp=0", "--duration=0"}
    assert flags(timing) == {*timed, "--iterations=10", "--warmUp=200", "--duration=0"}


def test_an_option_is_found_as_a_whole_word() -> None:
    offer = Offer("11.1.0", "", "  --shapesCalib=x\n  --onnx=<file>  not-an--option\n")
    assert offer.has("--onnx")
    assert not offer.has("--shapes")
    assert not offer.has("--option")


def test_names_with_separators_are_quoted() -> None:
    assert [quoted(name) for name in ("x", "in/put:0", "a,b")] == ["x", "'in/put:0'", "'a,b'"]


def test_dynamic_inputs_need_shapes_and_pass_them_on(tmp_path: Path) -> None:
    world = World(tmp_path)
    model = onnx_models.identity(tmp_path, "float32", ("n", 8))
    with pytest.raises(WorkloadError, match="'x' has dynamic dimensions"):
        world.build(model)
    engine = world.build(model, {"x": ShapeRange((1, 8), (4, 8), (16, 8))})
    assert {"--minShapes=x:1x8", "--optShapes=x:4x8", "--maxShapes=x:16x8"} <= set(world.calls[-1])
    with world.backend.open(engine, {}) as session:
        for rows in (1, 7):
            given = {"x": np.ones((rows, 8), np.float32)}
            assert session.run(given)["y"].shape == (rows, 8)
            assert f"--shapes=x:{rows}x8" in world.calls[-1]


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "bfloat16", "int8", "int32", "int64", "bool"])
def test_inputs_of_every_type_come_back(tmp_path: Path, kind: str) -> None:
    for digits in (V8, V11) if kind == "int64" else (V11,):
        (tmp_path / digits).mkdir()
        world = World(tmp_path / digits, digits=digits)
        model = onnx_models.identity(tmp_path, kind, (6,))
        given = onnx_models.sample(kind, (6,))
        with world.backend.open(world.build(model), {}) as session:
            found: Array = session.run({"x": given})["y"]
        assert found.dtype == given.dtype
        assert np.array_equal(found, given)


def test_inputs_that_tensorrt_has_no_type_for(tmp_path: Path) -> None:
    world = World(tmp_path, digits=V8)
    for kind, given in (("string", onnx_models.sample("string", (2,))), ("int64", np.array([1 << 40, 0], np.int64))):
        engine = world.build(onnx_models.identity(tmp_path, kind, (2,)))
        with world.backend.open(engine, {}) as session, pytest.raises(CandidateError) as caught:
            session.run({"x": given})
        assert caught.value.kind == FailureKind.UNSUPPORTED


# ---- engines


def test_the_engine_says_how_it_was_made(tmp_path: Path) -> None:
    world = World(tmp_path)
    engine = world.build(**{COPY: "off", TILE: "2"})
    folder = Path(engine.path).parent
    manifest = read_manifest(Path(engine.path))
    assert manifest.route.asked == manifest.route.used == f"-copy_ppg=off -{TILE.removeprefix('route:')}=2"
    assert (manifest.version, manifest.tuner_version) == ("11.1.0", "0.0.0-invented")
    assert manifest.warnings == ("An invented warning.",)
    command = (folder / "engine.command.txt").read_text()
    assert "'--setBuildRoute=-copy_ppg=off -kgen:codegen:cuda_tile=2'" in command
    assert str(tmp_path) not in command
    assert set(engine.sidecars) == {"engine.plan.json", "engine.command.txt", "engine.layers.json"}
    with world.backend.open(engine, {COPY: "off", TILE: "2"}) as session:
        assert session.effective["layers"] == "2"
        assert session.effective["build_route_used"] == manifest.route.used
    with pytest.raises(CandidateError) as caught:
        world.backend.open(engine, {COPY: "on"})
    assert caught.value.kind == FailureKind.FALLBACK


@pytest.mark.parametrize(
    ("where", "action", "kind", "words"),
    [
        ("--onnx", "error", FailureKind.OUT_OF_MEMORY, "OutOfMemory"),
        ("--onnx", "crash", FailureKind.CRASHED, "killed by SIGSEGV"),
        ("--onnx", "exit139", FailureKind.CRASHED, "killed by SIGSEGV"),
        ("--onnx", "no_engine", FailureKind.BUILD_FAILED, "wrote no engine"),
        ("--exportOutput", "error", FailureKind.OUT_OF_MEMORY, "does not run"),
        ("--exportOutput", "crash", FailureKind.CRASHED, "does not run"),
        ("--exportOutput", "no_file", FailureKind.RUN_FAILED, "did not write output.json"),
        ("--exportTimes", "error", FailureKind.OUT_OF_MEMORY, "cannot be timed"),
        ("--exportTimes", "no_file", FailureKind.RUN_FAILED, "did not write times.json"),
    ],
)
def test_failures_are_told_in_the_programs_words(
    tmp_path: Path, where: str, action: str, kind: FailureKind, words: str
) -> None:
    error = World(tmp_path, rules=[(where, action)]).failure()
    assert error.kind == kind
    assert words in str(error)


@pytest.mark.parametrize(
    ("action", "words"), [("other_route", "trtexec used"), ("silent_route", "does not say that it used one")]
)
def test_a_route_that_was_not_taken_is_a_fallback(tmp_path: Path, action: str, words: str) -> None:
    error = World(tmp_path, rules=[("--setBuildRoute", action)]).failure(**{COPY: "off"})
    assert error.kind == FailureKind.FALLBACK
    assert words in str(error)


def test_a_route_that_is_refused_is_unsupported_in_the_librarys_words(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.backend.knobs(world.model, None)
    # The program is replaced after its list was read: it no longer knows the knob.
    text = fake_trtexec.FAKE.read_text().replace('"-copy_ppg"', '"-gone"')
    (tmp_path / "other.py").write_text(text)
    script = world.backend._program.path
    Path(script).write_text(Path(script).read_text().replace(str(fake_trtexec.FAKE), str(tmp_path / "other.py")))
    error = world.failure(**{COPY: "off"})
    assert error.kind == FailureKind.UNSUPPORTED
    assert "'-copy_ppg' is not a valid knob" in str(error)


def test_a_damaged_engine_fails_when_it_is_run(tmp_path: Path) -> None:
    world = World(tmp_path)
    engine = world.build()
    Path(engine.path).write_text("nonsense")
    with world.backend.open(engine, {}) as session, pytest.raises(CandidateError, match="Serialization"):
        session.run(INPUTS)


# ---- bounds


def test_a_build_that_hangs_is_ended_with_everything_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    world = World(tmp_path, TrtexecSettings(build_limit_s=1.0), rules=[("--onnx", "hang")], pid_file=str(pids))
    error = world.failure()
    assert error.kind == FailureKind.TIMED_OUT
    assert not [pid for pid in map(int, pids.read_text().split()) if _lives(pid)]


def test_the_program_goes_when_we_are_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = fake_trtexec.install(tmp_path / "bin", rules=[("--onnx", "hang")], pid_file=str(pids))
    script = "import sys; from objectives.backends.trtexec_process import run; run(sys.argv[1:], 60)"
    with subprocess.Popen([sys.executable, "-c", script, str(program), "--onnx=x"]) as ours:
        _until(pids.exists)
        ours.send_signal(signal.SIGKILL)
    found = [int(pid) for pid in pids.read_text().split()]
    _until(lambda: not any(_lives(pid) for pid in found))


def test_a_program_that_prints_without_end_is_read_in_part(tmp_path: Path) -> None:
    ended = run(["/bin/sh", "-c", "head -c 20000000 /dev/zero; echo end; kill -9 $$"], 30)
    assert (ended.code, ended.signal) == (None, signal.SIGKILL)
    assert len(ended.text) == 16 << 20
    assert ended.text.endswith("end\n")
    assert ended.describe() == "was killed by SIGKILL"


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False


def _until(condition: Any) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)


# ---- timing


def test_one_call_feeds_many_measurements(tmp_path: Path) -> None:
    world = World(tmp_path)
    with world.session() as session:
        with pytest.raises(HarnessError, match="before bind"):
            session.measure(1)
        session.bind(INPUTS)
        before = len(world.calls)
        total_s = sum(session.measure(1) for _ in range(10))
        assert len(world.calls) == before + 1
        assert total_s == pytest.approx(10 * 0.5e-3, rel=0.02)
        assert session.measure(100) == pytest.approx(100 * 0.5e-3, rel=0.02)
        assert len(world.calls) == before + 2
        assert "--iterations=2000" in world.calls[-1]  # about a second of inferences of half a millisecond
        session.measure(1500)
        assert len(world.calls) == before + 2
        session.measure(1500)
        assert len(world.calls) == before + 3
        assert session.clock == "cuda_event"


def test_times_that_went_stale_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    with world.session() as session:
        session.bind(INPUTS)
        session.measure(1)
        before = len(world.calls)
        monkeypatch.setattr(trtexec_session, "_FRESH_S", 0.0)
        session.measure(1)
        assert len(world.calls) == before + 1


def test_new_inputs_are_timed_anew(tmp_path: Path) -> None:
    world = World(tmp_path)
    with world.session() as session:
        session.bind(INPUTS)
        session.measure(1)
        before = len(world.calls)
        session.bind(INPUTS)
        session.measure(1)
        assert len(world.calls) == before + 1


def test_a_faster_route_is_faster(tmp_path: Path) -> None:
    world = World(tmp_path)
    with world.session(**{COPY: "off"}) as session:
        session.bind(INPUTS)
        assert session.measure(10) == pytest.approx(10 * 0.4e-3, rel=0.02)


def test_what_trtexec_says_of_its_timing_is_a_flag(tmp_path: Path) -> None:
    world = World(tmp_path, rules=[("--exportTimes", "unstable")])
    with world.session() as session:
        session.bind(INPUTS)
        watch = session.watch()
        session.measure(1)
        assert "gpu_unstable" in watch.stop()[1]


def test_a_graph_that_was_not_captured_is_a_fallback(tmp_path: Path) -> None:
    world = World(tmp_path, rules=[("--exportTimes", "no_capture")])
    error = world.failure(cuda_graph="capture")
    assert error.kind == FailureKind.FALLBACK
    assert "capture failed" in str(error)


def test_a_graph_that_was_captured_is_said(tmp_path: Path) -> None:
    with World(tmp_path).session(cuda_graph="capture") as session:
        session.bind(INPUTS)
        session.measure(1)
        assert session.effective["graph"].startswith("captured")


def test_the_device_is_passed_on(tmp_path: Path) -> None:
    world = World(tmp_path, TrtexecSettings(device=1))
    with world.backend.open(world.build(), {}) as session:
        session.run(INPUTS)
    assert all("--device=1" in call for call in world.calls[-2:])
    assert world.backend.environment().device == "cuda:1"
