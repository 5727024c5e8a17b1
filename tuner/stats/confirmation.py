"""Confirmation: fresh process pairs become verdicts, and verdicts say who needs more pairs.

Flow: PairBlocks of all finalists so far -> HERE: `next_step` says who still needs how many pairs -> more
pairs -> ... -> `judge` -> Verdicts -> report and shipping. Pure: the same blocks always give the same answer,
so a confirmation that was killed goes on from its stored pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

import msgspec

from objectives.distributions import student_quantile
from tuner.stats.builds import BuildModel, fit_builds
from tuner.stats.errors import PlanError
from tuner.stats.noise import Level
from tuner.stats.pairs import ConfirmationPlan, PairBlock
from tuner.stats.ranks import hodges_lehmann, rank_standard_error, signed_rank_interval
from tuner.stats.samples import require_alike
from tuner.stats.selection import Estimate
from tuner.stats.sequential import look_levels

_BEHIND = "cannot win any more: a faster finalist is confirmed"


class VerdictKind(StrEnum):
    """The three answers."""

    FASTER = "faster"  # the whole interval is above 1 + min_gain
    NOT_FASTER = "not_faster"  # the whole interval is below 1 + min_gain: not faster by what matters
    UNDECIDED = "undecided"


class Verdict(msgspec.Struct, frozen=True):
    """The answer for one finalist: a speed-up (1.041 is 4.1 % faster) with its interval.

    Bounds are 0 and infinite while there are too few pairs. A speed-up that was found at an early look leans
    upwards by a fraction of its interval; the interval allows for it.
    """

    candidate_id: str
    kind: VerdictKind
    speedup: float
    ci_low: float
    ci_high: float
    n_pairs: int  # pairs that the answer rests on
    confidence: float  # that all intervals of this confirmation hold together, at every look
    standard_error: float  # of the log speed-up, builds included; infinite below five pairs
    reason: str

    def estimate(self, changes: int) -> Estimate:
        """The verdict as a value to choose by (see `simplest_within_noise`).

        Raises: PlanError while there are too few pairs for a standard error.
        """
        return Estimate(self.candidate_id, math.log(self.speedup), self.standard_error, changes)


class Need(msgspec.Struct, frozen=True):
    """A finalist that goes on: take `pairs` more, beginning with pair index `first_pair`."""

    candidate_id: str
    first_pair: int
    pairs: int


class Step(msgspec.Struct, frozen=True):
    """What to do next: nothing if `needs` is empty. `verdicts` are in the finalists' order."""

    needs: tuple[Need, ...]
    verdicts: tuple[Verdict, ...]


def judge(
    blocks: Sequence[PairBlock],
    finalists: Sequence[str],
    plan: ConfirmationPlan | None = None,
    known_builds: Level | None = None,
) -> tuple[Verdict, ...]:
    """A verdict for every finalist from all pairs so far, in the finalists' order.

    The question is put to the *route*: would it be faster by more than `min_gain` if it were built again? The
    interval of the speed-up therefore has two parts, joined in quadrature: the exact signed-rank interval
    over process pairs, and what the luck of so few builds adds. FASTER if its lower bound is above 1 +
    min_gain; so a true gain of exactly `min_gain` errs with (1 - confidence) / 2 over all finalists and looks
    together, and no gain at all errs far less. Each finalist has an equal share of that error (Bonferroni:
    unlike Holm's steps it has intervals that fit the verdicts, and one winner is all that is wanted).
    A verdict, once given at a look, stays. Pairs beyond the last full look wait for the next one.
    Raises: MixedSamplesError; PlanError for no or double finalists, foreign or double pairs.
    Source: see `signed_rank_interval`, `look_levels`, `fit_builds`; quadrature, Zou and Donner (2008),
    Statistics in Medicine 27; pairs of restarted processes and rebuilds, Kalibera and Jones (2013); Dunn
    (1961), JASA 56.
    """
    return _replay(blocks, finalists, plan or ConfirmationPlan(), known_builds).verdicts


def next_step(
    blocks: Sequence[PairBlock],
    finalists: Sequence[str],
    plan: ConfirmationPlan | None = None,
    known_builds: Level | None = None,
) -> Step:
    """Which finalists need how many more pairs; the same rules, arguments and errors as `judge`.

    A finalist leaves when it has a verdict, when all its pairs are spent, or when it cannot win any more: its
    upper bound is below the lower bound of one that is FASTER. Leaving early only ever lowers the error rate.
    """
    return _replay(blocks, finalists, plan or ConfirmationPlan(), known_builds)


