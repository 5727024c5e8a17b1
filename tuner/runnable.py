"""Runnable: which studies of a database could run on this machine, and as which context.

Flow: `env` -> HERE -> one child process for each backend with its options -> lines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from objectives.errors import ObjectiveError
from objectives.requests import Described
from storage.records import ContextRecord
from storage.studies import contexts_of, list_studies
from tuner.ask import model_path
from tuner.home import Home
from tuner.ledger import to_space
from tuner.lineage import nearest
from tuner.spec import StudySpec, read_spec
from tuner.views import Runnable

Describe = Callable[[str, Path | None, Mapping[str, str]], Described]


def runnable(home: Home, describe: Describe) -> list[Runnable]:
    """Every study, oldest first, with what `study run` would do here. Knobs are asked for by that run only."""
    known: dict[tuple[str, Path | None, tuple[tuple[str, str], ...]], Described | str] = {}
    found = []
    for record in list_studies(home.database):
        spec = read_spec(record.spec)
        # What makes a program's environment stands in its description.
        model = model_path(home, spec) if spec.measures_itself else None
        key = spec.backend, model, tuple(sorted(spec.backend_options.items()))
        if key not in known:
            known[key] = _described(describe, spec, model)
        here = known[key]
        contexts = contexts_of(home.database, spec.name)
        found.append(_runnable(spec, here, contexts))
    return found


def _described(describe: Describe, spec: StudySpec, model: Path | None) -> Described | str:
    try:
        return describe(spec.backend, model, spec.backend_options)
    except ObjectiveError as error:
        return str(error)


def _runnable(spec: StudySpec, here: Described | str, contexts: list[ContextRecord]) -> Runnable:
    if isinstance(here, str):
        return Runnable(spec.name, spec.backend, False, f"cannot run: {here}")
    if here.cannot_run and not spec.build_only:
        return Runnable(spec.name, spec.backend, False, f"cannot run: {here.cannot_run}")
    same = [
        one
        for one in contexts
        if one.environment.digest == here.environment.digest and one.judging_digest == spec.judging_digest
    ]
    if same:
        return Runnable(spec.name, spec.backend, True, f"goes on with context {same[-1].number}")
    if not contexts:
        return Runnable(spec.name, spec.backend, True, "opens its first context")
    record, words = nearest(contexts, here.environment, to_space(contexts[-1].space))[0]
    return Runnable(spec.name, spec.backend, True, f"opens a context, from context {record.number} ({words})")
