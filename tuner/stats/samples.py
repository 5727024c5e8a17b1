"""Samples with their origin, and the one rule of comparing: like with like.

Flow: timing and the ledger give latencies -> HERE they carry where they come from -> every statistic of this
room asks `require_alike` before it combines anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from tuner.stats.errors import MixedSamplesError, PlanError


class Provenance(msgspec.Struct, frozen=True):
    """What two samples must share to be compared."""

    environment_digest: str  # machine, device, software versions
    data_digest: str  # model, shapes, input data
    settings_digest: str  # how it was timed: clock, round length, warm-up rule


class Samples(msgspec.Struct, frozen=True):
    """Latencies of one session in the order taken, milliseconds; one value per round (or per inference)."""

    latencies_ms: tuple[float, ...]
    provenance: Provenance

    def __post_init__(self) -> None:
        require_latencies(self.latencies_ms)


class Timing(msgspec.Struct, frozen=True):
    """One summarized latency and when it was taken (seconds on the study's clock)."""

    time_s: float
    latency_ms: float
    provenance: Provenance

    def __post_init__(self) -> None:
        require_latencies((self.latency_ms,))
        if not math.isfinite(self.time_s):
            raise PlanError(f"a timing's time must be finite, not {self.time_s}")


def require_latencies(latencies_ms: Iterable[float]) -> None:
    """Refuse what has no logarithm.

    Raises: PlanError for a latency that is not finite and above zero.
    """
    for latency in latencies_ms:
        if not (math.isfinite(latency) and latency > 0):
            raise PlanError(f"a latency must be finite and above zero, not {latency}", hint="check the clock")


def require_alike(origins: Iterable[Provenance]) -> None:
    """Refuse to go on if the origins differ in anything.

    Raises: MixedSamplesError that names every field in which they differ.
    """
    distinct = list(dict.fromkeys(origins))
    if len(distinct) < 2:
        return
    parts = []
    for field, word in (
        ("environment_digest", "environments"),
        ("data_digest", "data"),
        ("settings_digest", "measurement settings"),
    ):
        values = sorted({str(getattr(origin, field)) for origin in distinct})
        if len(values) > 1:
            parts.append(f"{word} ({', '.join(values)})")
    raise MixedSamplesError(
        "these samples cannot be compared, they come from different " + " and ".join(parts),
        hint="time both sides again in one environment, on the same data, with the same settings",
    )
