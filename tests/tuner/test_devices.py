"""Several devices at once: one study, one process on each, levels of their own; and what happens when one goes."""

from __future__ import annotations

import math
import random
import signal
import subprocess
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from objectives.device import device_lock
from objectives.errors import HarnessError
from objectives.isolation import Subprocess
from objectives.outcome import Failed, FailureKind, Stage, Trace
from storage.confirmations import confirmations_of, pairs_of
from storage.controls import controls_of
from storage.migrate import integrity, open_database
from storage.records import PairRecord
from storage.studies import contexts_of
from storage.trials import leases, list_trials
from tests import landscapes
from tests.conftest import Cli, start_tuner
from tests.processes import wait_for_end
from tests.tuner.conftest import MakeStudy, Study, make_study
from tests.tuner.test_controls import ORIGIN, control, trial
from tests.tuner.test_loop import optuna_trials, trials_of
from tuner import lanes
from tuner.answers import ConfirmOptions
from tuner.api import confirm_study, environments, run_study, show_study
from tuner.controls import standard
from tuner.errors import StudyError
from tuner.progress import Progress
from tuner.spec import Budget
from tuner.stats import VerdictKind

PATIENCE_S = 60.0  # no measure of anything: after this long a process is taken to be stuck


@pytest.fixture
def names() -> Callable[[str], str]:
    """Devices of this test alone: `names("a,b*1.1")`. Locks are the machine's, and tests run at once."""
    own = uuid.uuid4().hex[:8]
    return lambda text: ",".join(f"{own}-{one}" for one in text.split(","))


def on(text: str, **options: Any) -> dict[str, Any]:
    return {"backend_options": {"devices": text}, **options}


def check(study: Study, n_trials: int) -> None:
    """What must hold of a finished study, however many devices it had."""
    database = open_database(study.url)
    (context,) = contexts_of(database, study.name)
    records = list_trials(database, context.id)
    assert [record.number for record in records] == list(range(n_trials))
    assert all(record.finish is not None and record.told for record in records)
    assert len({record.candidate_digest for record in records}) == n_trials
    assert leases(database, context.id) == []
    assert integrity(database) == []
    database.close()
    told = [one.user_attrs["tuner_uid"] for one in optuna_trials(study)]
    assert sorted(told) == sorted(record.uid for record in records)
    assert {path.name for path in study.artifacts.iterdir()} == {"models", "tensors", "engines", "optuna"}


