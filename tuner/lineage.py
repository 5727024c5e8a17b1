"""Lineage: the contexts of a study as a family: which one is meant, and what a new one takes over from the others.

Flow: `study create`, `run`, `retarget` -> HERE -> context.py finds or opens -> transfer.py or adoption fills it.
Another environment or knob space means another context that starts from what its nearest relatives taught. Where only
the limits differ, measurements keep their meaning: they are copied, and judged anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from objectives.accuracy import Limit, violations
from objectives.backends.base import Environment
from objectives.digest import digest_of
from objectives.errors import MetricError
from objectives.knobs import KnobSpace
from objectives.outcome import Failed, Rejected
from storage.adoption import adopt
from storage.records import ContextRecord, EnvironmentRecord, Origin, TrialRecord
from storage.studies import contexts_of
from storage.trials import list_trials
from tuner.carried import Carried, CarriedCandidate, ParentLink, read_carried
from tuner.context import Context, find, open_new, why_new
from tuner.home import Home
from tuner.ledger import Trial, to_judging, to_space, to_trial
from tuner.results import is_feasible
from tuner.spec import StudySpec
from tuner.transfer import Lesson, Parent, carry
from tuner.views import ContextView, view_of

OVER_LIMIT = "over the limits then, within them now"
SAME_PLACE, OTHER_VERSION, OTHER_DEVICE, ELSEWHERE = (
    "this environment",
    "this device, another version",
    "this version, another device",
    "another version on another device",
)
_HARDWARE = (
    "gpu",
    "mig",
    "compute_capability",
    "multiprocessors",
    "memory_mib",
    "power_limit_w",
    "cpu",
    "instructions",
    "architecture",
    "usable_cores",
    "machine",
    "target",
)


def open_or_resume(home: Home, spec: StudySpec, environment: Environment, space: KnobSpace) -> Context:
    """The context of `spec` for this environment, knob space and judging; opened with what its parents teach if new."""
    context = resume(home, spec, environment, space)
    if context is None:
        context = _open(home, spec, environment, space)
        _adopt(home, spec, context)
    return context


def resume(home: Home, spec: StudySpec, environment: Environment, space: KnobSpace) -> Context | None:
    """The context that there is; None: what has no use for an empty one opens none, so that a run later starts from
    all that is known then."""
    context = find(home, spec, environment, space)
    if context is not None:
        _adopt(home, spec, context)
    return context


def nearest(
    records: Sequence[ContextRecord], environment: Environment, space: KnobSpace
) -> list[tuple[ContextRecord, str]]:
    """The contexts by how much they have in common with a new one, the nearest first, each with that in words."""
    found = []
    for record in records:
        rank, words, alike = _distance(record.environment, environment)
        found.append((rank, record.space.digest != space.digest, -alike, -record.number, record, words))
    return [(one[4], one[5]) for one in sorted(found, key=lambda one: one[:4])]


def siblings(records: Sequence[ContextRecord], spec: StudySpec, context: ContextRecord) -> list[ContextRecord]:
    """Contexts that differ from `context` in nothing but their limits, latest first."""
    return [
        record
        for record in reversed(records)
        if record.id != context.id
        and record.environment.digest == context.environment.digest
        and record.space.digest == context.space.digest
        and _differ_in_limits(record, spec)
    ]


def _open(home: Home, spec: StudySpec, environment: Environment, space: KnobSpace) -> Context:
    records = contexts_of(home.database, spec.name)
    if not records:
        return open_new(home, spec, environment, space, "the study's first context", Origin())
    parents = nearest(records, environment, space)
    because = why_new(records[-1], environment, space, spec)
    here = environment.digest, space.digest
    same = [one for one, _ in parents if (one.environment.digest, one.space.digest) == here]
    rejudged = [one for one in same if _differ_in_limits(one, spec)]
    if rejudged:
        carried = _rejudged(home, spec, rejudged, because)
    elif not spec.transfer:
        first = ParentLink(parents[0][0].number, parents[0][1])
        carried = Carried(because, (first,), switched_off=True)
    else:
        carried = carry(because, [_parent(home, spec, record, words) for record, words in parents], space)
    number = carried.parents[0].number
    parent_id = next(record.id for record in records if record.number == number)
    return open_new(home, spec, environment, space, because, Origin(parent_id, carried.to_json()))


def _distance(there: EnvironmentRecord, here: Environment) -> tuple[int, str, int]:
    """Rank, words, and how many facts about the hardware agree."""
    if there.digest == here.digest:
        return 0, SAME_PLACE, len(_HARDWARE)
    facts = {*there.identity, *here.identity}
    equal = {key for key in facts if there.identity.get(key) == here.identity.get(key)}
    hardware = facts.intersection(_HARDWARE)
    same_device = hardware <= equal
    same_version = there.backend_version == here.backend_version and facts - hardware <= equal
    rank, words = (1, OTHER_VERSION) if same_device else (2, OTHER_DEVICE) if same_version else (3, ELSEWHERE)
    return rank, words, len(hardware & equal)


def _parent(home: Home, spec: StudySpec, record: ContextRecord, words: str) -> Parent:
    view = view_of(home, spec, Context(record, to_space(record.space)))
    lessons = [_lesson(trial, view, spec.judging.limits) for trial in view.trials]
    winner = None if view.verdict is None else view.verdict["winner"]
    number = next((trial.number for trial in view.trials if trial.uid == winner), None)
    return Parent(record.number, words, view.context.space, lessons, number)


def _lesson(trial: Trial, view: ContextView, limits: Sequence[Limit]) -> Lesson:
    ratio = view.summary.ratio(trial)
    try:
        feasible = is_feasible(trial, limits)
    except MetricError:
        feasible = False  # judged under other metrics then
    return Lesson(
        number=trial.number,
        candidate=trial.candidate,
        log_gain=None if ratio is None else math.log(ratio),
        feasible=feasible,
        failed=isinstance(trial.outcome, Failed),
    )


def _differ_in_limits(record: ContextRecord, spec: StudySpec) -> bool:
    """Whether a context was judged as `spec` says but for its limits: by the same metrics and data."""
    judging = to_judging(record.judging)
    if digest_of([judging, spec.pairs]) != record.judging_digest:
        return False  # other data
    return msgspec.structs.replace(judging, limits=spec.judging.limits) == spec.judging


def _rejudged(home: Home, spec: StudySpec, records: Sequence[ContextRecord], because: str) -> Carried:
    """What a context takes over whose siblings' measurements keep their meaning."""
    nearest_one = records[0]
    kept: set[str] = set()
    again: dict[str, CarriedCandidate] = {}
    for record in records:
        for row in list_trials(home.database, record.id, with_samples=False):
            if row.finish is None:
                continue
            if verdict_on(row, spec.judging.limits) is not None:
                kept.add(row.candidate_digest)
                continue
            changes = to_trial(row).candidate.changes
            again.setdefault(row.candidate_digest, CarriedCandidate(changes, record.number, row.number, OVER_LIMIT))
    earlier = read_carried(nearest_one)
    n_trials = len(list_trials(home.database, nearest_one.id, with_samples=False))
    return Carried(
        because=because,
        parents=(ParentLink(nearest_one.number, SAME_PLACE, n_trials),),
        candidates=tuple(one for digest, one in again.items() if digest not in kept),
        effects=() if earlier is None else earlier.effects,
        failure_rates=() if earlier is None else earlier.failure_rates,
        adopted_from=nearest_one.number,
    )


