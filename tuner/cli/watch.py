"""`study watch`: a run in another terminal, or on another machine with the same database, as it goes on."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, NoReturn

import click

from tuner.cli.options import storage_option, study_argument

if TYPE_CHECKING:
    from tuner.cli.progress import LineProgress
    from tuner.watching import Sight, Watcher

_LOOK_S = 1.0
_IDLE_S = 20.0  # between a search and its confirmation nobody is at work for a while
_RECENT = 5  # finished trials that are shown of what came before


@click.command()
@study_argument
@click.option("--wait", is_flag=True, help="Also wait for a run to begin, and after its end for the next one.")
@storage_option
def watch(name: str, wait: bool, storage: str) -> None:
    """Watch the study NAME while another process works on it; reads only.

    Shows each trial as it ends, what is being done now and for how long, the best so far, counts and the time left,
    until the run ends. In a pipe it is one plain line a trial. The speed-up shown is what the search saw, with ± where
    it is known how far noise alone may reach. Ctrl-C ends the watching and leaves the run alone.

    \b
    Example:
      python -m tuner study watch ocr
      python -m tuner study watch ocr --wait --storage postgresql+psycopg://user@host/tuner
    """
    from tuner.cli import render
    from tuner.cli.progress import make_progress
    from tuner.home import open_home
    from tuner.watching import Watcher

    signal.signal(signal.SIGTERM, _interrupt)
    with open_home(storage) as home:
        watcher = Watcher(home, name)
        with make_progress() as progress:
            try:
                last = _follow(watcher, progress, wait)
            except KeyboardInterrupt:
                return
    render.emit(_end(name, last))


def _follow(watcher: Watcher, progress: LineProgress, wait: bool) -> Sight | None:
    """Show what there is until nobody works on it any more; returns the last look."""
    from objectives.devices import short
    from tuner.cli.live import Standing

    context_id, idle_since = None, None
    while True:
        sight = watcher.look()
        if sight is not None:
            new = sight.new
            if sight.context.id != context_id:
                context_id = sight.context.id
                progress.say(_head(sight))
                new = new[-_RECENT:]
            progress.see(Standing(sight.spec.budget, sight.summary, sight.doing, sight.floor, sight.verdict))
            many = len({trial.device for trial in watcher.trials}) > 1
            for trial in new:
                progress.on_trial(trial, sight.summary, short(trial.device) if many else "")
        if sight is not None and sight.doing:
            idle_since = time.monotonic()
        elif not wait and (idle_since is None or time.monotonic() - idle_since > _IDLE_S):
            return sight
        time.sleep(_LOOK_S)


def _head(sight: Sight) -> str:
    """The context, and in short what came before."""
    from tuner.cli.render import counts

    record, space = sight.context.record, sight.context.space
    where = f"{record.environment.backend} {record.environment.backend_version}, {len(space.knobs)} knobs"
    before = f"; {sight.summary.n_trials} trials so far: {counts(sight.summary)}" if sight.summary.n_trials else ""
    return f"study {sight.spec.name!r} context {record.number}: {where}{before}"


def _end(name: str, last: Sight | None) -> list[str]:
    """How it stands when nobody is at work, and what to do."""
    from tuner.budget import why_done
    from tuner.cli.render import NOT_CONFIRMED, counts, verdict_line

    run = f"next: python -m tuner study run {name}"
    if last is None or not last.summary.n_trials:
        return [f"study {name!r} has not been run", run]
    summary = last.summary
    lines = [f"nobody is at work on study {name!r}: {summary.n_trials} trials: {counts(summary)}"]
    if last.verdict is not None:
        return [*lines, f"  {verdict_line(last.verdict)}", f"next: python -m tuner study best {name}"]
    if why_done(last.spec.budget, summary.n_trials, summary.spent_s) is None:
        return [*lines, run]
    if not summary.objective.is_timed:
        return [*lines, f"next: python -m tuner study best {name}"]
    return [*lines, f"  {NOT_CONFIRMED}", f"next: python -m tuner study confirm {name}"]


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt
