"""The proof of the verdicts: how often they are wrong, what they can see, and what they cost, on simulated clocks.

Everything is decided by the public functions of `tuner.stats`, as in the product; only the clock is simulated. Seeds
are fixed, so every run prints the same table.

    python benchmarks/verdict.py [--quick] [-o benchmarks/results/verdict.txt]

A round is one timed stretch of inferences, a pair is a restarted baseline process and a restarted finalist process
timed in four rounds A B B A: one block. Its log ratio is (A1 + A2 - B1 - B2) / 2 of log latencies. "Noise of x %" is
the standard deviation of a single round; rounds alone (no load, no build level) give the pair's log ratio the same x %.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from tuner.stats import (
    REPRODUCIBLE,
    ConfirmationPlan,
    Estimate,
    Level,
    PairBlock,
    Provenance,
    Samples,
    Side,
    Timing,
    Verdict,
    VerdictKind,
    choose_finalists,
    figures,
    fit_builds,
    fit_drift,
    grouped,
    interleaved_log_ratio,
    interleaved_order,
    is_hopeless,
    next_step,
    summarize,
)

SIMULATED = Provenance("simulated", "simulated", "simulated")
START_S, ROUND_S = 1.0, 0.25  # what a process start and a round are taken to cost, for the time column


@dataclass(frozen=True)
class Clock:
    """What timing does to the truth. Standard deviations of log latency per round, process and build."""

    name: str
    run: float
    load: float = 0.0
    build: float = 0.0
    heavy: bool = False  # Student's t with 2 degrees of freedom, and one round in 50 stalls by up to half
    drift: float = 0.0  # the machine slows by this over 800 rounds, on top of a random walk of a tenth of `run`
    modes: float = 0.0  # a second clock state, slower by this, entered and left every ten rounds or so


AA_CLOCKS = (
    Clock("gaussian 0.2 %", 0.002),
    Clock("gaussian 1 %", 0.01),
    Clock("gaussian 5 %", 0.05),
    Clock("heavy tails 1 %", 0.01, heavy=True),
    Clock("drifting 1 %", 0.01, drift=0.10),
    Clock("two clock states", 0.005, modes=0.08),
    Clock("builds 1 %", 0.01, build=0.01),
)


@dataclass
class Machine:
    """A simulated machine with its builds; `gains` are the finalists' true speed-ups minus 1, by name."""

    clock: Clock
    gains: dict[str, float]
    builds: int
    rng: np.random.Generator

    def __post_init__(self) -> None:
        shape = (len(self.gains) + 1, self.builds)
        self.luck = dict(zip(["", *self.gains], self.rng.normal(0.0, self.clock.build, shape), strict=True))
        self.rounds, self.walk, self.slow = 0, 0.0, False
        self.singles: dict[str, float] = {}  # the first round of each, for the rule of single measurements

    def pair(self, name: str, index: int, plan: ConfirmationPlan) -> PairBlock:
        """Restart both sides, time them interleaved, take the log ratio."""
        build, baseline_build = plan.builds_of(index)
        loads = self.rng.normal(0.0, self.clock.load, 2)
        levels = {
            Side.BASELINE: loads[0] - self.luck[""][baseline_build],
            Side.CANDIDATE: loads[1] - self.luck[name][build] - math.log1p(self.gains[name]),
        }
        order = interleaved_order(index)
        latencies = np.exp([levels[side] for side in order] + self._noise(len(order)))
        for side, latency in zip(order, latencies, strict=True):
            self.singles.setdefault("" if side == Side.BASELINE else name, float(latency))
        ratio = interleaved_log_ratio(order, latencies.tolist())
        return PairBlock(name, build, baseline_build, index, ratio, SIMULATED)

    def _noise(self, n: int) -> np.ndarray:
        clock, rng = self.clock, self.rng
        noise = clock.run * (rng.standard_t(2, n) if clock.heavy else rng.standard_normal(n))
        if clock.heavy:
            noise += np.where(rng.random(n) < 0.02, rng.uniform(0.0, 0.5, n), 0.0)
        if clock.drift:
            steps = self.walk + np.cumsum(rng.normal(0.0, 0.1 * clock.run, n))
            noise += steps + math.log1p(clock.drift) * (self.rounds + np.arange(n)) / 800
            self.walk = float(steps[-1])
        if clock.modes:
            slow = (np.cumsum(rng.random(n) < 0.1) + self.slow) % 2
            noise += math.log1p(clock.modes) * slow
            self.slow = bool(slow[-1])
        self.rounds += n
        return noise


