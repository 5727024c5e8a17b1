"""Budget: one question, is the study done?

Flow: the loop asks HERE before each proposal. The budget belongs to the context, over all its runs.
"""

from __future__ import annotations

from tuner.spec import Budget


def why_done(budget: Budget, n_trials: int, spent_s: float) -> str | None:
    """Why no further trial starts, as a phrase; None while there is budget."""
    if budget.n_trials is not None and n_trials >= budget.n_trials:
        return f"all {budget.n_trials} trials are done"
    if budget.timeout_s is not None and spent_s >= budget.timeout_s:
        return f"the time budget of {budget.timeout_s:g} s is used up"
    return None


def left_s(budget: Budget, n_trials: int, spent_s: float) -> float | None:
    """An estimate of the seconds still to go, from what trials cost so far; None while nothing is known."""
    estimates = []
    if budget.timeout_s is not None:
        estimates.append(max(0.0, budget.timeout_s - spent_s))
    if budget.n_trials is not None and n_trials:
        estimates.append(max(0, budget.n_trials - n_trials) * spent_s / n_trials)
    return min(estimates, default=None)
