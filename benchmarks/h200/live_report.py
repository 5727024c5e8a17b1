"""Report of the live studies: what each found, how sure that is, where the time went, and recorded tables beside it.

Flow: live.py reads the raw lines -> HERE -> Markdown. Nothing is measured here.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / "search")]

import numpy as np  # noqa: E402 - after the path is set
from live_networks import LIVE  # noqa: E402
from strategies import create  # noqa: E402
from tables import FOLDER as TABLES  # noqa: E402
from tables import TableWorld, read_table  # noqa: E402

from objectives.knobs import Candidate  # noqa: E402

Line = dict[str, Any]
LIMIT = 1e-2
_COMPARED = ("auto", "tpe", "fast", "mixed")
_WITHIN = 0.02
_MOST_OVERHEAD = 0.05
_INTERRUPTED = 130  # exit code
_START_S = 0.3  # a trial that takes this much more beside its stages has started a process
_CHARS = 160  # of a failure's words


@dataclass(frozen=True)
class Shares:
    """Where the wall-clock time of a search went, seconds."""

    wall: float
    build: float
    open: float
    check: float
    time: float
    controls: float  # re-timings of the default, noise floor
    waiting: float  # for other processes on the same device
    cut: float  # of a trial that the end of the time interrupted
    startup: float  # of the command: imports, the process that describes what is here
    restarts: float  # of processes after a failure
    n_restarts: int
    rest: float  # proposals, database, results on their way, the end of the command

    @property
    def overhead(self) -> float:
        """Share of the wall-clock time that neither builds, opens, checks nor times."""
        return (self.startup + self.restarts + self.rest) / self.wall if self.wall else 0.0

    @property
    def loop(self) -> float:
        """The same without the start of the command, which a longer search has once as well."""
        after = self.wall - self.startup
        return (self.restarts + self.rest) / after if after > 0 else 0.0


def write_report(folder: Path, studies: Sequence[Sequence[Line]], seeds: int) -> Path:
    """Write `report.md` of all studies; with `seeds`, what other searches find on the tables."""
    lines = ["# Live studies", ""]
    if studies:
        lines += _machine(studies[0][0]) + _results(studies) + _time(studies) + _counts(studies) + _details(studies)
        lines += _against_tables(studies)
    if seeds:
        lines += _replays(studies, seeds)
    target = folder / "report.md"
    target.write_text("\n".join(lines) + "\n")
    return target


def shares(study: Sequence[Line]) -> Shares:
    """Where the time of the searches of a study went."""
    header, trials = study[0], _of(study, "trial")
    wall = sum(step["wall_s"] for step in header["steps"] if step["step"] == "run")
    stages = Counter[str]()
    for trial in trials:
        stages.update(trial["outcome"]["trace"].get("stage_s", {}))
    inside = [trial["spent_s"] - sum(trial["outcome"]["trace"].get("stage_s", {}).values()) for trial in trials]
    usual = median(inside or [0.0])
    # A process that was sound after a failure goes on; one that was not shows in what the next trial takes.
    after = [index > 0 and trials[index - 1]["outcome"]["type"] == "failed" for index in range(len(trials))]
    restarts = [x - usual for x, failed in zip(inside, after, strict=True) if failed and x > usual + _START_S]
    controls = _control_seconds(trials, _of(study, "control"))
    spans = [_s(trial["finished_at"]) - _s(trial["started_at"]) - trial["spent_s"] for trial in trials]
    waiting = sum(span for span in spans if span > _START_S)
    startup = sum(_startup(step) for step in header["steps"] if step["step"] == "run")
    cut = sum(_cut(step, trials) for step in header["steps"] if step["step"] == "run")
    # Several devices work at the same time: their seconds are laid side by side.
    lanes = len({trial["device"] for trial in trials}) or 1
    known = startup + cut + (sum(stages.values()) + controls + sum(restarts) + waiting) / lanes
    return Shares(
        wall=wall,
        build=stages["build"] / lanes,
        open=stages["open"] / lanes,
        check=stages["check"] / lanes,
        time=stages["time"] / lanes,
        controls=controls / lanes,
        waiting=waiting / lanes,
        cut=cut,
        startup=startup,
        restarts=sum(restarts) / lanes,
        n_restarts=len(restarts),
        rest=max(wall - known, 0.0),
    )


def _startup(step: Line) -> float:
    """Seconds until a run says what it is about to search."""
    return next((at for at, line in step["said"] if line.endswith(" candidates")), step["wall_s"])


def _cut(step: Line, trials: Sequence[Line]) -> float:
    """Seconds of a run that was interrupted after the end of its last trial."""
    end = step["begun_at"] + step["wall_s"]
    before = [at for at in (_s(trial["finished_at"]) for trial in trials) if step["begun_at"] < at <= end]
    return end - max(before) if before and step["code"] == _INTERRUPTED else 0.0


def _control_seconds(trials: Sequence[Line], controls: Sequence[Line]) -> float:
    """From the end of the trial before to the end of each re-timing, less what such a gap takes without one."""
    by_device: dict[str, list[tuple[float, float]]] = {}
    for trial in trials:
        by_device.setdefault(trial["device"], []).append((_s(trial["started_at"]), _s(trial["finished_at"])))
    total = 0.0
    for device, spans in by_device.items():
        spans.sort()
        taken = sorted(_s(one["taken_at"]) for one in controls if one["device"] == device)
        gaps = [(before[1], after[0]) for before, after in pairwise(spans)]
        gaps.append((spans[-1][1], math.inf))
        last = [[at for at in taken if low <= at <= high] for low, high in gaps]
        idle = [high - low for (low, high), found in zip(gaps, last, strict=True) if not found and high < math.inf]
        usual = median(idle or [0.0])
        total += sum(max(found[-1] - low - usual, 0.0) for (low, _), found in zip(gaps, last, strict=True) if found)
    return total


# ---- parts of the report


def _machine(header: Line) -> list[str]:
    found = header["context"]["environment"]
    facts = ", ".join(f"{name} {value}" for name, value in found["identity"].items())
    arguments = header["arguments"]
    flags = ("n_trials", "search", "max_loss", "timing_budget", "noise_sessions", "control_every")
    asked = ", ".join(f"{name.replace('_', '-')} {arguments[name]}" for name in flags)
    return [f"{found['backend']} {found['backend_version']} ({facts}); {asked}.", ""]


def _results(studies: Sequence[Sequence[Line]]) -> list[str]:
    rows = []
    for study in studies:
        header, best = study[0], study[0]["best"] or {}
        verdict, baseline = best.get("verdict") or {}, best.get("baseline_cost")
        trial = best.get("best_trial") or {}
        rows.append(
            [
                header["network"],
                _number(baseline, "{:.4g} ms"),
                _number(best.get("speedup_observed"), "{:.3f}x"),
                _verdict(verdict),
                _losses(trial, header["context"]["limits"]),
                " ".join(f"{name}={value}" for name, value in trial.get("candidate", {}).items()) or "default",
            ]
        )
    head = ["network", "default", "best seen", "confirmed, 95 %", "losses of the winner", "candidate"]
    return ["## What was found", "", *_table(head, rows), ""]


def _verdict(verdict: Line) -> str:
    if not verdict:
        return "no confirmation"
    words = str(verdict["verdict"]).upper().replace("_", " ")
    if verdict.get("speedup") is None:
        return words
    return f"{words} {_interval(verdict)} ({verdict['n_pairs']} pairs)"


def _interval(verdict: Line) -> str:
    high = "..." if verdict["ci_high"] is None else f"{verdict['ci_high']:.3f}"
    return f"{verdict['speedup']:.3f}x [{verdict['ci_low']:.3f}, {high}]"


def _losses(trial: Line, limits: Sequence[Line]) -> str:
    found = (trial.get("outcome") or {}).get("accuracy") or {}
    words = []
    for limit in limits:
        losses = [one["losses"].get(limit["metric"]) for one in found.get("losses", ())]
        known = [loss for loss in losses if loss is not None]
        words += [f"{limit['metric']} {max(known):.2g} (limit {limit['limit']:g})"] if known else []
    return "; ".join(words) or "-"


def _time(studies: Sequence[Sequence[Line]]) -> list[str]:
    rows = []
    for study in studies:
        found = shares(study)
        steps = study[0]["steps"]
        walls = {name: sum(x["wall_s"] for x in steps if x["step"] == name) for name in ("create", "confirm")}
        parts = (
            found.build,
            found.open,
            found.check,
            found.time,
            found.controls,
            found.waiting,
            found.cut,
            found.startup,
        )
        parts = (*parts, found.restarts, found.rest)
        of_wall = [f"{part / found.wall:.1%}" if found.wall else "-" for part in parts]
        word = "" if found.overhead <= _MOST_OVERHEAD else " **"
        rows.append(
            [
                study[0]["network"], f"{walls['create']:.1f}", f"{found.wall:.1f}", f"{walls['confirm']:.1f}",
                *of_wall, f"{found.n_restarts}", f"{found.overhead:.1%}{word}",
                f"{found.loop:.1%}",
            ]
        )  # fmt: skip
    head = ["network", "create s", "search s", "confirm s", "build", "open", "check", "time", "controls"]
    head += ["waiting", "cut off", "startup", "restarts", "rest", "n restarts", "overhead", "without startup"]
    return [
        "## Where the time went",
        "",
        "Shares of the search's wall-clock time. `controls`: re-timings of the default and the noise floor; `waiting`: "
        "for other processes on the device; `cut off`: a trial that the end of the time interrupted; `startup`: until "
        "the command has described what is here; `restarts`: of processes, after failures that cost them theirs; "
        "`rest`: proposals, database, the end of the command. Overhead is the last three, ** where it is above 5 %; "
        "`without startup`: restarts and rest in the time after it, which is what a longer search has.",
        "",
        *_table(head, rows),
        "",
    ]


def _counts(studies: Sequence[Sequence[Line]]) -> list[str]:
    rows = []
    for study in studies:
        trials = _of(study, "trial")
        kinds = Counter(trial["outcome"]["type"] for trial in trials)
        failed = Counter(trial["outcome"]["kind"] for trial in trials if trial["outcome"]["type"] == "failed")
        rejected = Counter(
            "wrong output" if trial["status"] == "wrong output" else "inaccurate"
            for trial in trials
            if trial["outcome"]["type"] == "rejected"
        )
        measured = [trial["outcome"] for trial in trials if trial["outcome"]["type"] == "measured"]
        flags = Counter(flag for outcome in measured for flag in outcome["samples"]["flags"])
        rows.append(
            [
                study[0]["network"], str(len(trials)), str(kinds["measured"]), _counter(rejected), _counter(failed),
                _counter(flags), _why_ended(study[0]),
            ]
        )  # fmt: skip
    head = ["network", "trials", "measured", "rejected", "failed", "quality flags", "why the search ended"]
    return ["## Outcomes", "", *_table(head, rows), ""]


def _why_ended(header: Line) -> str:
    said = [line for step in header["steps"] if step["step"] == "run" for _, line in step["said"]]
    ends = [line.removeprefix("done: ") for line in said if line.startswith("done: ")]
    return ends[-1] if ends else "interrupted: its time was up"


def _details(studies: Sequence[Sequence[Line]]) -> list[str]:
    lines = ["## Failures in the library's words", ""]
    for study in studies:
        found = [trial["outcome"] for trial in _of(study, "trial") if trial["outcome"]["type"] == "failed"]
        words = Counter(f"{x['kind']} in {x['stage']}: {_words(x['detail'])}" for x in found)
        lines += [f"- {study[0]['network']}: {times} x {text}" for text, times in words.most_common(6)]
    return [*(lines if len(lines) > 2 else [*lines, "None."]), ""]


# ---- recorded tables


def _words(detail: str) -> str:
    """The beginning of a failure's words, the same wherever its files lay."""
    return " ".join(re.sub(r"\S*/(?=\w+\.onnx)|\S*/onnxruntime_src/", "", detail).split())[:_CHARS]