def workers(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if "objectives.worker" in process.cmdline() and Path(process.cwd()) == folder:
                found.append(process)
        except (psutil.Error, OSError):
            continue  # ended while we looked, or somebody else's
    return found


class Notes(Progress):
    """Keeps what is told, by device."""

    def __init__(self) -> None:
        self.lost: list[tuple[str, str]] = []
        self.devices: dict[str, list[str]] = {}

    def for_device(self, device: str) -> Progress:
        return _OfDevice(self.devices.setdefault(device, []))

    def on_device_lost(self, device: str, reason: str) -> None:
        self.lost.append((device, reason))


class _OfDevice(Progress):
    def __init__(self, events: list[str]) -> None:
        self._events = events

    def on_control(self, trouble: Failed | None) -> None:
        self._events.append("control")

    def on_trial(self, trial: Any, summary: Any) -> None:
        self._events.append("trial")


# ---- a whole study


@pytest.mark.parametrize("search", ["tpe", "auto", "mixed"])
def test_trials_run_on_every_device_at_once(new_study: MakeStudy, names: Callable[[str], str], search: str) -> None:
    devices = names("a,b,c")
    world = landscapes.wide(build_s=0.1)
    study = new_study(world, budget=Budget(24), search=search, early_end=False, **on(devices))
    run_study(study.name, storage=study.url, devices=("all",))
    check(study, 24)
    trials = trials_of(study)
    assert {one.device for one in trials} == {f"synthetic:{name}" for name in devices.split(",")}
    spans = [(one.started_at, one.finished_at, one.device) for one in trials]
    overlapping = [(a, b) for a in spans for b in spans if a[0] < b[0] < a[1]]
    assert overlapping
    assert all(a[2] != b[2] for a, b in overlapping)  # on one device one after the other


def test_only_the_named_devices_are_used(new_study: MakeStudy, names: Callable[[str], str]) -> None:
    a, b, c = names("a,b,c").split(",")
    study = new_study(landscapes.wide(), budget=Budget(8), **on(f"{a},{b},{c}"))
    run_study(study.name, storage=study.url, devices=(c, f"synthetic:{a}"))
    assert {one.device for one in trials_of(study)} <= {f"synthetic:{c}", f"synthetic:{a}"}
    assert trials_of(study)[0].candidate.is_baseline


def test_the_first_thing_on_a_further_device_is_the_default(new_study: MakeStudy, names: Callable[[str], str]) -> None:
    devices = names("a,b*1.5")
    study = new_study(landscapes.wide(build_s=0.05), budget=Budget(16), **on(devices))
    notes = Notes()
    run_study(study.name, storage=study.url, devices=("all",), progress=notes)
    trials = trials_of(study)
    home = trials[0].device
    (other,) = {one.device for one in trials} - {home}
    assert notes.devices[home.partition(":")[2]].count("control") == 0  # the study has no controls of its own
    assert notes.devices[other.partition(":")[2]][:2] == ["control", "trial"]
    view = show_study(study.name, storage=study.url).contexts[0]
    compared = view.summary.standard
    assert compared is not None
    slower = 1.5 if other.endswith("b") else 1 / 1.5
    assert compared.devices[other].level == pytest.approx(math.log(slower), abs=0.01)
    # What a candidate gains does not depend on where it was timed.
    world = landscapes.wide()
    for one in trials:
        values = view.context.space.values(one.candidate)
        assert view.summary.ratio(one) == pytest.approx(world.base_ms / world.latency_ms(values), rel=0.02)


def test_a_slow_device_does_not_hide_the_best(new_study: MakeStudy, names: Callable[[str], str]) -> None:
    study = new_study(landscapes.small(build_s=0.05), budget=Budget(6), **on(names("a,b*2.0")))
    run_study(study.name, storage=study.url, devices=("all",))
    summary = show_study(study.name, storage=study.url).contexts[0].summary
    best, latency_ms = landscapes.small().best(0.01)
    assert summary.best is not None
    assert summary.best.candidate == best
    assert summary.speedup == pytest.approx(landscapes.small().base_ms / latency_ms, rel=0.02)


def test_noise_and_controls_belong_to_the_device_they_ran_on(new_study: MakeStudy, names: Callable[[str], str]) -> None:
    options = on(names("a,b"), noise_sessions=2, control_every=3)
    study = new_study(landscapes.wide(build_s=0.05, repeatable=False), budget=Budget(20), **options)
    run_study(study.name, storage=study.url, devices=("all",))
    database = open_database(study.url)
    (context,) = contexts_of(database, study.name)
    found = controls_of(database, context.id)
    database.close()
    assert len({one.device for one in found if one.purpose == "noise"}) == 1
    trials = trials_of(study)
    for device in {one.device for one in trials} - {trials[0].device}:
        first = min(one.started_at for one in trials if one.device == device)
        assert any(one.device == device and one.purpose == "drift" and one.taken_at < first for one in found)
    check(study, 20)


def test_another_run_on_another_device_knows_what_it_is_compared_with(
    new_study: MakeStudy, names: Callable[[str], str]
) -> None:
    a, b = names("a,b*1.3").split(",")
    study = new_study(landscapes.wide(), budget=Budget(4), **on(f"{a},{b}"))
    run_study(study.name, storage=study.url, devices=(a,))
    run_study(study.name, storage=study.url, devices=(b.partition("*")[0],), budget=Budget(8))
    assert len(show_study(study.name, storage=study.url).contexts) == 1
    compared = show_study(study.name, storage=study.url).contexts[0].summary.standard
    assert compared is not None
    assert [round(math.exp(state.level), 1) for state in compared.devices.values()] == [1.0, 1.3]


def test_two_processes_with_two_devices_each_share_a_study(new_study: MakeStudy, names: Callable[[str], str]) -> None:
    a, b, c, d = names("a,b*1.2,c,d").split(",")
    study = new_study(landscapes.wide(build_s=0.1), budget=Budget(30), **on(f"{a},{b},{c},{d}"))
    plain = [one.partition("*")[0] for one in (a, b, c, d)]
    lists = (f"{plain[0]},{plain[1]}", f"{plain[2]},{plain[3]}")
    runs = [start_tuner(*study.search, "--devices", text) for text in lists]
    ends = [(run.communicate()[1], run.returncode) for run in runs]
    assert [code for _, code in ends] == [0, 0], ends
    check(study, 30)
    summary = show_study(study.name, storage=study.url).contexts[0].summary
    world = landscapes.wide()
    for one in trials_of(study):
        known = summary.standard is not None and one.device in summary.standard.devices
        assert known or one.number < 8  # a process may have begun before the default was known
        if known:
            values = show_study(study.name, storage=study.url).contexts[0].context.space.values(one.candidate)
            assert summary.ratio(one) == pytest.approx(world.base_ms / world.latency_ms(values), rel=0.02)


# ---- drift of each device (pure)


def test_drift_is_taken_out_for_each_device_by_itself() -> None:
    baseline = trial(0, 10.0, 0.0, ())
    baseline = type(baseline)(**{**_fields(baseline), "device": "one"})
    # `one` slows down by 10 %, `two` stays as it is and is 20 % slower from the start.
    ones = [_at(control(10.0 * (1 + 0.1 * at / 1000), at), "one") for at in range(100, 1001, 100)]
    twos = [_at(control(12.0, at), "two") for at in range(100, 1001, 100)]
    found = standard(baseline, [*ones, *twos], ORIGIN)
    assert found is not None
    assert found.devices["one"].model.range == pytest.approx(0.1, abs=0.03)
    assert found.devices["two"].model.range < 0.005
    early = type(baseline)(**{**_fields(trial(1, 9.0, 50.0)), "device": "one"})
    late = type(baseline)(**{**_fields(trial(2, 9.0 * 1.095, 950.0)), "device": "one"})
    other = type(baseline)(**{**_fields(trial(3, 9.0 * 1.2, 950.0)), "device": "two"})
    assert found.ratio(early) == pytest.approx(1 / 0.9, rel=0.01)
    assert found.ratio(late) == pytest.approx(1 / 0.9, rel=0.01)
    assert found.ratio(other) == pytest.approx(1 / 0.9, rel=0.01)


def test_a_device_that_never_timed_the_default_is_taken_as_it_is() -> None:
    baseline = trial(0, 10.0, 0.0, ())
    found = standard(baseline, [], ORIGIN)
    assert found is not None
    elsewhere = type(baseline)(**{**_fields(trial(1, 8.0, 10.0)), "device": "nobody knows"})
    assert found.ratio(elsewhere) == pytest.approx(1.25)


def _fields(one: Any) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__struct_fields__}


