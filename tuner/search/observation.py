"""Observations: what an outcome teaches the search, in Optuna's terms.

Flow: Outcome + limits -> HERE -> value and constraints -> the proposer's memory and the projection for dashboards.
A failure is told as COMPLETE with a violated constraint and a finite value: told as FAIL it would teach nothing, and
the sampler would propose it again (measured: two to five times as many wasted proposals).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from objectives.accuracy import Limit, excess
from objectives.knobs import Candidate, KnobSpace
from objectives.outcome import Built, Failed, Measured, Outcome
from tuner.stats import median_log_variance


@dataclass(frozen=True, slots=True)
class Observation:
    """What the search makes large (as a rule throughput, in inferences per second), and constraints.

    At most 0 is feasible; both constraints are always set.

    `variance`: of the measurement error of log throughput, None where it is not known. `number`: the trial's; it sets
    the order in which a search takes what it is told, whatever order it hears it in.
    """

    candidate: Candidate
    value: float
    failure: float
    accuracy: float
    timed: bool = True  # whether `value` was measured, and is not the baseline's
    kind: str | None = None  # of a failure
    variance: float | None = None
    number: int | None = None

    @property
    def constraints(self) -> dict[str, float]:
        # Samplers that model constraints need the same keys on every trial.
        return {"accuracy": self.accuracy, "failure": self.failure}


def observe(
    candidate: Candidate,
    outcome: Outcome,
    limits: tuple[Limit, ...],
    value: float,
    *,
    number: int | None = None,
    between: float = 0.0,
) -> Observation:
    """What `outcome` says about `candidate`; `value` is what the search makes large, with the drift taken out.

    A candidate without one is given the baseline's: a made-up one would distort the sampler's scale.
    `between`: variance of log latency between sessions and builds, which the samples of one session cannot show.
    """
    if isinstance(outcome, Failed):
        return Observation(candidate, value, 1.0, 1.0, timed=False, kind=outcome.kind, number=number)
    # Outputs that nobody asked for break no limit.
    accuracy = -1.0 if outcome.accuracy is None else excess(outcome.accuracy, limits)
    if isinstance(outcome, Built):
        return Observation(candidate, value, -1.0, accuracy, number=number)
    if not isinstance(outcome, Measured):
        return Observation(candidate, value, -1.0, accuracy, timed=False, number=number)
    within = median_log_variance([one.samples_ms for one in outcome.samples.rounds])
    variance = None if within is None else within + between
    return Observation(candidate, value, -1.0, accuracy, variance=variance, number=number)


def distributions(space: KnobSpace) -> dict[str, BaseDistribution]:
    """The space as Optuna knows it: one categorical per knob."""
    return {knob.name: CategoricalDistribution(knob.values) for knob in space.knobs}


def to_optuna(
    space: KnobSpace,
    seen: Observation,
    attributes: dict[str, Any] | None = None,
    system: dict[str, Any] | None = None,
) -> FrozenTrial:
    """A complete Optuna trial with every knob set: a trial that lacks one would shrink the sampler's joint space.

    `system`: attributes that the sampler itself looks for.
    """
    return create_trial(
        state=TrialState.COMPLETE,
        value=seen.value,
        params=space.values(seen.candidate),
        distributions=distributions(space),
        user_attrs=attributes or {},
        system_attrs=system or {},
        constraints=seen.constraints,
    )
