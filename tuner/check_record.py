"""Check record: what a study has on record for the environment at hand: the engine that ships, and the default.

Flow: a study's contexts and what is here -> HERE -> a Release -> entrants.py and checking.py. Only reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from objectives.backends.base import Environment
from objectives.knobs import Candidate, KnobSpace
from objectives.requests import Described
from storage.engines import engines_of
from storage.errors import NotFoundError
from storage.records import EngineRecord, EnvironmentRecord
from tuner import engines
from tuner.check_answers import MIN_GAIN, Recorded, recorded_of
from tuner.context import Context
from tuner.errors import UsageError
from tuner.home import Home
from tuner.ledger import Trial, to_environment_record
from tuner.migration import translate_partly
from tuner.spec import StudySpec
from tuner.views import ContextView

# Parts of an environment's identity that are the machine's and not its software's, whatever the backend.
_HARDWARE = (
    *("machine", "architecture", "cpu", "instructions", "usable_cores"),
    *("gpu", "compute_capability", "multiprocessors", "memory_mib", "power_limit_w"),
)


@dataclass(frozen=True, slots=True)
class Release:
    """What is on record and what of it can be used here.

    `view` is the context that it was recorded in, `context` the one to build and run in here. `kept` is None where the
    candidate has to be built again; `lost` are changes that do not exist here.
    """

    view: ContextView
    views: tuple[ContextView, ...]
    trial: Trial
    kept: EngineRecord | None
    candidate: Candidate
    lost: tuple[str, ...]
    context: Context
    how: str
    recorded: Recorded | None
    min_gain: float

    @property
    def here_words(self) -> str:
        return _words(self.context.record.environment)

    @property
    def recorded_words(self) -> str:
        return _words(self.view.context.record.environment)


def release_of(home: Home, spec: StudySpec, views: Sequence[ContextView], here: Described) -> Release:
    """The engine that ships: of this environment's latest context, else of the latest that was run.

    Raises: NotFoundError if the study was not run; UsageError if it has nothing but the default.
    """
    measured = [view for view in views if view.summary.standard is not None]
    if not measured:
        raise NotFoundError(f"study {spec.name!r} has not been run", hint=f"python -m tuner study run {spec.name}")
    of_here = [view for view in measured if view.context.record.environment.digest == here.environment.digest]
    view = of_here[-1] if of_here else measured[-1]
    records = {one.trial_uid: one for one in engines_of(home.database, view.context.id)}
    trial = _to_ship(view, records)
    if trial is None or trial.candidate.is_baseline:
        raise UsageError(
            f"study {spec.name!r} has nothing to check: the best that it knows is the default",
            hint=f"python -m tuner study run {spec.name}",
        )
    found = records.get(trial.uid)
    kept = found if of_here else None
    confirmation = _confirmation(view, trial, found)
    assert here.knobs is not None, "a model was asked for"
    context = view.context if of_here else _context(view.context, here.environment, here.knobs)
    old = view.context.space
    candidate, lost = (trial.candidate, ()) if of_here else translate_partly(trial.candidate, old, here.knobs)
    why = "it is not kept" if of_here else "it was made for another environment"
    return Release(
        view=view,
        views=tuple(measured),
        trial=trial,
        kept=kept,
        candidate=candidate,
        lost=lost,
        context=context,
        how="the engine that is kept" if kept is not None else f"built again, since {why}",
        # Elsewhere the default may have become faster or slower by itself: what it was worth there is no promise here.
        recorded=recorded_of(confirmation, "route" if kept is None else "shipped") if of_here else None,
        min_gain=MIN_GAIN if confirmation is None else float(confirmation["min_gain"]),
    )


def default_recorded(release: Release) -> tuple[ContextView, float] | None:
    """The default's latency in the latest context on the same device, milliseconds, and that context."""
    here = release.context.record.environment
    for view in reversed(release.views):
        standard = view.summary.standard
        if standard is not None and is_same_device(view.context.record.environment, here):
            return view, standard.baseline_cost
    return None


def is_same_device(one: EnvironmentRecord, other: EnvironmentRecord) -> bool:
    """Whether two environments are the same hardware, with whatever software."""
    known = (name for name in _HARDWARE if name in one.identity and name in other.identity)
    return one.device == other.device and all(one.identity[name] == other.identity[name] for name in known)


def _to_ship(view: ContextView, records: Mapping[str, EngineRecord]) -> Trial | None:
    """Confirmed before promoted before best, among what is kept; without engines what the last verdict says."""
    for reason in ("confirmed", "promoted"):
        for trial in reversed(view.trials):
            if trial.uid in records and reason in engines.reasons(records[trial.uid], view.summary):
                return trial
    winner = None if view.verdict is None else view.verdict["winner"]
    return next((trial for trial in view.trials if trial.uid == winner), view.summary.best)


def _confirmation(view: ContextView, trial: Trial, record: EngineRecord | None) -> Mapping[str, Any] | None:
    """What was confirmed of this trial: written beside its engine, else the context's last verdict."""
    if record is not None and record.manifest.get("confirmation"):
        found: Mapping[str, Any] = record.manifest["confirmation"]
        return found
    return view.verdict if view.verdict is not None and view.verdict["winner"] == trial.uid else None


def _context(recorded: Context, environment: Environment, space: KnobSpace) -> Context:
    """A context that is not stored: the recorded one's judging, here."""
    return Context(replace(recorded.record, environment=to_environment_record(environment)), space)


def _words(environment: EnvironmentRecord) -> str:
    identity = ", ".join(str(value) for value in environment.identity.values())
    return f"{environment.backend} {environment.backend_version} on {environment.device or 'no device'} ({identity})"