def _at(one: Any, device: str) -> Any:
    fields = {name: getattr(one, name) for name in one.__slots__}
    return type(one)(**{**fields, "device": device})


# ---- what is refused


@pytest.mark.parametrize(
    ("given", "asked", "words"),
    [
        ("a,b@other", "all", ["not alike", "simulated and other", "a context of its own"]),
        ("a,b", "a,c", ["'c' is no device", "a (simulated, synthetic:a)"]),
        ("a,b", "a,a", ["named twice"]),
        ("a,b", ",", ["no device is named"]),
        ("", "a", ["finds no device", "leave --devices out"]),
    ],
    ids=["unlike", "unknown", "twice", "none", "no devices"],
)
def test_devices_that_cannot_be_used_change_nothing(
    new_study: MakeStudy, cli: Cli, given: str, asked: str, words: list[str]
) -> None:
    study = new_study(landscapes.small(), budget=Budget(4), **(on(given) if given else {}))
    before = (study.folder / "tuner.db").read_bytes()
    for command in ("run", "confirm"):
        ended = cli("study", command, *study.at, "--devices", asked)
        assert ended.code == 2
        assert [word for word in words if word not in ended.err] == []
    assert (study.folder / "tuner.db").read_bytes() == before
    assert trials_of(study) == ()


