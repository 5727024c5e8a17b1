"""Builds over the FAKE library: routes that take and that do not, what is asked of which version, timing cache, ends.

What the enterprise library really does is for a machine that has it; here is what our code makes of what it says.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from objectives.backends import trt_errors, trt_timing_cache
from objectives.backends.base import BuildTerms
from objectives.backends.trt_build import BuildSettings
from objectives.backends.trt_log import Log, capture, recorder
from objectives.backends.trt_manifest import read_manifest
from objectives.digest import digest_of_file
from objectives.errors import (
    BackendUnavailableError,
    CandidateError,
    HarnessError,
    InputError,
    KnobError,
    WorkloadError,
)
from objectives.knobs import KnobKind
from objectives.outcome import FailureKind
from objectives.shapes import ShapeRange
from tests import onnx_models
from tests.objectives.backends.fake_tensorrt import FakeTensorRT, MemoryPoolType, Severity
from tests.objectives.backends.trt_fakes import ROUTES, backend, identity

CHANGED = {"route:conv_use_long_w": "off", "route:peep:max": "4"}
ROUTE = "-conv_use_long_w=off -peep:max=4"


@pytest.fixture
def library() -> FakeTensorRT:
    return FakeTensorRT(routes=ROUTES)


def build(library: FakeTensorRT, folder: Path, settings: BuildSettings | None = None, **values: str) -> Path:
    return Path(backend(library, settings).build(identity(folder), values, folder).path)


def refused(library: FakeTensorRT, folder: Path, **values: str) -> CandidateError:
    with pytest.raises(CandidateError) as caught:
        build(library, folder, **values)
    assert not (folder / "engine.plan").exists()
    return caught.value


def test_a_route_that_takes(library: FakeTensorRT, tmp_path: Path) -> None:
    manifest = read_manifest(build(library, tmp_path, **CHANGED))
    assert manifest.route.asked == manifest.route.read_back == ROUTE
    assert manifest.route.used == f"-conv_lowering=on {ROUTE}"
    assert manifest.tuner_version == "0.0.0-invented"
    assert manifest.values["route:peep:max"] == "4"
    assert manifest.warnings == ("a warning",)


def test_the_default_touches_no_route(library: FakeTensorRT, tmp_path: Path) -> None:
    library.conduct = "refuse at once"
    manifest = read_manifest(build(library, tmp_path, **{"route:peep:max": "1"}))
    assert (manifest.route.asked, manifest.route.used) == ("", None)


@pytest.mark.parametrize(
    ("conduct", "kind", "words"),
    [
        ("refuse at once", FailureKind.UNSUPPORTED, "must match format"),
        ("ignore", FailureKind.FALLBACK, "holds ''"),
        ("refuse in the build", FailureKind.BUILD_FAILED, "'-conv_use_long_w' is not a valid knob"),
        ("complain", FailureKind.FALLBACK, "empty allBuildRoutes"),
        ("override", FailureKind.FALLBACK, "the library used '-copy_ppg=on'"),
        ("out of memory", FailureKind.OUT_OF_MEMORY, "Requested size"),
    ],
)
def test_a_route_that_does_not_take(
    library: FakeTensorRT, tmp_path: Path, conduct: str, kind: FailureKind, words: str
) -> None:
    library.conduct = conduct
    error = refused(library, tmp_path, **CHANGED)
    assert (error.kind, words in str(error)) == (kind, True), str(error)


def test_a_library_that_says_nothing_is_recorded_as_such(library: FakeTensorRT, tmp_path: Path) -> None:
    library.conduct = "say nothing"
    assert read_manifest(build(library, tmp_path, **CHANGED)).route.used is None


@pytest.mark.parametrize("values", [{"route:peep:max": "5"}, {"route:nonsense": "on"}, {"precision": "fp4"}])
def test_bad_values_are_ours_to_refuse(library: FakeTensorRT, tmp_path: Path, values: dict[str, str]) -> None:
    with pytest.raises(KnobError):
        build(library, tmp_path, **values)


def test_ranges_of_the_users_reach_the_knobs(library: FakeTensorRT, tmp_path: Path) -> None:
    ranged = backend(library, BuildSettings(ladders={"peep:max": (1, 3)}))
    path = identity(tmp_path)
    knobs = {knob.name: knob for knob in ranged.knobs(path, ranged.describe(path)).knobs}
    assert knobs["route:peep:max"].values == ("1", "3")


def test_versions_without_routes_have_no_route_knobs(tmp_path: Path) -> None:
    for version, routes in (("8.6.1", ""), ("10.16.0", ""), ("11.0.0", "")):
        space = backend(FakeTensorRT(version, routes)).knobs(
            Path(), backend(FakeTensorRT()).describe(identity(tmp_path))
        )
        assert not [knob for knob in space.knobs if knob.kind == KnobKind.ROUTE]


@pytest.mark.parametrize(("version", "flags"), [("8.6.1", 1), ("10.9.0", 0), ("11.1.0", 1)])
def test_networks_are_made_as_each_version_wants_them(tmp_path: Path, version: str, flags: int) -> None:
    library = FakeTensorRT(version)
    build(library, tmp_path)
    # 8.6: explicit batch (bit 0). 10: nothing. 11: strongly typed, which is bit 0 there and always so.
    assert library.network_flags == [flags]


def test_without_a_gpu_the_enterprise_library_is_unavailable(library: FakeTensorRT, tmp_path: Path) -> None:
    library.has_gpu = False
    with pytest.raises(BackendUnavailableError, match="CUDA initialization failure"):
        build(library, tmp_path)


def test_an_operator_that_nobody_knows(library: FakeTensorRT, tmp_path: Path) -> None:
    with pytest.raises(CandidateError, match="Plugin not found") as caught:
        backend(library).build(onnx_models.unknown_operator(tmp_path), {}, tmp_path)
    assert caught.value.kind == FailureKind.UNSUPPORTED


def test_dynamic_inputs_need_shapes_that_fit(library: FakeTensorRT, tmp_path: Path) -> None:
    path = identity(tmp_path, shape=("n", 3))
    wide = ShapeRange((1, 3), (2, 3), (4, 3))
    assert backend(library).build(path, {}, tmp_path, BuildTerms(shapes={"x": wide})).size_bytes
    profile = library.configs[-1].profiles[0]
    assert profile.shapes == {"x": ((1, 3), (2, 3), (4, 3))}
    with pytest.raises(WorkloadError, match="'x' has dynamic dimensions"):
        backend(library).build(path, {}, tmp_path)
    for wrong in (ShapeRange.fixed(1, 4), ShapeRange.fixed(1), ShapeRange((1, 2), (1, 3), (1, 3))):
        with pytest.raises(WorkloadError, match="do not fit"):
            backend(library).build(path, {}, tmp_path, BuildTerms(shapes={"x": wrong}))


@pytest.mark.parametrize("shapes", [((2,), (1,), (3,)), ((1,), (1, 1), (1,)), ((1,), (3,), (2,))])
def test_a_range_is_in_order(shapes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]) -> None:
    with pytest.raises(WorkloadError, match="no minimum"):
        ShapeRange(*shapes)


def test_the_workspace_limit_holds_for_knobs_too(library: FakeTensorRT, tmp_path: Path) -> None:
    settings = BuildSettings(workspace_bytes=100 << 20)
    for value, expected in (("all", 100 << 20), ("64MiB", 64 << 20), ("256MiB", 100 << 20)):
        build(library, tmp_path, settings, workspace=value)
        assert library.configs[-1].get_memory_pool_limit(MemoryPoolType.WORKSPACE) == expected


def test_a_setting_that_does_not_take_is_a_fallback(
    library: FakeTensorRT, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = backend(library)
    assert one.knobs(Path(), one.describe(identity(tmp_path))).knobs
    monkeypatch.setattr("objectives.backends.trt_build.apply", lambda config, settings: list(settings))
    with pytest.raises(CandidateError, match="tf32: asked for False") as caught:
        one.build(identity(tmp_path), {"tf32": "off"}, tmp_path)
    assert caught.value.kind == FailureKind.FALLBACK


KEEPS = BuildSettings(keeps_timings=True)


def test_the_timing_cache_starts_from_a_file_that_stays(library: FakeTensorRT, tmp_path: Path) -> None:
    frozen = tmp_path / "frozen"
    frozen.write_bytes(b"seen")
    one, path = backend(library, KEEPS), identity(tmp_path)
    engines = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        engines.append(one.build(path, {}, tmp_path / name, BuildTerms(cache=frozen)))
    first, second = (read_manifest(Path(engine.path)).timing_cache for engine in engines)
    assert first is not None
    assert first == second  # nothing leaks from one build into the next
    assert frozen.read_bytes() == b"seen"
    left = Path(engines[0].path).with_name(engines[0].cache)
    assert left.read_bytes() == b"seen+1"
    assert engines[0].sidecars[left.name] == first[1] == digest_of_file(left)


def test_without_a_cache_to_start_from_it_is_empty(library: FakeTensorRT, tmp_path: Path) -> None:
    manifest = read_manifest(build(library, tmp_path, KEEPS))
    assert manifest.timing_cache is not None
    assert (tmp_path / trt_timing_cache.FILE).read_bytes() == b"+1"


def test_no_timing_cache_unless_asked_for(library: FakeTensorRT, tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"seen")
    engine = backend(library).build(identity(tmp_path), {}, tmp_path, BuildTerms(cache=tmp_path / "cache"))
    assert read_manifest(Path(engine.path)).timing_cache is None
    assert engine.cache == ""
    assert not (tmp_path / trt_timing_cache.FILE).exists()


def test_a_timing_cache_of_another_device_stops_the_study(library: FakeTensorRT, tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"other device")
    with pytest.raises(HarnessError, match="was not taken"):
        backend(library, KEEPS).build(identity(tmp_path), {}, tmp_path, BuildTerms(cache=tmp_path / "cache"))


def test_a_version_without_timing_cache_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no timing cache"):
        trt_timing_cache.load(object(), None, Log())


def test_progress_is_reported(library: FakeTensorRT, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("objectives.backends.trt_monitor._QUIET_S", 0.0)
    steps: list[str] = []
    backend(library).build(identity(tmp_path), {}, tmp_path, BuildTerms(on_step=steps.append))
    assert steps == [f"Building engine, {done} of 3" for done in (1, 2, 3)]


def test_progress_of_thousands_of_steps_is_a_few_words(library: FakeTensorRT, tmp_path: Path) -> None:
    steps: list[str] = []
    backend(library).build(identity(tmp_path), {}, tmp_path, BuildTerms(on_step=steps.append))
    assert steps == ["Building engine, 1 of 3"]


def test_a_build_over_its_limit_is_timed_out(library: FakeTensorRT, tmp_path: Path) -> None:
    with pytest.raises(CandidateError, match="stopped after 0 s, in 'Building engine', step 1 of 3") as caught:
        build(library, tmp_path, BuildSettings(limit_s=0))
    assert caught.value.kind == FailureKind.TIMED_OUT


def test_a_cancelled_build_says_nothing_about_the_candidate(library: FakeTensorRT, tmp_path: Path) -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(HarnessError, match="cancelled in 'Building engine'"):
        build(library, tmp_path, BuildSettings(cancel=cancel, limit_s=100))


def test_the_manifest_is_asked_for_what_it_knows(library: FakeTensorRT, tmp_path: Path) -> None:
    plan = build(library, tmp_path)
    file = tmp_path / "engine.plan.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": 2}))
    with pytest.raises(CandidateError, match="has format 2"):
        read_manifest(plan)
    for content in ("{", "{}"):
        file.write_text(content)
        with pytest.raises(CandidateError, match="not built by this backend"):
            read_manifest(plan)
    file.unlink()
    with pytest.raises(CandidateError, match="not built by this backend"):
        read_manifest(plan)


def test_the_log_keeps_what_is_worth_keeping(library: FakeTensorRT) -> None:
    with capture(library) as outer:
        recorder(library).log(Severity.ERROR, " twice ")
        with capture(library) as inner:
            recorder(library).log(Severity.ERROR, "twice")
            recorder(library).log(Severity.VERBOSE, "one of thousands of lines")
            recorder(library).log(Severity.VERBOSE, "Using build route: -a=1")
            recorder(library).log(Severity.WARNING, "careful")
    recorder(library).log(Severity.ERROR, "unheard")
    assert outer.errors == inner.errors == ("twice",)
    assert inner.warnings == ("careful",)
    assert [len(log.messages) for log in (outer, inner)] == [4, 3]


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("Error Code 2: OutOfMemory (no further information)",), FailureKind.OUT_OF_MEMORY),
        (("UNSUPPORTED_NODE: nonsense",), FailureKind.UNSUPPORTED),
        (("anything else",), FailureKind.BUILD_FAILED),
        (("cudaError 35", "anything else"), FailureKind.BUILD_FAILED),
        ((), FailureKind.BUILD_FAILED),
    ],
)
def test_failures_keep_the_librarys_words(words: tuple[str, ...], kind: FailureKind) -> None:
    log = Log()
    for text in words:
        log.add("ERROR", text)
    error = trt_errors.failure(log, FailureKind.BUILD_FAILED, "the builder gave no engine")
    assert error.kind == kind
    assert (words[-1] if words else "gave no reason") in str(error)
    assert "cudaError 35" not in str(error)
