"""Objectives: what a study makes better. Throughput unless the user says otherwise.

Flow: StudySpec.objective -> HERE: the cost of an outcome, less being better -> standard, search, dashboards, lines.
Engine size and build time need no run: a machine that can only build can search for them.
"""

from __future__ import annotations

from enum import StrEnum

from objectives.outcome import Built, Measured, Outcome, Stage

_MB = 1e6
_TINY = 1e-30  # merit of what has no cost while there is no default to borrow one from; databases refuse infinity


class Objective(StrEnum):
    """What candidates are compared by."""

    THROUGHPUT = "throughput"  # inferences per second at the median latency; cost in milliseconds
    ENGINE_SIZE = "engine-size"  # of the built engine, as its backend counts it; cost in bytes
    BUILD_TIME = "build-time"  # wall-clock time of the build, one measurement; cost in seconds

    @property
    def is_timed(self) -> bool:
        """Whether engines are run for it, again and again."""
        return self is Objective.THROUGHPUT

    @property
    def metric(self) -> str:
        """Name and unit of what dashboards show."""
        return _METRICS[self]

    @property
    def direction(self) -> str:
        """Of what dashboards show."""
        return "maximize" if self.is_timed else "minimize"

    def merit(self, cost: float) -> float:
        """What a search makes large."""
        return 1e3 / cost if self.is_timed else 1.0 / cost

    def shown(self, merit: float) -> float:
        """A merit in the unit of `metric`."""
        if self is Objective.ENGINE_SIZE:
            return 1.0 / max(merit, _TINY) / _MB
        return merit if self.is_timed else 1.0 / max(merit, _TINY)

    def merit_of(self, shown: float) -> float:
        """The merit that is shown as `shown`, which must not be 0."""
        if self is Objective.ENGINE_SIZE:
            return 1.0 / (shown * _MB)
        return shown if self.is_timed else 1.0 / shown

    def words(self, cost: float) -> str:
        """A cost for people: what `metric` says, with its unit."""
        if self is Objective.ENGINE_SIZE:
            return f"{cost / _MB:,.4g} MB"
        if self is Objective.BUILD_TIME:
            return f"{cost:,.3g} s"
        throughput = self.merit(cost)
        return f"{throughput:,.4g}/s" if throughput < 9999.5 else f"{throughput:,.0f}/s"


_METRICS = {
    Objective.THROUGHPUT: "throughput (inferences/s)",
    Objective.ENGINE_SIZE: "engine size (MB)",
    Objective.BUILD_TIME: "build time (s)",
}


def cost_of(outcome: Outcome, objective: Objective) -> float | None:
    """Cost of an outcome in the objective's unit; None where it has none: rejected, failed, or not timed."""
    if objective.is_timed:
        return outcome.samples.median_ms if isinstance(outcome, Measured) else None
    if not isinstance(outcome, Built | Measured) or outcome.engine is None:
        return None
    if objective is Objective.ENGINE_SIZE:
        return float(outcome.engine.size_bytes)
    return outcome.trace.stage_s.get(Stage.BUILD)
