"""trtexec's tuning caches: read, mapped to a study's knobs, written, replayed. All values in them are INVENTED."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from objectives.errors import KnobError
from objectives.knobs import BASELINE, Candidate, Knob, KnobKind, KnobSpace
from objectives.landscape import Fault, Interaction, Landscape, SimulatedKnob
from objectives.shapes import ShapeRange
from tests.tuner.conftest import MakeStudy, Study, make_study
from tuner.api import run_study, show_study
from tuner.cli import trtexec as command
from tuner.errors import UsageError
from tuner.spec import Budget, StudySpec
from tuner.trtexec import cache_of, import_cache, replay_command, warm_start
from tuner.trtexec_cache import Header, Row, TuningCache, read_cache, write_cache

ROUTE, BUILDER, RUNTIME = KnobKind.ROUTE, KnobKind.BUILDER, KnobKind.RUNTIME
SPACE = KnobSpace(
    (
        Knob("precision", ("as-given", "fp16"), "as-given", KnobKind.PRECISION, "-"),
        Knob("avg_timing_iterations", ("1", "8"), "1", BUILDER, "-"),
        Knob("tf32", ("on", "off"), "on", BUILDER, "-"),
        Knob("workspace", ("all", "64MiB"), "all", BUILDER, "-"),
        Knob("tactic_shared_memory", ("all", "48KiB"), "all", BUILDER, "-"),
        Knob("preview:invented", ("on", "off"), "on", BUILDER, "-"),
        Knob("route:copy_ppg", ("on", "off"), "on", ROUTE, "-"),
        Knob("route:kgen:codegen:cuda_tile", ("0", "1", "2", "3"), "1", ROUTE, "-"),
        Knob("cuda_graph", ("off", "capture"), "off", RUNTIME, "-"),
    )
)
COPY, TILE = "route:copy_ppg", "route:kgen:codegen:cuda_tile"
HEADER = {
    "tuner_version": "0.0.0",
    "accuracy_algorithm": "L0",
    "accuracy_parameter": {"atol": 9.999999747378752e-06, "rtol": 9.999999747378752e-06, "epsilon": 0.05},
    "searching_algorithm": "mixed",
    "command_line": "trtexec --onnx=m.onnx",
    "default_build_route": "-copy_ppg=on -kgen:codegen:cuda_tile=1 -elsewhere=a",
    "tuning_expr": "-copy_ppg=[on|off] -kgen:codegen:cuda_tile=[0|1|2]",
    "files": {"onnx": "m.onnx"},
    "argv": ["trtexec", "--onnx=m.onnx"],
}


def row(number: int, route: str, time: float | None = 1.0, **more: Any) -> dict[str, Any]:
    found = {"iter": number, "build_route": route, "crash": False, "error_message": "", "accuracy_loss": None}
    return {**found, "gpu_time": time, **more}


def cache_file(folder: Path, *lines: Any, end: str = "\n") -> Path:
    path = folder / "best_config.json"
    path.write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in lines) + end)
    return path


def candidate(**changes: str) -> Candidate:
    return SPACE.candidate({f"route:{name.replace('__', ':')}": value for name, value in changes.items()})


# ---- reading


def test_a_cache_is_read_with_its_header(tmp_path: Path) -> None:
    cache = read_cache(cache_file(tmp_path, HEADER, row(0, "-copy_ppg=on", 1.25, accuracy_loss={"y": 0.0})))
    assert cache.header.tuning_expr == HEADER["tuning_expr"]
    assert cache.header.argv == ("trtexec", "--onnx=m.onnx")
    assert cache.rows == (Row(0, "-copy_ppg=on", False, "", {"y": 0.0}, 1.25),)
    assert cache.faults == ()


@pytest.mark.parametrize("cut", [1, 5, 20, 60])
def test_a_last_line_that_was_cut_off_is_a_fault_and_no_error(tmp_path: Path, cut: int) -> None:
    last = json.dumps(row(1, "-copy_ppg=off"))[:-cut]
    cache = read_cache(cache_file(tmp_path, HEADER, row(0, "-copy_ppg=on"), last, end=""))
    assert len(cache.rows) == 1
    assert len(cache.faults) == 1
    assert "line 3" in cache.faults[0]
    assert "cut off" in cache.faults[0]


def test_a_line_that_was_cut_off_and_gone_on_from_costs_that_line(tmp_path: Path) -> None:
    glued = json.dumps(row(1, "-copy_ppg=off"))[:30] + json.dumps(row(2, "-copy_ppg=off"))
    cache = read_cache(cache_file(tmp_path, HEADER, row(0, ""), glued, "", row(3, ""), "[1]", '{"odd": 1}', HEADER))
    assert [one.iter for one in cache.rows] == [0, 3]
    assert len(cache.faults) == 4


def test_odd_rows_and_headers_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    bare = {"iter": 7, "build_route": "-copy_ppg=off", "gpu_time": 2, "new_key": [1]}
    wrong = row(8, "-copy_ppg=off", time=None) | {"gpu_time": "fast"}
    cache = read_cache(cache_file(tmp_path, {"tuning_expr": "x", "files": None}, bare, wrong))
    assert cache.rows == (Row(7, "-copy_ppg=off", gpu_time=2.0),)
    assert "line 3" in cache.faults[0]
    headless = read_cache(cache_file(tmp_path, bare))
    assert headless.header == Header()
    assert headless.faults == ("there is no header line",)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"hello", b"\xff\xfe\x00", b"[]", b'{"tuner": 1}', b"null"])
def test_what_is_no_cache_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "cache"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is not a tuning cache") as caught:
        read_cache(path)
    assert "tuningCacheFile" in caught.value.hint


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(UsageError, match="cannot read"):
            read_cache(path)


# ---- warm start


def test_candidates_come_fastest_first_without_the_default(tmp_path: Path) -> None:
    rows = [
        row(0, "-copy_ppg=on -kgen:codegen:cuda_tile=1", 1.0),
        row(1, "-copy_ppg=on -kgen:codegen:cuda_tile=2", 0.9),
        row(2, "-copy_ppg=off -kgen:codegen:cuda_tile=1", 0.8),
        row(0, "-copy_ppg=off -kgen:codegen:cuda_tile=2", 0.7),  # phase 2 counts from 0 again
        row(1, "-kgen:codegen:cuda_tile=1 -copy_ppg=off", 0.4),  # measured again, in another order
    ]
    found = warm_start(read_cache(cache_file(tmp_path, HEADER, *rows)), SPACE)
    off, both, tile = candidate(copy_ppg="off"), {COPY: "off", TILE: "2"}, candidate(kgen__codegen__cuda_tile="2")
    assert found.candidates == [off, SPACE.candidate(both), tile]
    assert [one.gpu_time_ms for one in found.proposed] == pytest.approx([0.6, 0.7, 0.9])
    assert [one.rows for one in found.proposed] == [2, 1, 1]
    assert found.default_ms == 1.0
    assert (found.dropped, found.notes) == ((), ())


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (row(1, "-copy_ppg=off", None, crash=True, error_message="child killed by signal 11 (SIGSEGV)"), "it crashed"),
        (row(1, "-copy_ppg=off", 0.1, error_message="child exited with status 1"), "it failed: child exited"),
        (row(1, "-copy_ppg=off", None), "no time"),
        (row(1, "-copy_ppg=off", 0.0), "no time"),
        (row(1, "-copy_ppg=off", -1.0), "no time"),
        (row(1, "-copy_ppg=off", math.inf), "no time"),
        (row(1, "-copy_ppg=off", math.nan), "no time"),
        (row(1, "-vanished=1"), "unknown knob -vanished"),
        (row(1, "-elsewhere=b"), "unknown knob -elsewhere"),
        (row(1, "-copy_ppg=maybe"), "-copy_ppg has no value 'maybe'"),
        (row(1, "-copy_ppg=off -copy_ppg=on"), "twice"),
        (row(1, "-copy_ppg"), "not of the form"),
        (row(1, "copy_ppg=off"), "not of the form"),
        (row(1, "-tf32=off"), "unknown knob -tf32"),  # a knob of ours, but none of a route
    ],
)
def test_rows_that_give_no_candidate_are_named_with_the_reason(
    tmp_path: Path, wrong: dict[str, Any], reason: str
) -> None:
    found = warm_start(read_cache(cache_file(tmp_path, HEADER, row(0, ""), wrong)), SPACE)
    assert found.proposed == ()
    assert [one.build_route for one in found.dropped] == [wrong["build_route"]]
    assert reason in found.dropped[0].reason


def test_a_knob_outside_the_study_at_its_default_says_nothing(tmp_path: Path) -> None:
    found = warm_start(read_cache(cache_file(tmp_path, HEADER, row(1, "-elsewhere=a -copy_ppg=off"))), SPACE)
    assert found.candidates == [candidate(copy_ppg="off")]


def test_defaults_that_changed_since_are_noted(tmp_path: Path) -> None:
    header = {**HEADER, "default_build_route": "-copy_ppg=off -kgen:codegen:cuda_tile=1"}
    found = warm_start(read_cache(cache_file(tmp_path, header, row(0, "-copy_ppg=off"))), SPACE)
    assert found.candidates == [candidate(copy_ppg="off")]  # as named, whatever was the default there
    assert found.notes == ("-copy_ppg: the default was 'off' in the cache, here it is 'on'",)


def test_only_the_first_are_taken_and_the_rest_is_noted(tmp_path: Path) -> None:
    rows = [row(number, f"-kgen:codegen:cuda_tile={number}", 2.0 - number / 10) for number in (0, 2, 3)]
    cache = read_cache(cache_file(tmp_path, HEADER, *rows))
    found = warm_start(cache, SPACE, first=1)
    assert found.candidates == [candidate(kgen__codegen__cuda_tile="3")]
    assert found.notes == ("2 slower candidate(s) are not among the first 1",)
    assert len(warm_start(cache, SPACE, first=None).proposed) == 3


def test_an_import_stores_what_it_found(tmp_path: Path) -> None:
    stored: list[Any] = []

    def store(name: str, storage: str, found: Sequence[Candidate]) -> None:
        stored.append((name, storage, list(found)))

    path = cache_file(tmp_path, HEADER, row(0, ""), row(1, "-copy_ppg=off", 0.5))
    report = import_cache("ocr", path, "url", space_of=lambda name, storage: SPACE, store=store)
    assert stored == [("ocr", "url", report.candidates)]
    useless = cache_file(tmp_path, HEADER, row(0, ""), row(1, "-gone=1"))
    with pytest.raises(UsageError, match="none of the 2 row"):
        import_cache("ocr", useless, "url", space_of=lambda name, storage: SPACE, store=store)
    assert len(stored) == 1


# ---- writing


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    rows = (
        Row(0, "", False, "", {"größe": 0.0, "z": None}, 1.5),
        Row(1, "-copy_ppg=off", True, "crashed", None, None),
    )
    cache = TuningCache(
        Header("1.2.3", "L0", {"epsilon": 0.1}, "fast", "trtexec", "-a=b", "-a=[b|c]", {}, ("x",)), rows
    )
    path = tmp_path / "ü.json"
    write_cache(path, cache)
    assert read_cache(path) == cache
    first, second, _ = path.read_text().splitlines()
    assert list(json.loads(first)) == list(HEADER)
    assert list(json.loads(second)) == list(row(0, ""))
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    with pytest.raises(UsageError, match="cannot write"):
        write_cache(tmp_path / "missing" / "cache", cache)


# ---- replaying


def test_a_candidate_is_replayed_by_one_command() -> None:
    changes = {COPY: "off", TILE: "2", "tf32": "off", "workspace": "64MiB", "tactic_shared_memory": "48KiB"}
    found = replay_command(SPACE.candidate(changes), SPACE, backend="tensorrt", version="11.1.0", model="my model.onnx")
    assert shlex.split(found.command) == [
        "trtexec",
        "--onnx=my model.onnx",
        "--saveEngine=best.plan",
        "--noTF32",
        "--avgTiming=1",
        "--setBuildRoute=-copy_ppg=off -kgen:codegen:cuda_tile=2",
        "--memPoolSize=workspace:64,tacticSharedMem:0.046875",
        "--noCudaGraph",
    ]
    assert len(found.notes) == 1


def test_the_command_fits_the_version() -> None:
    fast = SPACE.candidate({"precision": "fp16", "cuda_graph": "capture"})
    old = replay_command(fast, SPACE, backend="tensorrt", version="10.3.0")
    words = {"--fp16", "--useCudaGraph", "--noDataTransfers", "--useSpinWait"}
    assert words <= set(shlex.split(old.command))
    new = replay_command(fast, SPACE, backend="tensorrt", version="11.4.0")
    assert not words & set(shlex.split(new.command))
    assert "--noCudaGraph" not in new.command
    assert "convert it to fp16" in new.notes[0]


def test_the_command_says_what_the_study_left_alone() -> None:
    routes, shapes = SPACE.select(["route"]), {"in:0": ShapeRange((1, 8), (4, 8), (16, 8)), "n": ShapeRange.fixed(3)}
    for backend, runs in (("tensorrt", 1), ("trtexec", 8)):
        found = replay_command(BASELINE, routes, backend=backend, version="11.1.0", shapes=shapes)
        assert {
            f"--avgTiming={runs}",
            "--noCudaGraph",
            "--minShapes='in:0':1x8,n:3",
            "--optShapes='in:0':4x8,n:3",
            "--maxShapes='in:0':16x8,n:3",
        } <= set(shlex.split(found.command))


def test_what_has_no_option_is_said() -> None:
    found = replay_command(SPACE.candidate({"preview:invented": "off"}), SPACE, backend="tensorrt", version="11.1.0")
    assert found.notes[0] == "preview:invented=off: trtexec has no option for it"
    assert replay_command(BASELINE, SPACE, backend="tensorrt", version="").command.startswith(
        "trtexec --onnx=model.onnx"
    )
    with pytest.raises(KnobError):
        replay_command(Candidate((("gone", "1"),)), SPACE, backend="tensorrt", version="11.1.0")


# ---- a study


def switch(name: str, effect: float, kind: KnobKind = ROUTE) -> SimulatedKnob:
    return SimulatedKnob(name, ("on", "off"), "on", {"off": effect}, kind)


def problem() -> Landscape:
    """Two route knobs, one of them inaccurate, both together impossible; and one knob of another kind."""
    knobs = (switch("route:fast", -0.3), switch("route:rough", -0.5), switch("other", 0.1, BUILDER))
    interactions = (
        Interaction({"route:rough": "off"}, loss=0.5),
        Interaction({"route:rough": "off", "route:fast": "off"}, fault=Fault.BUILD_FAILED),
    )
    return Landscape(knobs=knobs, interactions=interactions, repeatable=True, noise=0.001)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A study with every candidate tried; only looked at."""
    study = make_study(tmp_path_factory.mktemp("done"), problem(), budget=Budget(8))
    run_study(study.name, storage=study.url)
    return study


