"""Screening: the first trials, near the default, so that every knob is seen several times before a model decides.

Each round is one random partition of the knobs into groups of about `share` of them; each trial flips one group, so
that within a round every knob leaves its default exactly once, and two knobs fall together by chance only. Values of a
knob take turns. A trial of a round depends on (seed, number) and not on the others, so that workers need not wait.

If the first round shows that nothing fails and nothing is over a limit, there is no reason to stay near the default:
the rest of the screen is balanced over all values, which tells several times as much about each.

Sources: Dean and Lewis 2006 (group screening), Plackett and Burman 1946 (balanced two-level designs), Xu 2003 (minimum
moment aberration).
"""

from __future__ import annotations

import math

import numpy as np

from tuner.search.auto.config import AutoConfig
from tuner.search.auto.history import Codes, Encoding, Floats


def length(encoding: Encoding, config: AutoConfig) -> int:
    """Number of screening trials, the default not counted."""
    if not config.screen:
        return 4  # a model needs a few points that differ
    if config.screen_trials is not None:
        return config.screen_trials
    return min(round(config.screen_factor * math.sqrt(max(len(encoding.knobs), 1))), 32)


def share(encoding: Encoding, config: AutoConfig) -> float:
    """Share of the knobs that one trial flips."""
    if config.flip_share is not None:
        return config.flip_share
    n = len(encoding.knobs)
    return 0.35 if n <= 12 else 0.22 if n <= 100 else 0.5


def design(encoding: Encoding, flip: float, number: int, seed: int, banned: Floats) -> Codes:
    """The row of screening trial `number` (from 1). `banned` (width,): 1 for values that are known to fail."""
    n = len(encoding.knobs)
    groups = max(2, round(1.0 / flip))
    turn, place = divmod(number - 1, groups)
    order = np.random.default_rng([seed, turn]).permutation(n)
    row = encoding.default.copy()
    for slot in np.array_split(order, groups)[place]:
        others = [code for code in range(encoding.sizes[slot]) if code != encoding.default[slot]]
        start = int(np.random.default_rng([seed, 7, int(slot)]).integers(len(others)))
        for ahead in range(len(others)):
            code = others[(start + turn + ahead) % len(others)]
            if not banned[encoding.starts[slot] + code]:
                row[slot] = code
                break
    return row


def latin(encoding: Encoding, number: int, seed: int) -> Codes:
    """The row of trial `number` of a design over the whole space: in each round, every value of a knob has its turn."""
    longest = int(encoding.sizes.max())
    turn, place = divmod(number, longest)
    rng = np.random.default_rng([seed, turn, 11])
    return np.array([rng.permutation(longest)[place] % size for size in encoding.sizes], dtype=np.int64)


def multiplicity(encoding: Encoding, rows: Codes, shown: Codes) -> Floats:
    """How often the average combination of three values of each of `rows` stands in `shown`: exp(-it) is about the
    share that is new.

    Source: minimum moment aberration, Xu 2003: designs whose rows agree in few places cover combinations evenly.
    """
    n = len(encoding.knobs)
    agree = encoding.one_hot(rows) @ encoding.one_hot(shown).T
    if n < 3:
        return np.asarray((agree == n).sum(axis=1), dtype=float)
    return np.asarray((agree * (agree - 1) * (agree - 2)).sum(axis=1) / (n * (n - 1) * (n - 2)))


def scattered(encoding: Encoding, rng: np.random.Generator) -> Codes:
    """A uniformly random row: what a search without screening starts with."""
    return rng.integers(0, encoding.sizes)
