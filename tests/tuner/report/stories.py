"""Stories: small studies of every kind of end that a report must tell, and facts made hostile."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from objectives.accuracy import Limit
from objectives.landscape import Fault, Interaction, Landscape
from objectives.requests import Judging
from tests import landscapes
from tests.programs import describe
from tests.tuner.conftest import SHOWCASE, STUDY, Study, make_study
from tuner.answers import ConfirmOptions
from tuner.api import confirm_study, create_study, retarget_study, run_study
from tuner.errors import StudyError
from tuner.objective import Objective
from tuner.report.facts import StudyFacts
from tuner.report.gather import study_facts
from tuner.spec import Budget, StudyOptions

INFEASIBLE = landscapes.small(
    interactions=(
        Interaction({"a": "v1"}, loss=0.5),
        Interaction({"a": "v2"}, fault=Fault.BUILD_FAILED),
        Interaction({"b": "v1"}, fault=Fault.SEGFAULT),
    )
)
# Enough knobs that matter for importance, effects and heat maps; one crash, one rejection.
RICH = Landscape(
    knobs=tuple(landscapes.knob(name, -0.1 * rank, 0.1) for rank, name in enumerate("abcd", 1)),
    noise=0.004,
    repeatable=True,
    interactions=(
        Interaction({"a": "v2", "b": "v2"}, fault=Fault.SEGFAULT),
        Interaction({"c": "v2"}, loss=0.5),
        Interaction({"a": "v1", "d": "v1"}, effect=-0.1),
    ),
)


def tell(kind: str, folder: Path) -> Study:
    """Make the study that ends in this way. Kinds: see KINDS."""
    folder.mkdir()
    return _KINDS[kind](folder)


def facts_of(study: Study) -> StudyFacts:
    return study_facts(study.name, storage=study.url)


def _untried(folder: Path) -> Study:
    return make_study(folder, SHOWCASE)


def _unconfirmed(folder: Path) -> Study:
    return _run(make_study(folder, SHOWCASE, budget=Budget(6)))


def _faster(folder: Path) -> Study:
    study = _run(make_study(folder, RICH, budget=Budget(16), noise_sessions=2, control_every=4))
    confirm_study(study.name, ConfirmOptions(finalists=1, builds=2), storage=study.url)
    return study


def _not_faster(folder: Path) -> Study:
    study = _run(make_study(folder, landscapes.small(), budget=Budget(6)))
    confirm_study(study.name, ConfirmOptions(min_gain=0.95, finalists=1, builds=2), storage=study.url)
    return study


def _undecided(folder: Path) -> Study:
    study = _run(make_study(folder, landscapes.small(), budget=Budget(6)))
    confirm_study(study.name, ConfirmOptions(finalists=1, timeout_s=1e-9), storage=study.url)
    return study


def _no_candidate(folder: Path) -> Study:
    return _run(make_study(folder, INFEASIBLE, budget=Budget(6)))


def _broken(folder: Path) -> Study:
    study = make_study(folder, landscapes.broken_default(fault=Fault.BUILD_FAILED), budget=Budget(2))
    try:
        run_study(study.name, storage=study.url)
    except StudyError:
        return study
    raise AssertionError("a study whose default fails must stop")


def _size(folder: Path) -> Study:
    return _run(make_study(folder, SHOWCASE, budget=Budget(6), objective=Objective.ENGINE_SIZE))


def _retargeted(folder: Path) -> Study:
    study = _run(make_study(folder, SHOWCASE, budget=Budget(6)))
    retarget_study(study.name, (Limit("rel_l2", 0.9),), storage=study.url)
    return study


def _program(folder: Path) -> Study:
    """A program of the user's own: no input pairs, no limits."""
    url = f"sqlite:///{folder / 'tuner.db'}"
    options = StudyOptions(
        backend="command", judging=Judging(limits=()), budget=Budget(4), noise_sessions=0, control_every=0
    )
    create_study(STUDY, describe(folder / "program"), options, storage=url)
    return _run(Study(STUDY, url, folder))


def _devices(folder: Path) -> Study:
    """Two devices, one 20 % slower; their names are this study's alone, for locks are the machine's."""
    fast, slow = (f"{uuid.uuid4().hex[:8]}-{name}" for name in ("a", "b"))
    options = {"backend_options": {"devices": f"{fast},{slow}*1.2"}, "control_every": 3, "noise_sessions": 0}
    study = make_study(folder, landscapes.wide(build_s=0.05), budget=Budget(12), **options)
    run_study(study.name, storage=study.url, devices=("all",))
    return study


def _run(study: Study) -> Study:
    run_study(study.name, storage=study.url)
    return study


_KINDS = {
    "untried": _untried,
    "unconfirmed": _unconfirmed,
    "faster": _faster,
    "not faster": _not_faster,
    "undecided": _undecided,
    "no candidate": _no_candidate,
    "broken": _broken,
    "size": _size,
    "retargeted": _retargeted,
    "program": _program,
    "devices": _devices,
}
KINDS = tuple(_KINDS)
NAME = STUDY

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>`|<!--\u2028\"&amp;@all [x](y)"


def hostile(value: Any, keep: frozenset[str] = frozenset({"storage", "created_at", "made_at"})) -> Any:
    """The same facts, every text of users and libraries in them followed by the worst that could stand there."""
    if isinstance(value, enum.Enum):
        return value
    if isinstance(value, str):
        return f"{value}{HOSTILE}" if value else value
    if isinstance(value, msgspec.Struct):
        changed = {
            name: hostile(getattr(value, name))
            for name in value.__struct_fields__
            if name not in keep | _MEANT and getattr(value, name) is not None
        }
        return msgspec.structs.replace(value, **changed)
    if isinstance(value, Mapping):
        return {hostile(key) if key not in _KNOB_KEYS else key: hostile(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(hostile(one) for one in value)
    return value


# Texts that are words of ours, by which something is looked up.
_MEANT = frozenset({"verdict", "state", "purpose", "side", "reasons", "backend"})
_KNOB_KEYS = frozenset({"name", "kind", "default", "values", "help"})