def confirm(
    machine: Machine, plan: ConfirmationPlan, known: Level | None = None
) -> tuple[tuple[Verdict, ...], list[PairBlock]]:
    """The product's loop: take the pairs that `next_step` asks for until it asks for none."""
    blocks: list[PairBlock] = []
    while (step := next_step(blocks, list(machine.gains), plan, known)).needs:
        spans = {need.candidate_id: range(need.first_pair, need.first_pair + need.pairs) for need in step.needs}
        turns = sorted((index, name) for name, span in spans.items() for index in span)
        blocks += [machine.pair(name, index, plan) for index, name in turns]
    return step.verdicts, blocks


def with_processes(clock: Clock, rng: np.random.Generator) -> Clock:
    """The clock with a load level of 0.5-2 % and, if it has none, a build level of 0-0.5 %."""
    load, build = float(rng.uniform(0.005, 0.02)), float(rng.uniform(0.0, 0.005))
    return replace(clock, load=load, build=clock.build or build)


def same_speed(repeats: int) -> Iterator[str]:
    """(a) Five finalists that are the default: every FASTER is a false one."""
    yield f"(a) A/A: 5 finalists identical to the default, {repeats} confirmations per clock, min gain 1 %"
    yield "    on top of the clock: load level 0.5-2 % per process, build level 0-0.5 % per build (4 builds each)"
    yield f"    {'clock':18}  FASTER  UNDECIDED  pairs  time    smallest single: 'found'  by > 1 %  median claim"
    plan, names = ConfirmationPlan(), [f"twin {i}" for i in range(5)]
    for number, clock in enumerate(AA_CLOCKS):
        rng = np.random.default_rng([1, number])
        false, undecided, pairs, claims = 0, 0, [], []
        for _ in range(repeats):
            machine = Machine(with_processes(clock, rng), dict.fromkeys(names, 0.0), plan.builds, rng)
            verdicts, blocks = confirm(machine, plan)
            false += any(v.kind is VerdictKind.FASTER for v in verdicts)
            undecided += sum(v.kind is VerdictKind.UNDECIDED for v in verdicts)
            pairs.append(len(blocks))
            claims.append(machine.singles[""] / min(machine.singles.values()) - 1.0)
        found, big = np.mean([c > 0 for c in claims]), np.mean([c > plan.min_gain for c in claims])
        yield (
            f"    {clock.name:18}  {false / repeats:6.1%}  {undecided / repeats / 5:9.1%}  {np.mean(pairs):5.0f}"
            f"  {minutes(np.mean(pairs))}  {found:24.0%}  {big:8.0%}  {np.median([c for c in claims if c > 0]):+11.1%}"
            f"   {passed(false <= 0.01 * repeats, 'FASTER <= 1 %')}"
        )


FOUR = ConfirmationPlan()
FRESH = ConfirmationPlan(builds=20, looks=(20, 40))
EIGHT = ConfirmationPlan(builds=8)


@dataclass(frozen=True)
class Question:
    """One line of the power table."""

    gain: float
    min_gain: float
    finalists: int = 1
    others: float = 0.0  # true gain of the other finalists
    clock: Clock = Clock("1 %", 0.01)
    plan: ConfirmationPlan = FOUR
    known: Level | None = None
    says: str = "4 builds"
    wanted: float | None = None


