"""Accuracy: outputs against references, as losses; losses against limits, as violations.

Flow: evaluate.py runs a pair -> compare HERE -> Accuracy -> `violations` decides between Measured and Rejected, and
again whenever limits change, since losses are stored raw. Pure: no backend, no files.
The formulas of l0, l1, l2, linf and cos are those that trtexec documents for its accuracy check; where trtexec lets
something pass (NaN, types it does not know, outputs without reference), this module does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import msgspec
import numpy as np

from objectives.errors import MetricError
from objectives.metrics import DEFAULT_METRIC, METRICS, Tolerance, measure_output
from objectives.outcome import Accuracy, PairLoss
from objectives.tensors import Tensors, name_of

MetricFunction = Callable[[Tensors, Tensors], float]  # (actual, expected) -> loss, 0 is perfect
ALL_OUTPUTS = "*"
PROGRAM = "program"  # label of the pair of losses that a program reports: its inputs are its own


class Limit(msgspec.Struct, frozen=True):
    """The largest loss allowed under `metric`; for one output, or for each when `output` is None.

    Which metrics there are depends on who judges: `require_known` says so for outputs that we judge ourselves.
    """

    metric: str
    limit: float
    output: str | None = None

    def __post_init__(self) -> None:
        if not self.metric or self.metric != self.metric.strip():
            raise MetricError(
                f"{self.metric!r} is no name of a metric", hint="write for example --max-loss rel_l2=1e-3"
            )
        if not math.isfinite(self.limit) or self.limit < 0:
            raise MetricError(
                f"the limit of {self.metric} must be a number of at least 0, not {self.limit}",
                hint="a loss of 0 is perfect; write for example --max-loss rel_l2=1e-3",
            )

    def __str__(self) -> str:
        return f"{self.metric}{f':{self.output}' if self.output else ''} <= {self.limit:g}"


def require_known(limits: Iterable[Limit]) -> None:
    """Raises: MetricError for a limit whose metric is neither built in nor a function of the user's."""
    for limit in limits:
        if limit.metric not in METRICS and ":" not in limit.metric:
            hint = f"choose one of {', '.join(METRICS)}, or give --metric package.module:function"
            if limit.output is not None:
                text = f"{limit.metric}:{limit.output}"
                hint += f"; {text} was read as METRIC:OUTPUT, because no dot says that the module lies in a package"
            raise MetricError(f"unknown metric {limit.metric!r}", hint=hint)


DEFAULT_LIMITS = (Limit(DEFAULT_METRIC, 1e-2),)


def compare(
    label: str,
    actual: Tensors,
    expected: Tensors,
    tolerance: Tolerance,
    functions: Mapping[str, MetricFunction] | None = None,
) -> Accuracy:
    """Judge the outputs of one pair under every metric.

    A missing output, another shape or another type is a fault; a NaN or infinity that the reference does not have at
    the same place makes every loss of that output None. Outputs beyond those of the reference are not judged.
    """
    faults = tuple(_faults(label, actual, expected))
    if faults:
        return Accuracy(faults=faults)
    losses = [
        PairLoss(label, name, *measure_output(actual[name], reference, tolerance))
        for name, reference in expected.items()
    ]
    return Accuracy(losses=(*losses, *_custom(label, losses, actual, expected, functions or {})))


def merge(parts: Iterable[Accuracy]) -> Accuracy:
    """The accuracies of several pairs as one."""
    found = tuple(parts)
    return Accuracy(
        tuple(loss for part in found for loss in part.losses),
        tuple(fault for part in found for fault in part.faults),
    )


def violations(accuracy: Accuracy, limits: Iterable[Limit]) -> tuple[str, ...]:
    """What is wrong, in words, worst pair first for each limit; empty when the candidate is feasible.

    The rule is `loss > limit`. A fault, and a loss that is not finite under any metric at all, violates every limit.
    """
    found = list(accuracy.faults)
    found += [
        f"output {one.output!r}, pair {one.pair!r}: not finite where the reference is; {one.worst}"
        for one in accuracy.losses
        if None in one.losses.values() and one.output != ALL_OUTPUTS
    ]
    for limit in limits:
        worst = accuracy.worst(limit.metric, limit.output)
        if worst is None and not accuracy.faults:
            raise MetricError(f"no loss under {limit.metric} for output {limit.output!r} was measured")
        if worst is not None and worst.number(limit.metric) > limit.limit:
            words = _words(worst, limit)
            # Already said above, once for all metrics.
            found += [] if worst.losses[limit.metric] is None and worst.output != ALL_OUTPUTS else [words]
    return tuple(found)


def excess(accuracy: Accuracy, limits: Iterable[Limit]) -> float:
    """How far the worst loss is beyond its limit: 0 at the limit, negative inside, 1 at twice the limit; finite.

    Used as a constraint value by the search: > 0 exactly when `violations` finds something.
    """
    cap = 1e6  # an infinite loss has to stay a number: samplers and databases refuse infinities
    limits = tuple(limits)
    ratios = [_ratio(accuracy, limit) for limit in limits]
    value = max((min(ratio - 1.0, cap) for ratio in ratios), default=-1.0)
    if violations(accuracy, limits):
        return value if value > 0 else cap
    return min(value, 0.0)


def _ratio(accuracy: Accuracy, limit: Limit) -> float:
    worst = accuracy.worst(limit.metric, limit.output)
    if worst is None:
        return math.inf
    loss = worst.number(limit.metric)
    if limit.limit == 0:
        return math.inf if loss > 0 else 0.0
    return loss / limit.limit


def _words(worst: PairLoss, limit: Limit) -> str:
    subject = "the outputs" if worst.output == ALL_OUTPUTS else f"output {worst.output!r}"
    subject = "as the program reports" if worst.pair == PROGRAM else f"{subject}, pair {worst.pair!r}"
    detail = f"; {worst.worst}" if worst.worst else ""
    loss = worst.losses[limit.metric]
    shown = "not finite" if loss is None else f"{loss:.3g}"
    return f"{subject}: {limit.metric} {shown} is over {limit.limit:g}{detail}"


def _faults(label: str, actual: Tensors, expected: Tensors) -> Iterable[str]:
    for name, reference in expected.items():
        where = f"output {name!r}, pair {label!r}"
        if name not in actual:
            yield f"{where}: missing"
        elif actual[name].shape != reference.shape:
            yield f"{where}: shape {list(actual[name].shape)}, the reference has {list(reference.shape)}"
        elif name_of(actual[name].dtype) != name_of(reference.dtype):
            yield f"{where}: type {name_of(actual[name].dtype)}, the reference has {name_of(reference.dtype)}"


def _custom(
    label: str,
    losses: Iterable[PairLoss],
    actual: Tensors,
    expected: Tensors,
    functions: Mapping[str, MetricFunction],
) -> Iterable[PairLoss]:
    finite = all(None not in loss.losses.values() for loss in losses)
    for name, function in functions.items():
        # A function may well skip NaN; what is not finite never reaches it.
        value = float(np.asarray(function(actual, expected))) if finite else math.nan
        yield PairLoss(label, ALL_OUTPUTS, {name: value if math.isfinite(value) else None})
