"""Belief: the models of everything that was seen at one moment, and the incumbent they agree on.

Flow: Seen values -> HERE (rows chosen, scales tamed, models conditioned) -> Promise for the acquisition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.search.auto.acquisition import Promise
from tuner.search.auto.config import AutoConfig, Prior
from tuner.search.auto.culprits import Culprits
from tuner.search.auto.fit import Parts
from tuner.search.auto.history import Codes, Encoding, Floats, Seen
from tuner.search.auto.kernel import Hyper
from tuner.search.auto.model import Model, fitted
from tuner.search.auto.offset import Offset, offset_of

GAIN, COST, FAILURE = "", " cost", " failure"  # names beside those of constraints
_NOISE = 0.01  # of a measured throughput, log units: where the fit starts when the error is not known
_LEAST_NOISE = 0.002
_LOSS_NOISE = 0.1
_LOSS_CAP = 3.0  # log units: how far from its limit a loss is no more news
Hypers = dict[str, Hyper]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows with one number each."""

    codes: Codes
    y: Floats
    variance: Floats

    def take(self, index: Codes) -> Rows:
        return Rows(self.codes[index], self.y[index], self.variance[index])


@dataclass(frozen=True, slots=True)
class Belief:
    """`incumbent`: the feasible row with the best posterior mean; the default while there is none."""

    promise: Promise
    incumbent: Codes
    ranked: Codes  # feasible rows, best posterior mean first
    means: Floats  # of `ranked`


def quantities(encoding: Encoding, seen: Sequence[Seen], config: AutoConfig) -> dict[str, Rows]:
    """What is to be modelled: throughput, each limit that was ever broken, failures, cost if it counts.

    A failure is modelled as a loss over its limit by as much as what runs is below it.
    """
    result = {GAIN: _throughput(encoding, [s for s in seen if s.log_throughput is not None])}
    if config.limits:
        for name in sorted({name for s in seen for name, loss in s.log_losses.items() if loss > 0}):
            of = [s for s in seen if name in s.log_losses]
            y = np.clip([s.log_losses[name] for s in of], -_LOSS_CAP, _LOSS_CAP)
            result[name] = Rows(encoding.codes(s.candidate for s in of), y, np.zeros(len(of)))
    if config.failures and any(s.failed is not None for s in seen):
        y = np.array([-1.0 if s.failed is None else 1.0 for s in seen])
        result[FAILURE] = Rows(encoding.codes(s.candidate for s in seen), y, np.zeros(len(seen)))
    if config.cost_weight:
        of = [s for s in seen if s.cost_s is not None and s.cost_s > 0]
        if len(of) >= 4:
            y = np.array([math.log(s.cost_s or 1.0) for s in of])
            result[COST] = Rows(encoding.codes(s.candidate for s in of), y, np.zeros(len(of)))
    return result


def fit_all(encoding: Encoding, rows: dict[str, Rows], config: AutoConfig, offset: Offset | None) -> Hypers:
    """Parameters of every quantity that has been seen often enough."""
    result: Hypers = {}
    for name, of in rows.items():
        if len(of.y) < 2:
            continue
        chosen = of.take(_kept(of.y, config.fit_rows, name == GAIN))
        noise = _NOISE if name in (GAIN, COST) else _LOSS_NOISE
        if name == GAIN and chosen.variance.any():
            # What the known error leaves out; it may not have seen how sessions and builds differ.
            noise = max(0.3 * math.sqrt(float(np.median(chosen.variance))), _LEAST_NOISE)
        parts = Parts(config.additive, config.pairs, config.residual, config.sparse, noise, config.noise_width)
        prior = offset if name == GAIN else None
        result[name] = fitted(encoding, chosen.codes, chosen.y, chosen.variance, parts, prior)
    return result


