"""Together: several listeners to one run.

Flow: whoever asked for the run, and announcer.py for those who watch elsewhere -> HERE -> the loop's one listener.
"""

from __future__ import annotations

from objectives.knobs import Candidate
from objectives.outcome import Failed, Stage
from tuner.context import Context
from tuner.finalists import Finalist
from tuner.ledger import Trial
from tuner.progress import Progress
from tuner.results import Summary
from tuner.search.advice import Advice
from tuner.spec import Budget
from tuner.stats import Noise


class Together(Progress):
    """Hands every event to each of `listeners`, in their order."""

    def __init__(self, *listeners: Progress) -> None:
        self._listeners = listeners

    def on_start(self, context: Context, budget: Budget, summary: Summary) -> None:
        for one in self._listeners:
            one.on_start(context, budget, summary)

    def for_device(self, device: str) -> Progress:
        return Together(*(one.for_device(device) for one in self._listeners))

    def on_device_lost(self, device: str, reason: str) -> None:
        for one in self._listeners:
            one.on_device_lost(device, reason)

    def on_wait(self, device: str) -> None:
        for one in self._listeners:
            one.on_wait(device)

    def on_task(self, words: str) -> None:
        for one in self._listeners:
            one.on_task(words)

    def on_known_noise(self, floor: Noise) -> None:
        for one in self._listeners:
            one.on_known_noise(floor)

    def on_noise(self, floor: Noise | None) -> None:
        for one in self._listeners:
            one.on_noise(floor)

    def on_control(self, trouble: Failed | None) -> None:
        for one in self._listeners:
            one.on_control(trouble)

    def on_advice(self, advice: Advice) -> None:
        for one in self._listeners:
            one.on_advice(advice)

    def on_propose(self, number: int, candidate: Candidate) -> None:
        for one in self._listeners:
            one.on_propose(number, candidate)

    def on_stage(self, stage: Stage, detail: str) -> None:
        for one in self._listeners:
            one.on_stage(stage, detail)

    def on_trial(self, trial: Trial, summary: Summary) -> None:
        for one in self._listeners:
            one.on_trial(trial, summary)

    def on_confirm(self, words: str) -> None:
        for one in self._listeners:
            one.on_confirm(words)

    def on_pair(self, finalist: Finalist, index: int, log_ratio: float) -> None:
        for one in self._listeners:
            one.on_pair(finalist, index, log_ratio)

    def on_check(self, words: str) -> None:
        for one in self._listeners:
            one.on_check(words)

    def on_end(self, reason: str, summary: Summary) -> None:
        for one in self._listeners:
            one.on_end(reason, summary)
