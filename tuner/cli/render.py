"""Rendering: values in, lines or JSON out. Pure but for `emit`.

Flow: commands get values from tuner/api -> HERE -> stdout.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click

from objectives.accuracy import PROGRAM, Limit
from objectives.conditions import in_words
from objectives.devices import short
from objectives.knobs import KnobSpace
from objectives.outcome import Accuracy, Built, Failed, Measured, Rejected, Samples
from objectives.requests import Described
from tuner.answers import Confirmed
from tuner.controls import Standard
from tuner.create import Created
from tuner.ledger import Trial
from tuner.objective import Objective, cost_of
from tuner.results import Summary
from tuner.spec import Budget, StudySpec
from tuner.stats import detectable_gain
from tuner.views import Best, ContextView, EnvironmentView, StudyView

NOT_CONFIRMED = "not confirmed: the best of many noisy measurements looks better than it is"
_OF_DEVICE = ("throttled", "other_process")  # beginnings of flags
_PAIRS_ASSUMED, _FINALISTS_ASSUMED = 28, 3  # of a confirmation as it is by default, when its power is foretold
_REASON_CHARS = 400  # of a failure in a table; `--json` has all of it


def emit(content: Any) -> None:
    """Print lines, or anything else as JSON."""
    if isinstance(content, list) and content and all(isinstance(line, str) for line in content):
        for line in content:
            click.echo(line)
    else:
        click.echo(json.dumps(content, indent=2, ensure_ascii=False))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Left-aligned columns, two blanks between; the last column keeps its length."""
    lines = [list(head), *[list(row) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


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
            where = "" if worst.pair == PROGRAM else f" (pair {worst.pair!r})"
            lines.append(f"{limit.metric} {worst.number(limit.metric):.3g} <= {limit.limit:g}{where}")
    return lines


def figure(trial: Trial, summary: Summary) -> str:
    """What a trial reached, as it was measured: `1,234/s`, `5.1 MB`, `3.2 s`."""
    cost = cost_of(trial.outcome, summary.objective)
    return "-" if cost is None else summary.objective.words(cost)


def trial_line(trial: Trial, summary: Summary) -> list[str]:
    """Cells of a trial: number, status, figure, gain over the default (drift taken out), candidate and reason."""
    reason = _one_line(trial.outcome.reason) if isinstance(trial.outcome, Failed | Rejected) else ""
    flags = trial.outcome.samples.flags if isinstance(trial.outcome, Measured) else ()
    notes = [f"[{', '.join(map(in_words, flags))}]"] if flags else []
    notes += [f"[started {trial.starts} times]"] if trial.starts > 1 else []
    text = " ".join([str(trial.candidate), *notes, *([f"- {reason}"] if reason else [])])
    return [str(trial.number), trial.status, figure(trial, summary), ratio(summary.ratio(trial)), text]


def _one_line(reason: str) -> str:
    """A reason in a table: without the program's last output, on one line, its beginning and its end if it is long."""
    words = " ".join(reason.split("; last output")[0].split())
    return words if len(words) <= _REASON_CHARS else f"{words[:80]} ... {words[-(_REASON_CHARS - 85) :]}"


def verdict_line(verdict: Mapping[str, Any]) -> str:
    """`FASTER: 1.041x [1.029, 1.052] ...`: the answer of a confirmation in one line."""
    words = str(verdict["verdict"]).upper().replace("_", " ")
    interval = ""
    if verdict["speedup"] is not None:
        high = "..." if verdict["ci_high"] is None else f"{verdict['ci_high']:.3f}"
        interval = f" {verdict['speedup']:.3f}x [{verdict['ci_low']:.3f}, {high}] at {verdict['confidence']:.0%},"
    return f"{words}:{interval} {verdict['n_pairs']} process pairs; {verdict['reason']}"


def figure_lines(verdict: Mapping[str, Any]) -> list[str]:
    """What may be said of the shipped file, of the route when rebuilt, and of the default rebuilt as often."""
    figures = verdict.get("figures")
    if not figures:
        return []
    names = {
        "shipped": "this engine file, against the default rebuilt",
        "route": "the candidate when it is rebuilt, against the default rebuilt",
        "control": "the best of as many builds of the default, against the default rebuilt",
    }
    return [
        f"    {figures[key]['speedup']:.3f}x [{figures[key]['ci_low']:.3f}, {figures[key]['ci_high']:.3f}]  {words}"
        for key, words in names.items()
    ]


def confirmed_lines(confirmed: Confirmed) -> list[str]:
    """Each finalist of a confirmation with its own verdict."""
    rows = []
    for finalist, verdict in confirmed.verdicts:
        if verdict is None:
            rows.append([f"#{finalist.number}", "dropped", "-", "-", f"{finalist.candidate} - {finalist.dropped}"])
            continue
        low, high = f"{verdict.ci_low:.3f}", f"{verdict.ci_high:.3f}"
        word = verdict.kind.value.replace("_", " ")
        interval = f"{verdict.speedup:.3f}x [{low}, {high}]"
        rows.append([f"#{finalist.number}", word, interval, str(verdict.n_pairs), str(finalist.candidate)])
    if not rows:
        return ["no candidate looked faster than the default: nothing to confirm"]
    return table(["trial", "verdict", "speed-up", "pairs", "candidate"], rows)


def machine_lines(view: ContextView) -> list[str]:
    """Noise floor and drift of a context."""
    lines = []
    if view.noise is not None:
        levels = ", ".join(
            f"{name} {level.sd:.2%}"
            for name, level in (("run", view.noise.run), ("load", view.noise.load), ("build", view.noise.build))
        )
        gain = detectable_gain(view.noise, _PAIRS_ASSUMED, finalists=_FINALISTS_ASSUMED)
        lines.append(
            f"  noise floor: {levels}; with {_PAIRS_ASSUMED} pairs a confirmation sees a gain of {gain:.1%} or more"
        )
    return lines + _drift_lines(view.summary.standard) + device_lines(view.trials)


def device_lines(trials: Sequence[Trial]) -> list[str]:
    """How a GPU was while trials were timed, and how many of them were disturbed; nothing where nobody watched one."""
    samples = [trial.outcome.samples for trial in trials if isinstance(trial.outcome, Measured)]
    watched = [one for one in samples if "sm_clock_mhz" in one.conditions]
    if not watched:
        return []
    parts = []
    for name, words in (("sm_clock_mhz", "{} MHz"), ("temperature_c", "{} C"), ("power_w", "{} W")):
        values = [one.conditions[name] for one in watched if name in one.conditions]
        if values:
            low, high = f"{min(values):.0f}", f"{max(values):.0f}"
            parts.append(words.format(low if low == high else f"{low} to {high}"))
    disturbed = Counter(in_words(flag) for one in watched for flag in one.flags if flag.startswith(_OF_DEVICE))
    parts += [f"{words} in {count} of {len(watched)}" for words, count in disturbed.most_common()]
    return [f"  device while timing: {', '.join(parts)}"]


def _drift_lines(standard: Standard | None) -> list[str]:
    """How much the speed of each device moved, and how they differ."""
    lines: list[str] = []
    if standard is None:
        return lines
    for device, state in standard.devices.items():
        where, level = "", ""
        if len(standard.devices) > 1:
            where = f" of device {short(device)}"
            share = math.expm1(state.level)
            words = f"{abs(share):.1%} {'slower' if share > 0 else 'faster'} than {short(standard.home)}"
            level = "" if device == standard.home else f"; {words}, taken out"
        if state.n_controls:
            lines.append(
                f"  drift{where}: the machine's speed moved by {state.model.range:.1%} over {state.n_controls} "
                f"re-timings of the default (share believed: {state.model.coefficient:.0%}){level}"
            )
    return lines


def _on_devices(trials: Sequence[Trial]) -> dict[str, str]:
    """Devices of a context by their short names, when there are several; else nothing."""
    found = dict.fromkeys(trial.device for trial in trials)
    return {one: short(one) for one in found} if len(found) > 1 else {}


def standing_lines(summary: Summary, limits: Iterable[Limit], chosen: Trial | None) -> list[str]:
    """Default against the chosen trial, with losses."""
    limits = list(limits)
    lines = []
    for label, trial in (("default", summary.baseline), ("best", chosen)):
        if trial is None or not isinstance(trial.outcome, Measured | Built):
            continue
        latency = f"{trial.outcome.samples.median_ms:.4g} ms  " if isinstance(trial.outcome, Measured) else ""
        checked = losses(trial.outcome.accuracy, limits) if trial.outcome.accuracy else ["outputs not checked"]
        lines.append(f"  {label:<8}{figure(trial, summary):>12}  {latency}{'; '.join(checked)}")
    observed = None if chosen is None else summary.ratio(chosen)
    if chosen is not None and observed is not None:
        lines.append(f"  observed in the search: {ratio(observed)} with {chosen.candidate} (trial #{chosen.number})")
    return lines


def created_lines(created: Created, storage: str) -> list[str]:
    spec, model = created.spec, created.model
    shapes = ", ".join(f"{name} {'x'.join(map(str, shape)) or 'scalar'}" for name, shape in spec.shapes.items())
    return [
        f"created study {spec.name!r} in {storage}",
        f"  program {' '.join(model.files)}, has run once as it is by default"
        if spec.measures_itself
        else f"  model   {model.name} ({model.size_bytes / 1e6:.1f} MB), timed with {shapes or 'no inputs'}",
        f"  data    {data_words(spec)}",
        *[f"  left out pair {label!r}: the model refuses it ({reason})" for label, reason in created.dropped_pairs],
        f"  limits  {limit_words(spec.judging.limits)}",
        f"  space   {created.n_knobs} knobs, {created.n_candidates:,} candidates; budget {budget_words(spec.budget)}",
        f"next: python -m tuner study run {spec.name}",
    ]


def limit_words(limits: Iterable[Limit]) -> str:
    return ", ".join(map(str, limits)) or "none: nothing is judged"


def data_words(spec: StudySpec) -> str:
    if spec.measures_itself:
        return "the program's own, and its own stopwatch"
    return f"{len(spec.pairs)} pairs: {', '.join(pair.label for pair in spec.pairs)}"


def budget_words(budget: Budget) -> str:
    parts = [] if budget.n_trials is None else [f"{budget.n_trials} trials"]
    parts += [] if budget.timeout_s is None else [span(budget.timeout_s)]
    return " or ".join(parts)


def list_lines(studies: Sequence[StudyView]) -> list[str]:
    if not studies:
        return ["no studies yet: python -m tuner study create NAME --model m.onnx"]
    rows = []
    for study in studies:
        view = study.latest
        trials = f"{view.summary.n_trials}/{study.spec.budget.n_trials or '-'}" if view else "0"
        gain = ratio(view.summary.speedup) if view else "-"
        answer = verdict_line(view.verdict).split(" at ")[0] if view and view.verdict else "-"
        rows.append([study.spec.name, study.model_name, study.spec.backend, trials, gain, study.created_at, answer])
    return table(["study", "model", "backend", "trials", "observed", "created", "verdict"], rows)


def show_lines(study: StudyView, lineage: Callable[[ContextView], list[str]] = lambda view: []) -> list[str]:
    """A study with every context; `lineage` says where a context comes from."""
    spec = study.spec
    lines = [
        f"study {spec.name!r}: model {study.model_name} on {spec.backend}, created {study.created_at}",
        f"limits: {limit_words(spec.judging.limits)}; pairs: {len(spec.pairs) or 'its own'}; "
        f"budget: {budget_words(spec.budget)}",
    ]
    for view in study.contexts:
        first, *rest = _context_lines(view, view.limits, spec.objective)
        lines += ["", first, *lineage(view), *rest]
    return lines


def _chosen(view: ContextView) -> Trial | None:
    """The confirmed winner, else the best that the search saw."""
    winner = view.verdict["winner"] if view.verdict else None
    return next((trial for trial in view.trials if trial.uid == winner), view.summary.best)


def _context_lines(view: ContextView, limits: Sequence[Limit], objective: Objective) -> list[str]:
    record, summary = view.context.record, view.summary
    identity = ", ".join(str(value) for value in record.environment.identity.values())
    space = view.context.space
    lines = [
        f"context {record.number}: {record.environment.backend} {record.environment.backend_version} ({identity})",
        f"  {len(space.knobs)} knobs, {space.size:,} candidates; Optuna study {record.optuna_study!r}",
        f"  {summary.n_trials} trials: {counts(summary)}; {span(summary.spent_s)} spent",
        *machine_lines(view),
        *standing_lines(summary, limits, _chosen(view)),
        *([f"  {verdict_line(view.verdict)}"] if view.verdict else []),
        *([f"  {NOT_CONFIRMED}"] if summary.best is not None and not view.verdict and objective.is_timed else []),
    ]
    rows = {trial.number: trial_line(trial, summary) for trial in view.trials}
    rows |= {number: [str(number), "unfinished", "-", "-", words] for number, words in view.unfinished}
    what = "throughput" if objective.is_timed else objective.value
    head = ["#", "outcome", what, "gain", "candidate"]
    if devices := _on_devices(view.trials):
        on = {trial.number: devices[trial.device] for trial in view.trials}
        rows = {number: [*row[:4], on.get(number, "-"), *row[4:]] for number, row in rows.items()}
        head = [*head[:4], "device", *head[4:]]
    return lines + ["  " + line for line in table(head, [rows[number] for number in sorted(rows)])] if rows else lines


def best_lines(best: Best) -> list[str]:
    """What a study has to show: the default, the best, the verdict, the engine file."""
    summary, trial = best.summary, best.trial
    head = f"study {best.study!r}: {summary.n_trials} trials: {counts(summary)}"
    if trial is None or not isinstance(trial.outcome, Measured | Built):
        return [head, f"  no feasible candidate yet: python -m tuner study run {best.study}"]
    lines = [head, *standing_lines(summary, best.limits, trial)]
    lines += [_latency_line(trial.outcome.samples)] if isinstance(trial.outcome, Measured) else []
    if best.engine is not None:
        lines.append(f"  engine {best.engine}")
    if isinstance(trial.outcome, Built):
        return lines
    if best.verdict:
        return [*lines, f"  {verdict_line(best.verdict)}", *figure_lines(best.verdict)]
    return [*lines, f"  {NOT_CONFIRMED}", f"next: python -m tuner study confirm {best.study}"]


def _latency_line(samples: Samples) -> str:
    return (
        f"  latency: p50 {samples.percentile_ms(50):.4g} ms, p90 {samples.percentile_ms(90):.4g} ms, "
        f"p99 {samples.percentile_ms(99):.4g} ms ({len(samples.all_ms)} samples"
        f"{', ' + ', '.join(map(in_words, samples.flags)) if samples.flags else ''})"
    )


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
        use = f"builds only: {view.cannot_run}" if view.cannot_run else "usable"
        lines.append(f"{view.backend} {here.backend_version}: {use}; context fingerprint {here.digest[:12]}")
        lines += _pairs("identity", here.identity) + _pairs("recorded", here.details)
        lines += [f"  device    {one.name}: {one.model} ({short(one.key)})" for one in view.devices]
        lines += [f"  option    {one.name}={one.metavar}: {one.help}" for one in view.options]
    return lines


def _pairs(title: str, values: Mapping[str, str]) -> list[str]:
    return [f"  {title:<9} {name}: {value}" for name, value in values.items()]
