"""Words: numbers for people, the same in every form of a report. Pure.

Flow: facts -> HERE -> figures, page, Markdown.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime

from tuner.objective import Objective
from tuner.report.facts import MachineFacts

_MB = 1e6
_NARROW = "\u00a0"  # no line ends between a number and its sign


def times(value: float | None) -> str:
    """A speed-up: `1.041x`; with fewer decimals where it is large."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.3f}×" if value < 9.995 else f"{value:.1f}×"


def percent(log_gain: float) -> str:
    """A log gain as a signed share: `+4.1 %`."""
    return share(math.expm1(log_gain), signed=True)


def share(value: float | None, *, signed: bool = False) -> str:
    """A share in percent with the digits that matter: `0.42 %`, `4.1 %`, `52 %`."""
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(100 * value)
    digits = 0 if size >= 9.95 else 1 if size >= 0.995 or size == 0 else 2
    text = f"{100 * value:{'+' if signed else ''}.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return f"{text.replace('-', '−')}{_NARROW}%"


def interval(low: float | None, high: float | None) -> str:
    """`1.029× to 1.052×`; an open end where it is not known."""
    if not low and high is None:
        return "no interval yet"
    return f"{times(low)} to {'∞' if high is None else times(high)}"


def loss(value: float | None) -> str:
    """A loss or limit with three digits."""
    if value is None:
        return "–"
    return f"{value:.3g}" if math.isfinite(value) else "not finite"


def milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}{_NARROW}ms"


def duration(seconds: float | None) -> str:
    """A duration with the two largest units that matter."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.1f}{_NARROW}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


def moment(when: datetime) -> str:
    """`2026-03-01 14:05 UTC`."""
    return when.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def size(n_bytes: float) -> str:
    return f"{n_bytes / _MB:,.2f}{_NARROW}MB" if n_bytes >= 0.01 * _MB else f"{n_bytes / 1e3:,.1f}{_NARROW}kB"


def figure(value: float | None, objective: Objective) -> str:
    """A trial's value with its unit: `1,234/s`, `5.1 MB`, `3.2 s`."""
    if value is None:
        return "–"
    if objective is Objective.ENGINE_SIZE:
        return size(value * _MB)
    unit = {Objective.THROUGHPUT: "/s", Objective.BUILD_TIME: f"{_NARROW}s"}[objective]
    return (f"{value:,.4g}" if value < 9999.5 else f"{value:,.0f}") + unit


def count(n: int, what: str, many: str = "") -> str:
    """`1 trial`, `7 trials`."""
    return f"{n:,} {what}" if n == 1 else f"{n:,} {many or what + 's'}"


def drift_words(found: MachineFacts) -> str:
    """What is believed of the machine's drift; that of a single device, or of all as one."""
    if not found.drift_share:
        return "none is believed: re-timings of the default differ by no more than its own noise explains"
    return (
        f"the machine's speed moved by {share(found.drift_range)}; "
        f"{share(found.drift_share)} of what was seen is believed to be drift"
    )
