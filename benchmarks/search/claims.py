"""Claims: what is said of the `auto` search, and whether the runs show it. Rows of runs in, lines of text out.

Trials to come within 1 % of the best are compared by their medians over seeds; a run that never did counts as
infinite, and a ratio of two infinite medians is not counted. Errors are bootstrap standard errors over seeds: seeds are
drawn with replacement, the same ones for both sides.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from families import NOTHING_TO_GAIN
from store import Row

_DRAWS = 1000
_MUCH_INFEASIBLE = 0.35
_BEYOND = 1.96  # standard errors: with one alone, every sixth of so many families would fail by chance
Hits = Mapping[str, Mapping[int, float]]  # family -> seed -> trials to within 1 %


@dataclass(frozen=True)
class Claim:
    """One line of the report. `holds` is None where the runs cannot tell."""

    text: str
    shown: str
    holds: bool | None

    def __str__(self) -> str:
        verdict = {True: "PASS", False: "FAIL", None: "not shown"}[self.holds]
        return f"- **{verdict}**: {self.text}. {self.shown}"


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Every claim, in the order of the issue."""
    return [
        _no_worse(rows, "30"),
        _no_worse(rows, "60"),
        _few_trials(rows, "tpe", 0.5),
        _few_trials(rows, "mixed", 0.2),
        _sparse(rows),
        _stops(rows),
        _waste(rows),
        _workers(rows),
    ]


def hits(rows: Sequence[Row], strategy: str) -> Hits:
    """Trials to within 1 %, by family and seed; families with nothing to find are left out."""
    result: dict[str, dict[int, float]] = defaultdict(dict)
    for row in rows:
        if row["strategy"] == strategy and row["family"] not in NOTHING_TO_GAIN:
            result[row["family"]][row["seed"]] = math.inf if row["hit"] is None else float(row["hit"])
    return result


def ratios(ours: Hits, theirs: Hits, picks: Callable[[list[int]], list[int]] = lambda seeds: seeds) -> dict[str, float]:
    """By family: median trials of `ours` over those of `theirs`, on the seeds that both have. Nan: neither arrived."""
    result = {}
    for family in theirs:
        if common := sorted(ours.get(family, {}).keys() & theirs[family].keys()):
            chosen = picks(common)
            ours_median = float(np.median([ours[family][seed] for seed in chosen]))
            theirs_median = float(np.median([theirs[family][seed] for seed in chosen]))
            result[family] = ratio(ours_median, theirs_median)
    return result


def ratio(ours: float, theirs: float) -> float:
    if math.isinf(theirs):
        return math.nan if math.isinf(ours) else 0.0
    return ours / theirs


def middle(values: Mapping[str, float]) -> float:
    """Median over the families that can tell; nan if none can."""
    known = [value for value in values.values() if not math.isnan(value)]
    return float(np.median(known)) if known else math.nan


def with_error(ours: Hits, theirs: Hits) -> tuple[dict[str, tuple[float, float]], tuple[float, float]]:
    """Ratio and its bootstrap standard error, by family and of the median over families."""
    rng = np.random.default_rng(0)
    drawn = [ratios(ours, theirs, lambda seeds: rng.choice(seeds, len(seeds)).tolist()) for _ in range(_DRAWS)]
    by_family = {f: (value, spread([one[f] for one in drawn])) for f, value in ratios(ours, theirs).items()}
    return by_family, (middle(ratios(ours, theirs)), spread([middle(one) for one in drawn]))


def spread(values: Sequence[float]) -> float:
    """Half of the central 68 %: a standard error that one infinite value does not spoil."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return math.nan
    low, high = np.quantile(known, [0.16, 0.84], method="nearest")
    return float(high - low) / 2 if math.isfinite(high) else math.inf


def differences(rows: Sequence[Row], strategy: str, at: str) -> dict[str, tuple[float, float]]:
    """By family: mean difference of regret to TPE's on the same seeds, and its standard error."""
    result = {}
    regrets: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for row in rows:
        if at in row["regret"] and math.isfinite(row["regret"][at]):
            regrets[row["strategy"], row["family"]][row["seed"]] = row["regret"][at]
    for name, family in regrets:
        if name == "tpe":
            ours, theirs = regrets.get((strategy, family), {}), regrets["tpe", family]
            apart = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
            if len(apart) >= 2:
                result[family] = float(np.mean(apart)), float(np.std(apart, ddof=1) / math.sqrt(len(apart)))
    return result