def verdict_on(row: TrialRecord, limits: Sequence[Limit]) -> str | None:
    """Why a finished trial is no good under `limits`, empty where it is good; None if it has to be measured again.

    That is so for what was over a limit then and is within all of them now: it was never timed. Failures stay failures.
    """
    outcome = to_trial(row).outcome
    if isinstance(outcome, Failed) or outcome.accuracy is None:
        return ""
    try:
        wrong = violations(outcome.accuracy, limits)
    except MetricError:
        return None
    if isinstance(outcome, Rejected):
        return wrong[0] if wrong else None
    return ""  # timed, whatever its losses: whether it is feasible is asked of them each time


def _adopt(home: Home, spec: StudySpec, context: Context) -> None:
    """Copy what siblings measured and this context has not: at its start, and what they have found out since."""
    limits = [str(limit) for limit in spec.judging.limits]

    def rewrite(manifest: Mapping[str, Any], number: int) -> Mapping[str, Any]:
        return {**manifest, "trial": number, "limits": limits, "confirmed": False, "promoted": False}

    for record in siblings(contexts_of(home.database, spec.name), spec, context.record):
        rows = [row for row in list_trials(home.database, record.id, with_samples=False) if row.finish is not None]
        reasons = {row.uid: verdict_on(row, spec.judging.limits) for row in rows}
        kept = {uid: reason for uid, reason in reasons.items() if reason is not None}
        if kept:
            adopt(home.database, record.id, context.id, kept, rewrite)
