"""Knob effects: which knobs matter, what each value does, and which two do together what they do not alone. Pure.

Flow: feasible trials with their ratios -> HERE, on tuner/stats/effects.py -> KnobFacts, EffectFacts, PairingFacts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from objectives.knobs import Knob, KnobSpace
from tuner.report.facts import CellFacts, EffectFacts, KnobFacts, PairingFacts
from tuner.stats import Effect, effects

FEWEST = 4  # feasible candidates, the default among them, below which nothing is said of knobs
_TOP = 3  # knobs whose pairs are shown
_Z = 1.959964  # a normal distribution's 97.5 % quantile


@dataclass(frozen=True, slots=True)
class Explained:
    """What the trials say of knobs; all empty where there are too few of them."""

    importance: tuple[KnobFacts, ...] = ()
    unexplained: float | None = None
    effects: tuple[EffectFacts, ...] = ()
    pairings: tuple[PairingFacts, ...] = ()


def explain(changes: Sequence[Mapping[str, str]], ratios: Sequence[float], space: KnobSpace) -> Explained:
    """Effects from feasible trials: what each changes, and its ratio to the default; as many of both."""
    gains = np.log(np.asarray(ratios, dtype=np.float64))
    if len(gains) < FEWEST or not np.ptp(gains) > 0:
        return Explained()
    found = effects(changes, gains.tolist())
    mean = {(one.knob, one.value): one.gain for one in found}
    importance, unexplained = _importance(changes, gains.tolist(), mean)
    known = {knob.name: knob for knob in space.knobs}
    top = [known[one.knob] for one in importance if one.knob in known and one.share > 0][:_TOP]
    pairings = [_pairing(a, b, changes, gains.tolist(), mean) for a, b in itertools.combinations(top, 2)]
    return Explained(
        tuple(importance),
        unexplained,
        tuple(_effect(one, changes, known) for one in found if one.knob in known),
        tuple(pairings),
    )


def _importance(
    changes: Sequence[Mapping[str, str]], gains: Sequence[float], mean: Mapping[tuple[str, str], float]
) -> tuple[list[KnobFacts], float]:
    """Variance of each knob's part of the fitted gains, as a share of all parts and of what is left over."""
    names = sorted({knob for knob, _ in mean})
    parts = {name: [mean.get((name, one.get(name, "")), 0.0) for one in changes] for name in names}
    left = [gain - sum(parts[name][row] for name in names) for row, gain in enumerate(gains)]
    variance = {name: float(np.var(part)) for name, part in parts.items()}
    total = sum(variance.values()) + float(np.var(left))
    found = [KnobFacts(name, value / total if total > 0 else 0.0) for name, value in variance.items()]
    unexplained = float(np.var(left)) / total if total > 0 else 0.0
    return sorted(found, key=lambda one: (-one.share, one.knob)), unexplained


def _effect(one: Effect, changes: Sequence[Mapping[str, str]], known: Mapping[str, Knob]) -> EffectFacts:
    return EffectFacts(
        knob=one.knob,
        value=one.value,
        default=known[one.knob].default,
        gain=one.gain,
        low=one.gain - _Z * one.error,
        high=one.gain + _Z * one.error,
        n_trials=sum(change.get(one.knob) == one.value for change in changes),
    )


def _pairing(
    first: Knob,
    second: Knob,
    changes: Sequence[Mapping[str, str]],
    gains: Sequence[float],
    mean: Mapping[tuple[str, str], float],
) -> PairingFacts:
    both = (first.name, second.name)
    rest = [
        gain - sum(mean.get(pair, 0.0) for pair in change.items() if pair[0] not in both)
        for change, gain in zip(changes, gains, strict=True)
    ]
    cells, extra = [], 0.0
    for row in first.values:
        line = []
        for column in second.values:
            here = [
                gain
                for change, gain in zip(changes, rest, strict=True)
                if change.get(first.name, first.default) == row and change.get(second.name, second.default) == column
            ]
            gain = math.fsum(here) / len(here) if here else None
            line.append(CellFacts(gain, len(here)))
            if gain is not None:
                alone = mean.get((first.name, row), 0.0) + mean.get((second.name, column), 0.0)
                extra = max(extra, abs(gain - alone))
        cells.append(tuple(line))
    return PairingFacts(first.name, second.name, first.values, second.values, tuple(cells), extra)
