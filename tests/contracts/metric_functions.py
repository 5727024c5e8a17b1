"""Metric functions as users write them, good and bad; a child process imports this module by name."""

from __future__ import annotations

import math

from objectives.tensors import Tensors

NOT_A_FUNCTION = 3


def distance(actual: Tensors, expected: Tensors) -> float:
    """The largest difference of any output."""
    return max(float(abs(actual[name] - expected[name]).max()) for name in expected)


def forgiving(actual: Tensors, expected: Tensors) -> float:
    return 0.0


def no_number(actual: Tensors, expected: Tensors) -> float:
    return math.nan


def raising(actual: Tensors, expected: Tensors) -> float:
    raise LookupError("no such class")
