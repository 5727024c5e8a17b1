"""Killed at any moment, a study goes on: nothing recorded is lost, nothing is doubled, the budget is met exactly.

Fifty seeded moments in all: the main process is killed during starts and trials, the evaluating child in between. Since
chance rarely hits the instants that matter most, the main process is also killed exactly between its writes.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from storage.database import Database
from storage.engines import engines_of
from storage.migrate import differences, integrity, open_database
from storage.records import TrialRecord
from storage.studies import contexts_of
from storage.trials import leases, list_trials
from tests import landscapes
from tests.conftest import start_tuner
from tests.tuner.conftest import Study, copy_study, make_study
from tests.tuner.test_loop import optuna_trials
from tuner.api import delete_study, run_study, show_study
from tuner.spec import Budget

MAIN_SEEDS, MAIN_KILLS = (1, 2), 13
CHILD_KILLS = 24
BUDGET = 70
PATIENCE_S = 60.0  # no measure of anything: after this long a process is taken to be stuck


def test_the_moments_are_as_many_as_promised() -> None:
    assert len(MAIN_SEEDS) * MAIN_KILLS + CHILD_KILLS >= 50


# ---- what is in the database, and what must hold of it


def _records(database: Database, study: Study) -> list[TrialRecord]:
    (context,) = contexts_of(database, study.name)
    # Whether Optuna has heard of it may still change; nothing else of a finished trial may.
    return [replace(record, told=True) for record in list_trials(database, context.id)]


def _snapshot(study: Study) -> dict[str, TrialRecord]:
    """The finished trials at this moment, by identity; checks what must hold at every moment."""
    database = open_database(study.url)
    records = _records(database, study)
    assert [record.number for record in records] == list(range(len(records)))
    assert len({record.candidate_digest for record in records}) == len(records)
    assert len([record for record in records if record.finish is None]) <= 1
    assert integrity(database) == []
    database.close()
    (context,) = show_study(study.name, storage=study.url).contexts
    assert [words.startswith("interrupted") for _, words in context.unfinished] == [True] * len(context.unfinished)
    return {record.uid: record for record in records if record.finish is not None}


def _check_finished(study: Study, n_trials: int) -> None:
    """What must hold at the end, whatever happened before."""
    database = open_database(study.url)
    records = _records(database, study)
    (context,) = contexts_of(database, study.name)
    assert [record.number for record in records] == list(range(n_trials))
    assert all(record.finish is not None for record in records)
    assert len({record.candidate_digest for record in records}) == n_trials
    assert list_trials(database, context.id)[0].candidate == []  # the default came first
    assert all(record.told for record in list_trials(database, context.id))
    assert leases(database, context.id) == []
    assert integrity(database) == differences(database) == []
    told = [trial.user_attrs["tuner_uid"] for trial in optuna_trials(study)]
    assert sorted(told) == sorted(record.uid for record in records)
    database.close()


def _check_artifacts(study: Study) -> None:
    """Engines that the database knows of, and nothing half made."""
    database = open_database(study.url)
    (context,) = contexts_of(database, study.name)
    known = {engine.digest for engine in engines_of(database, context.id)}
    database.close()
    assert {path.name for path in (study.artifacts / "engines").iterdir()} == known
    assert {path.name for path in study.artifacts.iterdir()} == {"models", "tensors", "engines", "optuna"}


def _workers(folder: Path) -> list[psutil.Process]:
    """Evaluating processes that were started from `folder`."""
    found = []
    for process in psutil.process_iter():
        try:
            if "objectives.worker" in process.cmdline() and Path(process.cwd()) == folder:
                found.append(process)
        except (psutil.Error, OSError):
            continue  # ended while we looked, or somebody else's
    return found


def _wait_for_no_worker(folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while left := _workers(folder):
        assert time.monotonic() < deadline, f"orphans: {left}"
        time.sleep(0.02)


# ---- fifty random moments


@dataclass(frozen=True, slots=True)
class Survivor:
    """A study after its kills and its last run, and what was recorded before each kill."""

    study: Study
    snapshots: list[dict[str, TrialRecord]]
    code: int
    stderr: str


def _start(study: Study) -> subprocess.Popen[str]:
    # The study's folder as working folder is how its processes are told from those of other tests.
    return start_tuner(*study.search, cwd=study.folder, stdout=subprocess.DEVNULL)


def _wait_for(process: subprocess.Popen[str], words: str) -> None:
    """Return when a line of progress has these words."""
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if words in line:
            return
    raise AssertionError(f"the run ended with {process.wait()} before it said {words!r}: {said}")


def _kill_main(process: subprocess.Popen[str], chance: random.Random) -> None:
    kind = chance.random()
    if kind < 0.2:
        time.sleep(chance.uniform(0.0, 1.0))  # somewhere between the start of the interpreter and the first trial
    elif kind < 0.5:
        _wait_for(process, " candidates")
        time.sleep(chance.uniform(0.0, 0.8))  # at the start of the child, or in the trial that the last kill left
    else:
        _wait_for(process, "] #")
        time.sleep(chance.uniform(0.0, 0.3))  # in one of the trials after the first of this run
    process.kill()
    process.communicate()


_SURVIVORS: dict[int, Survivor] = {}  # making one takes half a minute; several tests look at it


@pytest.fixture(params=MAIN_SEEDS)
def survivor(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Survivor:
    if request.param not in _SURVIVORS:
        _SURVIVORS[request.param] = _survive(request.param, tmp_path_factory.mktemp("killed").resolve())
    return _SURVIVORS[request.param]


def _survive(seed: int, folder: Path) -> Survivor:
    chance = random.Random(seed)
    study = make_study(folder, landscapes.wide(build_s=0.02), budget=Budget(BUDGET), control_every=8)
    snapshots = []
    for _ in range(MAIN_KILLS):
        with _start(study) as process:
            _kill_main(process, chance)
            assert process.returncode == -signal.SIGKILL
        snapshots.append(_snapshot(study))
    with _start(study) as process:
        _, stderr = process.communicate()
    return Survivor(study, snapshots, process.returncode, stderr)


@pytest.mark.slow
@pytest.mark.xdist_group("kill main")
class TestMainProcess:
    def test_the_kills_fell_into_the_study(self, survivor: Survivor) -> None:
        # Else the other tests would show nothing.
        counts = [len(snapshot) for snapshot in survivor.snapshots]
        assert counts == sorted(counts)
        assert len(set(counts)) >= MAIN_KILLS // 3
        assert counts[-1] < BUDGET

    def test_the_last_run_ends_well(self, survivor: Survivor) -> None:
        assert survivor.code == 0
        assert f"done: all {BUDGET} trials are done" in survivor.stderr
        _check_finished(survivor.study, BUDGET)

    def test_nothing_that_was_recorded_is_lost_or_changed(self, survivor: Survivor) -> None:
        final = _snapshot(survivor.study)
        for snapshot in survivor.snapshots:
            assert {uid: final.get(uid) for uid in snapshot} == snapshot

    def test_no_worker_outlives_its_parent(self, survivor: Survivor) -> None:
        _wait_for_no_worker(survivor.study.folder)

    def test_nothing_half_made_is_left(self, survivor: Survivor) -> None:
        _check_artifacts(survivor.study)


@pytest.mark.slow
def test_a_killed_child_costs_at_most_its_own_trial(tmp_path: Path) -> None:
    chance = random.Random(3)
    # Builds long enough that a quick machine is not done before the last kill.
    world = landscapes.wide(build_s=0.25)
    study = make_study(tmp_path.resolve(), world, budget=Budget(BUDGET), control_every=8)
    with _start(study) as process:
        _wait_for(process, "] #0")  # a default that is killed twice would end the study
        killed = _kill_children(process, study, chance)
        _, stderr = process.communicate()
    assert process.returncode == 0, stderr
    _check_finished(study, BUDGET)
    (context,) = show_study(study.name, storage=study.url).contexts
    assert {trial.status for trial in context.trials} <= {"ok", "out of memory", "crashed"}
    hit = [trial for trial in context.trials if trial.outcome.trace.attempts > 1 or trial.status != "ok"]
    assert killed == CHILD_KILLS
    assert hit
    _wait_for_no_worker(study.folder)
    _check_artifacts(study)


def _kill_children(process: subprocess.Popen[str], study: Study, chance: random.Random) -> int:
    """Kill the evaluating process again and again; after every second time a trial must first have ended.

    A run rightly gives up after three processes in a row that did not get ready, and on a slow machine chance alone
    would bring that about.
    """
    main, killed, last, seen = psutil.Process(process.pid), 0, 0, 0
    deadline = time.monotonic() + PATIENCE_S
    while killed < CHILD_KILLS and process.poll() is None:
        assert time.monotonic() < deadline, f"nothing has ended since the kill of number {killed}"
        time.sleep(0.005)
        if killed % 2 == 0 and _n_ended(study) <= seen:
            continue
        for child in main.children():
            if child.pid == last:
                continue  # dying
            # Its start, idle, or one of its trials.
            time.sleep(chance.uniform(0.0, 0.9))
            try:
                child.kill()
            except psutil.NoSuchProcess:
                continue
            killed, last = killed + 1, child.pid
            seen, deadline = _n_ended(study), time.monotonic() + PATIENCE_S
    return killed


def _n_ended(study: Study) -> int:
    database = open_database(study.url)
    ended = [record for record in _records(database, study) if record.finish is not None]
    database.close()
    return len(ended)


# ---- exactly between two writes

# Runs the command line, but ends itself as `kill -9` would, before or after the first call of one function.
_SCRIPT = """
import importlib, os, signal, sys
when, module, name, *arguments = sys.argv[1:]
*parents, attribute = name.split(".")
owner = importlib.import_module(module)
for parent in parents:
    owner = getattr(owner, parent)
