"""Confirmed: confirmations with their raw process pairs, as facts.

Flow: gather.py -> HERE, from storage/confirmations.py -> ConfirmationFacts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from storage.confirmations import confirmations_of, pairs_of, verdicts_of
from storage.records import ConfirmationRecord, PairRecord, VerdictRecord
from tuner.answers import ConfirmOptions
from tuner.finalists import Finalist
from tuner.home import Home
from tuner.report.facts import ConfirmationFacts, FinalistFacts, PairFacts, RoundFacts, SpanFacts
from tuner.report.words import moment
from tuner.views import ContextView

_SPANS = {
    "shipped": "the engine file that ships, over the default rebuilt",
    "route": "the candidate when it is rebuilt, over the default rebuilt",
    "control": "the best of as many builds of the default, over the default rebuilt",
}


def confirmations(home: Home, view: ContextView) -> tuple[ConfirmationFacts, ...]:
    """Every confirmation of a context, oldest first."""
    return tuple(_confirmation(home, record) for record in confirmations_of(home.database, view.context.id))


def deciding(found: Sequence[ConfirmationFacts]) -> ConfirmationFacts | None:
    """The latest that is done; without one the one that is running."""
    done = [one for one in found if one.state == "done"]
    return next(iter((done or list(found))[::-1]), None)


def _confirmation(home: Home, record: ConfirmationRecord) -> ConfirmationFacts:
    result = record.result or {}
    pairs = pairs_of(home.database, record.id)
    entrants = [msgspec.convert(dict(one), Finalist) for one in record.finalists][1:]  # the first is the default
    by_trial = {one.trial_uid: one for one in verdicts_of(home.database, record.id)}
    return ConfirmationFacts(
        purpose=record.purpose,
        state=record.state,
        verdict=str(result.get("verdict", "")),
        reason=str(result.get("reason", "")),
        min_gain=msgspec.convert(dict(record.plan), ConfirmOptions).min_gain,
        confidence=result.get("confidence"),
        n_pairs=len(pairs),
        n_builds=len({pair.baseline_build for pair in pairs}),
        spent_s=result.get("spent_s"),
        started_at=moment(record.started_at),
        finalists=tuple(
            _finalist(one, by_trial.get(one.trial_uid), pairs, result.get("winner") == one.trial_uid)
            for one in entrants
        ),
        spans=_spans(result.get("figures")),
    )


def _finalist(
    finalist: Finalist, verdict: VerdictRecord | None, pairs: Sequence[PairRecord], wins: bool
) -> FinalistFacts:
    own = tuple(_pair(pair) for pair in pairs if pair.finalist == finalist.id)
    detail = {} if verdict is None else verdict.detail
    return FinalistFacts(
        trial=finalist.number,
        candidate=str(finalist.candidate),
        changes=dict(finalist.candidate.changes),
        verdict="" if verdict is None else verdict.verdict,
        speedup=None if verdict is None else verdict.speedup,
        low=None if verdict is None else verdict.ci_low,
        high=None if verdict is None else verdict.ci_high,
        n_pairs=int(detail.get("n_pairs", len(own))),
        reason=str(detail.get("reason", finalist.dropped)),
        is_winner=wins,
        pairs=own,
    )


def _pair(pair: PairRecord) -> PairFacts:
    rounds = tuple(RoundFacts(str(one["side"]), float(np.median(one["samples_ms"]))) for one in pair.rounds)
    return PairFacts(pair.pair_index, pair.build, pair.baseline_build, math.exp(pair.log_ratio), rounds)


def _spans(figures: Any) -> tuple[SpanFacts, ...]:
    if not figures:
        return ()
    return tuple(
        SpanFacts(words, figures[key]["speedup"], figures[key]["ci_low"], figures[key]["ci_high"])
        for key, words in _SPANS.items()
    )