LAYERED = Clock("layers", 0.007, load=0.005, build=0.002)  # a pair's log ratio has 1 % again, builds on top
SAME_BYTES = "same bytes"
QUESTIONS = (
    Question(0.02, 0.01, wanted=0.95),
    Question(0.02, 0.01, finalists=5, wanted=0.95),
    Question(0.02, 0.01, known=REPRODUCIBLE, says=SAME_BYTES, wanted=0.95),
    Question(0.01, 0.005, known=REPRODUCIBLE, says=SAME_BYTES, wanted=0.80),
    Question(0.01, 0.005, plan=FRESH, says="20 builds", wanted=0.80),
    Question(0.01, 0.005, plan=EIGHT, says="8 builds"),
    Question(0.01, 0.005),
    Question(0.01, 0.005, finalists=5, known=REPRODUCIBLE, says=SAME_BYTES),
    Question(0.05, 0.01, finalists=5),
    Question(0.02, 0.01, clock=LAYERED),
    Question(0.02, 0.01, finalists=5, clock=LAYERED, plan=EIGHT, says="8 builds"),
    Question(0.05, 0.01, finalists=5, clock=LAYERED),
    Question(0.01, 0.01, known=REPRODUCIBLE, says=SAME_BYTES),
    Question(0.01, 0.01, clock=LAYERED),
    Question(0.01, 0.01, finalists=5, others=0.01, known=REPRODUCIBLE, says=SAME_BYTES),
    Question(0.01, 0.01, finalists=5, others=0.01, clock=LAYERED),
)


def power(repeats: int) -> Iterator[str]:
    """(b) One finalist has a true gain: how often is it confirmed?"""
    yield f"(b) Power: 1 % noise, at most 40 pairs (blocks) per finalist, {repeats} confirmations per line"
    yield "    rounds: 1 % per round, so 1 % per pair; layers: 0.7 % round and 0.5 % load (1 % per pair), 0.2 % build"
    yield "    builds: same bytes = rebuilds are known to be identical; else their luck is estimated from the pairs"
    yield "    others gain 0 %; in the last four lines all gain the min gain: the error rate, meant to be 2.5 %"
    yield "    gain  min gain  finalists  noise   builds      FASTER  wrong FASTER  its pairs  all pairs  time"
    for number, q in enumerate(QUESTIONS):
        rng = np.random.default_rng([2, number])
        plan = ConfirmationPlan(q.min_gain, q.plan.confidence, q.plan.builds, q.plan.looks)
        gains = {f"finalist {i}": q.others if i else q.gain for i in range(q.finalists)}
        runs = [confirm(Machine(q.clock, gains, plan.builds, rng), plan, q.known) for _ in range(repeats)]
        faster = np.mean([verdicts[0].kind is VerdictKind.FASTER for verdicts, _ in runs])
        none = {name for name, gain in gains.items() if gain <= q.min_gain}
        wrong = np.mean(
            [any(v.kind is VerdictKind.FASTER and v.candidate_id in none for v in verdicts) for verdicts, _ in runs]
        )
        own, total = np.mean([v[0].n_pairs for v, _ in runs]), np.mean([len(blocks) for _, blocks in runs])
        noise = "layers" if q.clock is LAYERED else "rounds"
        mark = passed(faster >= q.wanted, f">= {q.wanted:.0%}") if q.wanted else ""
        yield (
            f"    {q.gain:4.0%}  {q.min_gain:8.1%}  {q.finalists:9}  {noise}  {q.says:10}  {faster:6.1%}  {wrong:12.1%}"
            f"  {own:9.1f}  {total:9.1f}  {minutes(total)}   {mark}"
        )


def drift(repeats: int) -> Iterator[str]:
    """(c) A machine that slows through a study: does the same candidate come out first?"""
    yield f"(c) Drift: 60 trials, baseline re-timed every 5, noise 0.5 % per trial, {repeats} studies per line"
    yield "    the best candidate has 6 %, the others -10 to 4 %; same winner = as on the same machine without drift"
    yield "    (after a jump, trials between it and the next re-timing of the baseline are half corrected)"
    yield "    machine                   no guard  blind division     guard  coefficient"
    shapes: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "slows by 10 %": lambda t: 0.0953 * t,
        "10 % slower from half-time": lambda t: 0.0953 * (t > 0.5),
        "does not drift": lambda t: 0.0 * t,
    }
    for number, (name, shape) in enumerate(shapes.items()):
        rng = np.random.default_rng([3, number])
        same = np.array([_drifting_study(rng, shape) for _ in range(repeats)])
        plain, blind, guard, coefficient = same.mean(axis=0)
        mark = passed(guard >= 0.95, ">= 95 %") if name == "slows by 10 %" else ""
        yield f"    {name:26}{plain:8.1%}  {blind:14.1%}  {guard:8.1%}  {coefficient:11.2f}   {mark}"


