"""Shipped: the engine files that a context keeps, as facts.

Flow: gather.py -> HERE, from storage/engines.py and the artifact folder's layout -> EngineFacts.
"""

from __future__ import annotations

from pathlib import Path

from objectives.knobs import KnobKind
from storage.engines import engines_of
from tuner import engines
from tuner.export import rebuild_of
from tuner.home import Home
from tuner.report.facts import EngineFacts
from tuner.spec import StudySpec
from tuner.views import ContextView

_ORDER = ("confirmed", "promoted", "best", "default")  # what `engine export` takes first


def kept(home: Home, spec: StudySpec, view: ContextView) -> tuple[EngineFacts, ...]:
    """Every engine that is kept, the one that `engine export` would take first."""
    trials = {trial.uid: trial for trial in view.trials}
    at_run_time = {knob.name for knob in view.context.space.knobs if knob.kind is KnobKind.RUNTIME}
    found = []
    for record in engines_of(home.database, view.context.id):
        trial = trials.get(record.trial_uid)
        if trial is None:
            continue
        path = Path(engines.to_file(home, record).path)
        found.append(
            EngineFacts(
                trial=trial.number,
                candidate=str(trial.candidate),
                changes=dict(trial.candidate.changes),
                reasons=tuple(engines.reasons(record, view.summary)),
                digest=record.digest,
                format=record.format,
                size_bytes=record.size_bytes,
                file=path.name,
                path=str(path),
                open_with={k: v for k, v in record.manifest.get("values", {}).items() if k in at_run_time},
                rebuild=rebuild_of(spec, view, trial)[0],
            )
        )
    return tuple(sorted(found, key=lambda one: (_rank(one), -one.trial)))


def _rank(one: EngineFacts) -> int:
    return next((place for place, reason in enumerate(_ORDER) if reason in one.reasons), len(_ORDER))
