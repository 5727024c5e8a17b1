"""Proposer: the next candidate, from everything that a context has seen. The `auto` search.

Flow: the loop tells it each Seen, its own and those of other processes -> propose -> a candidate that was not tried;
advice -> whether to go on. What it proposes is a function of (seed, trial number, what was seen in which order, what is
pending): nothing is kept that could not be computed again, so a resumed study goes on as if it had not stopped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

import numpy as np

from objectives.knobs import Candidate, KnobSpace
from tuner.search.advice import Advice
from tuner.search.auto import screening
from tuner.search.auto.acquisition import climb, listed
from tuner.search.auto.belief import Belief, Hypers, Rows, believe, fit_all, quantities, suspects
from tuner.search.auto.config import AutoConfig, Prior
from tuner.search.auto.history import Codes, Encoding, Seen
from tuner.search.auto.offset import offset_of

_RADII = (3, 6, 12)  # knobs away from the incumbent, in turn, then everywhere
_FEW = 12  # spaces with no more knobs need no trust region
_MANY = 100  # in larger spaces a ball around the incumbent holds too little of what is not known
_POOL = 200  # random candidates of which one is taken
_LIKELY = 0.9  # quantile of the pool's probabilities to be feasible from which on one may be taken
_FEW_ACCUSED = 8
_PROVEN = 0.9  # probability of being a culprit from which on a value is not screened


class AutoProposer:
    """Proposes candidates that were not tried; see the package's text for how."""

    def __init__(
        self, space: KnobSpace, seed: int, config: AutoConfig | None = None, prior: Prior | None = None
    ) -> None:
        self._space = space
        self._seed = seed
        self._config = config or AutoConfig()
        self._prior = prior
        self._encoding = Encoding(space)
        self._seen: list[Seen] = []
        self._fits: tuple[int, Hypers] = (-1, {})
        self._believed: tuple[object, Belief | None] = (None, None)
        self._all: Codes | None = None

    def learn(self, seen: Seen) -> None:
        """Take a finished trial into account."""
        last = self._seen[-1].number if self._seen else None
        self._seen.append(seen)
        if seen.number is not None and last is not None and seen.number < last:
            # Heard late, from another worker: what is proposed depends on the order, so the order is the trials' own.
            self._seen.sort(key=lambda one: -1 if one.number is None else one.number)
            self._fits, self._believed = (-1, {}), (None, None)

    def propose(self, number: int, tried: Collection[str], pending: Iterable[Candidate] = ()) -> Candidate | None:
        """A candidate for trial `number` whose digest is not in `tried`; None when the whole space has been tried.

        `pending`: candidates at work, here or elsewhere; they count as tried.
        """
        pending = tuple(pending)
        taken = set(tried) | {candidate.digest for candidate in pending}
        if len(taken) >= self._space.size:
            return None
        if (first := self._first(taken)) is not None:
            return first
        row = self._screened(number, taken)
        if row is None and (belief := self._belief(pending)) is not None:
            row = self._chosen(belief, number, taken)
        if row is None:
            row = self._anything(number, taken)
        return self._encoding.candidate(row)

    def advice(self, tried: Collection[str], pending: Iterable[Candidate] = ()) -> Advice:
        """Whether the next trials can be expected to gain enough, and the last ones did."""
        config = self._config
        least = max(config.min_trials, screening.length(self._encoding, config) + config.patience)
        if len(tried) >= self._space.size:
            return Advice(False, 0.0, "every candidate has been tried")
        belief = self._belief(tuple(pending)) if len(self._seen) >= least else None
        if belief is None:
            return Advice(True, None, f"too early to say: {len(self._seen)} of {least} trials")
        recent = self._recent_gain(belief)
        if recent >= config.min_gain / 2:
            words = f"the last {config.patience} trials gained {np.expm1(recent):.1%}"
            return Advice(True, None, words)
        plain = replace(belief, promise=replace(belief.promise, boldness=1.0))
        found = self._search(plain, len(tried), set(tried), len(self._encoding.knobs))
        gain = 0.0 if found is None else float(np.exp(found[1]))
        threshold = config.min_gain / 4
        words = f"the most promising candidate gains {gain:.2%} on average, {threshold:.2%} is worth a trial"
        return Advice(gain >= threshold, gain, words)

    def _recent_gain(self, belief: Belief) -> float:
        """What the last trials added to the best posterior mean, in log throughput."""
        earlier = {seen.candidate.digest for seen in self._seen[: -self._config.patience] if seen.is_feasible}
        for row, mean in zip(belief.ranked, belief.means, strict=True):
            if self._encoding.candidate(row).digest in earlier:
                return float(belief.means[0] - mean)
        return np.inf if len(belief.means) else 0.0

    def ranking(self) -> list[tuple[Candidate, float]]:
        """Feasible candidates with their expected log throughput, best first: finalists for a confirmation."""
        belief = self._belief(())
        if belief is None:
            return []
        rows = zip(belief.ranked, belief.means, strict=True)
        return [(self._encoding.candidate(row), float(mean)) for row, mean in rows]

    def _rng(self, *parts: int) -> np.random.Generator:
        text = "/".join(map(str, (self._seed, *parts))).encode()
        return np.random.default_rng(int.from_bytes(hashlib.sha256(text).digest()[:8]))

    def _first(self, taken: Collection[str]) -> Candidate | None:
        if Candidate().digest not in taken:
            return Candidate()
        wanted = () if self._prior is None else self._prior.first
        return next((candidate for candidate in wanted if candidate.digest not in taken), None)

    def _screened(self, number: int, taken: Collection[str]) -> Codes | None:
        encoding, config = self._encoding, self._config
        if number > screening.length(encoding, config):
            return None
        culprits = suspects(encoding, self._seen, config, self._prior)
        banned = np.zeros(encoding.width) if culprits is None else (culprits.single > _PROVEN).astype(float)
        flip = screening.share(encoding, config)
        n_failed = sum(seen.failed is not None for seen in self._seen)
        n_bad = sum(not seen.is_feasible for seen in self._seen)
        if 3 * n_failed > len(self._seen):
            flip /= 2
        if config.screen and config.spread and n_bad == 0 and number > round(1 / flip):
            row = screening.latin(encoding, number, self._seed)
        elif config.screen:
            row = screening.design(encoding, flip, max(number, 1), self._seed, banned)
        else:
            row = screening.scattered(encoding, self._rng(number))
        return None if encoding.candidate(row).digest in taken else row

    def _belief(self, pending: Sequence[Candidate]) -> Belief | None:
        """What is believed now; kept until something else is seen or pending: advice and proposal ask the same."""
        key = (len(self._seen), tuple(candidate.digest for candidate in pending))
        if self._believed[0] != key:
            self._believed = (key, self._believe(pending))
        return self._believed[1]

    def _believe(self, pending: Sequence[Candidate]) -> Belief | None:
        encoding, config = self._encoding, self._config
        if not encoding.knobs:
            return None
        rows = quantities(encoding, self._seen, config)
        hypers = self._hypers(rows)
        return believe(encoding, self._seen, encoding.codes(pending), rows, hypers, config, self._prior)

    def _hypers(self, rows: dict[str, Rows]) -> Hypers:
        """Parameters of the models: fitted to a prefix of what was seen, the same for whoever knows that prefix."""
        n = len(self._seen)
        prefix = n if n < 48 else n - n % (4 if n < 160 else 12)
        if self._fits[0] != prefix:
            known = rows if prefix == n else quantities(self._encoding, self._seen[:prefix], self._config)
            self._fits = (prefix, fit_all(self._encoding, known, self._config, offset_of(self._encoding, self._prior)))
        return self._fits[1]

    def _radius(self, number: int) -> int:
        n = len(self._encoding.knobs)
        if not self._config.trust_region or n <= _FEW:
            return n
        return n if n > _MANY else (*_RADII, n)[number % (len(_RADII) + 1)]

    def _chosen(self, belief: Belief, number: int, taken: Collection[str]) -> Codes | None:
        """Expected improvement and Thompson sampling in turn; something far away now and then, often once all is done.

        When no candidate is expected to gain enough, the model is right and nothing can be done, or it is wrong: so
        the trials that are left go where it could be wrong.
        """
        config, radius = self._config, self._radius(number // 2)
        if (probe := self._probe(belief, number, taken)) is not None:
            return probe
        if config.explore_every and number % config.explore_every == 0:
            return self._far(belief, number, taken)
        odd = number % 2 == 1
        near = belief.promise.around(belief.incumbent)
        near[self._encoding.columns(belief.incumbent)] = -np.inf
        promise = belief.promise
        if config.doubt and near.max() < np.log(config.min_gain / 4):
            if odd:
                return self._far(belief, number, taken)
            promise = promise.doubted() if number % 4 == 0 else promise
        elif config.thompson and odd and self._space.size > config.exact_size:
            promise = promise.sampled(self._rng(number, 3))
            radius = len(self._encoding.knobs) if config.leap else radius
        found = self._search(replace(belief, promise=promise), number, taken, radius)
        return None if found is None else found[0]

    def _probe(self, belief: Belief, number: int, taken: Collection[str]) -> Codes | None:
        """A value that was only ever seen to fail, alone with the default: what fails there is guilty, what runs was in
        bad company. Without it, a value whose first trials failed because of others would never be tried again."""
        culprits = belief.promise.culprits
        if not self._config.probe or culprits is None:
            return None
        accused = np.flatnonzero(culprits.accused)
        if number % (2 if len(accused) <= _FEW_ACCUSED else 4):
            return None
        for column in accused[np.argsort(culprits.single[accused], kind="stable")]:
            row = self._encoding.default.copy()
            row[self._encoding.knob_of[column]] = self._encoding.value_of[column]
            if self._encoding.candidate(row).digest not in taken:
                return row
        return None

    def _far(self, belief: Belief, number: int, taken: Collection[str]) -> Codes | None:
        """Of the random candidates that are most likely to be feasible, the one that shows most combinations of three
        values for the first time: what pays only together is found by nothing else."""
        rng = self._rng(number, 2)
        encoding = self._encoding
        pool = rng.integers(0, encoding.sizes, (_POOL, len(encoding.knobs)))
        shown = encoding.codes(seen.candidate for seen in self._seen if seen.log_throughput is not None)
        feasible = belief.promise.log_feasible(pool)
        score = -screening.multiplicity(encoding, pool, shown)
        score[feasible < np.quantile(feasible, _LIKELY)] = -np.inf
        for index in np.argsort(-score, kind="stable"):
            if encoding.candidate(pool[index]).digest not in taken:
                return np.asarray(pool[index])
        return None

    def _search(self, belief: Belief, number: int, taken: Collection[str], radius: int) -> tuple[Codes, float] | None:
        def is_tried(row: Codes) -> bool:
            return self._encoding.candidate(row).digest in taken

        if self._space.size <= self._config.exact_size:
            return self._best_of_all(belief, is_tried)
        rng = self._rng(number)
        starts = [belief.incumbent, *belief.ranked[1:3], self._shaken(belief.incumbent, rng)]
        if self._config.leap and (belief.promise.drawn is not None or radius > _MANY):
            starts = [self._leapt(belief), *starts[:-1]]
        return climb(belief.promise, starts, belief.incumbent, radius, is_tried)

    def _best_of_all(self, belief: Belief, is_tried: Callable[[Codes], bool]) -> tuple[Codes, float] | None:
        if self._all is None:
            self._all = listed(self._encoding)
        values = belief.promise.at(self._all)
        for index in np.argsort(-values, kind="stable"):
            if not is_tried(self._all[index]):
                return self._all[index], float(values[index])
        return None

    def _leapt(self, belief: Belief) -> Codes:
        """The incumbent with every knob at once at the value that is best by itself, as drawn or on average."""
        promise, row = belief.promise, belief.incumbent
        values = promise.gain.around(row)[0] if promise.drawn is None else promise.around(row)
        bounds = zip(self._encoding.starts, self._encoding.sizes, strict=True)
        return np.array([int(np.argmax(values[start : start + size])) for start, size in bounds], dtype=np.int64)

    def _shaken(self, row: Codes, rng: np.random.Generator) -> Codes:
        """`row` with about three knobs changed."""
        change = rng.random(len(row)) < min(0.5, 3.0 / max(len(row), 1))
        return np.where(change, rng.integers(0, self._encoding.sizes), row)

    def _anything(self, number: int, taken: Collection[str]) -> Codes:
        """A row that was not tried, a random walk away from the default."""
        rng, row = self._rng(number, 1), self._encoding.default.copy()
        while True:  # ends: the space has more candidates than were taken, and every knob can change
            slot = int(rng.integers(len(row)))
            row[slot] = rng.integers(self._encoding.sizes[slot])
            if self._encoding.candidate(row).digest not in taken:
                return row
