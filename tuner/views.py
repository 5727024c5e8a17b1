"""Views: what there is to show of a study, read from the database in one go.

Flow: tuner/api reads -> values HERE -> cli/render.py, as_json.py, notebooks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from objectives.accuracy import Limit
from objectives.backends.base import Environment, Option
from objectives.devices import Device
from storage.confirmations import confirmations_of
from storage.controls import controls_of
from storage.records import Owner
from storage.trials import leases, list_trials
from tuner import noise
from tuner.context import Context
from tuner.controls import provenance, standard
from tuner.home import Home
from tuner.ledger import Trial, to_judging, to_trial
from tuner.owner import is_alive
from tuner.results import Summary, baseline_of, summarize
from tuner.spec import StudySpec
from tuner.stats import Noise


@dataclass(frozen=True, slots=True)
class ContextView:
    """A context as it stands: its finished trials, which trials are running or interrupted, and the summary.

    `verdict` is the answer of the latest confirmation, as `tuner.answers.to_json` gives it; None without one.
    """

    context: Context
    trials: tuple[Trial, ...]
    unfinished: tuple[tuple[int, str], ...]  # number, and who has it in words
    summary: Summary
    limits: tuple[Limit, ...] = ()  # what it is judged by
    noise: Noise | None = None
    verdict: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class StudyView:
    """A study with all its contexts, oldest first."""

    spec: StudySpec
    created_at: str
    model_name: str
    contexts: tuple[ContextView, ...]

    @property
    def latest(self) -> ContextView | None:
        """The latest context that is judged as the study is now; without one the latest at all."""
        now = [view for view in self.contexts if view.context.record.judging_digest == self.spec.judging_digest]
        found = now or list(self.contexts)
        return found[-1] if found else None


@dataclass(frozen=True, slots=True)
class Best:
    """What a study's latest context has: the confirmed winner if there is one, else the best that the search saw.

    `trial` is that one, None without a feasible trial; `engine` its engine file, if one is kept.
    """

    study: str
    limits: tuple[Limit, ...]
    summary: Summary
    trial: Trial | None
    engine: Path | None
    verdict: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class EnvironmentView:
    """A backend here: its environment, or why it cannot be used and what to do."""

    backend: str
    environment: Environment | None
    trouble: str = ""
    hint: str = ""
    cannot_run: str = ""  # why engines can be built but not run here
    options: tuple[Option, ...] = ()  # what `--backend-option` may set
    devices: tuple[Device, ...] = ()  # what `--devices` may name


@dataclass(frozen=True, slots=True)
class Runnable:
    """A study of a database on this machine: whether `study run` could go on here, and how, in words."""

    study: str
    backend: str
    can_run: bool
    words: str


def view_of(home: Home, spec: StudySpec, context: Context) -> ContextView:
    rows = list_trials(home.database, context.id)
    trials = tuple(to_trial(row) for row in rows if row.finish is not None)
    owners = {number: owner for number, owner, _ in leases(home.database, context.id)}
    controls, origin = controls_of(home.database, context.id), provenance(spec, context)
    compared = standard(baseline_of(trials), controls, origin, spec.objective)
    limits = to_judging(context.record.judging).limits  # its own: the study may have others by now
    done = [one for one in confirmations_of(home.database, context.id) if one.state == "done" and one.result]
    return ContextView(
        context=context,
        trials=trials,
        unfinished=tuple((row.number, _words(owners.get(row.number))) for row in rows if row.finish is None),
        summary=summarize(trials, limits, compared),
        limits=limits,
        noise=noise.known(home, context),
        verdict=done[-1].result if done else None,
    )


def _words(owner: Owner | None) -> str:
    if owner is None or is_alive(owner) is False:
        return "interrupted; the next run repeats it"
    return f"running: process {owner.pid} on {owner.host}"
