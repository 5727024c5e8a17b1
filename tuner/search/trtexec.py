"""trtexec: the searches of NVIDIA's trtexec, so that a study can be compared with what it would have done.

`full` lists every candidate, last knob fastest. `fast` tries the default, then every single change, from the last knob
to the first. `mixed` is `fast`, then `full` over all values of the knobs of which a single change was faster than the
default.

Faithful also where trtexec is not clever, unless a switch says otherwise: a change counts as positive however little
faster it was and even if it broke an accuracy limit (only a crash rules it out); phase 2 measures candidates of phase 1
again; it is not capped, though the source declares a cap of ten. The count of positives is of values, not of knobs.

Source: trtexec 11.1 and 11.4 of github.com/NVIDIA/TensorRT, samples/common/sampleTuning.cpp.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from objectives.knobs import BASELINE, Candidate, Knob, KnobSpace
from tuner.search.auto.history import Seen

STRATEGIES = ("full", "fast", "mixed")
TRTEXEC_CAP = 10  # declared in trtexec's header, used nowhere


@dataclass(frozen=True, slots=True)
class Deviations:
    """Where to be better than trtexec. The default is faithful.

    `cap`: at most so many knobs in phase 2, those with the fastest changes. `shuffle`: phase 2 (of `full`: everything)
    in random order, not in lexicographic order. `margin`: by how much, in log throughput, a change has to beat the
    default. `feasible_only`: a change that broke a limit is not positive.
    """

    cap: int | None = None
    shuffle: bool = False
    margin: float = 0.0
    feasible_only: bool = False


def full(knobs: Iterable[Knob], space: KnobSpace) -> Iterator[Candidate]:
    """All combinations of values of `knobs` in listed order, last knob fastest, the others at their defaults."""
    knobs = tuple(knobs)
    names = [knob.name for knob in knobs]
    for values in itertools.product(*[knob.values for knob in knobs]):
        yield space.candidate(dict(zip(names, values, strict=True)))


def fast(space: KnobSpace) -> Iterator[Candidate]:
    """The default, then every single change: last knob first, values in listed order."""
    yield BASELINE
    for knob in reversed(space.knobs):
        for value in knob.values:
            if value != knob.default:
                yield Candidate(((knob.name, value),))


def positives(seen: Mapping[Candidate, Seen], how: Deviations) -> list[tuple[str, float]]:
    """(knob, log throughput) of every single change that beat the default."""
    default = seen.get(BASELINE)
    if default is None or default.log_throughput is None:
        return []
    found = []
    for candidate, one in seen.items():
        if len(candidate.changes) != 1 or one.failed is not None or one.log_throughput is None:
            continue
        if how.feasible_only and one.is_rejected:
            continue
        if one.log_throughput > default.log_throughput + how.margin:
            found.append((candidate.changes[0][0], one.log_throughput))
    return found


def second_phase(space: KnobSpace, seen: Mapping[Candidate, Seen], how: Deviations, seed: int) -> Iterator[Candidate]:
    """Phase 2 of `mixed`: nothing unless more than one value was positive."""
    found = positives(seen, how)
    if len(found) < 2:
        return iter(())
    best = {name: max(speed for other, speed in found if other == name) for name, _ in found}
    kept = set(sorted(best, key=lambda name: -best[name])[: how.cap])
    knobs = tuple(knob for knob in space.knobs if knob.name in kept)
    return _shuffled(knobs, space, seed) if how.shuffle else full(knobs, space)


class TrtexecProposer:
    """Proposes in trtexec's order; the same verbs as the other proposers.

    A proposal depends on the history alone: the first of the sequence that is not taken. With `repeats`, which is
    trtexec's way, it is the one that stands at the trial's number, so that phase 2 hands out again what phase 1
    measured. Phase 2 stands on what phase 1 has shown by then; a candidate still at work joins it later.
    """

    def __init__(
        self, space: KnobSpace, strategy: str, seed: int = 0, how: Deviations | None = None, repeats: bool = False
    ) -> None:
        if strategy not in STRATEGIES:
            raise ValueError(f"unknown strategy {strategy!r}, there are {', '.join(STRATEGIES)}")
        self._space = space
        self._strategy = strategy
        self._seed = seed
        self._how = how or Deviations()
        self._repeats = repeats
        self._seen: dict[Candidate, Seen] = {}

    def learn(self, seen: Seen) -> None:
        """Take a finished trial into account; the first measurement of a candidate counts."""
        self._seen.setdefault(seen.candidate, seen)

    def propose(self, number: int, tried: Collection[str], pending: Iterable[Candidate] = ()) -> Candidate | None:
        """The next candidate, None at the end of the sequence."""
        if self._repeats:
            return next(itertools.islice(self._sequence(), number, None), None)
        taken = {*tried, *(candidate.digest for candidate in pending)}
        return next((candidate for candidate in self._sequence() if candidate.digest not in taken), None)

    def _sequence(self) -> Iterator[Candidate]:
        knobs = self._space.knobs
        if self._strategy == "full":
            yield from _shuffled(knobs, self._space, self._seed) if self._how.shuffle else full(knobs, self._space)
            return
        yield from fast(self._space)
        if self._strategy == "mixed":
            yield from second_phase(self._space, self._seen, self._how, self._seed)


def count(space: KnobSpace, strategy: str) -> int:
    """Number of candidates of `full` or `fast`, which are known beforehand."""
    if strategy == "fast":
        return 1 + sum(len(knob.values) - 1 for knob in space.knobs)
    return space.size


def _shuffled(knobs: tuple[Knob, ...], space: KnobSpace, seed: int) -> Iterator[Candidate]:
    """Combinations in random order, each once; drawn, not listed, so that any number of knobs will do."""
    size = math.prod(len(knob.values) for knob in knobs)
    chance, drawn = random.Random(seed), set[int]()
    while len(drawn) < size:
        number = chance.randrange(size)
        if number in drawn:
            continue
        drawn.add(number)
        values = {}
        for knob in reversed(knobs):
            number, code = divmod(number, len(knob.values))
            values[knob.name] = knob.values[code]
        yield space.candidate(values)
