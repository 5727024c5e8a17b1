"""Minimize: drop the changes that do not contribute, one at a time.

Flow: a confirmed winner -> each of its changes is taken back HERE, alone -> the shorter candidates are evaluated like
any other trial and confirmed beside the winner -> the simplest within the noise goes on, until none is left that does.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from objectives.knobs import Candidate
from objectives.outcome import Measured
from tuner.answers import Confirmed, ConfirmOptions
from tuner.confirm import Confirmation
from tuner.loop import StudyLoop
from tuner.results import is_feasible
from tuner.spec import StudySpec

SOURCE = "ablation"  # of trials that are proposed here
PURPOSE = "minimize"  # of their confirmations


def minimize(
    loop: StudyLoop, confirmation: Confirmation, spec: StudySpec, start: Confirmed, options: ConfirmOptions
) -> Confirmed:
    """The confirmation of the simplest candidate that is as fast as the winner, or `start` if none is simpler.

    Raises: as `Confirmation.run`.
    """
    answer = start
    while answer.winner is not None and len(answer.winner.candidate.changes) > 1:
        shorter = [loop.evaluate(candidate, SOURCE) for candidate in without_one(answer.winner.candidate)]
        rivals = [trial for trial in shorter if is_feasible(trial, spec.judging.limits)]
        if not rivals:
            return answer
        winner = loop.trial(answer.winner.trial_uid)
        baseline = loop.summary.baseline
        assert baseline is not None, "a winner was confirmed against it"
        assert isinstance(winner.outcome, Measured), "a winner was measured"
        wide = msgspec.structs.replace(options, finalists=len(rivals) + 1)
        found = confirmation.run(baseline, [winner, *rivals], wide, PURPOSE)
        if found.winner is None or found.winner.trial_uid == answer.winner.trial_uid:
            return answer
        answer = found
    return answer


def without_one(candidate: Candidate) -> Iterator[Candidate]:
    """Every candidate that takes back one change."""
    for index in range(len(candidate.changes)):
        yield Candidate(candidate.changes[:index] + candidate.changes[index + 1 :])
