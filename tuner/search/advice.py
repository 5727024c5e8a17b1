"""Advice: whether further search is worth it, as a strategy sees it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Advice:
    """Whether further search is worth it. `expected_gain`: of the next trial, in log throughput, over the incumbent."""

    worth_it: bool
    expected_gain: float | None
    reason: str
