"""Values of knobs, tried one at a time: which work, which are refused in the library's words, which go wrong.

Flow: selfcheck.py -> HERE -> one step for each value, in one process as long as nothing fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from objectives.checks.asking import Asker
from objectives.checks.result import Status
from objectives.checks.steps import OFF
from objectives.knobs import KnobKind, KnobSpace
from objectives.requests import SelfChecked

_WORDS_CHARS = 240  # of what a library says against a value
_ROUTES = 5  # knobs that are tried until one is taken: the tiny model may be too small for a decision
Changes = Sequence[tuple[str, str]]
OnNote = Callable[[str], None]


def one_each(space: KnobSpace, kind: KnobKind) -> Changes:
    """For each knob of a kind its first value that is no default."""
    values = {knob.name: [value for value in knob.values if value != knob.default] for knob in space.knobs}
    return [(knob.name, values[knob.name][0]) for knob in space.knobs if knob.kind == kind and values[knob.name]]


def every(space: KnobSpace, kind: KnobKind, word: str = "") -> Changes:
    """Every value that is no default, of the knobs of a kind with `word` in their name."""
    return [
        (knob.name, value)
        for knob in space.knobs
        if knob.kind == kind and word in knob.name
        for value in knob.values
        if value != knob.default
    ]


def try_all(asker: Asker, changes: Changes, on_note: OnNote) -> SelfChecked:
    """Try each change alone, until the group's time is spent. Fails if one fails; all refused: unsupported."""
    end = time.monotonic() + asker.plan.group_s
    tried: list[tuple[str, SelfChecked]] = []
    with asker.isolation() as isolation:
        for name, value in changes:
            if tried and time.monotonic() > end:
                break
            on_note(f"{len(tried) + 1} of {len(changes)}: {name}={value}")
            tried.append((f"{name}={value}", asker.ask_in(isolation, "values", {name: value})))
    status = next(
        (one for one in (Status.FAIL, Status.PASS) if any(found.status == one for _, found in tried)),
        Status.UNSUPPORTED,
    )
    return SelfChecked(status, _words(tried, len(changes)))


def take_a_route(asker: Asker, space: KnobSpace, on_note: OnNote) -> SelfChecked:
    """Set one build route that differs from the default; it has to be taken."""
    refused = []
    for name, value in one_each(space, KnobKind.ROUTE)[:_ROUTES]:
        on_note(f"{name}={value}")
        found = asker.ask("values", {name: value})
        if found.status == Status.PASS:
            told = {"read back": found.facts.get("build_route"), "used": found.facts.get("build_route_used")}
            more = "; ".join(f"{words}: {route}" for words, route in told.items() if route)
            return SelfChecked(Status.PASS, f"{name}={value} {found.detail}" + (f"; {more}" if more else ""))
        refused.append(f"{name}={value}: {_short(found.detail)}")
        if found.status == Status.FAIL:
            return SelfChecked(Status.FAIL, refused[-1])
    return SelfChecked(Status.FAIL, f"no route was taken; {'; '.join(refused)}")


def _words(tried: Sequence[tuple[str, SelfChecked]], wanted: int) -> str:
    """`9 values tried: 7 work, 1 refused, 1 failed`, why they failed, and the first of those that were refused."""
    having = {status: [(name, found) for name, found in tried if found.status == status] for status in Status}
    good, bad, refused = having[Status.PASS], having[Status.FAIL], having[Status.UNSUPPORTED]
    off = [name for name, found in good if OFF in found.facts]
    number = "1 value" if len(tried) == 1 else f"{len(tried)} values"
    head = f"{number} tried" if len(tried) == wanted else f"{len(tried)} of {wanted} values tried in the time given"
    counts = {"good": len(good), "refused": len(refused), "failed": len(bad)}
    parts = [f"{head}: {', '.join(f'{number} {word}' for word, number in counts.items() if number)}"]
    parts += [
        f"{', '.join(name for name, found in bad if found.detail == words)} failed: {_short(words)}"
        for words in dict.fromkeys(found.detail for _, found in bad)
    ]
    parts += [f"outputs are less exact with {', '.join(off)}"] if off else []
    parts += [f"{name} refused: {_short(found.detail)}" for name, found in refused[:1]]
    return "; ".join(parts)


def _short(words: str) -> str:
    return words if len(words) <= _WORDS_CHARS else words[: _WORDS_CHARS - 1] + "…"
