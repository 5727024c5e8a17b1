"""Progress on a terminal and in a pipe: the same facts, drawn calmly.

Flow: the loop's events, or what `study watch` reads -> HERE -> on a terminal a few lines that stay in place under the
trials' lines (live.py); elsewhere one plain line a trial.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from objectives.knobs import Candidate
from objectives.outcome import Failed, Stage
from tuner.carried import read_carried
from tuner.cli.lineage import start_lines
from tuner.cli.live import Standing, live_lines
from tuner.cli.render import counts, ratio, trial_line
from tuner.context import Context
from tuner.doing import Tracker
from tuner.finalists import Finalist
from tuner.ledger import Trial
from tuner.progress import Progress
from tuner.results import Summary
from tuner.search.advice import Advice
from tuner.spec import Budget
from tuner.stats import Noise
from tuner.together import Together


class LineProgress(Progress, AbstractContextManager["LineProgress"]):
    """One line for each event worth keeping, on stderr: stdout belongs to the result."""

    def __init__(self) -> None:
        self._budget = Budget()
        self._waited = False
        self._worth_it = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def say(self, line: str) -> None:
        click.echo(line, err=True)

    def on_start(self, context: Context, budget: Budget, summary: Summary) -> None:
        self._budget = budget
        record = context.record
        if context.opened_because and record.number > 1:
            self.say(f"new context {record.number}: {context.opened_because}")
            carried = read_carried(record)
            for line in () if carried is None else start_lines(carried):
                self.say(f"  it {line}")
        where = f"{record.environment.backend} {record.environment.backend_version}"
        self.say(f"{where}: {len(context.space.knobs)} knobs, {context.space.size:,} candidates")
        if summary.n_trials:
            self.say(f"going on after {summary.n_trials} trials: {counts(summary)}")

    def for_device(self, device: str) -> Progress:
        return DeviceProgress(self, device)

    def on_device_lost(self, device: str, reason: str) -> None:
        self.say(f"device {device} is given up, the others go on: {reason}")

    def on_wait(self, device: str) -> None:
        self.tell_wait(device)

    def tell_wait(self, device: str) -> None:
        """Say once that devices are shared."""
        if not self._waited:
            self.say(f"waiting: another process measures on {device}; trials take turns")
        self._waited = True

    def on_noise(self, floor: Noise | None) -> None:
        if floor is None:
            self.say("noise floor: the default did not build or run again; not known")
            return
        self.say(f"noise floor: run {floor.run.sd:.2%}, load {floor.load.sd:.2%}, build {floor.build.sd:.2%}")

    def on_control(self, trouble: Failed | None) -> None:
        if trouble is not None:
            self.say(f"the default could not be timed again: {trouble.reason}")

    def on_advice(self, advice: Advice) -> None:
        if advice.worth_it != self._worth_it:
            self.say(f"{'worth' if advice.worth_it else 'not worth'} going on: {advice.reason}")
        self._worth_it = advice.worth_it

    def on_trial(self, trial: Trial, summary: Summary, device: str = "") -> None:
        self.say(self._trial(trial, summary, device))

    def on_end(self, reason: str, summary: Summary) -> None:
        self.say(f"done: {reason}")

    def on_confirm(self, words: str) -> None:
        self.say(f"confirming: {words}")

    def on_check(self, words: str) -> None:
        self.say(f"checking: {words}")

    def see(self, standing: Standing) -> None:
        """What another process is at, for those who only watch."""
        self._budget = standing.budget

    def _trial(self, trial: Trial, summary: Summary, device: str = "") -> str:
        number, status, throughput, relative, text = trial_line(trial, summary)
        most = self._budget.n_trials
        done = f"{summary.n_trials}/{most}" if most else str(summary.n_trials)
        which = f"[{done}] #{number:<3}"
        width = 2 * len(str(most)) + 5 + max(3, len(str(most))) if most else 0  # so that columns stay where they are
        best = f"best {ratio(summary.speedup)}" if summary.speedup else "best -"
        where = f"on {device}  " if device else ""
        return f"{which:<{width}} {status:<12} {throughput:>10} {relative:>7}  {best}  {where}{text}"


class DeviceProgress(Progress):
    """What happens on one of several devices, for the progress of the whole run."""

    def __init__(self, whole: LineProgress, device: str) -> None:
        self._whole = whole
        self._device = device

    def on_wait(self, device: str) -> None:
        self._whole.tell_wait(device)

    def on_control(self, trouble: Failed | None) -> None:
        self._whole.on_control(trouble)

    def on_trial(self, trial: Trial, summary: Summary) -> None:
        self._whole.on_trial(trial, summary, self._device)


class TerminalProgress(LineProgress):
    """Trials scroll by; under them stay the budget, the current stage of each device, and what was found."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._summary: Summary | None = None
        self._floor: Noise | None = None
        self._seen: Standing | None = None
        self._tracker = Tracker()
        self._tracker.on_task("starting")
        self._console = console
        # Last: it draws at once.
        self._live = Live(console=console, refresh_per_second=2, transient=True, get_renderable=self._draw)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, line: str) -> None:
        self._console.print(Text(line), overflow="ellipsis", no_wrap=True)

    def on_start(self, context: Context, budget: Budget, summary: Summary) -> None:
        super().on_start(context, budget, summary)
        self._summary = summary

    def for_device(self, device: str) -> Progress:
        return Together(super().for_device(device), self._tracker.for_device(device))

    def on_device_lost(self, device: str, reason: str) -> None:
        self._tracker.on_device_lost(device, reason)
        super().on_device_lost(device, reason)

    def on_wait(self, device: str) -> None:
        self._tracker.on_wait(device)
        super().on_wait(device)

    def on_task(self, words: str) -> None:
        self._tracker.on_task(words)

    def on_noise(self, floor: Noise | None) -> None:
        self._floor = floor
        super().on_noise(floor)

    def on_known_noise(self, floor: Noise) -> None:
        self._floor = floor

    def on_propose(self, number: int, candidate: Candidate) -> None:
        self._tracker.on_propose(number, candidate)

    def on_stage(self, stage: Stage, detail: str) -> None:
        self._tracker.on_stage(stage, detail)

    def on_trial(self, trial: Trial, summary: Summary, device: str = "") -> None:
        self._summary = summary
        super().on_trial(trial, summary, device)

    def on_confirm(self, words: str) -> None:
        self._tracker.on_confirm(words)

    def on_check(self, words: str) -> None:
        self._tracker.on_check(words)

    def on_pair(self, finalist: Finalist, index: int, log_ratio: float) -> None:
        self._tracker.on_pair(finalist, index, log_ratio)

    def see(self, standing: Standing) -> None:
        super().see(standing)
        self._seen = standing

    def _draw(self) -> Group:
        console = self._console
        standing = self._seen or Standing(self._budget, self._summary, self._tracker.doing, self._floor)
        is_unicode = console.encoding.lower().startswith("utf")
        lines = live_lines(standing, console.width - 1, is_unicode=is_unicode)
        return Group(*[Text(line, overflow="crop", no_wrap=True, style="dim") for line in lines])


class SilentProgress(LineProgress):
    """Says nothing: the caller wants JSON alone."""

    def say(self, line: str) -> None:
        return


def make_progress(quiet: bool = False) -> LineProgress:
    """The progress that fits where stderr goes."""
    if quiet:
        return SilentProgress()
    return TerminalProgress(Console(stderr=True)) if sys.stderr.isatty() else LineProgress()
