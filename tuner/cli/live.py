"""Live: the few lines that stay in place while a study runs: how far it is, what it is at, what it has found. Pure.

Flow: progress.py of the run itself, or `study watch` in another terminal -> HERE -> lines that fit the terminal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tuner.budget import left_s
from tuner.cli.render import counts, ratio, span, verdict_line
from tuner.doing import Doing
from tuner.noise import spread_of
from tuner.results import Summary
from tuner.spec import Budget
from tuner.stats import Noise

_BAR_LEAST, _BAR_MOST = 10, 30  # cells
_LABEL = 7


@dataclass(frozen=True, slots=True)
class Standing:
    """What there is to say at one moment. `doing` by device, "" where there is no choice."""

    budget: Budget
    summary: Summary | None
    doing: Mapping[str, Doing]
    floor: Noise | None = None
    verdict: Mapping[str, Any] | None = None  # of the latest confirmation, as `tuner.answers.to_json` gives it


def live_lines(standing: Standing, width: int, *, now: datetime | None = None, is_unicode: bool = True) -> list[str]:
    """At most a line for the budget, one a device, and three for what was found; none longer than `width`."""
    now = now or datetime.now(UTC)
    lines = [_at(device, one, now) for device, one in sorted(standing.doing.items())]
    summary = standing.summary
    if summary is not None and summary.n_trials:
        lines = [_budget(standing, summary, width, is_unicode), *lines, _best(standing, summary, is_unicode)]
        lines.append(f"{'so far':<{_LABEL}} {counts(summary)}")
    if standing.verdict is not None:
        lines.append(f"{'verdict':<{_LABEL}} {verdict_line(standing.verdict)}")
    return [_cut(line, width, is_unicode) for line in lines]


def _at(device: str, one: Doing, now: datetime) -> str:
    elapsed = max(0.0, (now - one.since).total_seconds())  # clocks of two hosts may differ
    where = f"device {device}: " if device else ""
    clock = f"{elapsed:.0f} s" if elapsed < 60 else span(elapsed)
    return f"{'now':<{_LABEL}} {where}{one.words} ({clock})"


def _budget(standing: Standing, summary: Summary, width: int, is_unicode: bool) -> str:
    budget, shares, parts = standing.budget, [0.0], []
    if budget.n_trials:
        shares.append(summary.n_trials / budget.n_trials)
        parts.append(f"{summary.n_trials} of {budget.n_trials} trials")
    else:
        parts.append(f"{summary.n_trials} trials")
    if budget.timeout_s:
        shares.append(summary.spent_s / budget.timeout_s)
        parts.append(f"{span(summary.spent_s)} of {span(budget.timeout_s)}")
    left = left_s(budget, summary.n_trials, summary.spent_s)
    if left is not None and max(shares) < 1:
        parts.append(f"about {span(left / max(1, len(standing.doing)))} left")
    words = ", ".join(parts)
    if len(shares) == 1:  # no end is set
        return words
    return f"{_bar(min(1.0, max(shares)), width - len(words) - 2, is_unicode)}  {words}"


def _bar(share: float, room: int, is_unicode: bool) -> str:
    cells = min(_BAR_MOST, max(_BAR_LEAST, room))
    full, empty = ("█", "░") if is_unicode else ("#", ".")
    done = int(share * cells)
    return full * done + empty * (cells - done)


def _best(standing: Standing, summary: Summary, is_unicode: bool) -> str:
    best = summary.best
    if best is None or summary.speedup is None:
        return f"{'best':<{_LABEL}} nothing feasible yet"
    if best.candidate.is_baseline:
        return f"{'best':<{_LABEL}} the default"
    spread = spread_of(summary, standing.floor)
    noise = "" if spread is None else f" {'±' if is_unicode else '+-'} {summary.speedup * spread:.3f}"
    return f"{'best':<{_LABEL}} {ratio(summary.speedup)}{noise} in the search: trial #{best.number} {best.candidate}"


def _cut(line: str, width: int, is_unicode: bool) -> str:
    if len(line) <= width:
        return line
    mark = "…" if is_unicode else "..."
    return line[: max(0, width - len(mark))] + mark