def test_env_lists_the_devices(cli: Cli) -> None:
    (found,) = environments("onnxruntime")
    assert [one.name for one in found.devices] == ["cpu"]
    shown = cli("env", "--backend", "onnxruntime")
    assert "device    cpu: " in shown.out


def test_show_tells_devices_apart(new_study: MakeStudy, cli: Cli, names: Callable[[str], str]) -> None:
    study = new_study(landscapes.wide(build_s=0.05), budget=Budget(10), **on(names("a,b*1.5")))
    ended = cli(*study.search, "--devices", "all")
    assert ended.code == 0
    assert sum(" on " in line for line in ended.err.splitlines()) == 10
    shown = cli("study", "show", *study.at).out
    assert "slower than" in shown or "faster than" in shown
    assert "device" in next(line for line in shown.splitlines() if "outcome" in line)


# ---- devices that go


@pytest.fixture
def break_device(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let every evaluation on a device break, the harness and not the candidate, once it has had one good one."""
    monkeypatch.setattr(lanes, "_HARNESS_PAUSE_S", 0.0)
    real = Subprocess.evaluate

    def apply(name: str) -> None:
        calls: list[int] = []

        def broken(self: Subprocess, *arguments: Any) -> Any:
            if name in self._variables.values():
                calls.append(1)
                if len(calls) > 1:
                    raise HarnessError("the bus is gone")
            return real(self, *arguments)

        monkeypatch.setattr(Subprocess, "evaluate", broken)

    return apply


def test_a_broken_device_is_given_up_and_the_others_finish(
    new_study: MakeStudy, names: Callable[[str], str], break_device: Callable[[str], None]
) -> None:
    devices = names("a,b,c")
    bad = devices.split(",")[1]
    break_device(bad)
    study = new_study(landscapes.wide(build_s=0.05), budget=Budget(20), **on(devices))
    notes = Notes()
    run_study(study.name, storage=study.url, devices=("all",), progress=notes)
    assert [device for device, _ in notes.lost] == [bad]
    assert "the bus is gone" in notes.lost[0][1]
    check(study, 20)
    again = [one for one in trials_of(study) if one.starts == 2]
    assert len(again) == 1  # what it had, another device has done
    assert again[0].device != f"synthetic:{bad}"


def test_when_every_device_is_gone_the_study_stops_and_can_go_on(
    new_study: MakeStudy, names: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_HARNESS_PAUSE_S", 0.0)
    study = new_study(landscapes.wide(), budget=Budget(10), **on(names("a,b")))
    run_study(study.name, storage=study.url, devices=("all",), budget=Budget(4))

    def broken(self: Subprocess, *arguments: Any) -> Any:
        raise HarnessError("the machine is on fire")

    with monkeypatch.context() as patch:
        patch.setattr(Subprocess, "evaluate", broken)
        with pytest.raises(StudyError, match="on fire"):
            run_study(study.name, storage=study.url, devices=("all",), budget=Budget(10))
    assert len(trials_of(study)) == 4
    run_study(study.name, storage=study.url, devices=("all",))
    check(study, 10)


def test_a_device_on_which_the_default_fails_is_given_up(
    new_study: MakeStudy, names: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Subprocess, request: Any) -> Failed:
        return Failed(Trace(), Stage.TIME, FailureKind.CRASHED, "was killed by SIGBUS")

    monkeypatch.setattr(Subprocess, "time", fails)
    study = new_study(landscapes.wide(), budget=Budget(6), **on(names("a,b")))
    notes = Notes()
    run_study(study.name, storage=study.url, devices=("all",), progress=notes)
    assert len(notes.lost) == 1
    assert "the default does not run on device" in notes.lost[0][1]
    check(study, 6)
    assert len({one.device for one in trials_of(study)}) == 1


def test_an_error_that_is_no_devices_fault_stops_all(
    new_study: MakeStudy, names: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = new_study(landscapes.wide(build_s=0.05), budget=Budget(20), **on(names("a,b,c")))

    class Broken(Notes):
        def for_device(self, device: str) -> Progress:
            return _Raises()

    with pytest.raises(RuntimeError, match="listener"):
        run_study(study.name, storage=study.url, devices=("all",), progress=Broken())
    assert [thread for thread in threading.enumerate() if thread.name.startswith("tuner-")] == []
    run_study(study.name, storage=study.url, devices=("all",))
    check(study, 20)


class _Raises(Progress):
    def on_trial(self, trial: Any, summary: Any) -> None:
        if trial.number == 5:
            raise RuntimeError("a listener of the user's")


def test_a_busy_device_waits_by_itself(new_study: MakeStudy, names: Callable[[str], str]) -> None:
    a, b = names("a,b").split(",")
    study = new_study(landscapes.wide(), budget=Budget(6), **on(f"{a},{b}"))
    run_study(study.name, storage=study.url, devices=(b,), budget=Budget(1))
    ended = threading.Event()

    def work() -> None:
        run_study(study.name, storage=study.url, devices=("all",), budget=Budget(6))
        ended.set()

    with device_lock(f"synthetic:{a}"):
        thread = threading.Thread(target=work)
        thread.start()
        until = time.monotonic() + PATIENCE_S
        while len(trials_of(study)) < 6:  # device b does them all: a's own first control waits
            assert time.monotonic() < until
            time.sleep(0.05)
        assert not ended.is_set()
    thread.join()
    check(study, 6)
    assert {one.device for one in trials_of(study)} == {f"synthetic:{b}"}


# ---- kills


@pytest.fixture
def running(tmp_path: Path, names: Callable[[str], str]) -> Iterator[tuple[Study, subprocess.Popen[str]]]:
    folder = tmp_path.resolve()
    study = make_study(folder, landscapes.wide(build_s=0.3), budget=Budget(40), **on(names("a,b,c")))
    with start_all(study) as process:
        yield study, process
        process.kill()


def start_all(study: Study) -> subprocess.Popen[str]:
    return start_tuner(*study.search, "--devices", "all", cwd=study.folder, stdout=subprocess.DEVNULL)


def wait_for(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    raise AssertionError(f"the run ended with {process.wait()} before it said {words!r}")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)])
def test_an_interrupt_ends_every_process_and_the_study_goes_on(
    running: tuple[Study, subprocess.Popen[str]], number: int, code: int
) -> None:
    study, process = running
    wait_for(process, "[6/40]")
    children = [child.pid for child in psutil.Process(process.pid).children()]
    assert len(children) == 3
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code, err
    assert "Traceback" not in err
    wait_for_end(*children)
    before = {one.uid: one for one in trials_of(study)}
    with start_all(study) as again:
        _, err = again.communicate()
    assert again.returncode == 0, err
    check(study, 40)
    assert {one.uid: one for one in trials_of(study) if one.uid in before} == before
    assert workers(study.folder) == []


@pytest.mark.slow
def test_killed_children_cost_at_most_their_own_trials(tmp_path: Path, names: Callable[[str], str]) -> None:
    study = make_study(tmp_path.resolve(), landscapes.wide(build_s=0.3), budget=Budget(90), **on(names("a,b,c")))
    with start_all(study) as process:
        wait_for(process, "[4/90]")
        killed = kill_children(study, process, 8)
        _, err = process.communicate()
    assert process.returncode == 0, err
    assert killed == 8
    check(study, 90)
    assert {one.status for one in trials_of(study)} <= {"ok", "out of memory", "crashed"}
    hit = [one for one in trials_of(study) if one.outcome.trace.attempts > 1 or one.status != "ok"]
    assert hit


def kill_children(study: Study, process: subprocess.Popen[str], times: int) -> int:
    """Kill processes at random; after every second time each device must first have ended a trial."""
    chance, killed = random.Random(5), 0
    until = time.monotonic() + PATIENCE_S
    while killed < times and process.poll() is None and time.monotonic() < until:
        children = psutil.Process(process.pid).children()
        if children:
            try:
                chance.choice(children).kill()
                killed += 1
            except psutil.NoSuchProcess:
                continue
            if killed % 2 == 0:
                # A device is rightly given up after three processes in a row that did not get ready.
                wait_for_a_trial_of_each(study, process)
                until = time.monotonic() + PATIENCE_S
        time.sleep(chance.uniform(0.1, 0.5))
    return killed


def wait_for_a_trial_of_each(study: Study, process: subprocess.Popen[str]) -> None:
    """Return when each of the three devices has ended another trial."""
    before = Counter(one.device for one in trials_of(study))
    until = time.monotonic() + PATIENCE_S
    while len(Counter(one.device for one in trials_of(study)) - before) < 3:
        assert process.poll() is None
        assert time.monotonic() < until, "a device ends no trial any more"
        time.sleep(0.1)


# ---- confirmation


def test_pairs_are_spread_over_devices_and_each_stays_on_one(new_study: MakeStudy, names: Callable[[str], str]) -> None:
    world = landscapes.small(repeatable=False, noise=0.002)
    study = new_study(world, budget=Budget(6), **on(names("a,b*1.5,c")))
    run_study(study.name, storage=study.url, devices=("all",))
    confirmed = confirm_study(study.name, ConfirmOptions(finalists=2), storage=study.url, devices=("all",))
    assert confirmed.kind is VerdictKind.FASTER
    assert confirmed.verdict is not None
    best, latency_ms = world.best(0.01)
    assert confirmed.winner is not None
    assert confirmed.winner.candidate == best
    assert confirmed.verdict.speedup == pytest.approx(world.base_ms / latency_ms, rel=0.02)
    pairs = pairs_of_latest(study)
    assert len({one.device for one in pairs}) == 3
    for finalist in {one.finalist for one in pairs}:
        indices = sorted(one.pair_index for one in pairs if one.finalist == finalist)
        assert indices == list(range(len(indices)))


def test_an_interrupted_confirmation_fills_the_holes_first(new_study: MakeStudy, names: Callable[[str], str]) -> None:
    study = new_study(landscapes.small(repeatable=False), budget=Budget(6), **on(names("a,b,c")))
    run_study(study.name, storage=study.url, devices=("all",))

    class Stop(Progress):
        taken = 0

        def on_pair(self, *_: Any) -> None:
            self.taken += 1
            if self.taken == 4:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        confirm_study(study.name, ConfirmOptions(finalists=1), storage=study.url, devices=("all",), progress=Stop())
    before = {(one.finalist, one.pair_index): one.log_ratio for one in pairs_of_latest(study)}
    assert len(before) >= 4
    confirm_study(study.name, ConfirmOptions(finalists=1), storage=study.url)  # on one device: the question is the same
    after = pairs_of_latest(study)
    assert sorted(one.pair_index for one in after) == list(range(len(after)))
    assert {key: value for key, value in _ratios(after).items() if key in before} == before


def test_a_device_that_breaks_leaves_its_pairs_to_the_others(
    new_study: MakeStudy, names: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = names("a,b,c")
    bad = devices.split(",")[2]
    study = new_study(landscapes.small(repeatable=False), budget=Budget(6), **on(devices))
    run_study(study.name, storage=study.url, devices=("all",))
    real = Subprocess.round

    def broken(self: Subprocess) -> Any:
        if bad in self._variables.values():
            raise HarnessError("the bus is gone")
        return real(self)

    monkeypatch.setattr(Subprocess, "round", broken)
    notes = Notes()
    options = ConfirmOptions(finalists=1)
    confirmed = confirm_study(study.name, options, storage=study.url, devices=("all",), progress=notes)
    assert [device for device, _ in notes.lost] == [bad]
    assert confirmed.kind is VerdictKind.FASTER
    pairs = pairs_of_latest(study)
    assert {one.device for one in pairs} <= {f"synthetic:{name}" for name in devices.split(",")[:2]}
    assert sorted(one.pair_index for one in pairs) == list(range(len(pairs)))
    with pytest.raises(HarnessError, match="the bus is gone"):  # the last device's failure is the confirmation's
        confirm_study(study.name, options, storage=study.url, devices=(bad,))


def pairs_of_latest(study: Study) -> list[PairRecord]:
    database = open_database(study.url)
    (context,) = contexts_of(database, study.name)
    found = pairs_of(database, confirmations_of(database, context.id)[-1].id)
    database.close()
    return found


def _ratios(pairs: list[PairRecord]) -> dict[tuple[str, int], float]:
    return {(one.finalist, one.pair_index): one.log_ratio for one in pairs}