def _world(name: str) -> TableWorld:
    (path,) = TABLES.glob(f"{name}.jsonl.*")
    return TableWorld(*read_table(path), LIMIT)


def _against_tables(studies: Sequence[Sequence[Line]]) -> list[str]:
    """The confirmed candidate beside the best feasible entry of the network's recorded table, in milliseconds: the
    default's latency, which waits for its host, is another on each day, a fast candidate's is not."""
    rows = []
    for study in studies:
        header = study[0]
        verdict = (header["best"] or {}).get("verdict") or {}
        table = _table_of(header)
        if not table or header["context"]["environment"]["backend"] != "onnxruntime-cuda":
            continue
        world = _world(table)
        best_ms = 1e3 * math.exp(-world.best - world.default)
        found_ms = _winner_ms(study) if verdict.get("winner") else None
        is_there = found_ms is not None and found_ms <= (1 + _WITHIN) * best_ms
        apart = None if found_ms is None else found_ms / best_ms - 1
        rows.append(
            [
                header["network"], f"{best_ms:.4f} ms", f"{1e3 * math.exp(-world.default):.3f} ms",
                _number(found_ms, "{:.4f} ms"), _number(apart, "{:+.1%}"), "yes" if is_there else "NO",
            ]
        )  # fmt: skip
    if not rows:
        return []
    head = ["network", "table's best", "table's default", "winner in its confirmation", "apart", "within 2 %"]
    words = (
        "The table's best is the smallest of single measurements, the winner's figure the median over its process "
        "pairs. Winners may have values that the table lacks."
    )
    return ["## Against the recorded tables", "", words, "", *_table(head, rows), ""]