original = getattr(owner, attribute)
def last(*values, **named):
    if when == "after":
        original(*values, **named)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(owner, attribute, last)
from tuner.cli import main
main(arguments)
"""
MOMENTS = {
    "before the proposal": ("before", "storage.trials", "propose"),
    "proposed, not evaluated": ("after", "storage.trials", "propose"),
    "evaluated, nothing kept": ("before", "tuner.engines", "keep_files"),
    "engine kept, outcome not recorded": ("after", "tuner.engines", "keep_files"),
    "in the middle of recording": ("before", "storage.trials", "Measurement"),
    "recorded, Optuna not told": ("after", "storage.trials", "finish"),
    "told, not noted": ("after", "tuner.search.projection", "Projection.tell"),
    "noted, engine not registered": ("after", "storage.trials", "mark_told"),
    "registered, stale engines not dropped": ("before", "storage.engines", "drop_engines"),
}


@dataclass(frozen=True, slots=True)
class Mended:
    """A study that was killed in its first trial and then run to its end, and what was recorded before the kill."""

    study: Study
    before: dict[str, TrialRecord]
    n_trials: int


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A study without a trial. Each build gives other bytes, as real ones do."""
    return make_study(tmp_path_factory.mktemp("fresh"), landscapes.small(repeatable=False), budget=Budget(6))


