"""Progress: what a run tells while it works. The listener does nothing; the command line and notebooks override it.

Flow: loop.py calls -> cli/progress.py draws, or a notebook collects.
"""

from __future__ import annotations

from objectives.knobs import Candidate
from objectives.outcome import Failed, Stage
from tuner.context import Context
from tuner.finalists import Finalist
from tuner.ledger import Trial
from tuner.results import Summary
from tuner.search.advice import Advice
from tuner.spec import Budget
from tuner.stats import Noise


class Progress:
    """Called in the order of the methods here; every method may be left as it is."""

    def on_start(self, context: Context, budget: Budget, summary: Summary) -> None:
        """The run begins; `summary` covers what earlier runs did."""

    def for_device(self, device: str) -> Progress:
        """Who hears of what happens on one of several devices: waits, controls, proposals and stages.

        They come from a thread for each device. Asked only where there are several.
        """
        return self

    def on_device_lost(self, device: str, reason: str) -> None:
        """One of several devices is given up; the others go on, with its trial too."""

    def on_wait(self, device: str) -> None:
        """Another process measures on `device`."""

    def on_task(self, words: str) -> None:
        """Something that is no trial begins: the noise floor, the default once more."""

    def on_known_noise(self, floor: Noise) -> None:
        """An earlier run has measured the noise floor."""

    def on_noise(self, floor: Noise | None) -> None:
        """The noise floor has been measured; None: the baseline did not hold still for it."""

    def on_control(self, trouble: Failed | None) -> None:
        """The baseline has been timed again, or could not be."""

    def on_advice(self, advice: Advice) -> None:
        """The search says whether to go on; before each proposal, from searches that do say."""

    def on_propose(self, number: int, candidate: Candidate) -> None:
        """A trial begins."""

    def on_stage(self, stage: Stage, detail: str) -> None:
        """The trial has entered a stage or, with words, come further in it."""

    def on_trial(self, trial: Trial, summary: Summary) -> None:
        """A trial is finished and recorded."""

    def on_confirm(self, words: str) -> None:
        """The confirmation has come to another step."""

    def on_pair(self, finalist: Finalist, index: int, log_ratio: float) -> None:
        """A process pair of a confirmation is taken and recorded; above zero the finalist is faster."""

    def on_check(self, words: str) -> None:
        """A check of the engine that ships has come to another step."""

    def on_end(self, reason: str, summary: Summary) -> None:
        """The run is over."""
