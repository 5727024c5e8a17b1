"""Shipping: the engines that a study keeps: list, verify, promote, prune, export.

Flow: `python -m tuner engine ...` and scripts -> HERE -> engines.py and the artifacts; whatever has to be built or run
goes through the child process as everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from objectives.device import device_lock
from objectives.errors import EngineFileError
from objectives.isolation import Isolation
from objectives.outcome import Built, Failed, Rejected, require_intact
from storage.engines import set_manifest
from storage.errors import NotFoundError
from storage.records import EngineRecord
from tuner import ask, engines
from tuner.context import Context
from tuner.dashboard import pages
from tuner.errors import StudyError
from tuner.home import DEFAULT_STORAGE, Home
from tuner.kept import KeptEngine, kept_engines, no_engine, opened
from tuner.ledger import Trial
from tuner.limits import isolation_for
from tuner.spec import StudySpec
from tuner.views import ContextView


@dataclass(frozen=True, slots=True)
class Verified:
    """An engine that was looked at. `trouble` is empty where all is well; `checked`: its outputs were compared too."""

    trial: Trial
    digest: str
    trouble: str
    checked: bool


def list_engines(name: str, *, storage: str = DEFAULT_STORAGE, artifacts: str | Path | None = None) -> list[KeptEngine]:
    """The engines kept for the latest context of a study, by trial number. Raises: NotFoundError."""
    with opened(name, storage, artifacts) as (home, _, view):
        return kept_engines(home, view)


def verify_engines(
    name: str,
    trial: int | None = None,
    *,
    run: bool = False,
    storage: str = DEFAULT_STORAGE,
    artifacts: str | Path | None = None,
) -> list[Verified]:
    """Compare the bytes of every kept engine (or of one trial's) with what was recorded; with `run` its outputs too.

    Raises: NotFoundError; StudyError if `run` is asked for in another environment than the engines are for.
    """
    with opened(name, storage, artifacts) as (home, spec, view):
        chosen = [one for one in kept_engines(home, view) if trial in (None, one.trial.number)]
        if not chosen:
            raise NotFoundError(no_engine(name, trial), hint=f"python -m tuner engine list {name}")
        if not run:
            return [Verified(one.trial, one.record.digest, _damage(home, one.record), False) for one in chosen]
        with isolation_for(spec) as isolation:
            if reason := _require_here(home, spec, view.context, isolation):
                raise StudyError(reason, hint="without --run the bytes are compared")
            return [_verified(home, spec, view.context, isolation, one) for one in chosen]


def promote_engine(
    name: str,
    trial: int,
    *,
    undo: bool = False,
    storage: str = DEFAULT_STORAGE,
    artifacts: str | Path | None = None,
) -> KeptEngine:
    """Keep the engine of a trial whatever the search finds later; it is built and checked again if it is gone.

    With `undo` there is no such wish any more. Raises: NotFoundError, StudyError (another environment, a build that
    fails or is rejected).
    """
    with opened(name, storage, artifacts) as (home, spec, view):
        found = _trial(name, view, trial)
        record = engines.record_of(home, view.context, found)
        if record is None and undo:
            raise NotFoundError(no_engine(name, trial), hint=f"python -m tuner engine list {name}")
        if record is None:
            _rebuild(home, spec, view.context, found)
        else:
            set_manifest(home.database, found.uid, {**record.manifest, "promoted": not undo})
        pages.redraw(home, name)
        return next(one for one in kept_engines(home, view) if one.trial.uid == found.uid)


def prune_engines(name: str, *, storage: str = DEFAULT_STORAGE, artifacts: str | Path | None = None) -> tuple[int, int]:
    """Remove what a study has no reason to keep, and what killed processes left. Returns engines and bytes removed."""
    with opened(name, storage, artifacts) as (home, _, view):
        stale = [one.record for one in kept_engines(home, view) if not one.reasons]
        engines.drop(home, stale)
        engines.tidy(home)
        pages.redraw(home, name)
        return len(stale), sum(record.size_bytes for record in stale)


def _trial(name: str, view: ContextView, number: int) -> Trial:
    for trial in view.trials:
        if trial.number == number:
            return trial
    raise NotFoundError(
        f"study {name!r} has no finished trial {number} in its latest context",
        hint=f"python -m tuner study show {name}",
    )


def _damage(home: Home, record: EngineRecord) -> str:
    try:
        require_intact(engines.to_file(home, record))
    except EngineFileError as error:
        return str(error)
    return ""


def _verified(home: Home, spec: StudySpec, context: Context, isolation: Isolation, one: KeptEngine) -> Verified:
    if trouble := _damage(home, one.record):
        return Verified(one.trial, one.record.digest, trouble, False)
    request = ask.check(home, spec, context, engines.to_file(home, one.record), one.trial.candidate)
    with device_lock(context.device, lambda device: None):
        checked = isolation.check(request)
    return Verified(one.trial, one.record.digest, "" if isinstance(checked, Built) else checked.reason, True)


def _rebuild(home: Home, spec: StudySpec, context: Context, trial: Trial) -> None:
    with isolation_for(spec) as isolation, home.artifacts.at_work(), home.artifacts.scratch() as folder:
        _require_here(home, spec, context, isolation)
        with device_lock(context.device, lambda device: None):
            if spec.build_only:
                made = isolation.evaluate(ask.evaluation(home, spec, context, trial.candidate, folder))
            else:
                made = isolation.build(ask.fresh_build(home, spec, context, trial.candidate, folder))
        if isinstance(made, Failed | Rejected):
            raise StudyError(f"trial {trial.number} cannot be built again: {made.reason}", hint="promote another trial")
        assert isinstance(made, Built), "nothing was asked to be timed"
        facts = {"promoted": True, "losses": msgspec.to_builtins(made.accuracy), "rebuilt": True}
        engines.promote(home, spec, context, trial, made.engine, facts)


def _require_here(home: Home, spec: StudySpec, context: Context, isolation: Isolation) -> str:
    """Why engines cannot be run here, empty where they can. Raises: StudyError if this is another environment."""
    here = isolation.describe(ask.describe(home, spec))
    environment = context.record.environment
    if here.environment.digest != environment.digest:
        raise StudyError(
            f"the latest context of study {spec.name!r} is of {environment.backend} {environment.backend_version} "
            f"({', '.join(environment.identity.values())}), this is another environment",
            hint=f"use that machine, or `study run {spec.name}` here",
        )
    return here.cannot_run
