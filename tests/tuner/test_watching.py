"""Watching: what a run is at is told to the database, seen by others, and gone at its end or after its death."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from objectives.knobs import BASELINE
from objectives.outcome import Stage
from storage.activities import activities_of, say
from storage.errors import DatabaseBusyError, NotFoundError
from storage.records import Owner
from tests import landscapes
from tests.tuner.conftest import MakeStudy, Study
from tuner import announcer
from tuner.announcer import announced
from tuner.answers import ConfirmOptions
from tuner.api import confirm_study, run_study
from tuner.context import contexts
from tuner.doing import Doing, Tracker
from tuner.home import Home, open_home
from tuner.ledger import Trial
from tuner.owner import this_process
from tuner.progress import Progress
from tuner.results import Summary
from tuner.spec import Budget
from tuner.watching import Sight, Watcher

DEAD = Owner("dead", this_process().host, 2**22 + 1, 1.0)  # above the largest process id there can be


@pytest.fixture
def home(finished: Study) -> Iterator[Home]:
    with open_home(finished.url) as found:
        yield found


class Looking(Progress):
    """Looks at the study, as another process would, whenever something is told."""

    def __init__(self, study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[str] = []
        self.sights: list[Sight] = []
        self._written = threading.Event()
        self._study = study

        def said(*arguments: object) -> None:
            say(*arguments)  # type: ignore[arg-type]
            self._written.set()

        monkeypatch.setattr(announcer, "say", said)
        monkeypatch.setattr(announcer, "_GAP_S", 0.0)

    def look(self) -> None:
        self._written.clear()
        self._written.wait(10)
        with open_home(self._study.url) as home:
            sight = Watcher(home, self._study.name).look()
        assert sight is not None
        self.sights.append(sight)
        self.seen += [one.words for one in sight.doing.values()]

    def on_stage(self, stage: Stage, detail: str) -> None:
        # The announcer hears of it after this listener: what was told before is what can be seen.
        if stage is Stage.CHECK:
            self.look()


def test_a_tracker_has_words_for_every_event() -> None:
    heard: list[bool] = []
    tracker = Tracker(heard.append)
    tracker.on_propose(3, BASELINE)
    tracker.on_stage(Stage.BUILD, "")
    since = tracker.doing[""].since
    tracker.on_stage(Stage.BUILD, "2 of 10")
    assert tracker.doing == {"": Doing("trial #3", since, "building", "2 of 10")}
    assert tracker.doing[""].words == "trial #3 building, 2 of 10"
    assert heard == [True, True, False]
    tracker.on_stage(Stage.TIME, "")
    assert tracker.doing[""].words == "trial #3 timing"
    first, second = tracker.for_device("0"), tracker.for_device("1")
    first.on_task("timing the default again")
    second.on_propose(4, BASELINE)
    second.on_stage(Stage.OPEN, "")
    assert {device: one.words for device, one in tracker.doing.items()} == {
        "0": "timing the default again",
        "1": "trial #4 loading",
    }
    tracker.on_device_lost("0", "it is gone")
    assert tracker.doing["0"].words == "given up"
    tracker.on_confirm("4 pairs, 1 finalists open")
    assert {device: one.words for device, one in tracker.doing.items()} == {"": "confirming: 4 pairs, 1 finalists open"}


def test_what_is_told_is_there_while_the_run_lasts(home: Home, finished: Study) -> None:
    (context,) = contexts(home, finished.name)
    say(home.database, context.id, DEAD, [("", "trial #1", datetime.now(UTC))])
    with announced(home, context, Progress()) as listener:
        assert [one.owner.id for one in activities_of(home.database, [context.id])] != ["dead"]
        listener.on_propose(7, BASELINE)
        _until(lambda: _words(home, context.id) == ["trial #7"])
        listener.for_device("1").on_propose(8, BASELINE)
        _until(lambda: _words(home, context.id) == ["trial #8"])
    assert _words(home, context.id) == []


def test_a_database_that_is_busy_costs_the_run_nothing(
    home: Home, finished: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = threading.Event()

    def busy(*_: object) -> None:
        tried.set()
        raise DatabaseBusyError("database is locked")

    monkeypatch.setattr(announcer, "say", busy)
    (context,) = contexts(home, finished.name)
    with announced(home, context, Progress()) as listener:
        listener.on_propose(7, BASELINE)
        assert tried.wait(30)


def test_of_a_dead_process_nothing_is_seen(home: Home, finished: Study) -> None:
    (context,) = contexts(home, finished.name)
    say(home.database, context.id, DEAD, [("", "trial #1", datetime.now(UTC))])
    sight = Watcher(home, finished.name).look()
    assert sight is not None
    assert sight.doing == {}


def test_a_look_has_what_is_new_once(home: Home, finished: Study) -> None:
    watcher = Watcher(home, finished.name)
    first, second = watcher.look(), watcher.look()
    assert first is not None
    assert second is not None
    assert [trial.number for trial in first.new] == list(range(6))
    assert second.new == ()
    assert second.summary.n_trials == 6
    assert second.summary.best is not None
    assert str(second.summary.best.candidate) == "b=v1"


def test_a_study_without_a_run(created: Study) -> None:
    with open_home(created.url) as home:
        sight = Watcher(home, created.name).look()
        assert sight is not None
        assert (sight.summary.n_trials, sight.doing, sight.new) == (0, {}, ())
        with pytest.raises(NotFoundError):
            Watcher(home, "nobody").look()


def test_a_run_is_seen_from_elsewhere(new_study: MakeStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    study = new_study(landscapes.small(), budget=Budget(3))
    looking = Looking(study, monkeypatch)
    run_study(study.name, storage=study.url, progress=looking)
    assert any(words.startswith("trial #") for words in looking.seen)
    assert [sight.summary.n_trials for sight in looking.sights] == [0, 1, 2]
    with open_home(study.url) as home:
        last = Watcher(home, study.name).look()
    assert last is not None
    assert (last.doing, last.summary.n_trials, last.verdict) == ({}, 3, None)


def test_a_confirmation_is_seen_from_elsewhere(finished: Study) -> None:
    seen: list[str] = []

    class Confirming(Progress):
        def on_confirm(self, words: str) -> None:
            with open_home(finished.url) as home:
                sight = Watcher(home, finished.name).look()
            assert sight is not None
            seen.extend(one.words for one in sight.doing.values())

        def on_trial(self, trial: Trial, summary: Summary) -> None:
            raise AssertionError("nothing is tried in a confirmation")

    confirm_study(
        finished.name,
        ConfirmOptions(finalists=1, builds=2),
        storage=finished.url,
        progress=Confirming(),
    )
    assert any(words.startswith("confirming: ") for words in seen)
    with open_home(finished.url) as home:
        last = Watcher(home, finished.name).look()
    assert last is not None
    assert last.verdict is not None
    assert last.verdict["verdict"] == "faster"


def _words(home: Home, context_id: int) -> list[str]:
    return [one.words for one in activities_of(home.database, [context_id])]


def _until(holds: object) -> None:
    """Return once it holds; fail if it never does."""
    assert callable(holds)
    for _ in range(600):
        if holds():
            return
        threading.Event().wait(0.05)
    raise AssertionError("it was never seen")