def grouped(blocks: Sequence[PairBlock], finalists: Sequence[str]) -> dict[str, list[PairBlock]]:
    """The pairs of each finalist in the order taken.

    Raises: MixedSamplesError; PlanError for no or double finalists, foreign or double pairs.
    """
    require_alike(block.provenance for block in blocks)
    if not finalists or len(set(finalists)) != len(finalists):
        raise PlanError(f"a confirmation needs finalists, each once, not {list(finalists)}")
    by_candidate: dict[str, list[PairBlock]] = {candidate: [] for candidate in finalists}
    for block in sorted(blocks, key=lambda block: block.pair_index):
        if block.candidate_id not in by_candidate:
            raise PlanError(f"a pair belongs to {block.candidate_id!r}, which is no finalist")
        pairs = by_candidate[block.candidate_id]
        if pairs and pairs[-1].pair_index == block.pair_index:
            raise PlanError(f"pair {block.pair_index} of {block.candidate_id!r} is there twice")
        pairs.append(block)
    return by_candidate


def _replay(blocks: Sequence[PairBlock], finalists: Sequence[str], plan: ConfirmationPlan, known: Level | None) -> Step:
    """Go through the looks as they came: what was decided then is not decided again with later data."""
    pairs = grouped(blocks, finalists)
    verdicts = {c: _waiting(c, pairs[c], plan) for c in finalists}
    running = list(finalists)
    for look, tail in zip(plan.looks, look_levels(plan.looks, _share(plan, len(finalists))), strict=True):
        here = [c for c in running if len(pairs[c]) >= look]
        if not here:
            break
        seen = {c: pairs[c][: look if c in running else verdicts[c].n_pairs] for c in finalists if pairs[c]}
        model = fit_builds(seen, known)
        for c in here:
            verdicts[c] = _verdict(c, seen[c], model, tail, plan)
        floor = max((v.ci_low for v in verdicts.values() if v.kind is VerdictKind.FASTER), default=0.0)
        undecided = [c for c in here if verdicts[c].kind is VerdictKind.UNDECIDED]
        behind = [c for c in undecided if verdicts[c].ci_high < floor]
        verdicts |= {c: msgspec.structs.replace(verdicts[c], reason=_BEHIND) for c in behind}
        running = [c for c in running if c not in here or (c in undecided and c not in behind)]
    needs = [_need(c, len(pairs[c]), plan) for c in running if len(pairs[c]) < plan.looks[-1]]
    return Step(tuple(needs), tuple(verdicts[c] for c in finalists))


def _share(plan: ConfirmationPlan, finalists: int) -> float:
    return 0.5 * (1.0 - plan.confidence) / finalists


def _need(candidate: str, taken: int, plan: ConfirmationPlan) -> Need:
    return Need(candidate, taken, next(look for look in plan.looks if look > taken) - taken)


def _waiting(candidate: str, pairs: Sequence[PairBlock], plan: ConfirmationPlan) -> Verdict:
    speedup = math.exp(hodges_lehmann([p.log_ratio for p in pairs])) if pairs else 1.0
    reason = f"{len(pairs)} of the {plan.looks[0]} pairs before the first look"
    return Verdict(
        candidate,
        VerdictKind.UNDECIDED,
        speedup,
        0.0,
        math.inf,
        len(pairs),
        plan.confidence,
        math.inf,
        reason,
    )


def _verdict(
    candidate: str, pairs: Sequence[PairBlock], model: BuildModel, tail: float, plan: ConfirmationPlan
) -> Verdict:
    logs = [pair.log_ratio for pair in pairs]
    spread, degrees = model.spread.sd, float(model.spread.df)
    builds = (len(model.builds_of(candidate)), len(model.builds_of("")))
    per_build = spread * math.sqrt(max(0.0, 1.0 / builds[0] + 1.0 / builds[1] - 2.0 / len(logs)))
    luck = student_quantile(1.0 - tail, degrees) * per_build if degrees and min(builds) > 1 else math.inf
    centre = signed_rank_interval(logs, tail)
    low = math.exp(centre.estimate - math.hypot(centre.estimate - centre.low, luck))
    high = _exp(centre.estimate + math.hypot(centre.high - centre.estimate, luck))
    kind, reason = _answer(low, high, 1.0 + plan.min_gain)
    if kind is VerdictKind.UNDECIDED and not math.isfinite(luck):
        reason = "every side needs pairs from at least two builds"
    error = math.hypot(rank_standard_error(logs), per_build)
    return Verdict(candidate, kind, math.exp(centre.estimate), low, high, len(logs), plan.confidence, error, reason)


def _answer(low: float, high: float, wanted: float) -> tuple[VerdictKind, str]:
    if low > wanted:
        return VerdictKind.FASTER, f"the whole interval is above {wanted - 1:+.2%}"
    if high < wanted:
        return VerdictKind.NOT_FASTER, f"the whole interval is below {wanted - 1:+.2%}"
    return VerdictKind.UNDECIDED, f"the interval contains {wanted - 1:+.2%}"


def _exp(log_gain: float) -> float:
    return math.exp(log_gain) if math.isfinite(log_gain) else math.inf
