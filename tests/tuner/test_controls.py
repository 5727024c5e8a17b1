"""Drift guard and noise floor: what the machine does to everybody, told apart from what candidates do."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from objectives.isolation import InProcess
from objectives.knobs import Candidate
from objectives.landscape import Landscape
from objectives.outcome import Accuracy, EngineFile, Failed, FailureKind, Measured, Round, Samples, Stage, Trace
from objectives.requests import BuildRequest, TimeRequest
from storage.controls import controls_of, get_noise
from storage.records import ControlRecord
from storage.studies import get_study, replace_spec
from tests import landscapes
from tuner import api, loop, noise
from tuner.context import contexts
from tuner.controls import standard
from tuner.home import open_home
from tuner.ledger import Trial
from tuner.loop import StudyLoop
from tuner.progress import Progress
from tuner.results import summarize
from tuner.spec import Budget, StudyOptions, read_spec
from tuner.stats import MixedSamplesError, Provenance, Timing

ORIGIN = Provenance("environment", "data", "settings")
START = datetime(2026, 1, 1, tzinfo=UTC)


def trial(number: int, latency_ms: float, at_s: float, changes: tuple[tuple[str, str], ...] = (("a", "1"),)) -> Trial:
    samples = Samples((Round(1, (latency_ms,) * 5),), (latency_ms,), "steady", "host")
    moment = START + timedelta(seconds=at_s)
    outcome = Measured(Trace(), Accuracy(), samples)
    return Trial(number, str(number), Candidate(changes), "test", outcome, moment, moment, 1.0, 1, 1e3 / latency_ms)


def control(latency_ms: float, at_s: float, purpose: str = "drift") -> ControlRecord:
    return ControlRecord(purpose, 0, 0, START + timedelta(seconds=at_s), latency_ms, {}, [])


def slower_by(share: float, at_s: float, total_s: float = 1000.0) -> float:
    return 1.0 + share * at_s / total_s


def test_a_machine_that_slows_down_does_not_change_who_is_faster() -> None:
    baseline = trial(0, 10.0, 0.0, ())
    controls = [control(10.0 * slower_by(0.1, at), at) for at in range(100, 1001, 100)]
    early = trial(1, 9.6 * slower_by(0.1, 50), 50.0)  # 4 % faster than the default
    late = trial(2, 9.2 * slower_by(0.1, 950), 950.0)  # 8 % faster, timed when the machine was slower
    assert late.throughput is not None
    assert early.throughput is not None
    assert late.throughput < early.throughput
    found = standard(baseline, controls, ORIGIN)
    summary = summarize([baseline, early, late], (), found)
    assert summary.best is late
    assert summary.ratio(early) == pytest.approx(1 / 0.96, rel=0.005)
    assert summary.ratio(late) == pytest.approx(1 / 0.92, rel=0.005)
    assert summarize([baseline, early, late], ()).best is early  # what happens without the guard


def test_a_machine_that_stays_as_it_is_is_left_alone() -> None:
    wobble = [0.1, -0.12, 0.07, -0.03, 0.11, -0.09, 0.02, -0.06]
    controls = [control(10.0 + one, 100.0 * i) for i, one in enumerate(wobble, 1)]
    found = standard(trial(0, 10.0, 0.0, ()), controls, ORIGIN)
    assert found is not None
    plain = trial(1, 8.0, 450.0)
    assert found.corrected_cost(plain) == pytest.approx(8.0, rel=0.003)  # the default's own noise is 1 %


def test_a_few_controls_prove_no_drift() -> None:
    found = standard(trial(0, 10.0, 0.0, ()), [control(11.0, 100), control(12.0, 200)], ORIGIN)
    assert found is not None
    assert found.model.coefficient == 0.0
    assert found.baseline_cost == pytest.approx(11.0)


def test_the_runs_of_the_noise_floor_are_no_controls() -> None:
    found = standard(trial(0, 10.0, 0.0, ()), [control(20.0, 100, "noise")] * 6, ORIGIN)
    assert found is not None
    assert found.n_controls == 0
    assert found.baseline_cost == 10.0


def test_without_a_measured_default_there_is_no_standard() -> None:
    assert standard(None, [control(10.0, 100)], ORIGIN) is None


def test_timings_from_elsewhere_are_refused() -> None:
    found = standard(trial(0, 10.0, 0.0, ()), [], ORIGIN)
    assert found is not None
    with pytest.raises(MixedSamplesError, match="environments"):
        found.model.corrected_ms(Timing(0.0, 10.0, Provenance("another", "data", "settings")))


def make(folder: Path, landscape: Landscape, **options: Any) -> str:
    url = f"sqlite:///{folder / 'tuner.db'}"
    model = landscape.save(folder / "landscape.json")
    api.create_study("s", model, StudyOptions(backend="synthetic", **options), storage=url)
    return url


def run(url: str, isolation: type[InProcess] = InProcess, progress: Progress | None = None) -> list[ControlRecord]:
    with open_home(url) as home:
        spec = read_spec(get_study(home.database, "s").spec)
        context = contexts(home, "s")[0]
        with StudyLoop(home, spec, context, isolation, progress or Progress()) as loop:
            loop.run()
        return controls_of(home.database, context.id)


def test_the_default_is_timed_again_at_intervals(tmp_path: Path) -> None:
    url = make(tmp_path, landscapes.wide(), budget=Budget(n_trials=14), control_every=4, noise_sessions=0)
    taken = run(url)
    assert [one.purpose for one in taken] == ["drift"] * 3
    assert all(one.rounds and one.timing["clock"] == "simulated" for one in taken)
    summary = api.show_study("s", storage=url).contexts[0].summary
    assert summary.standard is not None
    assert summary.standard.n_controls == 3


def test_no_controls_unless_asked_for(tmp_path: Path) -> None:
    url = make(tmp_path, landscapes.wide(), budget=Budget(n_trials=10), control_every=0, noise_sessions=0)
    assert run(url) == []


class _Untimeable(InProcess):
    def time(self, request: TimeRequest) -> Samples | Failed:
        return Failed(Trace(), Stage.TIME, FailureKind.CRASHED, "was killed by SIGBUS")


class _Listener(Progress):
    def __init__(self) -> None:
        self.troubles: list[Failed | None] = []
        self.floors: list[Any] = []

    def on_control(self, trouble: Failed | None) -> None:
        self.troubles.append(trouble)

    def on_noise(self, floor: Any) -> None:
        self.floors.append(floor)


def test_a_control_that_fails_is_said_and_does_no_harm(tmp_path: Path) -> None:
    url = make(tmp_path, landscapes.wide(), budget=Budget(n_trials=6), control_every=2, noise_sessions=0)
    heard = _Listener()
    assert run(url, _Untimeable, heard) == []
    assert heard.troubles
    assert all(one is not None and "SIGBUS" in one.detail for one in heard.troubles)
    assert api.show_study("s", storage=url).contexts[0].summary.n_trials == 6


def test_three_levels_of_noise_are_found_and_kept_apart(tmp_path: Path) -> None:
    world = landscapes.small(repeatable=False, noise=0.02, load_noise=0.03, build_noise=0.0)
    url = make(tmp_path, world, budget=Budget(n_trials=2), noise_sessions=40)
    heard = _Listener()
    taken = run(url, progress=heard)
    (floor,) = heard.floors
    assert [one.purpose for one in taken] == ["noise"] * 40
    assert {one.build for one in taken} == {0, 1}
    # A round is known by its median, whose deviation is about 1.25 times that of a mean; a busy machine's are shorter.
    shares = [1 / len(one.samples_ms) for session in taken for one in session.rounds]
    assert floor.run.sd == pytest.approx(0.02 * 1.25 * math.sqrt(sum(shares) / len(shares)), rel=0.25)
    assert floor.load.sd == pytest.approx(0.03, rel=0.4)
    assert floor.load.df > 30


def test_the_noise_floor_is_measured_once_for_a_context(tmp_path: Path) -> None:
    url = make(tmp_path, landscapes.wide(repeatable=False), budget=Budget(n_trials=2), noise_sessions=4)
    heard = _Listener()
    run(url, progress=heard)
    api.run_study("s", storage=url, budget=Budget(n_trials=4), progress=heard)
    assert len(heard.floors) == 1
    with open_home(url) as home:
        context = contexts(home, "s")[0]
        assert noise.known(home, context) == heard.floors[0]
        assert get_noise(home.database, context.id) is not None
    assert api.show_study("s", storage=url).contexts[0].noise == heard.floors[0]


def test_where_rebuilds_are_the_same_bytes_builds_have_no_luck(tmp_path: Path) -> None:
    url = make(tmp_path, landscapes.small(repeatable=True), budget=Budget(n_trials=2), noise_sessions=4)
    heard = _Listener()
    run(url, progress=heard)
    assert heard.floors[0].build.sd == 0.0
    assert heard.floors[0].build.df > 1000


class _Unbuildable(InProcess):
    def build(self, request: BuildRequest, on_stage: Any = lambda stage, detail: None) -> Failed:
        return Failed(Trace(), Stage.BUILD, FailureKind.TIMED_OUT, "took too long")


def test_a_default_that_cannot_be_rebuilt_leaves_the_floor_unknown(tmp_path: Path) -> None:
    url = make(tmp_path, landscapes.small(), budget=Budget(n_trials=2), noise_sessions=4)
    heard = _Listener()
    run(url, _Unbuildable, heard)
    assert heard.floors
    assert set(heard.floors) == {None}
    assert api.show_study("s", storage=url).contexts[0].noise is None


def test_a_kept_engine_is_what_is_timed(tmp_path: Path) -> None:
    timed: list[EngineFile] = []

    class Watching(InProcess):
        def time(self, request: TimeRequest) -> Samples | Failed:
            timed.append(request.engine)
            return super().time(request)

    url = make(tmp_path, landscapes.wide(), budget=Budget(n_trials=4), control_every=2, noise_sessions=0)
    run(url, Watching)
    baseline = api.show_study("s", storage=url).contexts[0].trials[0]
    assert {engine.digest for engine in timed} == {baseline.engine_digest}


def test_what_the_user_wants_tried_first_comes_after_the_default(tmp_path: Path) -> None:
    url = make(tmp_path, landscapes.wide(), budget=Budget(n_trials=5), control_every=0, noise_sessions=0)
    with open_home(url) as home:
        spec = read_spec(get_study(home.database, "s").spec)
        wanted = ((("a", "v1"), ("b", "v1")), (("nobody", "knows"),), (("c", "v2"),), (("c", "v2"),))
        replace_spec(home.database, "s", msgspec.structs.replace(spec, initial=wanted).to_json())
    run(url)
    trials = api.show_study("s", storage=url).contexts[0].trials
    assert [trial.source for trial in trials] == ["baseline", "initial", "initial", "auto", "auto"]
    assert [str(trial.candidate) for trial in trials[:3]] == ["default", "a=v1 b=v1", "c=v2"]


def test_waiting_for_the_device_is_no_cost_of_a_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"now": 1000.0}

    @contextmanager
    def busy_device(device: str, on_wait: Any, is_stopped: Any) -> Iterator[None]:
        on_wait(device)
        clock["now"] += 500.0
        yield

    monkeypatch.setattr(loop, "device_lock", busy_device)
    monkeypatch.setattr(loop.time, "monotonic", lambda: clock["now"])
    url = make(tmp_path, landscapes.wide(), budget=Budget(n_trials=3), control_every=0, noise_sessions=0)
    run(url)
    trials = api.show_study("s", storage=url).contexts[0].trials
    assert [trial.spent_s for trial in trials] == [0.0, 0.0, 0.0]
