"""TensorRT-RTX, the REAL library, on a machine without a GPU: it parses and builds, and says what it does not take."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from objectives.backends import cuda_runtime, trt_timing_cache
from objectives.backends.trt_build import BuildSettings, new_builder
from objectives.backends.trt_log import Log
from objectives.backends.trt_manifest import read_manifest
from objectives.digest import digest_of_file
from objectives.errors import (
    BackendUnavailableError,
    CandidateError,
    HarnessError,
    InputError,
    KnobError,
    ModelError,
    WorkloadError,
)
from objectives.knobs import BASELINE, KnobKind
from objectives.outcome import FailureKind
from objectives.shapes import ShapeRange
from tests import onnx_models
from tests.objectives.backends import modelopt
from tests.objectives.backends.evaluation import trained
from tests.objectives.backends.fake_cuda import FakeCuda
from tests.objectives.backends.rtx import (
    BACKEND,
    FIXED,
    LIBRARY,
    NETWORKS,
    TensorRtRtxBackend,
    build,
    network,
    shapes_of,
)

TAKEN = ("float16", "float32", "float64", "bfloat16", "int8", "int32", "int64", "uint8", "bool")


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_runtime, "runtime", None)


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_trained_networks_build(name: str, tmp_path: Path) -> None:
    path, shapes = network(name)
    engine = build(path, tmp_path, shapes)
    plan = Path(engine.path)
    assert plan.stat().st_size > 1 << 20
    assert engine.digest == digest_of_file(plan)
    assert {file.name for file in plan.parent.iterdir()} == {"engine.plan", *engine.sidecars}
    manifest = read_manifest(plan)
    assert manifest.outputs == {spec.name: spec.dtype for spec in BACKEND.describe(path).outputs}
    assert manifest.profile == {key: [list(v.min), list(v.opt), list(v.max)] for key, v in shapes.items()}
    assert manifest.target == "SM89"


def test_a_network_that_is_not_supported_fails_in_the_librarys_words(tmp_path: Path) -> None:
    path = trained("silero_vad", "data/silero_vad.onnx")
    with pytest.raises(CandidateError, match="Error Code") as caught:
        build(path, tmp_path, {"input": FIXED(1, 512), "state": FIXED(2, 1, 128)})
    assert caught.value.kind in set(FailureKind)


@pytest.mark.parametrize("maker", [onnx_models.mlp, onnx_models.external, onnx_models.conv, onnx_models.control_flow])
def test_made_networks_build(maker: Callable[[Path], Path], tmp_path: Path) -> None:
    path = maker(tmp_path)
    assert build(path, tmp_path, shapes_of(path)).size_bytes


def test_a_shape_that_is_an_input_is_given_by_values(tmp_path: Path) -> None:
    path = onnx_models.expand(tmp_path)
    engine = build(path, tmp_path, {"shape": ShapeRange((1,), (8,), (64,))})
    assert read_manifest(Path(engine.path)).profile == {"shape": [[1], [8], [64]]}
    with pytest.raises(WorkloadError, match="'shape' has dynamic"):
        build(path, tmp_path, {})


@pytest.mark.parametrize("kind", onnx_models.DTYPES)
def test_every_input_type_builds_or_says_why_not(kind: str, tmp_path: Path) -> None:
    path = onnx_models.identity(tmp_path, kind, ("n", 3))
    if kind in TAKEN:
        manifest = read_manifest(Path(build(path, tmp_path, shapes_of(path)).path))
        assert manifest.inputs == {"x": kind}
        return
    with pytest.raises(CandidateError, match="UNSUPPORTED_NODE") as caught:
        build(path, tmp_path, shapes_of(path))
    assert caught.value.kind == FailureKind.UNSUPPORTED


def test_dimensions_of_one_name_may_have_several_sizes(tmp_path: Path) -> None:
    # Exporters call every dimension of unknown size alike, and the library takes that for a promise.
    path = onnx_models.identity(tmp_path, "float32", ("?", 3, "?"))
    before = path.read_bytes()
    assert build(path, tmp_path, {"x": FIXED(2, 3, 5)}).size_bytes
    assert build(path, tmp_path, {"x": FIXED(2, 3, 2)}).size_bytes
    assert path.read_bytes() == before


def test_models_and_shapes_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        build(tmp_path / "missing.onnx", tmp_path, {})
    with pytest.raises(CandidateError, match="Plugin not found"):
        build(onnx_models.unknown_operator(tmp_path), tmp_path, {})
    with pytest.raises(WorkloadError, match="dynamic dimensions"):
        build(onnx_models.mlp(tmp_path), tmp_path, {})
    with pytest.raises(WorkloadError, match="do not fit"):
        build(onnx_models.mlp(tmp_path), tmp_path, {"x": FIXED(2, 65)})


def test_the_same_candidate_builds_the_same_bytes(tmp_path: Path) -> None:
    path = onnx_models.conv(tmp_path)
    first, second = (build(path, tmp_path, shapes_of(path)) for _ in range(2))
    assert first.digest == second.digest
    assert first.sidecars == second.sidecars


def test_a_workspace_too_small_fails_in_the_librarys_words(tmp_path: Path) -> None:
    path, shapes = network("classifier")
    with pytest.raises(CandidateError, match="workspace limit"):
        build(path, tmp_path, shapes, BuildSettings(workspace_bytes=1 << 20))


def test_every_build_value_works_or_says_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modelopt.remove(monkeypatch)  # its values need typical inputs; test_trt_quantize.py gives them
    path = onnx_models.conv(tmp_path)
    space = TensorRtRtxBackend().knobs(path, BACKEND.describe(path))
    for knob in (one for one in space.knobs if one.kind != KnobKind.RUNTIME):
        for value in knob.values:
            values = {**space.values(BASELINE), knob.name: value}
            manifest = read_manifest(Path(build(path, tmp_path, shapes_of(path), None, **values).path))
            assert manifest.values[knob.name] == value


def test_unknown_knobs_and_values_are_refused(tmp_path: Path) -> None:
    path = onnx_models.conv(tmp_path)
    for values in ({"builder_optimization_level": "5"}, {"tf32": "maybe"}, {"route:copy_ppg": "off"}):
        with pytest.raises(KnobError):
            build(path, tmp_path, shapes_of(path), None, **values)


def test_another_compute_capability_is_another_plan(tmp_path: Path) -> None:
    path = onnx_models.conv(tmp_path)
    plans = {
        target: build(path, tmp_path, shapes_of(path), BuildSettings(compute_capability=target)).digest
        for target in ("SM89", "SM120")
    }
    assert plans["SM89"] != plans["SM120"]


def test_progress_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, steps = onnx_models.conv(tmp_path), list[str]()
    monkeypatch.setattr("objectives.backends.trt_monitor._QUIET_S", 0.0)
    build(path, tmp_path, shapes_of(path), on_step=steps.append)
    assert any(step.startswith("Building engine, ") for step in steps)
    assert len(steps) > 20


def test_a_build_over_its_limit_is_stopped(tmp_path: Path) -> None:
    path, shapes = network("recogniser")
    with pytest.raises(CandidateError, match=r"stopped after 0\.01 s") as caught:
        build(path, tmp_path, shapes, BuildSettings(limit_s=0.01))
    assert caught.value.kind == FailureKind.TIMED_OUT


def test_a_build_is_cancelled_from_another_thread(tmp_path: Path) -> None:
    path, shapes = network("recogniser")
    cancel, under_way = threading.Event(), threading.Event()

    def when_under_way() -> None:
        under_way.wait(60)
        cancel.set()

    def slowly(words: str) -> None:
        under_way.set()
        time.sleep(0.05)  # so that there is a build left to cancel

    thread = threading.Thread(target=when_under_way)
    thread.start()
    with pytest.raises(HarnessError, match="cancelled in"):
        build(path, tmp_path, shapes, BuildSettings(cancel=cancel), slowly)
    thread.join()
    assert build(path, tmp_path, shapes).size_bytes, "the next build is not harmed"


def test_what_a_listener_raises_comes_back_out_of_the_library(tmp_path: Path) -> None:
    def fail(words: str) -> None:
        raise KeyError(words)

    path = onnx_models.conv(tmp_path)
    with pytest.raises(KeyError):
        build(path, tmp_path, shapes_of(path), on_step=fail)


def test_this_library_has_no_timing_cache(tmp_path: Path) -> None:
    config = new_builder(LIBRARY).create_builder_config()
    with pytest.raises(InputError, match="no timing cache"):
        trt_timing_cache.load(config, None, Log())


def test_options_are_checked() -> None:
    backend = TensorRtRtxBackend()
    with pytest.raises(InputError, match="does not build for 'SM1'"):
        backend.configure({"compute-capability": "SM1"})
    with pytest.raises(InputError, match="no option 'timing-cache'"):
        backend.configure({"timing-cache": "baseline"})
    backend.configure({"compute-capability": "SM86", "workspace": "64M", "build-timeout": "1m"})
    assert backend.environment().identity["target"] == "SM86"
    assert backend.settings.workspace_bytes == 64 << 20
    assert backend.settings.limit_s == 60


def test_this_library_has_no_build_routes_and_says_nothing_when_one_is_set(tmp_path: Path) -> None:
    config = new_builder(LIBRARY).create_builder_config()
    assert config.all_build_routes == ""
    config.build_route = "-copy_ppg=off"
    assert config.build_route == ""  # which is what our reading back is for


def test_engines_cannot_be_run_here(tmp_path: Path) -> None:
    path = onnx_models.conv(tmp_path)
    engine = build(path, tmp_path, shapes_of(path))
    assert "cannot be run here" in BACKEND.cannot_run()
    with pytest.raises(BackendUnavailableError, match="cannot be run here"):
        BACKEND.open(engine, {})


def test_the_environment_says_what_is_built_for() -> None:
    found = BACKEND.environment()
    assert (found.backend, found.backend_version) == ("tensorrt-rtx", LIBRARY.__version__)
    assert found.device == ""
    assert found.identity == {"gpu": "none, build only", "target": "SM89"}
    other = type(BACKEND)(BuildSettings(compute_capability="SM120")).environment()
    assert other.digest != found.digest


@pytest.mark.parametrize(("capability", "runs"), [((8, 9), True), ((12, 0), True), ((9, 0), False), ((7, 0), False)])
def test_a_gpu_is_usable_if_the_library_knows_it(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], runs: bool
) -> None:
    monkeypatch.setattr(cuda_runtime, "runtime", FakeCuda(capability=capability))
    sentence = BACKEND.cannot_run()
    assert (sentence == "") == runs
    assert runs or "does not support NVIDIA Fake" in sentence
    own = f"SM{capability[0]}{capability[1]}"
    assert BACKEND.environment().identity["target"] == (own if runs else "SM89")


def test_the_reference_is_onnx_runtimes(tmp_path: Path) -> None:
    path = onnx_models.mlp(tmp_path)
    inputs = {"x": np.ones((2, 64), np.float32)}
    assert BACKEND.reference(path, inputs)["y"].shape == (2, 8)


def test_the_model_is_not_touched(tmp_path: Path) -> None:
    path = onnx_models.external(tmp_path)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    for precision in ("as-given", "fp16", "bf16"):
        build(path, tmp_path, shapes_of(path), None, precision=precision)
    assert {file: file.read_bytes() for file in before} == before
    assert onnx.load(str(path)).graph.node
