"""JSON of what commands print: the same facts as render.py, for programs.

Flow: commands get values from tuner/api -> HERE -> plain values -> stdout. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from objectives.backends.base import Environment
from objectives.knobs import KnobSpace
from objectives.requests import Described
from tuner.cli.lineage import carried_json
from tuner.create import Created
from tuner.ledger import Trial
from tuner.results import Summary
from tuner.views import Best, ContextView, EnvironmentView, Runnable, StudyView


def created_json(created: Created) -> dict[str, Any]:
    return {
        "study": created.spec.to_json(),
        "n_knobs": created.n_knobs,
        "n_candidates": created.n_candidates,
        "dropped_pairs": [list(pair) for pair in created.dropped_pairs],
    }


def study_json(study: StudyView, with_trials: bool = True) -> dict[str, Any]:
    return {
        "study": study.spec.to_json(),
        "created_at": study.created_at,
        "model": study.model_name,
        "contexts": [{**carried_json(view, study), **_context_json(view, with_trials)} for view in study.contexts],
    }


def _context_json(view: ContextView, with_trials: bool) -> dict[str, Any]:
    record = view.context.record
    found: dict[str, Any] = {
        "number": record.number,
        "optuna_study": record.optuna_study,
        "environment": {
            "backend": record.environment.backend,
            "backend_version": record.environment.backend_version,
            "identity": dict(record.environment.identity),
            "details": dict(record.environment.details),
        },
        "limits": msgspec.to_builtins(view.limits),
        "summary": summary_json(view.summary),
        "noise": None if view.noise is None else msgspec.to_builtins(view.noise),
        "verdict": None if view.verdict is None else dict(view.verdict),
        "unfinished": [{"number": number, "state": words} for number, words in view.unfinished],
    }
    return {**found, "trials": [trial_json(trial, view.summary) for trial in view.trials]} if with_trials else found


def trial_json(trial: Trial, summary: Summary) -> dict[str, Any]:
    """A trial with its raw samples and losses."""
    return {
        "number": trial.number,
        "uid": trial.uid,
        "candidate": dict(trial.candidate.changes),
        "source": trial.source,
        "status": trial.status,
        "throughput": trial.throughput,
        "of_default": summary.ratio(trial),
        "started_at": trial.started_at.isoformat(),
        "finished_at": trial.finished_at.isoformat(),
        "spent_s": trial.spent_s,
        "starts": trial.starts,
        "engine": trial.engine_digest,
        "device": trial.device,
        "outcome": msgspec.to_builtins(trial.outcome),
    }


def summary_json(summary: Summary) -> dict[str, Any]:
    """Counts, default and best; the best is what the search saw, no confirmed result."""
    return {
        "n_trials": summary.n_trials,
        "feasible": summary.feasible,
        "rejected": summary.rejected,
        "failed": dict(summary.failed),
        "spent_s": summary.spent_s,
        "default": None if summary.baseline is None else _short_json(summary.baseline),
        "best": None if summary.best is None else _short_json(summary.best),
        "speedup_observed": summary.speedup,
        "baseline_cost": None if summary.standard is None else summary.standard.baseline_cost,
        "drift": None if summary.standard is None else msgspec.to_builtins(summary.standard.model),
        "devices": {} if summary.standard is None else msgspec.to_builtins(summary.standard.devices),
    }


def _short_json(trial: Trial) -> dict[str, Any]:
    return {
        "trial": trial.number,
        "candidate": dict(trial.candidate.changes),
        "throughput": trial.throughput,
        "engine": trial.engine_digest,
    }


def best_json(best: Best) -> dict[str, Any]:
    trial = best.trial
    return {
        **summary_json(best.summary),
        "study": best.study,
        "verdict": None if best.verdict is None else dict(best.verdict),
        "engine_path": None if best.engine is None else str(best.engine),
        "best_trial": None if trial is None else trial_json(trial, best.summary),
    }


def knobs_json(found: Described, space: KnobSpace) -> dict[str, Any]:
    return {
        "environment": msgspec.to_builtins(found.environment),
        "model": msgspec.to_builtins(found.model),
        "digest": space.digest,
        "knobs": [msgspec.to_builtins(knob) for knob in space.knobs],
    }


def env_json(found: Sequence[EnvironmentView]) -> list[dict[str, Any]]:
    return [
        {
            "backend": view.backend,
            "usable": view.environment is not None,
            "environment": None if view.environment is None else _environment_json(view.environment),
            "cannot_run": view.cannot_run,
            "options": msgspec.to_builtins(view.options),
            "devices": msgspec.to_builtins(view.devices),
            "trouble": view.trouble,
            "hint": view.hint,
        }
        for view in found
    ]


def here_json(found: Sequence[Runnable]) -> dict[str, Any]:
    """Which studies of a database can run here."""
    studies = [{"study": one.study, "backend": one.backend, "can_run": one.can_run, "how": one.words} for one in found]
    return {"studies": studies}


def _environment_json(environment: Environment) -> dict[str, Any]:
    return {**msgspec.to_builtins(environment), "digest": environment.digest}
