"""Report as JSON: the same facts for programs. Pure; the keys are described in docs/report.md and stay as they are.

Flow: StudyFacts -> HERE -> plain values. What is not known is null; a loss that is not finite is the string "inf".
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import msgspec

from tuner.report import advice
from tuner.report.cautions import cautions
from tuner.report.facts import ContextFacts, HeadlineFacts, Outcome, StudyFacts

SCHEMA = 1  # raised when a key goes or changes its meaning; keys may be added


def report_json(studies: Sequence[StudyFacts]) -> dict[str, Any]:
    """One study or several, the same form."""
    return {
        "schema": SCHEMA,
        "made_at": studies[0].made_at,
        "tuner_version": studies[0].tuner_version,
        "studies": [_study(one) for one in studies],
    }


def json_text(studies: Sequence[StudyFacts]) -> str:
    """As text; every value is one that JSON has."""
    return json.dumps(report_json(studies), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _study(study: StudyFacts) -> dict[str, Any]:
    context = study.context
    found: dict[str, Any] = {
        "name": study.name,
        "created_at": study.created_at,
        "model": {"name": study.model, "digest": study.model_digest, "size_bytes": study.model_bytes},
        "objective": study.objective.value,
        "metric": study.objective.metric,
        "search": {"name": study.search, "seed": study.seed, "budget": study.budget},
        "inputs": {"pairs": study.n_pairs, "shapes": {name: list(shape) for name, shape in study.shapes.items()}},
        "build_only": study.build_only,
        "storage": study.storage,
        "context": study.shown,
        "verdict": None if context is None else _verdict(context.headline),
        "cautions": [] if context is None else list(cautions(study, context)),
        "ship": None if context is None else _ship(study, context),
        "reproduce": [_plain(one) for one in advice.reproduction(study, context)],
    }
    return {**found, "contexts": [_context(one) for one in study.contexts]}


def _verdict(head: HeadlineFacts) -> dict[str, Any]:
    return {
        "answer": head.answer.value,
        "sentence": head.sentence,
        "basis": head.basis,
        "speedup": head.speedup,
        "ci_low": head.low,
        "ci_high": head.high,
        "trial": head.trial,
        "candidate": dict(head.changes),
    }


def _ship(study: StudyFacts, context: ContextFacts) -> dict[str, Any]:
    return dict(_plain(advice.shipping(study, context)))


def _context(context: ContextFacts) -> dict[str, Any]:
    return {
        "number": context.number,
        "parent": context.parent,
        "opened_at": context.opened_at,
        "opened_because": context.opened_because,
        "carried": list(context.carried),
        "optuna_study": context.optuna_study,
        "environment": {
            "backend": context.backend,
            "backend_version": context.backend_version,
            "device": context.device,
            "digest": context.environment_digest,
            "identity": dict(context.identity),
            "details": dict(context.details),
        },
        "space": {
            "digest": context.knob_space_digest,
            "n_candidates": context.n_candidates,
            "knobs": [_plain(dict(knob)) for knob in context.knobs],
        },
        "limits": [_plain(one) for one in context.limits],
        "verdict": _verdict(context.headline),
        "counts": {
            "trials": len(context.trials),
            **{one.value: context.count(one) for one in Outcome},
            "unfinished": context.n_unfinished,
        },
        "spent_s": context.spent_s,
        "default_trial": None if context.default is None else context.default.number,
        "best_trial": None if context.best is None else context.best.number,
        "importance": [_plain(one) for one in context.importance],
        "unexplained": context.unexplained,
        "effects": [_plain(one) for one in context.effects],
        "pairings": [_plain(one) for one in context.pairings],
        "failures": [_plain(one) for one in context.failures],
        "machine": _plain(context.machine),
        "confirmations": [_plain(one) for one in context.confirmations],
        "engines": [_plain(one) for one in context.engines],
        "trials": [_plain(one) for one in context.trials],
    }


def _plain(value: Any) -> Any:
    """Built-in values that JSON has."""
    return _finite(msgspec.to_builtins(value))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "inf" if value > 0 else str(value)
    return value
