"""Doing: what a run is at on each of its devices, in words, since when.

Flow: the loop's events -> Tracker HERE -> the terminal that runs it, and announcer.py for those who watch elsewhere.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from objectives.knobs import Candidate
from objectives.outcome import Stage
from tuner.context import Context
from tuner.finalists import Finalist
from tuner.progress import Progress
from tuner.results import Summary
from tuner.spec import Budget

_STAGES = {
    Stage.BUILD: "building",
    Stage.OPEN: "loading",
    Stage.CHECK: "checking outputs",
    Stage.TIME: "timing",
}


@dataclass(frozen=True, slots=True)
class Doing:
    """`task`: the trial or step; `stage`: how far it is in it, which the clock of `since` is about."""

    task: str
    since: datetime
    stage: str = ""
    detail: str = ""

    @property
    def words(self) -> str:
        """`trial #3 building, 2 of 10`."""
        return " ".join(part for part in (self.task, self.stage) if part) + (f", {self.detail}" if self.detail else "")


class Tracker(Progress):
    """Keeps what is being done by device, "" where there is no choice; `changed` hears of it, True for a new stage."""

    def __init__(self, changed: Callable[[bool], None] = lambda is_new: None) -> None:
        self.doing: dict[str, Doing] = {}
        self._changed = changed
        self._lock = threading.Lock()  # each device has a thread

    def for_device(self, device: str) -> Progress:
        return _OfDevice(self, device)

    def on_start(self, context: Context, budget: Budget, summary: Summary) -> None:
        self.enter("", "starting")

    def on_device_lost(self, device: str, reason: str) -> None:
        self.enter(device, "given up")

    def on_wait(self, device: str) -> None:
        self.enter("", "waiting for another process")

    def on_task(self, words: str) -> None:
        self.enter("", words)

    def on_propose(self, number: int, candidate: Candidate) -> None:
        self.enter("", f"trial #{number}")

    def on_stage(self, stage: Stage, detail: str) -> None:
        self.advance("", stage, detail)

    def on_confirm(self, words: str) -> None:
        self._alone(f"confirming: {words}")

    def on_pair(self, finalist: Finalist, index: int, log_ratio: float) -> None:
        self._alone(f"confirming: trial #{finalist.number}, pair {index + 1} was {math.exp(log_ratio):.3f}x")

    def on_check(self, words: str) -> None:
        self._alone(f"checking: {words}")

    def on_end(self, reason: str, summary: Summary) -> None:
        self._alone("the search has ended")

    def enter(self, device: str, task: str) -> None:
        """A device, or without a name the only one, has come to something else."""
        with self._lock:  # "" goes when devices have names
            kept = {name: one for name, one in self.doing.items() if name or not device}
            self.doing = {**kept, device: Doing(task, datetime.now(UTC))}
        self._changed(True)

    def advance(self, device: str, stage: Stage, detail: str) -> None:
        """What a device is at has entered a stage or, with words, come further in it; the clock goes on then."""
        now = datetime.now(UTC)
        with self._lock:
            before = self.doing.get(device, Doing("", now))
            since = before.since if detail else now
            self.doing = {**self.doing, device: Doing(before.task, since, _STAGES[stage], detail)}
        self._changed(not detail)

    def _alone(self, task: str) -> None:
        """What the whole run is at, whatever devices there are."""
        self.doing = {"": Doing(task, datetime.now(UTC))}
        self._changed(True)


class _OfDevice(Progress):
    """What happens on one of several devices."""

    def __init__(self, tracker: Tracker, device: str) -> None:
        self._tracker = tracker
        self._device = device

    def on_wait(self, device: str) -> None:
        self._tracker.enter(self._device, "waiting for another process")

    def on_task(self, words: str) -> None:
        self._tracker.enter(self._device, words)

    def on_propose(self, number: int, candidate: Candidate) -> None:
        self._tracker.enter(self._device, f"trial #{number}")

    def on_stage(self, stage: Stage, detail: str) -> None:
        self._tracker.advance(self._device, stage, detail)