def _drifting_study(rng: np.random.Generator, shape: Callable[[np.ndarray], np.ndarray]) -> tuple[float, ...]:
    gains = np.append(rng.uniform(-0.10, 0.04, 59), 0.06)
    rng.shuffle(gains)
    steady = np.exp(-gains + rng.normal(0.0, 0.005, 60))
    baseline_at = np.arange(0, 61, 5) - 0.5
    slow = steady * np.exp(shape(np.arange(60) / 60))
    baseline = np.exp(shape(baseline_at / 60) + rng.normal(0.0, 0.005, baseline_at.size))
    control = [Timing(float(t), float(ms), SIMULATED) for t, ms in zip(baseline_at, baseline, strict=True)]
    model = fit_drift(control)
    guarded = [model.corrected_ms(Timing(float(t), float(ms), SIMULATED)) for t, ms in enumerate(slow)]
    divided = slow / np.interp(np.arange(60), baseline_at, baseline)
    winner = np.argmin(steady)
    return (*(float(np.argmin(v) == winner) for v in (slow, divided, guarded)), model.coefficient)


def early_stop(repeats: int) -> Iterator[str]:
    """(d) A fifth of the candidates is 10 to 40 times slower: what do they cost?"""
    yield f"(d) Early stop: 60 candidates, 12 of them 10-40 times slower, noise 2 % per inference, {repeats} studies"
    yield "    full: 5 warm-up inferences, rounds of 20 inferences until the median's interval is within 0.5 %, 6 to 30"
    yield "    early: the same, but first round and warm-up end after the default's time, and hopeless candidates stop"
    rng = np.random.default_rng(4)
    studies = np.array([_slow_study(rng) for _ in range(repeats)])
    factor, same, stopped, lost = (*studies[:, :3].mean(axis=0), studies[:, 3].sum())
    yield (
        f"    time falls by a factor {factor:.1f} (least {studies[:, 0].min():.1f}), same winner {same:.1%},"
        f" {stopped:.1f} stopped per study, {lost:.0f} of them within 10 % of the best"
        f"   {passed(studies[:, 0].min() >= 3 and same == 1, 'factor >= 3, same winner')}"
    )


def _slow_study(rng: np.random.Generator) -> tuple[float, ...]:
    speeds = np.concatenate((rng.uniform(0.85, 1.3, 48), rng.uniform(10.0, 40.0, 12)))
    rng.shuffle(speeds)
    full_ms = early_ms = stopped = lost = 0.0
    incumbent = Samples(tuple(np.exp(rng.normal(0.0, 0.02, 20)).tolist()), SIMULATED)
    full, early = [], []
    for speed in speeds:
        table = speed * np.exp(rng.normal(0.0, 0.02, (30, 20)) + rng.normal(0.0, 0.005, (30, 1)))
        centre, cost = _rounds(table)
        full.append(centre)
        full_ms += 5.0 * speed + cost
        n = int(np.clip(20.0 / speed, 2, 20))  # the default takes 1 ms, its first round 20 ms
        first = Samples(tuple(table[0, :n].tolist()), SIMULATED)
        warm_ms = speed * max(1, min(5, int(5.0 / speed)))
        if is_hopeless(first, incumbent):
            early.append(math.inf)
            early_ms += warm_ms + float(sum(first.latencies_ms))
            stopped += 1
            lost += speed < 1.1 * speeds.min()
            continue
        early.append(centre)
        early_ms += warm_ms + cost
        if centre < summarize(incumbent.latencies_ms).median:
            incumbent = Samples(tuple(table[0].tolist()), SIMULATED)
    return full_ms / early_ms, float(np.argmin(full) == np.argmin(early)), stopped, lost


