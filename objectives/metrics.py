"""Metrics: the loss of one output array against its reference, under each metric the product knows.

Flow: accuracy.compare -> measure_output HERE -> PairLoss. A loss of 0 is perfect; every loss is at least 0.
Computed in double precision (64-bit integers in extended precision, so that no difference is lost).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from objectives.tensors import Array, name_of

Reals = npt.NDArray[Any]  # float64 or longdouble, one dimension, all finite


class Tolerance(msgspec.Struct, frozen=True):
    """What `l0` lets pass per element: |a - r| <= atol + rtol * |r|. Source: trtexec's defaults for l0.

    `atol` is also the size below which a reference counts as zero for `rel_l2`: without a floor, a reference of
    exactly 0 would make any rounding an infinite loss.
    """

    atol: float = 1e-5
    rtol: float = 1e-5


def _l0(actual: Reals, expected: Reals, tolerance: Tolerance) -> float:
    off = np.abs(actual - expected) > tolerance.atol + tolerance.rtol * np.abs(expected)
    return float(np.count_nonzero(off) / off.size)


def _l1(actual: Reals, expected: Reals, _: Tolerance) -> float:
    return float(np.mean(np.abs(actual - expected)))


def _l2(actual: Reals, expected: Reals, _: Tolerance) -> float:
    return float(np.mean(np.square(actual - expected)))


def _linf(actual: Reals, expected: Reals, _: Tolerance) -> float:
    return float(np.max(np.abs(actual - expected)))


def _cos(actual: Reals, expected: Reals, _: Tolerance) -> float:
    # Scaled first: the squares of denormal or huge elements would vanish or overflow.
    largest = np.max(np.abs(actual)), np.max(np.abs(expected))
    if not largest[0] or not largest[1]:
        return 0.0 if largest[0] == largest[1] else 1.0
    a, r = actual / largest[0], expected / largest[1]
    return max(0.0, float(1.0 - np.dot(a, r) / (np.linalg.norm(a) * np.linalg.norm(r))))


def _rel_l2(actual: Reals, expected: Reals, tolerance: Tolerance) -> float:
    size = max(_norm(expected), tolerance.atol * math.sqrt(expected.size))
    difference = _norm(actual - expected)
    if difference == 0:
        return 0.0
    return difference / size if size else math.inf


def _norm(values: Reals) -> float:
    """Euclidean norm, scaled by the largest element so that no square vanishes or overflows."""
    largest = float(np.max(np.abs(values)))
    if not largest or not math.isfinite(largest):
        return largest
    return largest * float(np.linalg.norm(values / largest))


_ELEMENTWISE: dict[str, Callable[[Reals, Reals, Tolerance], float]] = {
    "l0": _l0,
    "l1": _l1,
    "l2": _l2,
    "linf": _linf,
    "cos": _cos,
    "rel_l2": _rel_l2,
}
METRICS: dict[str, str] = {
    "l0": "share of elements with |a - r| > atol + rtol * |r|",
    "l1": "mean of |a - r|",
    "l2": "mean of (a - r)^2, no square root",
    "linf": "largest |a - r|",
    "cos": "1 - cosine similarity",
    "rel_l2": "|a - r| / |r| in the Euclidean norm",
    "top1": "share of rows (last axis) whose largest element is another one; l0 where a row has one element",
}
DEFAULT_METRIC = "rel_l2"


def measure_output(actual: Array, expected: Array, tolerance: Tolerance) -> tuple[dict[str, float | None], str]:
    """Loss under every metric, and the worst element in words; arrays of equal shape and type.

    A NaN or infinity counts as equal only to the same at the same place; otherwise every loss is None. Text is compared
    as text: every metric is then the share of unequal elements.
    """
    if expected.size == 0:
        return dict.fromkeys(METRICS, 0.0), ""
    if name_of(expected.dtype) == "string":
        return _text(actual, expected)
    a, r = _reals(actual), _reals(expected)
    wrong = _nonfinite_differs(a, r)
    if wrong.any():
        return dict.fromkeys(METRICS, None), _element(actual, expected, int(np.argmax(wrong)))
    losses: dict[str, float | None] = dict.fromkeys(METRICS, 0.0)
    finite = np.isfinite(r)
    if np.array_equal(a[finite], r[finite]):
        return losses, ""
    with np.errstate(over="ignore", under="ignore"):  # an overflow is a very large loss, and is said to be one
        losses |= {name: _bounded(loss(a[finite], r[finite], tolerance)) for name, loss in _ELEMENTWISE.items()}
        distance = np.abs(np.where(finite, a, 0) - np.where(finite, r, 0))
    losses["top1"] = _top1(actual, expected, losses["l0"])
    return losses, _element(actual, expected, int(np.argmax(distance)))


def _top1(actual: Array, expected: Array, fallback: float | None) -> float | None:
    if actual.ndim == 0 or actual.shape[-1] < 2 or actual.dtype.kind == "c":
        return fallback  # no order among complex numbers, and nothing to choose from in a row of one
    a, r = _reals(actual).reshape(actual.shape), _reals(expected).reshape(expected.shape)
    ours, theirs = np.argmax(a, axis=-1), np.argmax(r, axis=-1)
    chosen, best = (np.take_along_axis(r, index[..., None], axis=-1)[..., 0] for index in (ours, theirs))
    # A tie in the reference leaves more than one right answer.
    return float(np.mean((ours != theirs) & (chosen != best)))


def _reals(array: Array) -> Reals:
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], axis=-1)
    wide = array.dtype.kind in "iu" and array.dtype.itemsize == 8
    return array.astype(np.longdouble if wide else np.float64).reshape(-1)


def _nonfinite_differs(actual: Reals, expected: Reals) -> npt.NDArray[np.bool_]:
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    odd: npt.NDArray[np.bool_] = ~np.isfinite(actual) | ~np.isfinite(expected)
    wrong: npt.NDArray[np.bool_] = odd & ~same
    return wrong


def _bounded(loss: float) -> float:
    """A loss beyond all numbers as the largest number: None is kept for outputs that are not finite."""
    return min(loss, sys.float_info.max) if not math.isnan(loss) else sys.float_info.max


def _text(actual: Array, expected: Array) -> tuple[dict[str, float | None], str]:
    unequal = np.asarray(actual != expected).reshape(-1)
    share = float(np.mean(unequal))
    worst = _element(actual, expected, int(np.argmax(unequal))) if share else ""
    return dict.fromkeys(METRICS, share), worst


def _element(actual: Array, expected: Array, flat: int) -> str:
    size = actual.size
    # Complex numbers were laid out as (real, imaginary): two reals for each element.
    index = np.unravel_index(flat // 2 if flat >= size or actual.dtype.kind == "c" else flat, actual.shape)
    where = [int(i) for i in index]
    return f"worst element {where}: {actual[index]} against {expected[index]}"