@pytest.fixture
def study(new_study: MakeStudy) -> Study:
    """A study that has not been run."""
    return new_study(problem(), budget=Budget(8))


def test_trials_become_rows(done: Study, tmp_path: Path) -> None:
    view = show_study(done.name, storage=done.url)
    found = cache_of(view.contexts[0].trials, view.contexts[0].context.space, view.spec.judging, model="m.json")
    assert len(found.left_out) == 4
    assert "not other=off" in found.left_out[0][1]
    rows = {one.build_route: one for one in found.cache.rows}
    assert set(rows) == {"", "-fast=off", "-rough=off", "-fast=off -rough=off"}
    assert rows["-fast=off"].why_unusable == rows[""].why_unusable == ""
    assert (rows["-rough=off"].crash, rows["-rough=off"].gpu_time) == (False, None)
    assert rows["-rough=off"].accuracy_loss
    assert "rel_l2" in rows["-rough=off"].error_message
    assert rows["-fast=off -rough=off"].crash
    header = found.cache.header
    assert header.default_build_route == "-fast=on -rough=on"
    assert header.tuning_expr == "-fast=[on|off] -rough=[on|off]"
    assert header.accuracy_parameter == {"atol": 1e-5, "rtol": 1e-5, "epsilon": 0.01}
    write_cache(tmp_path / "cache", found.cache)
    again = warm_start(read_cache(tmp_path / "cache"), view.contexts[0].context.space)
    assert again.candidates == [Candidate((("route:fast", "off"),))]
    assert len(again.dropped) == 2