def believe(
    encoding: Encoding,
    seen: Sequence[Seen],
    pending: Codes,
    rows: dict[str, Rows],
    hypers: Hypers,
    config: AutoConfig,
    prior: Prior | None,
) -> Belief | None:
    """The belief, None while too little was measured. `pending`: rows at work, taken to come out as expected."""
    if GAIN not in hypers or GAIN not in rows:
        return None
    offset = offset_of(encoding, prior)
    models = {}
    for name, of in rows.items():
        if name in hypers:
            kept = of.take(_kept(of.y, config.model_rows, name == GAIN))
            models[name] = Model(
                encoding, kept.codes, kept.y, kept.variance, hypers[name], offset if name == GAIN else None
            )
    feasible = encoding.codes(s.candidate for s in seen if s.is_feasible)
    ranked, means, best = _ranking(encoding, models[GAIN], feasible, rows[GAIN])
    if len(pending):
        models[GAIN] = _with_pending(encoding, models[GAIN], rows[GAIN], pending, config, offset)
    promise = Promise(
        encoding,
        models[GAIN],
        tuple(model for name, model in models.items() if name not in (GAIN, COST)),
        suspects(encoding, seen, config, prior),
        best,
        models.get(COST),
        config.cost_weight,
        config.boldness,
    )
    return Belief(promise, ranked[0] if len(ranked) else encoding.default.copy(), ranked, means)


def suspects(encoding: Encoding, seen: Sequence[Seen], config: AutoConfig, prior: Prior | None) -> Culprits | None:
    """What is known about failures; None when nothing ever failed, here or elsewhere."""
    failed = [s.candidate for s in seen if s.failed is not None]
    rates = failure_rates(encoding, prior)
    if not config.culprits or (not failed and rates is None):
        return None
    ran = [s.candidate for s in seen if s.failed is None]
    return Culprits(encoding, encoding.codes(ran), encoding.codes(failed), rates)


def failure_rates(encoding: Encoding, prior: Prior | None) -> Floats | None:
    """Failure rate by column, nan where nothing is known; None if there is no prior."""
    if prior is None or not prior.failure_rates:
        return None
    result = np.full(encoding.width, np.nan)
    for (knob, value), rate in prior.failure_rates.items():
        if (column := encoding.column(knob, value)) is not None:
            result[column] = rate
    return result


def _throughput(encoding: Encoding, seen: Sequence[Seen]) -> Rows:
    y = np.array([s.log_throughput for s in seen], dtype=float)
    variance = np.array([s.variance or 0.0 for s in seen])
    return Rows(encoding.codes(s.candidate for s in seen), _tamed(y), variance)


def _tamed(y: Floats) -> Floats:
    """`y` with its lower tail drawn in: how much slower than slow a candidate is must not set the scale."""
    if len(y) < 4:
        return y
    top = float(np.max(y))
    reach = max(0.15, 2.0 * (top - float(np.median(y))))
    below = np.maximum(top - y - reach, 0.0)
    return np.where(below > 0, top - reach - reach * np.log1p(below / reach), y)


def _kept(y: Floats, most: int, is_gain: bool) -> Codes:
    """Which rows a model looks at: the best half and an even sample of the others, in their order."""
    if len(y) <= most:
        return np.arange(len(y))
    order = np.argsort(-y if is_gain else np.abs(y), kind="stable")
    rest = np.sort(order[most // 2 :])
    spread = rest[np.linspace(0, len(rest) - 1, most - most // 2).astype(np.int64)]
    return np.sort(np.concatenate([order[: most // 2], spread]))


def _ranking(encoding: Encoding, gain: Model, feasible: Codes, measured: Rows) -> tuple[Codes, Floats, float]:
    if not len(feasible):
        mean, _ = gain.at(encoding.default[None])
        return feasible, np.zeros(0), float(min(mean[0], np.min(measured.y)))
    mean, _ = gain.at(feasible)
    order = np.argsort(-mean, kind="stable")
    return feasible[order], mean[order], float(mean[order[0]])


def _with_pending(
    encoding: Encoding, gain: Model, rows: Rows, pending: Codes, config: AutoConfig, offset: Offset | None
) -> Model:
    kept = rows.take(_kept(rows.y, config.model_rows, True))
    mean, _ = gain.at(pending)
    return Model(
        encoding,
        np.concatenate([kept.codes, pending]),
        np.concatenate([kept.y, mean]),
        np.concatenate([kept.variance, np.zeros(len(pending))]),
        gain.hyper,
        offset,
    )