def _no_worse(rows: Sequence[Row], at: str) -> Claim:
    found = differences(rows, "auto", at)
    worse = {family: one for family, one in found.items() if one[0] > _BEYOND * one[1] + 1e-9}
    named = "; ".join(f"{family} by {mean:.2f} ± {error:.2f} %" for family, (mean, error) in worse.items())
    text = (
        f"`auto` is not worse than TPE after {at} trials beyond the error of its seeds (95 %), on any family or table"
    )
    return Claim(
        text, f"{len(found) - len(worse)} of {len(found)}; worse: {named or 'none'}", _verdict(found, not worse)
    )


def _few_trials(rows: Sequence[Row], other: str, most: float) -> Claim:
    _, (value, error) = with_error(hits(rows, "auto"), hits(rows, other))
    text = f"In the median over families, `auto` needs at most {most:g} of the trials of `{other}` to come within 1 %"
    return Claim(text, f"{value:.2f} ± {error:.2f}", None if math.isnan(value) else value <= most)


def _sparse(rows: Sequence[Row]) -> Claim:
    shares = {}
    for name in ("auto", "tpe", "random"):
        of = [r for r in rows if r["family"] == "sparse-200" and r["strategy"] == name and "100" in r["regret"]]
        if of:
            shares[name] = float(np.mean([row["regret"]["100"] <= 2 for row in of]))
    text = "At 200 knobs of which 8 matter, within 2 % of the best after 100 trials in 80 % of seeds"
    shown = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    return Claim(text, shown, shares["auto"] >= 0.8 if "auto" in shares else None)


def _stops(rows: Sequence[Row]) -> Claim:
    shares = {}
    for family in NOTHING_TO_GAIN:
        of = [row for row in rows if row["family"] == family and row["strategy"] == "auto"]
        if of:
            shares[family] = float(np.mean([(row["stopped"] or math.inf) <= 60 for row in of]))
    text = "Where there is nothing to gain, `auto` says so within 60 trials in 80 % of seeds"
    shown = ", ".join(f"{family} {share:.0%}" for family, share in shares.items())
    return Claim(text, shown, _verdict(shares, min(shares.values(), default=0.0) >= 0.8))


def _waste(rows: Sequence[Row]) -> Claim:
    shares = {}
    for family in dict.fromkeys(row["family"] for row in rows):
        of = [row for row in rows if row["family"] == family and row["strategy"] == "auto"]
        late = [row["wasted_late"] for row in of if row["wasted_late"] is not None]
        if late and np.mean([row["infeasible"] for row in of]) >= _MUCH_INFEASIBLE:
            shares[family] = float(np.median(late))
    text = f"Where {_MUCH_INFEASIBLE:.0%} or more is infeasible, at most 15 % of trials are wasted after the first 20"
    shown = ", ".join(f"{family} {share:.0%}" for family, share in shares.items())
    value = float(np.median(list(shares.values()))) if shares else math.nan
    return Claim(text, f"median {value:.0%} ({shown})", _verdict(shares, value <= 0.15))


def _workers(rows: Sequence[Row]) -> Claim:
    _, (value, error) = with_error(hits(rows, "auto-4-workers"), hits(rows, "auto"))
    text = "Four workers need at most 1.25 of the trials of one to come within 1 %, in the median over families"
    return Claim(text, f"{value:.2f} ± {error:.2f}", None if math.isnan(value) else value <= 1.25)


def _verdict(found: Mapping[str, object], holds: bool) -> bool | None:
    return holds if found else None
