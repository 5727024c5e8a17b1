"""Carrying: carried candidates come first, as long as what the parents say holds here. Pure.

Flow: tuner/searching.py asks for the next candidate and hands on what was seen -> HERE -> the search takes over, with a
prior as long as the parents are believed. Whatever is decided follows from what was seen, so a resumed run decides the
same.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from objectives.knobs import Candidate, KnobSpace
from tuner.carried import Carried
from tuner.search.auto.config import Prior
from tuner.search.observation import Observation

CARRIED = "carried"  # source of such a trial
_FEW = 4  # timed trials, from which on they are compared with what the prior foretells
_HOLDS = 0.25  # share of the gains they showed elsewhere that carried candidates have to show here, together


class Carrying:
    """What is left to measure of what was carried, and whether the parents are still believed."""

    def __init__(self, carried: Carried | None, space: KnobSpace) -> None:
        wanted = () if carried is None else carried.candidates
        self._candidates = [one for one in wanted if _fits(one.candidate, space)]
        self._prior = None if carried is None else carried.prior()
        self._seen: dict[str, Observation] = {}

    def learn(self, seen: Observation) -> None:
        """Take a finished trial into account."""
        self._seen[seen.candidate.digest] = seen

    def forget(self) -> None:
        """Everything will be told anew."""
        self._seen.clear()

    def next(self, tried: Collection[str]) -> Candidate | None:
        """The next carried candidate to measure; None when there is none left or the parents have misled.

        A candidate of which nobody says how fast it is was carried for another reason, and is always measured.
        """
        holds = self.holds
        for one in self._candidates:
            if (holds or one.gain is None) and one.candidate.digest not in tried:
                return one.candidate
        return None

    @property
    def holds(self) -> bool:
        """Whether the parents are believed: until something is measured, and while that agrees with what they say."""
        expected, found = self._shown()
        return found >= _HOLDS * expected and self._slope() >= _HOLDS

    @property
    def prior(self) -> Prior | None:
        """What the search is told beforehand; None once the parents have misled."""
        return self._prior if self.holds else None

    def _shown(self) -> tuple[float, float]:
        """Log gains of the measured carried candidates: there, and here. What fails or breaks a limit gains nothing."""
        default = self._seen.get(Candidate().digest)
        expected = found = 0.0
        if default is None:
            return expected, found
        for one in self._candidates:
            seen = self._seen.get(one.candidate.digest)
            if seen is not None and one.gain is not None:
                expected += one.gain
                found += _gain(seen, default)
        return expected, found

    def _slope(self) -> float:
        """How much of the gains that the prior foretells the own trials have, by least squares; 1 while too few are in.

        Half of it would make the prior as good as none: predictions as far off as saying nothing.
        """
        timed = [seen for seen in self._seen.values() if seen.timed]
        if len(timed) < _FEW or self._prior is None:
            return 1.0
        foretold = [self._prior.foretells(seen.candidate) for seen in timed]
        gains = [math.log(seen.value) for seen in timed]
        mean, middle = sum(foretold) / len(timed), sum(gains) / len(timed)
        spread = sum((one - mean) ** 2 for one in foretold)
        if spread == 0.0:
            return 1.0
        return sum((x - mean) * (y - middle) for x, y in zip(foretold, gains, strict=True)) / spread


def _gain(seen: Observation, default: Observation) -> float:
    if not seen.timed or any(value > 0 for value in seen.constraints.values()):
        return 0.0
    return math.log(seen.value / default.value)


def _fits(candidate: Candidate, space: KnobSpace) -> bool:
    values: Mapping[str, tuple[str, ...]] = {knob.name: knob.values for knob in space.knobs}
    return all(value in values.get(name, ()) for name, value in candidate.changes)
