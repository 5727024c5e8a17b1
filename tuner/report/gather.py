"""Gather: everything that a report says, read from the database once.

Flow: `report`, `dashboard`, scripts -> HERE, through views.py and storage -> StudyFacts.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from objectives.knobs import KnobSpace
from objectives.outcome import Failed, Measured, Rejected
from storage.database import shown as without_password
from storage.records import StudyRecord
from storage.studies import get_study
from tuner import __version__
from tuner.carried import read_carried
from tuner.context import contexts, latest
from tuner.errors import UsageError
from tuner.home import DEFAULT_STORAGE, Home, open_home
from tuner.ledger import Trial
from tuner.objective import Objective, cost_of
from tuner.report import confirmed, machine, shipped
from tuner.report.facts import ContextFacts, FailureFacts, LimitFacts, Outcome, StudyFacts, TrialFacts
from tuner.report.headline import headline
from tuner.report.knob_effects import Explained, explain
from tuner.report.words import duration, moment
from tuner.results import Summary, is_feasible
from tuner.spec import Budget, StudySpec, read_spec
from tuner.views import ContextView, view_of

_LONGEST_WORDS = 4000  # characters of what a library said; the database has all of it


def study_facts(
    name: str, *, context: int | None = None, storage: str = DEFAULT_STORAGE, artifacts: str | Path | None = None
) -> StudyFacts:
    """Everything there is to say of a study. `context`: the number of the one to be about, by default the latest.

    Raises: NotFoundError, UsageError for a number that the study does not have, storage errors.
    """
    with open_home(storage, None if artifacts is None else Path(artifacts)) as home:
        return gather(home, name, context)


def studies_facts(
    names: Sequence[str],
    *,
    context: int | None = None,
    storage: str = DEFAULT_STORAGE,
    artifacts: str | Path | None = None,
) -> tuple[StudyFacts, ...]:
    """As `study_facts`, of one study or several. Raises: UsageError for none, one twice, or `context` with several."""
    if not names:
        raise UsageError("a report is about one study or several", hint="python -m tuner study list")
    again = next((name for name in names if names.count(name) > 1), None)
    if again is not None:
        raise UsageError(f"study {again!r} is named twice", hint="name each study once")
    if context is not None and len(names) > 1:
        raise UsageError("--context goes with a single study", hint=f"python -m tuner report {names[0]} --context N")
    with open_home(storage, None if artifacts is None else Path(artifacts)) as home:
        return tuple(gather(home, name, context) for name in names)


def gather(home: Home, name: str, context: int | None = None) -> StudyFacts:
    """As `study_facts`, of a home that is open."""
    record = get_study(home.database, name)
    spec = read_spec(record.spec)
    found = contexts(home, name)
    numbers = {one.id: one.record.number for one in found}
    if context is not None and context not in numbers.values():
        known = ", ".join(str(number) for number in numbers.values()) or "none yet"
        raise UsageError(f"study {name!r} has no context {context}", hint=f"it has: {known}")
    newest = latest(found, spec)
    shown = context if context is not None else None if newest is None else newest.record.number
    views = [view_of(home, spec, one) for one in found]
    whole = tuple(_context(home, spec, view, numbers) for view in views)
    return _study(home, record, spec, whole, shown)


def _study(
    home: Home, record: StudyRecord, spec: StudySpec, found: tuple[ContextFacts, ...], shown: int | None
) -> StudyFacts:
    return StudyFacts(
        name=spec.name,
        model=record.model.name,
        model_digest=spec.model_digest,
        model_bytes=record.model.size_bytes,
        created_at=moment(record.created_at),
        made_at=moment(datetime.now(UTC)),
        tuner_version=__version__,
        storage=without_password(home.url),
        objective=spec.objective,
        search=spec.search,
        seed=spec.seed,
        budget=_budget(spec.budget),
        n_pairs=len(spec.pairs),
        shapes=dict(spec.shapes),
        build_only=spec.build_only,
        contexts=found,
        shown=shown,
    )


def _context(home: Home, spec: StudySpec, view: ContextView, numbers: dict[int, int]) -> ContextFacts:
    record, space, summary = view.context.record, view.context.space, view.summary
    trials = _trials(view, spec.objective)
    by_uid = dict(zip((trial.uid for trial in view.trials), trials, strict=True))
    default = by_uid[summary.baseline.uid] if summary.baseline else None
    best = by_uid[summary.best.uid] if summary.best else None
    explained = _explained(trials, space)
    confirmations = confirmed.confirmations(home, view)
    return ContextFacts(
        number=record.number,
        parent=None if record.parent_id is None else numbers.get(record.parent_id),
        backend=record.environment.backend,
        backend_version=record.environment.backend_version,
        device=_device(view),
        identity={key: str(value) for key, value in record.environment.identity.items()},
        details={key: str(value) for key, value in record.environment.details.items()},
        environment_digest=record.environment.digest,
        knob_space_digest=space.digest,
        optuna_study=record.optuna_study,
        opened_at=moment(record.created_at),
        opened_because=_because(view),
        carried=_carried(view),
        n_knobs=len(space.knobs),
        n_candidates=space.size,
        knobs=tuple(
            {"name": k.name, "kind": k.kind.value, "default": k.default, "values": k.values} for k in space.knobs
        ),
        limits=tuple(LimitFacts(one.metric, one.limit, one.output) for one in view.limits),
        objective=spec.objective,
        trials=trials,
        n_unfinished=len(view.unfinished),
        default=default,
        best=best,
        spent_s=summary.spent_s,
        importance=explained.importance,
        unexplained=explained.unexplained,
        effects=explained.effects,
        pairings=explained.pairings,
        failures=_failures(trials),
        machine=machine.machine(home, view),
        confirmations=confirmations,
        engines=shipped.kept(home, spec, view),
        headline=headline(
            spec.objective, default, best, confirmed.deciding(confirmations), len(trials), spec.build_only
        ),
    )


def _trials(view: ContextView, objective: Objective) -> tuple[TrialFacts, ...]:
    """In the order of their numbers; time adds up in the order in which they ended."""
    taken, at_s = 0.0, {}
    for trial in sorted(view.trials, key=lambda one: (one.finished_at, one.number)):
        taken += trial.spent_s
        at_s[trial.uid] = taken
    return tuple(_trial(trial, view, objective, at_s[trial.uid]) for trial in view.trials)


def _trial(trial: Trial, view: ContextView, objective: Objective, at_s: float) -> TrialFacts:
    outcome, summary = trial.outcome, view.summary
    failed = outcome if isinstance(outcome, Failed) else None
    words = failed.detail if failed else outcome.reason if isinstance(outcome, Rejected) else ""
    feasible = is_feasible(trial, view.limits)
    kind = Outcome.FAILED if failed else Outcome.FEASIBLE if feasible else Outcome.REJECTED
    return TrialFacts(
        number=trial.number,
        candidate=str(trial.candidate),
        changes=dict(trial.candidate.changes),
        source=trial.source,
        outcome=kind,
        status="over the limits now" if kind is Outcome.REJECTED and trial.status == "ok" else trial.status,
        kind=failed.kind.value.replace("_", " ") if failed else "",
        stage=failed.stage.value if failed else "",
        words=words[:_LONGEST_WORDS],
        value=_shown(cost_of(outcome, objective), objective),
        corrected=_shown(_corrected(trial, summary), objective),
        ratio=summary.ratio(trial),
        losses=() if failed else _losses(trial, view),
        flags=outcome.samples.flags if isinstance(outcome, Measured) else (),
        at_s=at_s,
        spent_s=trial.spent_s,
        starts=trial.starts,
        device=trial.device,
    )


def _corrected(trial: Trial, summary: Summary) -> float | None:
    return None if summary.standard is None else summary.standard.corrected_cost(trial)


def _shown(cost: float | None, objective: Objective) -> float | None:
    return None if cost is None else objective.shown(objective.merit(cost))


def _losses(trial: Trial, view: ContextView) -> tuple[float | None, ...]:
    accuracy = None if isinstance(trial.outcome, Failed) else trial.outcome.accuracy
    if accuracy is None:
        return tuple(None for _ in view.limits)
    worst = [accuracy.worst(limit.metric, limit.output) for limit in view.limits]
    return tuple(
        None if one is None else one.number(limit.metric) for one, limit in zip(worst, view.limits, strict=True)
    )


def _explained(trials: tuple[TrialFacts, ...], space: KnobSpace) -> Explained:
    known = [(one.changes, one.ratio) for one in trials if one.outcome is Outcome.FEASIBLE and one.ratio is not None]
    return explain([changes for changes, _ in known], [ratio for _, ratio in known], space)


def _failures(trials: tuple[TrialFacts, ...]) -> tuple[FailureFacts, ...]:
    """By kind and stage, the most frequent first."""
    groups: dict[tuple[Outcome, str, str], list[TrialFacts]] = {}
    for trial in trials:
        if trial.outcome is not Outcome.FEASIBLE:
            groups.setdefault((trial.outcome, trial.kind or trial.status, trial.stage), []).append(trial)
    found = [
        FailureFacts(
            outcome, kind, stage, len(group), tuple(one.number for one in group), group[0].words, _common(group, trials)
        )
        for (outcome, kind, stage), group in groups.items()
    ]
    return tuple(sorted(found, key=lambda one: (-one.n_trials, one.kind)))


def _common(group: list[TrialFacts], trials: tuple[TrialFacts, ...]) -> str:
    """A value that all of them have and that no feasible candidate has; empty for a single trial."""
    if len(group) < 2:
        return ""
    shared = set(group[0].changes.items()).intersection(*(one.changes.items() for one in group[1:]))
    fine = {pair for one in trials if one.outcome is Outcome.FEASIBLE for pair in one.changes.items()}
    return " ".join(f"{name}={value}" for name, value in sorted(shared - fine))


def _because(view: ContextView) -> str:
    carried = read_carried(view.context.record)
    return "" if carried is None else carried.because


def _carried(view: ContextView) -> tuple[str, ...]:
    carried = read_carried(view.context.record)
    if carried is None or not carried.parents:
        return ()
    parents = ", ".join(f"context {one.number} ({one.relation})" for one in carried.parents)
    if carried.switched_off:
        return (f"started from nothing, as asked; there was {parents}",)
    if carried.adopted_from is not None:
        return (f"took over the measurements of {parents}, judged anew",)
    knobs = len({one.knob for one in (*carried.effects, *carried.failure_rates)})
    lines = [f"measured {len(carried.candidates)} candidates of {parents} again"] if carried.candidates else []
    lines += [f"began with the expected effects of {knobs} knobs"] if knobs else []
    lines += [f"dropped {one.candidate} of context {one.context}: {one.reason}" for one in carried.dropped]
    lines += [f"changed here: {change}" for change in carried.changes]
    return tuple(lines or [f"nothing of {parents} could be carried over"])


def _device(view: ContextView) -> str:
    identity = view.context.record.environment.identity
    named = [str(identity[key]) for key in ("gpu", "mig", "cpu", "machine") if key in identity]
    return " ".join(dict.fromkeys(named[:2] if "mig" in identity else named[:1])) or "this machine"


def _budget(budget: Budget) -> str:
    parts = [] if budget.n_trials is None else [f"{budget.n_trials} trials"]
    parts += [] if budget.timeout_s is None else [duration(budget.timeout_s)]
    return " or ".join(parts)
