"""Context: a study in one environment, with one knob space and one way of judging. One context is one Optuna study.

Flow: `study create` and `study run` describe where they are -> lineage.py -> the context is found HERE, or opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from objectives.backends.base import Environment
from objectives.knobs import KnobSpace
from storage.errors import AlreadyExistsError
from storage.records import ContextRecord, Origin
from storage.studies import contexts_of, find_context, open_context
from tuner.home import Home
from tuner.ledger import to_environment_record, to_judging, to_space, to_space_record
from tuner.search import projection
from tuner.spec import StudySpec


@dataclass(frozen=True, slots=True)
class Context:
    """An open context. `opened_because` is a sentence when it has just been opened, empty when it is resumed.

    `device_here`: what a device lock guards on this machine; two GPUs of one model are one environment, not one device.
    """

    record: ContextRecord
    space: KnobSpace
    opened_because: str = ""
    device_here: str = ""

    @property
    def id(self) -> int:
        return self.record.id

    @property
    def name(self) -> str:
        """The name of its Optuna study."""
        return self.record.optuna_study

    @property
    def device(self) -> str:
        """What is to be locked while something is measured."""
        return self.device_here or self.record.environment.device


def find(home: Home, spec: StudySpec, environment: Environment, space: KnobSpace) -> Context | None:
    """The context of `spec` for this environment, knob space and judging; None if there is none yet."""
    record = find_context(home.database, spec.name, environment.digest, space.digest, spec.judging_digest)
    if record is None:
        return None
    # A kill between opening the context and creating its Optuna study is made good here.
    _project(home, spec, record)
    return Context(record, to_space(record.space), device_here=environment.device)


def open_new(
    home: Home, spec: StudySpec, environment: Environment, space: KnobSpace, because: str, origin: Origin
) -> Context:
    """Open the context, which comes from `origin`; if another process is faster, the one that it opened."""
    try:
        record = open_context(
            home.database,
            spec.name,
            to_environment_record(environment),
            to_space_record(space),
            {**_judging(spec)},
            spec.judging_digest,
            origin,
        )
    except AlreadyExistsError:
        found = find(home, spec, environment, space)
        if found is None:
            raise
        return found
    _project(home, spec, record)
    return Context(record, space, because, environment.device)


def contexts(home: Home, study: str) -> list[Context]:
    """Every context of a study, oldest first."""
    return [Context(record, to_space(record.space)) for record in contexts_of(home.database, study)]


def _judging(spec: StudySpec) -> dict[str, object]:
    stored = spec.to_json()["judging"]
    assert to_judging(stored) == spec.judging, "judging survives its JSON form"
    return dict(stored)


def latest(found: Sequence[Context], spec: StudySpec) -> Context | None:
    """The latest context that is judged as the study is now; without one the latest at all, None if there is none."""
    now = [context for context in found if context.record.judging_digest == spec.judging_digest]
    kept = now or found
    return kept[-1] if kept else None


def why_new(last: ContextRecord, environment: Environment, space: KnobSpace, spec: StudySpec) -> str:
    """What is another than it was in the context `last`, in words."""
    reasons = []
    if last.environment.digest != environment.digest:
        before = f"{last.environment.backend} {last.environment.backend_version}"
        now = f"{environment.backend} {environment.backend_version}"
        changed = sorted(
            key
            for key in {*last.environment.identity, *environment.identity}
            if last.environment.identity.get(key) != environment.identity.get(key)
        )
        words = [f"{before} became {now}"] if before != now else []
        kinds = [one.partition(":")[0] or "none" for one in (last.environment.device, environment.device)]
        if kinds[0] != kinds[1]:
            words.append(f"device {kinds[0]} became {kinds[1]}")
        reasons += words + [f"{key} changed" for key in changed]
    if last.space.digest != space.digest:
        reasons.append("the knobs on offer changed")
    if last.judging_digest != spec.judging_digest:
        reasons.append("limits or data changed")
    return "; ".join(reasons) or "an earlier context was left for another"


def _project(home: Home, spec: StudySpec, record: ContextRecord) -> None:
    parent = next((one for one in contexts_of(home.database, spec.name) if one.id == record.parent_id), None)
    projection.create(home.url, record.optuna_study, _attributes(spec, record, parent), spec.objective)


def _attributes(spec: StudySpec, record: ContextRecord, parent: ContextRecord | None) -> dict[str, str]:
    lineage = {} if parent is None else {"parent": str(parent.number), "parent_optuna_study": parent.optuna_study}
    return {
        "verdict": "NOTHING MEASURED YET",  # what is looked for first stands first; tuner/dashboard keeps it true
        **lineage,
        "context": str(record.number),
        "study": spec.name,
        "model_digest": spec.model_digest,
        "backend": record.environment.backend,
        "backend_version": record.environment.backend_version,
        "environment_digest": record.environment.digest,
        "knob_space_digest": record.space.digest,
        "objective": spec.objective,
        "limits": ", ".join(str(limit) for limit in spec.judging.limits),
    }


def draw(home: Home, spec: StudySpec, context: Context) -> None:
    """Make the Optuna study of a context if it is not there, without its trials."""
    _project(home, spec, context.record)
