"""Early stop: is a candidate so slow that further rounds are a waste?

Flow: the first round of a candidate and the incumbent's samples -> HERE -> the timing stops, or goes on.
A wrong yes costs a good candidate, a wrong no costs some rounds: the test is one-sided, strict, and has a
margin that covers what it cannot see (two sessions of the same bytes differ by a few per cent).
"""

from __future__ import annotations

from objectives.summary import HOPELESS_ALPHA, HOPELESS_MARGIN
from objectives.summary import is_hopeless as objectives_is_hopeless
from tuner.stats.errors import PlanError
from tuner.stats.samples import Samples, require_alike


def is_hopeless(
    candidate: Samples, incumbent: Samples, margin: float = HOPELESS_MARGIN, alpha: float = HOPELESS_ALPHA
) -> bool:
    """True if the candidate is slower than (1 + margin) times the incumbent beyond any doubt.

    The rule is `objectives.summary.is_hopeless`, with the refusal to compare what is not alike.
    Raises: MixedSamplesError; PlanError for a negative margin or an alpha outside (0, 0.5).
    """
    if margin < 0 or not 0.0 < alpha < 0.5:
        raise PlanError(f"a margin of at least 0 and an alpha in (0, 0.5), not {margin} and {alpha}")
    require_alike((candidate.provenance, incumbent.provenance))
    return objectives_is_hopeless(candidate.latencies_ms, incumbent.latencies_ms, margin, alpha)
