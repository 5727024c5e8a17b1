"""Lineage in lines and JSON: contexts as a tree, what each took over and what it did not. Pure.

Flow: `study show`, the progress of a run, `env` -> HERE -> lines.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from tuner.carried import Carried, Dropped, read_carried
from tuner.cli.render import figure, ratio, table, verdict_line
from tuner.views import ContextView, Runnable, StudyView

_MOST_LINES = 6  # of one kind in what people read; --json has all


def tree_lines(study: StudyView) -> list[str]:
    """Every context under its parent, with default, best and verdict; nothing while there is only one."""
    if len(study.contexts) < 2:
        return []
    head = ["lineage", "environment", "limits", "trials", "default", "best", "verdict"]
    return ["", *table(head, [_row(view, depth) for view, depth in _tree(study.contexts)])]


def carried_lines(view: ContextView) -> list[str]:
    """Where a context comes from: why it was opened, what it took over, what was dropped and why."""
    carried = read_carried(view.context.record)
    if carried is None:
        return []
    return [f"  opened because: {carried.because}", *[f"  {line}" for line in start_lines(carried)], *_details(carried)]


def start_lines(carried: Carried) -> list[str]:
    """What a context starts from, a sentence or two."""
    if not carried.parents:
        return []
    parents = ", ".join(f"context {one.number} ({one.relation})" for one in carried.parents)
    if carried.switched_off:
        return [f"starts from nothing, as asked (--no-transfer); there is {parents}"]
    if carried.adopted_from is not None:
        again = f"; {len(carried.candidates)} to be measured again" if carried.candidates else ""
        return [f"takes over the measurements of {parents}, judged anew{again}"]
    taken = [f"{len(carried.candidates)} candidates to measure again"] if carried.candidates else []
    taken += [f"expected effects of {_knobs(carried)} knobs"] if carried.effects or carried.failure_rates else []
    dropped = f"; {len(carried.dropped)} candidates dropped" if carried.dropped else ""
    return [f"starts from {parents}: {' and '.join(taken) or 'nothing that could be carried over'}{dropped}"]


def carried_json(view: ContextView, study: StudyView) -> dict[str, Any]:
    """Parent's number, and everything that was carried and dropped."""
    numbers = {one.context.id: one.context.record.number for one in study.contexts}
    carried = read_carried(view.context.record)
    parent = view.context.record.parent_id
    return {
        "parent": None if parent is None else numbers.get(parent),
        "carried": None if carried is None else carried.to_json(),
    }


def here_lines(found: Sequence[Runnable]) -> list[str]:
    """Which studies of a database can run here."""
    if not found:
        return []
    return ["", *table(["study", "backend", "here"], [[one.study, one.backend, one.words] for one in found])]


def _tree(views: Sequence[ContextView]) -> Iterator[tuple[ContextView, int]]:
    known = {view.context.id for view in views}

    def below(parent: int | None, depth: int) -> Iterator[tuple[ContextView, int]]:
        for view in views:
            above = view.context.record.parent_id
            if (above if above in known else None) == parent:
                yield view, depth
                yield from below(view.context.id, depth + 1)

    return below(None, 0)


def _row(view: ContextView, depth: int) -> list[str]:
    record, summary = view.context.record, view.summary
    environment = record.environment
    facts = [str(environment.identity[key]) for key in ("gpu", "mig", "cpu", "machine") if key in environment.identity]
    default = "-" if summary.baseline is None else figure(summary.baseline, summary)
    answer = verdict_line(view.verdict).split(" at ")[0] if view.verdict else "-"
    return [
        "   " * max(depth - 1, 0) + ("└─ " if depth else "") + f"context {record.number}",
        ", ".join([f"{environment.backend} {environment.backend_version}", *facts[:1]]),
        ", ".join(str(limit) for limit in view.limits) or "none",
        str(summary.n_trials),
        default,
        ratio(summary.speedup),
        answer,
    ]


def _details(carried: Carried) -> list[str]:
    lines = [f"changed here: {change}" for change in carried.changes[:_MOST_LINES]]
    lines += _more(len(carried.changes), "changes of knobs")
    for one in carried.candidates[:_MOST_LINES]:
        shown = "" if one.gain is None else f", {math.exp(one.gain):.3f}x there"
        lines.append(f"carried: {one.candidate} ({one.why} of context {one.context}, trial #{one.trial}{shown})")
    lines += _more(len(carried.candidates), "carried candidates")
    lines += [_dropped(one) for one in carried.dropped[:_MOST_LINES]]
    lines += _more(len(carried.dropped), "dropped candidates")
    return [f"    {line}" for line in lines]


def _dropped(one: Dropped) -> str:
    return f"dropped: {one.candidate} ({one.why} of context {one.context}, trial #{one.trial}): {one.reason}"


def _more(count: int, what: str) -> list[str]:
    return [f"... {count - _MOST_LINES} more {what}: --json"] if count > _MOST_LINES else []


def _knobs(carried: Carried) -> int:
    return len({one.knob for one in (*carried.effects, *carried.failure_rates)})
