"""Programs: studies of what measures itself have no data of ours, and are tried out before they are made.

Flow: create.py, for a model that brings its own samples and losses -> HERE -> the program has run once with every knob
at its default, and every limit is on a loss that it reports. So it is said at once, and not by the first trial.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from objectives.errors import MetricError, ModelError, WorkloadError
from objectives.isolation import Isolation
from objectives.outcome import Built, Failed
from objectives.requests import BuildRequest, Judging
from tuner.errors import UsageError
from tuner.spec import StudyOptions, WorkloadOptions

_NO_LIMIT = "--max-loss none"


def require_programs_own(options: StudyOptions) -> None:
    """Raises: errors for what makes sense only where we see inputs, outputs and engines."""
    own = msgspec.structs.replace(options.workload, seed=0)
    if own != WorkloadOptions():
        given = [name for name in own.__struct_fields__ if getattr(own, name) != getattr(WorkloadOptions(), name)]
        raise WorkloadError(
            f"a program brings its own inputs: {', '.join(given)} cannot be set for it",
            hint="leave those flags out; arguments of the program belong into its description",
        )
    judging = options.judging
    if judging.functions or judging.tolerance != Judging().tolerance:
        raise MetricError(
            "a program reports its own losses: there are no outputs for --metric, --atol or --rtol",
            hint="let the program report the loss, and limit it by its name: --max-loss NAME=LIMIT",
        )
    for limit in judging.limits:
        if limit.output is not None:
            raise MetricError(
                f"the limit {limit} names an output, which a program does not have", hint="--max-loss NAME=LIMIT"
            )
    if not options.objective.is_timed or options.build_only:
        raise UsageError(
            "a program is run and timed: it has no engine whose size or build could be the objective",
            hint="leave --objective and --build-only out, or report what is to be made small as samples_ms",
        )


def try_out(isolation: Isolation, model: Path, options: StudyOptions, scratch: Path) -> None:
    """Run the program once as it is by default. Raises: ModelError in its words, MetricError for its losses."""
    workdir = scratch / "program"
    workdir.mkdir()
    without_limits = msgspec.structs.replace(options.judging, limits=())
    request = BuildRequest(
        options.backend, str(model), {}, (), without_limits, str(workdir), options=dict(options.backend_options)
    )
    tried = isolation.build(request)
    if isinstance(tried, Failed):
        raise ModelError(
            f"with every knob at its default, the program fails: {tried.reason}",
            hint="run it by hand until it prints its JSON line; see docs/command.md",
        )
    assert tried.accuracy is not None, "it was run"
    reported = [name for loss in tried.accuracy.losses for name in loss.losses]
    _require_limits(options.judging, reported)
    if not isinstance(tried, Built):
        raise MetricError(f"the default itself cannot be used: {tried.reason}", hint="look at the program's losses")
    for limit in options.judging.limits:
        worst = tried.accuracy.worst(limit.metric)
        if worst is not None and worst.number(limit.metric) > limit.limit:
            raise MetricError(
                f"the default itself breaks the limit {limit}: its loss is {worst.number(limit.metric):.3g}",
                hint="allow more with --max-loss, or mend the program",
            )


def _require_limits(judging: Judging, reported: list[str]) -> None:
    """What is limited is reported, and what is reported is limited or waived: nothing goes unjudged unnoticed."""
    losses = f"it reports: {', '.join(reported)}" if reported else "it reports no losses"
    for limit in judging.limits:
        if limit.metric not in reported:
            raise MetricError(
                f"the program reports no loss {limit.metric}, on which there is the limit {limit}; {losses}",
                hint=f"--max-loss {reported[0]}=LIMIT"
                if reported
                else f"report one, or {_NO_LIMIT}: nothing is judged",
            )
