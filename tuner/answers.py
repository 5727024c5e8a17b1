"""Answers: what a confirmation says, as values and as JSON. Pure.

Flow: confirm.py has verdicts -> who wins HERE -> Confirmed -> the database, `study show`, the manifest of the engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from storage.records import VerdictRecord
from tuner.errors import UsageError
from tuner.finalists import Finalist
from tuner.stats import Figures, Verdict, VerdictKind, simplest_within_noise


class ConfirmOptions(msgspec.Struct, frozen=True):
    """The question and the budget: what gain matters, how many finalists, and how long it may take."""

    min_gain: float = 0.01
    finalists: int = 3
    builds: int = 4
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.min_gain < 1:
            raise UsageError(f"--min-gain must be at least 0 and below 100 %, not {self.min_gain:.3%}")
        if self.finalists < 1 or self.builds < 2 or self.builds % 2:
            raise UsageError(
                f"--finalists {self.finalists}, --builds {self.builds}",
                hint="at least one finalist, and an even number of builds of each side: one build may be a lucky one",
            )
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise UsageError(f"--confirm-timeout must be positive, not {self.timeout_s:g} s")


@dataclass(frozen=True, slots=True)
class Confirmed:
    """What a confirmation says. `kind` answers for the study; `winner` is set when it is FASTER."""

    kind: VerdictKind
    reason: str
    winner: Finalist | None
    verdicts: tuple[tuple[Finalist, Verdict | None], ...]  # None: dropped before it had one
    figures: Figures | None
    min_gain: float
    n_pairs: int
    spent_s: float

    @property
    def verdict(self) -> Verdict | None:
        """The winner's verdict; without a winner that of the finalist that came closest."""
        found = [verdict for _, verdict in self.verdicts if verdict is not None]
        if self.winner is not None:
            return next(v for v in found if v.candidate_id == self.winner.id)
        return max(found, key=lambda verdict: verdict.speedup, default=None)


def to_json(confirmed: Confirmed) -> dict[str, Any]:
    """A confirmation's answer as plain values."""
    verdict = confirmed.verdict
    return {
        "verdict": confirmed.kind.value,
        "reason": confirmed.reason,
        "min_gain": confirmed.min_gain,
        "winner": None if confirmed.winner is None else confirmed.winner.trial_uid,
        "speedup": None if verdict is None else verdict.speedup,
        "ci_low": None if verdict is None else verdict.ci_low,
        "ci_high": None if verdict is None else finite(verdict.ci_high),
        "confidence": None if verdict is None else verdict.confidence,
        "figures": msgspec.to_builtins(confirmed.figures),
        "n_pairs": confirmed.n_pairs,
        "spent_s": confirmed.spent_s,
    }


def winner_of(
    running: dict[str, Finalist], verdicts: dict[str, Verdict], told: dict[str, Figures], negligible: float
) -> Finalist | None:
    """Of the finalists that are faster beyond doubt the simplest among those within the noise of the best.

    A difference of half the smallest gain that matters (`negligible`, log) makes no winner either.
    A winner has to beat the control as well: the default, rebuilt as often, its best build kept.
    """
    faster = [v for v in verdicts.values() if v.kind is VerdictKind.FASTER and told[v.candidate_id].beats_control]
    if not faster:
        return None
    estimates = [one.estimate(len(running[one.candidate_id].candidate.changes)) for one in faster]
    return running[simplest_within_noise(estimates, negligible).candidate_id]


def answer_of(winner: Finalist | None, verdicts: list[Verdict], n_finalists: int) -> tuple[VerdictKind, str]:
    if winner is not None:
        return VerdictKind.FASTER, f"{winner.candidate} is faster beyond doubt"
    if not verdicts:
        held = "no candidate held up to be compared" if n_finalists else "no candidate looked faster than the default"
        return VerdictKind.NOT_FASTER, held
    if any(verdict.kind is VerdictKind.FASTER for verdict in verdicts):
        return VerdictKind.UNDECIDED, "faster than the default, but not beyond doubt than the best of as many rebuilds"
    if all(verdict.kind is VerdictKind.NOT_FASTER for verdict in verdicts):
        return VerdictKind.NOT_FASTER, "no finalist is faster than the default by what matters"
    return VerdictKind.UNDECIDED, "the budget was too small to tell the finalists from the default"


def verdict_record(finalist: Finalist, verdict: Verdict | None) -> VerdictRecord:
    if verdict is None:
        return VerdictRecord(finalist.trial_uid, "dropped", None, None, None, {"reason": finalist.dropped})
    detail = {"reason": verdict.reason, "n_pairs": verdict.n_pairs, "confidence": verdict.confidence}
    high = finite(verdict.ci_high)
    return VerdictRecord(finalist.trial_uid, verdict.kind.value, verdict.speedup, verdict.ci_low, high, detail)


def finite(value: float) -> float | None:
    return value if value < float("inf") else None
