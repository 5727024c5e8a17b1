"""Kept: which engines a study keeps, and which of them ships.

Flow: shipping.py, export.py and checking ask HERE; engines.py and storage/engines.py know the files and rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from storage.engines import engines_of
from storage.errors import NotFoundError
from storage.records import EngineRecord
from storage.studies import get_study
from tuner import engines
from tuner.context import contexts, latest
from tuner.home import Home, open_home
from tuner.ledger import Trial
from tuner.spec import StudySpec, read_spec
from tuner.views import ContextView, view_of


@dataclass(frozen=True, slots=True)
class KeptEngine:
    """One engine that is kept, of which trial, and why (`engines.reasons`)."""

    trial: Trial
    record: EngineRecord
    reasons: tuple[str, ...]
    path: Path


def kept_engines(home: Home, view: ContextView) -> list[KeptEngine]:
    """Every engine that is kept for a context, by trial number."""
    trials = {trial.uid: trial for trial in view.trials}
    found = [
        KeptEngine(
            trials[record.trial_uid],
            record,
            tuple(engines.reasons(record, view.summary)),
            Path(engines.to_file(home, record).path),
        )
        for record in engines_of(home.database, view.context.id)
        if record.trial_uid in trials
    ]
    return sorted(found, key=lambda one: one.trial.number)


def choose_engine(home: Home, name: str, view: ContextView, trial: int | None) -> KeptEngine:
    """The engine of a trial, or the one to ship: confirmed before promoted before the best that the search saw.

    Raises: NotFoundError.
    """
    kept = kept_engines(home, view)
    if trial is not None:
        kept = [one for one in kept if one.trial.number == trial]
    for reason in ("confirmed", "promoted", "best", "default", ""):
        for one in reversed(kept):
            if reason in one.reasons or not reason:
                return one
    raise NotFoundError(no_engine(name, trial), hint=f"python -m tuner engine promote {name} TRIAL builds one again")


def no_engine(name: str, trial: int | None) -> str:
    """The sentence that there is none, of a study or of one trial."""
    of = "" if trial is None else f" of trial {trial}"
    return f"study {name!r} keeps no engine{of}"


@contextmanager
def opened(name: str, storage: str, artifacts: str | Path | None) -> Iterator[tuple[Home, StudySpec, ContextView]]:
    """A study's home, specification and latest context. Raises: NotFoundError."""
    with open_home(storage, None if artifacts is None else Path(artifacts)) as home:
        spec = read_spec(get_study(home.database, name).spec)
        found = latest(contexts(home, name), spec)
        if found is None:
            raise NotFoundError(f"study {name!r} has not been run", hint=f"python -m tuner study run {name}")
        yield home, spec, view_of(home, spec, found)
