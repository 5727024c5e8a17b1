"""Retarget: other limits for a study whose losses are stored; what was measured is judged anew, nothing is built.

Flow: `study retarget` -> the changed specification HERE -> lineage.py opens the context for it and copies what keeps
its meaning. Losses are stored under every metric that the study knew, so limits are all that can change.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from objectives.accuracy import Limit, violations
from objectives.backends.base import Environment
from objectives.metrics import METRICS
from objectives.outcome import Accuracy, Failed
from tuner.context import Context, contexts, latest
from tuner.errors import UsageError
from tuner.home import Home
from tuner.ledger import Trial
from tuner.lineage import open_or_resume
from tuner.spec import StudySpec
from tuner.views import view_of

_ONLY_LIMITS = "only limits can change here; other data, metrics or shapes are another study: `study create` makes one"


def retargeted(home: Home, spec: StudySpec, limits: tuple[Limit, ...]) -> StudySpec:
    """`spec` with other limits. Raises: UsageError if what is stored cannot tell, or the default is over them."""
    if not limits:
        raise UsageError("no limits were given", hint="--max-loss rel_l2=1e-3")
    if limits == spec.judging.limits:
        raise UsageError(f"study {spec.name!r} has these limits already", hint=f"python -m tuner study run {spec.name}")
    if spec.build_only:
        raise UsageError(f"study {spec.name!r} checks no outputs: there are no losses to judge", hint=_ONLY_LIMITS)
    for limit in () if spec.measures_itself else limits:
        if limit.metric not in METRICS and limit.metric not in spec.judging.functions:
            known = ", ".join((*METRICS, *spec.judging.functions))
            raise UsageError(f"the study knows no metric {limit.metric!r}; it has {known}", hint=_ONLY_LIMITS)
    context = latest(contexts(home, spec.name), spec)
    if context is not None:
        _require_judgeable(spec, view_of(home, spec, context).trials, limits)
    return msgspec.structs.replace(spec, judging=msgspec.structs.replace(spec.judging, limits=limits))


def reopen(home: Home, spec: StudySpec, before: StudySpec) -> Context | None:
    """The context for the changed `spec` where the study, as it was `before`, last ran; None if it never did."""
    context = latest(contexts(home, spec.name), before)
    if context is None:
        return None
    there = context.record.environment
    environment = Environment(there.backend, there.backend_version, there.device, there.identity, there.details)
    return open_or_resume(home, spec, environment, context.space)


def _require_judgeable(spec: StudySpec, trials: Sequence[Trial], limits: Sequence[Limit]) -> None:
    for trial in trials:
        accuracy = _accuracy(trial)
        if accuracy is None or accuracy.faults:
            continue
        for limit in limits:
            if accuracy.worst(limit.metric, limit.output) is None:
                if spec.measures_itself:
                    raise UsageError(
                        f"trial {trial.number} reported no loss for the limit {limit}; {_reported(accuracy)}",
                        hint="only what was reported can be judged: `study create` makes a study with other losses",
                    )
                outputs = ", ".join(sorted({loss.output for loss in accuracy.losses}))
                raise UsageError(
                    f"the stored trials have no loss for the limit {limit}; they have outputs {outputs}",
                    hint=_ONLY_LIMITS,
                )
        if trial.candidate.is_baseline and (wrong := violations(accuracy, limits)):
            raise UsageError(
                f"the default itself breaks these limits: {wrong[0]}",
                hint="no candidate can be judged against limits that the default breaks: allow more",
            )


def _reported(accuracy: Accuracy) -> str:
    names = sorted({name for loss in accuracy.losses for name in loss.losses})
    return f"it reported: {', '.join(names)}" if names else "it reported none"


def _accuracy(trial: Trial) -> Accuracy | None:
    return None if isinstance(trial.outcome, Failed) else trial.outcome.accuracy