def _winner_ms(study: Sequence[Line]) -> float | None:
    """Median over process pairs of the candidate's median sample, of the finalist of the last pair."""
    pairs = _of(study, "pair")
    medians = [
        median([ms for one in pair["rounds"] if one["side"] != "baseline" for ms in one["samples_ms"]])
        for pair in pairs
        if pair["finalist"] == pairs[-1]["finalist"]
    ]
    return median(medians) if medians else None


def _table_of(header: Line) -> str:
    """The recorded table of the study's network, which may have been recorded after the study; "" if there is none."""
    network = LIVE.get(header["network"])
    return network.table if network is not None else header["table"]


def _replays(studies: Sequence[Sequence[Line]], seeds: int) -> list[str]:
    """The same number of trials given to other searches on the tables."""
    budgets = {_table_of(study[0]): len(_of(study, "trial")) for study in studies}
    names = [path.name.partition(".")[0] for path in sorted(TABLES.glob("*.jsonl.xz"))]
    rows = []
    for name in names:
        world, budget = _world(name), budgets.get(name, 60)
        for strategy in _COMPARED:
            losses = sorted(replay(world, strategy, budget, seed) for seed in range(seeds))
            within = sum(loss <= _WITHIN for loss in losses) / seeds
            quarter = losses[min(len(losses) - 1, math.ceil(0.75 * len(losses)))]
            rows.append([name, str(budget), strategy, f"{median(losses):.2%}", f"{quarter:.2%}", f"{within:.0%}"])
    head = ["table", "trials", "search", "median shortfall", "75 % quantile", "within 2 %"]
    return [
        "## The same number of trials by other searches",
        "",
        f"Replayed on the recorded tables under rel_l2 <= {LIMIT:g}, {seeds} seeds. Shortfall: how much slower the "
        "fastest feasible candidate that the search measured really is than the table's best. `fast` and `mixed` are "
        "the sweeps of trtexec, which begin with the default as all do; `tpe` is Optuna's.",
        "",
        *_table(head, rows),
        "",
    ]


def replay(world: TableWorld, strategy: str, budget: int, seed: int) -> float:
    """Shortfall of what a search takes for the best, after `budget` trials: 0 is the table's best."""
    search, rng = create(strategy, world.space, seed), np.random.default_rng([seed, budget])
    tried: set[str] = set()
    chosen, fastest = Candidate(()), -math.inf
    for number in range(budget):
        candidate = search.next(number, tried)
        if candidate is None:
            break
        tried.add(candidate.digest)
        result = world.measure(candidate, rng)
        search.tell(candidate, result)
        is_feasible = not result.failed and (result.log_loss or 0.0) <= 0
        if is_feasible and result.log_throughput is not None and result.log_throughput > fastest:
            chosen, fastest = candidate, result.log_throughput
    return -math.expm1(world.truth(chosen) - world.best)


# ---- small things


def _of(study: Sequence[Line], kind: str) -> list[Line]:
    return [line for line in study if line["kind"] == kind]


def _s(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _counter(found: Counter[str]) -> str:
    return ", ".join(f"{times} {word.replace('_', ' ')}" for word, times in found.most_common()) or "0"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *cells)]