def _rounds(table: np.ndarray) -> tuple[float, float]:
    """Rounds until the interval of the median is narrow enough: the median and what it cost, milliseconds."""
    medians = np.median(table, axis=1)
    for n in range(6, len(table) + 1):
        summary = summarize(medians[:n].tolist())
        if summary.relative_half_width < 0.005:
            break
    return summary.median, float(table[:n].sum())


def shipped(repeats: int) -> Iterator[str]:
    """(e) The file that ships, the route, and the control, where builds differ and no route is better."""
    yield f"(e) Build luck: 2 finalists identical to the default, 8 builds each, build level 1 %, {repeats} runs"
    rng, plan, clock = np.random.default_rng(5), EIGHT, Clock("luck", 0.01, build=0.01)
    rows = []
    for _ in range(repeats):
        machine = Machine(clock, {"one": 0.0, "two": 0.0}, plan.builds, rng)
        _, blocks = confirm(machine, plan)
        told = figures(fit_builds(grouped(blocks, list(machine.gains))), "one")
        truth = math.exp(machine.luck["one"][told.shipped_build])
        over = truth / math.exp(machine.luck[""][told.control_build])
        raw = max(np.mean([b.log_ratio for b in blocks if (b.candidate_id, b.build) == ("one", i)]) for i in range(8))
        covered = [f.ci_low <= t <= f.ci_high for f, t in ((told.shipped, truth), (told.over_control, over))]
        false = told.beats_control and over <= 1.0
        rows.append((told.shipped.speedup - truth, math.exp(raw) - truth, *covered, false))
    error, raw_error, file_covered, over_covered, false = np.array(rows, dtype=float).mean(axis=0)
    yield (
        f"    shipped file: claimed minus true gain {error:+.2%} on average"
        f" (best build's plain mean: {raw_error:+.2%}), interval covers {file_covered:.0%}"
    )
    yield f"    over the best default build: interval covers {over_covered:.0%}, falsely beats it {false:.1%}"


def finalists(repeats: int) -> Iterator[str]:
    """(f) What the best of many equals promises, before and after shrinking."""
    rng = np.random.default_rng(6)
    best = []
    for _ in range(repeats):
        gains = rng.normal(0.0, 0.01, 60)
        top = choose_finalists([Estimate(str(i), float(g), 0.01) for i, g in enumerate(gains)], 1)[0]
        best.append((gains.max(), top.log_gain))
    raw, told = np.mean(best, axis=0)
    yield f"(f) Winner's curse: 60 candidates equal to the default, 1 % noise, {repeats} studies"
    yield f"    the best observed promises {raw:+.1%}, the shrunken estimate {told:+.1%}; the truth is +0.0%"


def minutes(pairs: float) -> str:
    """Time of that many pairs at the costs named above."""
    return f"{pairs * (2 * START_S + 4 * ROUND_S) / 60:4.0f} min"


def passed(fact: bool, rule: str) -> str:
    return f"[{'pass' if fact else 'FAIL'}: {rule}]"


def report(quick: bool) -> Iterator[str]:
    """All sections, line by line. A section on a real clock (live sessions, A/A under load) joins this list."""
    begin = time.process_time()
    sections = (
        partial(same_speed, 30 if quick else 500),
        partial(power, 30 if quick else 1000),
        partial(drift, 50 if quick else 500),
        partial(early_stop, 3 if quick else 30),
        partial(shipped, 10 if quick else 200),
        partial(finalists, 20 if quick else 500),
    )
    mode = " (quick)" if quick else ""
    yield f"Verdicts on simulated clocks{mode}; time: {START_S} s per start, {ROUND_S} s per round"
    for section in sections:
        yield ""
        yield from section()
    yield f"\n{time.process_time() - begin:.0f} s of processor time"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the repetitions, under half a minute")
    parser.add_argument("-o", "--output", type=Path, help="write the table to this file as well")
    arguments = parser.parse_args()
    lines = []
    for line in (raw.rstrip() for raw in report(arguments.quick)):
        print(line, flush=True)
        lines.append(line)
    if arguments.output:
        arguments.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
