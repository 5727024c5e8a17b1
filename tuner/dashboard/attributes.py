"""Attributes: what the Optuna trials and studies of a context say in short, where dashboards, plots and CSV look. Pure.

Flow: the loop tells a trial with HERE; page.py writes those of the study, which change as it goes on.
Dashboards load the attributes of every trial, so each is a number or a short text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from objectives.accuracy import Limit
from objectives.outcome import Accuracy, Built, Failed, Measured, Stage
from tuner.ledger import Trial
from tuner.report.facts import Answer, ContextFacts, Outcome
from tuner.results import is_feasible

_REASON_CHARS = 300
_DIGEST_CHARS = 12  # enough for `engine list` to be searched by


def of_trial(trial: Trial, ratio: float | None, limits: Sequence[Limit]) -> dict[str, Any]:
    """User attributes of a trial; `ratio`: how much better it is than the default, as a multiple."""
    outcome = trial.outcome
    found: dict[str, Any] = {
        "candidate": str(trial.candidate),
        "outcome": trial.status,
        "feasible": is_feasible(trial, limits),
        "trial": trial.number,
        "source": trial.source,
    }
    if isinstance(outcome, Failed):
        found |= {"stage": outcome.stage.value}
    elif outcome.accuracy is not None:
        found |= _losses(outcome.accuracy, limits)
    if isinstance(outcome, Measured):
        found |= {"latency_ms": outcome.samples.median_ms, "throughput": outcome.samples.throughput}
        found |= {"flags": ", ".join(outcome.samples.flags)} if outcome.samples.flags else {}
    if not isinstance(outcome, Measured | Built):
        return {**found, "reason": outcome.reason[:_REASON_CHARS]}
    if outcome.engine is not None:
        found["engine_mb"] = outcome.engine.size_bytes / 1e6
    if trial.engine_digest is not None:
        found["engine"] = trial.engine_digest[:_DIGEST_CHARS]
    found["build_s"] = outcome.trace.stage_s.get(Stage.BUILD, 0.0)
    if ratio is not None:
        found["speedup" if isinstance(outcome, Measured) else "gain"] = ratio
    return found


def of_study(context: ContextFacts, storage: str) -> dict[str, Any]:
    """User attributes of a context's Optuna study that change as it goes on; `storage`: URL without its password."""
    found, best = context.confirmation, context.best
    done = found is not None and found.state == "done"
    return {
        "trials": len(context.trials),
        **{outcome.value: context.count(outcome) for outcome in Outcome},
        "best_in_search": None if best is None else f"trial {best.number}: {best.candidate}",
        "best_in_search_speedup": None if best is None else best.ratio,
        "verdict": str(context.headline.answer).upper(),
        "winner": context.headline.trial if context.headline.answer is Answer.FASTER else None,
        "speedup": context.headline.speedup if done else None,
        "ci_low": context.headline.low,
        "ci_high": context.headline.high,
        "device": context.device,
        "environment": ", ".join(f"{name} {value}" for name, value in context.identity.items()),
        "constraints": "accuracy: worst loss over its limit, minus 1; failure: 1 or -1. At most 0 is feasible",
        "storage": storage,
    }


def _losses(accuracy: Accuracy, limits: Sequence[Limit]) -> Mapping[str, float | str]:
    """The worst loss under each limit, a number where it is one: those can be axes of plots."""
    found: dict[str, float | str] = {}
    for limit in limits:
        worst = accuracy.worst(limit.metric, limit.output)
        if worst is not None:
            loss = worst.losses[limit.metric]
            found[f"loss {str(limit).partition(' ')[0]}"] = "not finite" if loss is None else loss
    return found
