"""Rendering: values in, lines or JSON out. Pure but for `emit`.

Flow: commands get values from tuner/api -> HERE -> stdout.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from objectives.accuracy import Limit
from objectives.knobs import KnobSpace
from objectives.outcome import Accuracy, Measured
from objectives.requests import Described
from tuner.api import Best, ContextView, EnvironmentView, StudyView
from tuner.create import Created
from tuner.ledger import Trial
from tuner.results import Summary
from tuner.spec import Budget

NOT_CONFIRMED = "not confirmed: the best of many noisy measurements looks better than it is"


def emit(content: Any) -> None:
    """Print lines, or anything else as JSON."""
    if isinstance(content, list) and all(isinstance(line, str) for line in content):
        for line in content:
            click.echo(line)
    else:
        click.echo(json.dumps(content, indent=2, ensure_ascii=False))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Left-aligned columns, two blanks between; the last column keeps its length."""
    lines = [list(head), *[list(row) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def speed(throughput: float | None) -> str:
    """Inferences per second with four figures."""
    return "-" if throughput is None else f"{throughput:,.4g}/s" if throughput < 1e4 else f"{throughput:,.0f}/s"


def ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}x"


def span(seconds: float) -> str:
    """A duration with the two largest units that matter."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def counts(summary: Summary) -> str:
    """`39 feasible, 12 rejected, 9 failed (5 crashed, 4 build failed)`."""
    kinds = ", ".join(f"{n} {kind.replace('_', ' ')}" for kind, n in summary.failed.most_common())
    failed = f"{summary.n_failed} failed" + (f" ({kinds})" if kinds else "")
    return f"{summary.feasible} feasible, {summary.rejected} rejected, {failed}"


def losses(accuracy: Accuracy, limits: Iterable[Limit]) -> list[str]:
    """For each limit the worst loss over all pairs, `rel_l2 0.00123 <= 0.01 (pair 'zeros')`."""
    lines = []
    for limit in limits:
        worst = accuracy.worst(limit.metric, limit.output)
        if worst is not None:
            lines.append(f"{limit.metric} {worst.number(limit.metric):.3g} <= {limit.limit:g} (pair {worst.pair!r})")
    return lines


def trial_line(trial: Trial, baseline: float | None) -> list[str]:
    """Cells of a trial: number, status, throughput, against the default, candidate, reason."""
    relative = trial.throughput / baseline if trial.throughput and baseline else None
    reason = "" if isinstance(trial.outcome, Measured) else trial.outcome.reason.split("; last output")[0]
    flags = trial.outcome.samples.flags if isinstance(trial.outcome, Measured) else ()
    notes = [f"[{', '.join(flags)}]"] if flags else []
    notes += [f"[started {trial.starts} times]"] if trial.starts > 1 else []
    text = " ".join([str(trial.candidate), *notes, *([f"- {reason}"] if reason else [])])
    return [str(trial.number), trial.status, speed(trial.throughput), ratio(relative), text]


def standing_lines(summary: Summary, limits: Iterable[Limit]) -> list[str]:
    """Default against best, with losses."""
    base, best, limits = summary.baseline, summary.best, list(limits)
    lines = []
    for label, trial in (("default", base), ("best", best)):
        if trial is None or not isinstance(trial.outcome, Measured):
            continue
        lines.append(
            f"  {label:<8}{speed(trial.throughput):>12}  {trial.outcome.samples.median_ms:.4g} ms  "
            f"{'; '.join(losses(trial.outcome.accuracy, limits))}"
        )
    if best is not None and summary.speedup is not None:
        lines.append(f"  speed-up observed: {ratio(summary.speedup)} with {best.candidate} (trial #{best.number})")
    return lines


def created_lines(created: Created, storage: str) -> list[str]:
    spec, model = created.spec, created.model
    shapes = ", ".join(f"{name} {'x'.join(map(str, shape)) or 'scalar'}" for name, shape in spec.shapes.items())
    return [
        f"created study {spec.name!r} in {storage}",
        f"  model   {model.name} ({model.size_bytes / 1e6:.1f} MB), timed with {shapes or 'no inputs'}",
        f"  data    {len(spec.pairs)} pairs: {', '.join(pair.label for pair in spec.pairs)}",
        *[f"  left out pair {label!r}: the model refuses it ({reason})" for label, reason in created.dropped_pairs],
        f"  limits  {', '.join(str(limit) for limit in spec.judging.limits)}",
        f"  space   {created.n_knobs} knobs, {created.n_candidates:,} candidates; budget {budget_words(spec.budget)}",
        f"next: python -m tuner study run {spec.name}",
    ]


def budget_words(budget: Budget) -> str:
    parts = [] if budget.n_trials is None else [f"{budget.n_trials} trials"]
    parts += [] if budget.timeout_s is None else [span(budget.timeout_s)]
    return " or ".join(parts)


def list_lines(studies: Sequence[StudyView]) -> list[str]:
    if not studies:
        return ["no studies yet: python -m tuner study create NAME --model m.onnx"]
    rows = []
    for study in studies:
        last = study.contexts[-1].summary if study.contexts else None
        trials = f"{last.n_trials}/{study.spec.budget.n_trials or '-'}" if last else "0"
        gain = ratio(last.speedup) if last else "-"
        rows.append([study.spec.name, study.model_name, study.spec.backend, trials, gain, study.created_at])
    return table(["study", "model", "backend", "trials", "observed", "created"], rows)


def show_lines(study: StudyView) -> list[str]:
    spec = study.spec
    lines = [
        f"study {spec.name!r}: model {study.model_name} on {spec.backend}, created {study.created_at}",
        f"limits: {', '.join(str(limit) for limit in spec.judging.limits)}; pairs: {len(spec.pairs)}; "
        f"budget: {budget_words(spec.budget)}",
    ]
    for view in study.contexts:
        lines += ["", *_context_lines(view, spec.judging.limits)]
    return lines


def _context_lines(view: ContextView, limits: Sequence[Limit]) -> list[str]:
    record, summary = view.context.record, view.summary
    identity = ", ".join(str(value) for value in record.environment.identity.values())
    space = view.context.space
    lines = [
        f"context {record.number}: {record.environment.backend} {record.environment.backend_version} ({identity})",
        f"  {len(space.knobs)} knobs, {space.size:,} candidates; Optuna study {record.optuna_study!r}",
        f"  {summary.n_trials} trials: {counts(summary)}; {span(summary.spent_s)} spent",
        *standing_lines(summary, limits),
        *([f"  {NOT_CONFIRMED}"] if summary.best is not None else []),
    ]
    base = summary.baseline.throughput if summary.baseline else None
    rows = {trial.number: trial_line(trial, base) for trial in view.trials}
    rows |= {number: [str(number), "unfinished", "-", "-", words] for number, words in view.unfinished}
    head = ["#", "outcome", "throughput", "of default", "candidate"]
    return lines + ["  " + line for line in table(head, [rows[number] for number in sorted(rows)])] if rows else lines


def result_lines(name: str, summary: Summary, limits: Iterable[Limit] = ()) -> list[str]:
    """What stands at the end of a run."""
    lines = [f"study {name!r}: {summary.n_trials} trials: {counts(summary)}"]
    lines += standing_lines(summary, limits)
    if summary.best is not None and summary.best.candidate.is_baseline:
        lines.append("  no candidate was faster than the default")
    elif summary.best is not None:
        lines.append(f"  {NOT_CONFIRMED}")
    return [*lines, f"next: python -m tuner study best {name}"]


def best_lines(best: Best) -> list[str]:
    summary, trial = best.summary, best.summary.best
    if trial is None or not isinstance(trial.outcome, Measured):
        return [f"study {best.study!r} has no feasible candidate yet: python -m tuner study run {best.study}"]
    samples = trial.outcome.samples
    lines = [
        f"best of study {best.study!r}: {trial.candidate} (trial #{trial.number}, {summary.n_trials} trials)",
        *standing_lines(summary, best.limits),
        f"  latency percentiles: p50 {samples.percentile_ms(50):.4g} ms, p90 {samples.percentile_ms(90):.4g} ms, "
        f"p99 {samples.percentile_ms(99):.4g} ms ({len(samples.all_ms)} samples)",
    ]
    if samples.flags:
        lines.append(f"  quality of the timing: {', '.join(samples.flags)}")
    if best.engine is not None:
        lines.append(f"  engine {best.engine}")
    return [*lines, f"  {NOT_CONFIRMED}"]


def knobs_lines(found: Described, space: KnobSpace) -> list[str]:
    rows = [[k.name, k.kind.value, k.default, " ".join(k.values), k.help] for k in space.knobs]
    where = f"{found.environment.backend} {found.environment.backend_version}"
    return [
        f"{where}: {len(space.knobs)} knobs, {space.size:,} candidates",
        *table(["knob", "kind", "default", "values", "what it does"], rows),
    ]


def env_lines(found: Sequence[EnvironmentView]) -> list[str]:
    lines = []
    for view in found:
        if view.environment is None:
            lines += [f"{view.backend}: not usable here: {view.trouble}", f"  hint: {view.hint}"]
            continue
        here = view.environment
        lines.append(f"{view.backend} {here.backend_version}: usable, context fingerprint {here.digest[:12]}")
        lines += _pairs("identity", here.identity) + _pairs("recorded", here.details)
    return lines


def _pairs(title: str, values: Mapping[str, str]) -> list[str]:
    return [f"  {title:<9} {name}: {value}" for name, value in values.items()]
