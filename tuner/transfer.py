"""Transfer: what a new context may start from, out of what its parents have seen. Pure.

Flow: tuner/lineage.py reads the parents, nearest first -> HERE, translated by tuner/migration.py -> Carried. Nothing
measured elsewhere counts as measured: candidates are measured again, effects are a prior that own data outvote.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from objectives.knobs import Candidate, KnobSpace
from tuner.carried import Carried, CarriedCandidate, Dropped, PairFigure, ParentLink, figures
from tuner.migration import differences, translate, translate_effects, translate_pairs, translate_rates
from tuner.search.auto.config import Value
from tuner.search.auto.culprits import Culprits
from tuner.search.auto.history import Encoding
from tuner.search.auto.teaching import Taught, teach

MOST_CANDIDATES = 5  # each costs a trial that the search could have had
MOST_PARENTS = 3
WINNER, BEST = "confirmed winner", "among the best"
_DISTANCE = 2  # knobs in which two carried candidates differ at least
_LEAST_LESSONS = 8  # measured trials from which on effects of single values mean something


@dataclass(frozen=True, slots=True)
class Lesson:
    """A finished trial of a parent. `log_gain`: log speed-up over its default, drift taken out; None: not timed."""

    number: int
    candidate: Candidate
    log_gain: float | None = None
    feasible: bool = True
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Parent:
    """A context to learn from. `winner`: number of the trial that a confirmation found faster."""

    number: int
    relation: str
    space: KnobSpace
    lessons: Sequence[Lesson] = field(default_factory=tuple)
    winner: int | None = None


def carry(because: str, parents: Sequence[Parent], space: KnobSpace, count: int = MOST_CANDIDATES) -> Carried:
    """What a context with this knob space takes over from `parents`, the nearest first.

    Candidates: confirmed winners, then the fastest feasible ones that differ in at least two knobs; at most `count`.
    A value's effect is the nearest parent's that knows it.
    """
    known = [parent for parent in parents if parent.lessons][:MOST_PARENTS]
    gains: dict[Value, float] = {}
    pairs: dict[tuple[Value, Value], float] = {}
    rates: dict[Value, float] = {}
    for parent in reversed(known):
        taught = effects_of(parent)
        gains |= translate_effects(taught.effects, parent.space, space)
        pairs |= translate_pairs(taught.pairs, parent.space, space)
        rates |= translate_rates(failure_rates(parent), parent.space, space)
    candidates, dropped = _candidates(known, space, count)
    return Carried(
        because=because,
        parents=tuple(ParentLink(one.number, one.relation, len(one.lessons)) for one in known or parents[:1]),
        changes=differences(parents[0].space, space) if parents else (),
        candidates=candidates,
        dropped=dropped,
        effects=figures(gains, space),
        failure_rates=figures(rates, space),
        pairs=tuple(PairFigure(one, other, figure) for (one, other), figure in pairs.items()),
    )


def effects_of(parent: Parent) -> Taught:
    """What each value that was tried gains against its knob's default, and pairs of them; empty while too little was
    measured."""
    timed = [(lesson.candidate, lesson.log_gain) for lesson in parent.lessons if lesson.log_gain is not None]
    if len(timed) < _LEAST_LESSONS:
        return Taught({}, {})
    return teach(parent.space, timed)


def failure_rates(parent: Parent) -> dict[Value, float]:
    """How likely each value that was tried fails by itself: what stood in a candidate that ran does not."""
    failed = [lesson.candidate for lesson in parent.lessons if lesson.failed]
    if not failed:
        return {}
    encoding = Encoding(parent.space)
    ran = [lesson.candidate for lesson in parent.lessons if not lesson.failed]
    guilt = Culprits(encoding, encoding.codes(ran), encoding.codes(failed)).single
    tried = {change for lesson in parent.lessons for change in lesson.candidate.changes}
    found = {}
    for knob, value in tried:
        column = encoding.column(knob, value)
        if column is not None:
            found[knob, value] = float(guilt[column])
    return found


def _candidates(
    parents: Sequence[Parent], space: KnobSpace, count: int
) -> tuple[tuple[CarriedCandidate, ...], tuple[Dropped, ...]]:
    chosen: list[CarriedCandidate] = []
    dropped: list[Dropped] = []
    for parent, lesson, why in _ranked(parents):
        if len(chosen) == count:
            break
        found = translate(lesson.candidate, parent.space, space)
        if found.candidate is None:
            if len(dropped) < 2 * count:
                dropped.append(Dropped(str(lesson.candidate), parent.number, lesson.number, why, found.reason))
        elif not found.candidate.is_baseline and _is_new(found.candidate, chosen):
            changes = found.candidate.changes
            chosen.append(CarriedCandidate(changes, parent.number, lesson.number, why, lesson.log_gain))
    return tuple(chosen), tuple(dropped)


def _ranked(parents: Sequence[Parent]) -> list[tuple[Parent, Lesson, str]]:
    """Winners of all parents, then what looked faster than the default in each, fastest first, nearest parent first."""
    winners = [(parent, one, WINNER) for parent in parents for one in parent.lessons if one.number == parent.winner]
    others = [
        (parent, one, BEST)
        for parent in parents
        for one in sorted(parent.lessons, key=lambda lesson: -(lesson.log_gain or -math.inf))
        if one.feasible and one.log_gain is not None and one.log_gain > 0 and one.number != parent.winner
    ]
    return winners + others


def _is_new(candidate: Candidate, chosen: Sequence[CarriedCandidate]) -> bool:
    ours = dict(candidate.changes)
    for other in chosen:
        theirs = dict(other.changes)
        if sum(ours.get(name) != theirs.get(name) for name in {*ours, *theirs}) < _DISTANCE:
            return False
    return True
