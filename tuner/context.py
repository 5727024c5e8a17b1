"""Context: a study in one environment, with one knob space and one way of judging. One context is one Optuna study.

Flow: `study create` and `study run` describe where they are -> HERE -> the context is resumed, or a new one is opened.
"""

from __future__ import annotations

from dataclasses import dataclass

from objectives.backends.base import Environment
from objectives.knobs import KnobSpace
from storage.errors import AlreadyExistsError
from storage.records import ContextRecord
from storage.studies import contexts_of, find_context, open_context
from tuner.home import Home
from tuner.ledger import to_environment_record, to_judging, to_space, to_space_record
from tuner.search import projection
from tuner.spec import StudySpec


@dataclass(frozen=True, slots=True)
class Context:
    """An open context. `opened_because` is a sentence when it has just been opened, empty when it is resumed."""

    record: ContextRecord
    space: KnobSpace
    opened_because: str = ""

    @property
    def id(self) -> int:
        return self.record.id

    @property
    def name(self) -> str:
        """The name of its Optuna study."""
        return self.record.optuna_study


def open_or_resume(home: Home, spec: StudySpec, environment: Environment, space: KnobSpace) -> Context:
    """The context of `spec` for this environment, knob space and judging."""
    found = _find(home, spec, environment, space)
    if found is not None:
        return found
    because = _why_new(contexts_of(home.database, spec.name), environment, space, spec)
    try:
        record = open_context(
            home.database,
            spec.name,
            to_environment_record(environment),
            to_space_record(space),
            {**_judging(spec)},
            spec.judging_digest,
        )
    except AlreadyExistsError:
        found = _find(home, spec, environment, space)  # another process was faster: its context is ours
        if found is None:
            raise
        return found
    projection.create(home.url, record.optuna_study, _attributes(spec, record), spec.objective)
    return Context(record, space, because)


def contexts(home: Home, study: str) -> list[Context]:
    """Every context of a study, oldest first."""
    return [Context(record, to_space(record.space)) for record in contexts_of(home.database, study)]


def _find(home: Home, spec: StudySpec, environment: Environment, space: KnobSpace) -> Context | None:
    record = find_context(home.database, spec.name, environment.digest, space.digest, spec.judging_digest)
    if record is None:
        return None
    # A kill between opening the context and creating its Optuna study is made good here.
    projection.create(home.url, record.optuna_study, _attributes(spec, record), spec.objective)
    return Context(record, to_space(record.space))


def _judging(spec: StudySpec) -> dict[str, object]:
    stored = spec.to_json()["judging"]
    assert to_judging(stored) == spec.judging, "judging survives its JSON form"
    return dict(stored)


def _why_new(earlier: list[ContextRecord], environment: Environment, space: KnobSpace, spec: StudySpec) -> str:
    if not earlier:
        return "the study's first context"
    last = earlier[-1]
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
        if last.environment.device != environment.device:
            words.append(f"device {last.environment.device or 'none'} became {environment.device or 'none'}")
        reasons += words + [f"{key} changed" for key in changed]
    if last.space.digest != space.digest:
        reasons.append("the knobs on offer changed")
    if last.judging_digest != spec.judging_digest:
        reasons.append("limits or data changed")
    return "; ".join(reasons) or "an earlier context was left for another"


def _attributes(spec: StudySpec, record: ContextRecord) -> dict[str, str]:
    return {
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
    projection.create(home.url, context.name, _attributes(spec, context.record), spec.objective)
