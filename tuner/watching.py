"""Watching: a study as another process works on it, read from the database alone.

Flow: `study watch` -> a Watcher asks HERE again and again, cheaply: only what is new is read whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from storage.activities import activities_of
from storage.confirmations import confirmations_of
from storage.records import ActivityRecord
from storage.studies import get_study
from storage.trials import STALE_AFTER, finished_uids, get_trials
from tuner import noise
from tuner.context import Context, contexts, latest
from tuner.controls import Controls
from tuner.doing import Doing
from tuner.home import Home
from tuner.ledger import Trial, to_judging, to_trial
from tuner.owner import is_alive
from tuner.results import Summary, baseline_of, summarize
from tuner.spec import StudySpec, read_spec
from tuner.stats import Noise


@dataclass(frozen=True, slots=True)
class Sight:
    """A context at one moment. `new`: trials finished since the last look; `doing`: empty where nobody is at work.

    `verdict` is that of the latest confirmation, as `tuner.answers.to_json` gives it; None without one.
    """

    spec: StudySpec
    context: Context
    summary: Summary
    new: tuple[Trial, ...]
    doing: Mapping[str, Doing]
    floor: Noise | None
    verdict: Mapping[str, Any] | None


class Watcher:
    """Looks at one study. Nothing is written."""

    def __init__(self, home: Home, name: str) -> None:
        self._home = home
        self._name = name
        self._context: Context | None = None
        self._trials: dict[str, Trial] = {}

    @property
    def trials(self) -> list[Trial]:
        """Finished trials of the context, as of the last look."""
        return list(self._trials.values())

    def look(self) -> Sight | None:
        """The context that is being worked on, else the latest; None if there is none yet.

        Raises: NotFoundError if the study is not there (any more).
        """
        spec = read_spec(get_study(self._home.database, self._name).spec)
        found = contexts(self._home, self._name)
        alive = [one for one in activities_of(self._home.database, [one.id for one in found]) if _is_alive(one)]
        at_work = [one for one in found if one.id in {each.context_id for each in alive}]
        context = at_work[-1] if at_work else latest(found, spec)
        if context is None:
            return None
        if self._context is None or self._context.id != context.id:
            self._trials = {}
        self._context = context
        new = self._take_in(context)
        return Sight(
            spec=spec,
            context=context,
            summary=self._summary(spec, context),
            new=new,
            doing={one.device: Doing(one.words, one.since) for one in alive if one.context_id == context.id},
            floor=noise.known(self._home, context),
            verdict=self._verdict(context),
        )

    def _take_in(self, context: Context) -> tuple[Trial, ...]:
        uids = finished_uids(self._home.database, context.id)
        missing = [uid for uid in uids if uid not in self._trials]
        if not missing:
            return ()
        new = tuple(to_trial(record) for record in get_trials(self._home.database, missing))
        self._trials |= {trial.uid: trial for trial in new}
        return tuple(sorted(new, key=lambda trial: trial.finished_at))

    def _summary(self, spec: StudySpec, context: Context) -> Summary:
        trials = sorted(self._trials.values(), key=lambda trial: trial.number)
        standard = Controls(self._home, spec, context).standard(baseline_of(trials))
        return summarize(trials, to_judging(context.record.judging).limits, standard)

    def _verdict(self, context: Context) -> Mapping[str, Any] | None:
        done = [one for one in confirmations_of(self._home.database, context.id) if one.state == "done" and one.result]
        return done[-1].result if done else None


def _is_alive(activity: ActivityRecord) -> bool:
    alive = is_alive(activity.owner)
    return datetime.now(UTC) - activity.heartbeat_at < STALE_AFTER if alive is None else alive
