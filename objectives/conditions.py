"""Conditions: what the machine was doing while samples were taken.

Flow: the worker watches HERE around a timing, a GPU by gpu_watch.py -> figures and flags in Samples. Nothing is dropped
because of a flag: it says how far a figure can be trusted, and the verdict's interleaving deals with the rest.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import psutil

from objectives.processes import cpu_s

_BUSY_SHARE = 0.15  # of the machine's cores, taken by others: one busy core in six is felt
_STEAL_SHARE = 0.02  # of time that the hypervisor gave to somebody else
_WORDS = {
    "other_load": "other load on the machine",
    "stolen_time": "time given to other machines",
    "other_process": "other processes on the device",
}


class Watch(Protocol):
    """Something that watches until it is told to stop."""

    def stop(self) -> tuple[dict[str, float], tuple[str, ...]]:
        """Figures by name, and flags."""


class HostWatch:
    """Load on this machine that is not ours nor of a program that we have started: from creation to `stop`.

    `own_s`: processor time that is ours so far; of this process and of programs it has started unless others take part.
    """

    flags = ("other_load", "stolen_time")  # that it may give

    def __init__(self, own_s: Callable[[], float] | None = None) -> None:
        self._own_s = own_s or cpu_s
        self._wall = time.monotonic()
        self._all = psutil.cpu_times()
        self._own = self._own_s()

    def stop(self) -> tuple[dict[str, float], tuple[str, ...]]:
        """Figures (shares of the machine's core time) and flags."""
        seconds = max(time.monotonic() - self._wall, 1e-6) * (os.cpu_count() or 1)
        now = psutil.cpu_times()
        idle = _idle(now) - _idle(self._all)
        steal = float(getattr(now, "steal", 0.0) - getattr(self._all, "steal", 0.0))
        own = self._own_s() - self._own
        other = max(0.0, 1.0 - (idle + own + steal) / seconds)
        figures = {
            "other_cpu_share": round(min(other, 1.0), 4),
            "steal_share": round(max(0.0, steal) / seconds, 4),
            "load_average": round(os.getloadavg()[0], 2),
        }
        flags = ["other_load"] if figures["other_cpu_share"] > _BUSY_SHARE else []
        flags += ["stolen_time"] if figures["steal_share"] > _STEAL_SHARE else []
        # Below a few clock ticks the kernel's counters say nothing.
        return figures, tuple(flags) if time.monotonic() - self._wall > 0.1 else ()


def in_words(flag: str) -> str:
    """A quality flag for people: `throttled:power_cap` is "throttled (power cap)"; most say what they mean."""
    name, colon, cause = flag.partition(":")
    return f"{name} ({cause.replace('_', ' ')})" if colon else _WORDS.get(flag, flag)


def merge(*parts: tuple[Mapping[str, float], tuple[str, ...]]) -> tuple[dict[str, float], tuple[str, ...]]:
    """Figures and flags of several watches as one."""
    figures: dict[str, float] = {}
    for found, _ in parts:
        figures |= found
    return figures, tuple(flag for _, flags in parts for flag in flags)


def _idle(times: Any) -> float:
    return float(times.idle + getattr(times, "iowait", 0.0))
