"""Selection: the knobs that a study tunes, from what is on offer, the user's patterns and what was learnt before.

Flow: `--knobs` -> expand HERE, once, when the study is created -> patterns in its specification -> select HERE in every
environment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from objectives.errors import KnobError
from objectives.knobs import KnobKind, KnobSpace
from storage.studies import get_study
from tuner.context import contexts, latest
from tuner.errors import StudyError, UsageError
from tuner.home import open_home
from tuner.objective import Objective
from tuner.results import is_feasible
from tuner.spec import read_spec
from tuner.stats import effects, top_knobs
from tuner.views import view_of

PRESET = "top:"
_COUNT = 10
_OF_A_RUN = (KnobKind.RUNTIME, KnobKind.DEPLOYMENT)


def select(space: KnobSpace, patterns: Sequence[str], objective: Objective = Objective.THROUGHPUT) -> KnobSpace:
    """What the patterns leave of `space`, without knobs that act only when an engine runs where none is timed.

    Raises: KnobError.
    """
    chosen = space.select(patterns)
    if objective.is_timed:
        return chosen
    kept = tuple(knob for knob in chosen.knobs if knob.kind not in _OF_A_RUN)
    if not kept:
        raise KnobError(
            f"the selection leaves no knob that changes the {objective.value}",
            hint="knobs of a run change no engine: select builder, route or precision",
        )
    return KnobSpace(kept)


def expand(patterns: Sequence[str], space: KnobSpace, storage: str) -> tuple[str, ...]:
    """The patterns with every `top:STUDY[:N]` replaced by the N knobs that mattered most in that study.

    Raises: UsageError, StudyError if it has nothing to tell, storage errors.
    """
    found: list[str] = []
    for pattern in patterns:
        found += _top(pattern, space, storage) if pattern.startswith(PRESET) else [pattern]
    return tuple(found)


def _top(pattern: str, space: KnobSpace, storage: str) -> list[str]:
    name, count = _parts(pattern)
    with open_home(storage) as home:
        spec = read_spec(get_study(home.database, name).spec)
        found = latest(contexts(home, name), spec)
        view = None if found is None else view_of(home, spec, found)
    changes, gains = [], []
    for trial in view.trials if view is not None else ():
        ratio = view.summary.ratio(trial) if view is not None else None
        if ratio is not None and is_feasible(trial, spec.judging.limits):
            changes.append(dict(trial.candidate.changes))
            gains.append(math.log(ratio))
    offered = {knob.name for knob in space.knobs}
    known = [name for name in top_knobs(effects(changes, gains), len(offered)) if name in offered][:count]
    if not known:
        raise StudyError(
            f"{pattern!r}: study {name!r} has measured no knob that is on offer here", hint="name knobs instead"
        )
    return known


def _parts(pattern: str) -> tuple[str, int]:
    name, colon, count = pattern.removeprefix(PRESET).rpartition(":")
    if not colon or not count.isdigit():  # names may hold colons
        name, count = pattern.removeprefix(PRESET), str(_COUNT)
    if not name or int(count) < 1:
        raise UsageError(f"{pattern!r} names no study", hint="write top:STUDY or top:STUDY:12")
    return name, int(count)
