"""Configuration: the switches of the search and what it may be told beforehand, as values.

Every part of the sampler can be switched off: the benchmark's ablations are these fields and nothing else.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

from objectives.knobs import Candidate

Value = tuple[str, str]  # knob, value


@dataclass(frozen=True, slots=True)
class Prior:
    """What other contexts taught: none of it binds, and about fifteen trials outvote it.

    `effects`: expected change of log throughput when a knob leaves its default for a value, by (knob, value). `pairs`:
    what two such changes are expected to gain beyond the sum of both, by the two (knob, value), in either order.
    `failure_rates`: how often a value failed elsewhere, by (knob, value). `first`: candidates to try before others.
    Knobs and values that this space does not have are passed over.
    """

    effects: Mapping[Value, float] = field(default_factory=dict)
    failure_rates: Mapping[Value, float] = field(default_factory=dict)
    first: tuple[Candidate, ...] = ()
    pairs: Mapping[tuple[Value, Value], float] = field(default_factory=dict)

    def foretells(self, candidate: Candidate) -> float:
        """Log gain over the default that the effects add up to."""
        own = sum(self.effects.get(change, 0.0) for change in candidate.changes)
        both = itertools.permutations(candidate.changes, 2) if self.pairs else ()
        return own + sum(self.pairs.get(pair, 0.0) for pair in both)


@dataclass(frozen=True, slots=True)
class AutoConfig:
    """How the sampler works. The defaults were chosen on the benchmark's families, seeds from 1000 on."""

    screen: bool = True
    screen_factor: float = 1.5  # screening trials over the square root of the number of knobs
    screen_trials: int | None = None  # instead of that
    flip_share: float | None = None  # of the knobs, by one screening trial; None: 0.35 for few knobs, 0.22 for many
    spread: bool = True  # screen the whole space once its first round has shown that nothing goes wrong
    additive: bool = True
    pairs: bool = True
    residual: bool = True
    sparse: bool = True  # one relevance per knob; off: all knobs count the same
    noise_width: float = 1.0  # of the prior of the unknown part of the noise, log units of its variance
    boldness: float = 1.5  # the deviation that expected improvement is told, over the model's
    thompson: bool = True  # every other trial follows one function drawn from the posterior; not in small spaces
    leap: bool = True  # a drawn function is climbed from where all its single changes point at once
    explore_every: int = 8  # each so many trials, one far from everything; 0: never
    doubt: bool = True  # when nothing seems worth it, doubt the model before repeating it
    trust_region: bool = True
    culprits: bool = True  # find out which values crash
    failures: bool = True  # model what fails together with what, as losses are
    probe: bool = True  # try values that only ever failed alone
    limits: bool = True  # model losses against their limits
    model_rows: int = 240  # trials that the models look at; more cost time and add little
    fit_rows: int = 160  # trials that relevances are fitted to
    exact_size: int = 2048  # spaces up to this size are searched whole
    cost_weight: float = 0.0  # 1: improvement per second
    min_gain: float = 0.01  # a smaller gain is not worth a search
    min_trials: int = 24  # no stop advice before
    patience: int = 12  # trials that have to go by without a gain before a stop is advised