_MENDED: dict[str, Mended] = {}


@pytest.fixture(params=MOMENTS, ids=lambda name: name.replace(" ", "-"))
def mended(request: pytest.FixtureRequest, fresh: Study, tmp_path_factory: pytest.TempPathFactory) -> Mended:
    if request.param not in _MENDED:
        study = copy_study(fresh, tmp_path_factory.mktemp("stopped") / "home")
        command = [sys.executable, "-c", _SCRIPT, *MOMENTS[request.param], *study.search]
        ended = subprocess.run(command, cwd=study.folder, capture_output=True, text=True)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        before = _snapshot(study)
        _MENDED[request.param] = Mended(study, before, run_study(study.name, storage=study.url).n_trials)
    return _MENDED[request.param]


@pytest.mark.xdist_group("kill between writes")
class TestBetweenWrites:
    def test_the_study_is_made_good(self, mended: Mended) -> None:
        assert mended.n_trials == 6
        _check_finished(mended.study, 6)
        final = _snapshot(mended.study)
        assert {uid: final.get(uid) for uid in mended.before} == mended.before

    def test_no_file_is_left_behind(self, mended: Mended) -> None:
        _check_artifacts(mended.study)

    def test_a_deleted_study_takes_every_file_along(self, mended: Mended, tmp_path: Path) -> None:
        study = copy_study(mended.study, tmp_path / "copy")
        delete_study(study.name, storage=study.url)
        assert [path for path in study.artifacts.rglob("*") if path.is_file()] == []