def invoke(*words: object) -> None:
    command.trtexec.main(args=[str(word) for word in words], standalone_mode=False)


def test_export_writes_a_cache_and_says_the_command(
    done: Study, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.json"
    invoke("export", *done.at, "-o", path)
    out = capsys.readouterr().out
    assert f"wrote 4 row(s) to {path}" in out
    assert "--setBuildRoute=-fast=off" in out
    assert len(read_cache(path).rows) == 4
    invoke("export", *done.at, "--json")
    found = json.loads(capsys.readouterr().out)
    assert (found["output"], found["rows"], len(found["left_out"])) == (None, 4, 4)
    assert found["replay"]["command"].startswith("trtexec --onnx=landscape.json")


def test_import_before_the_first_run_asks_the_backend_for_its_knobs(
    study: Study, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[Any] = []
    monkeypatch.setattr(command, "_store", lambda name, storage, found: stored.append(found))
    path = cache_file(tmp_path, HEADER, row(0, "-fast=on"), row(1, "-fast=off", 0.5), row(2, "-gone=1"))
    invoke("import", *study.at, "--cache", path)
    out = capsys.readouterr().out
    assert stored == [[Candidate((("route:fast", "off"),))]]
    assert "tried first, 1 candidate(s)" in out
    assert "left out: iter 2 -gone=1: unknown knob -gone" in out
    invoke("import", *study.at, "--cache", path, "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["proposed"][0]["candidate"]["changes"] == [["route:fast", "off"]]


@pytest.mark.skipif("initial" not in StudySpec.__struct_fields__, reason="studies do not take initial candidates yet")
def test_import_keeps_the_candidates_in_the_study(study: Study, tmp_path: Path) -> None:
    invoke("import", *study.at, "--cache", cache_file(tmp_path, HEADER, row(1, "-fast=off", 0.5)))
    spec = show_study(study.name, storage=study.url).spec
    assert msgspec.to_builtins(spec)["initial"] == ((("route:fast", "off"),),)
