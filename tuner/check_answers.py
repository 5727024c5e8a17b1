"""Check answers: what a check of the engine to ship says, as values; and how measurements become an answer. Pure.

Flow: checking.py loads, checks and times -> questions HERE -> CheckResult -> check_report.py, the exit code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from tuner.errors import UsageError
from tuner.stats import ConfirmationPlan, Noise, Verdict, VerdictKind

LOADS, ACCURACY, FASTER, DEFAULT = "loads", "accuracy", "faster", "default"
QUESTIONS = (LOADS, ACCURACY, FASTER, DEFAULT)
MIN_GAIN = 0.01  # of a study that has not been confirmed: what `study confirm` asks for by default
_FEWEST_PAIRS = 8  # fewer cannot be above doubt at the level of a verdict
_LOOKS = (0.5, 0.75, 1.0)  # shares of the pairs after which the data are looked at
_UNKNOWN_NOISE = 0.02  # of a session where no noise floor was measured: sessions were seen 2.4 % apart
_ROUNDS = 4  # that a session has at least
_SESSIONS = 2.0 * math.sqrt(2.0)  # two sessions differ by at most this many of their standard deviations, 95 % of times


class CheckOptions(msgspec.Struct, frozen=True):
    """What the gate forbids and what the check may cost.

    `max_regression`: share by which the engine may be slower than recorded or than the default, and the default slower
    than recorded. `require_faster`: forbid whatever is not faster than the default beyond doubt. `pairs`: most process
    pairs; `builds`: of each side where the engine cannot be used and is built again.
    """

    max_regression: float = 0.02
    require_faster: bool = False
    pairs: int = 24
    builds: int = 4
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.max_regression < 1:
            raise UsageError(f"--max-regression must be at least 0 and below 100 %, not {self.max_regression:.3%}")
        if self.pairs < _FEWEST_PAIRS:
            raise UsageError(f"--pairs {self.pairs}", hint=f"{_FEWEST_PAIRS} or more: fewer can prove nothing")
        if self.builds < 2 or self.builds % 2:
            raise UsageError(f"builds: {self.builds}", hint="an even number: one build may be a lucky one")
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise UsageError(f"--timeout must be positive, not {self.timeout_s:g} s")

    def plan(self, min_gain: float, builds: int) -> ConfirmationPlan:
        """The plan of the pairs, with `builds` engines of each side taking turns."""
        looks = {math.ceil(share * self.pairs / builds) * builds for share in _LOOKS}
        return ConfirmationPlan(min_gain=min_gain, builds=builds, looks=tuple(sorted(looks)))


class State(StrEnum):
    """The answer to one question."""

    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"
    SKIPPED = "skipped"  # could not be asked; the detail says why


class CheckAnswer(StrEnum):
    """The answer of a check as a whole, the gravest first."""

    CANNOT_LOAD = "engine cannot be used"
    ACCURACY_BROKEN = "accuracy broken"
    DEFAULT_BROKEN = "default broken"
    DEFAULT_REGRESSED = "default regressed"
    SLOWER = "slower than recorded"
    ADVANTAGE_GONE = "advantage gone"
    UNDECIDED = "undecided"
    STILL_FASTER = "still faster"


@dataclass(frozen=True, slots=True)
class Question:
    """One of QUESTIONS with its answer; `forbidden` if the gate does not let it pass."""

    name: str
    state: State
    detail: str
    forbidden: bool = False


@dataclass(frozen=True, slots=True)
class Recorded:
    """The speed-up over the default that a confirmation recorded, with its interval."""

    speedup: float
    ci_low: float
    ci_high: float


@dataclass(frozen=True, slots=True)
class DefaultLatency:
    """The default's latency here and as recorded on the same device; `margin`: share that is noise."""

    here_ms: float
    recorded_ms: float
    margin: float
    recorded_in: str  # context and environment in words


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check found. `how` says which files were compared, `lost` which changes do not exist here."""

    study: str
    trial: int
    candidate: str
    answer: CheckAnswer
    questions: tuple[Question, ...]
    how: str
    environment: str
    recorded_environment: str
    lost: tuple[str, ...] = ()
    verdict: Verdict | None = None
    recorded: Recorded | None = None
    default: DefaultLatency | None = None
    n_pairs: int = 0
    spent_s: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether the gate lets it pass."""
        return not any(question.forbidden for question in self.questions)

    def question(self, name: str) -> Question:
        return next(one for one in self.questions if one.name == name)


def recorded_of(confirmation: Mapping[str, Any] | None, figure: str) -> Recorded | None:
    """What a confirmation (as `answers.to_json` gives it) recorded of its winner; `figure`: "shipped" or "route"."""
    figures = None if confirmation is None else confirmation.get("figures")
    if not figures or not confirmation or not confirmation.get("winner"):
        return None
    found = figures[figure]
    return Recorded(found["speedup"], found["ci_low"], found["ci_high"])


def faster_question(
    verdict: Verdict, recorded: Recorded | None, options: CheckOptions, build_luck: float = 0.0
) -> tuple[Question, CheckAnswer]:
    """Is the engine faster than the default, and as much as recorded?

    Slower than recorded: beyond doubt by more than `max_regression`, both intervals joined in quadrature with
    `build_luck` (log), by which the default's file may be a lucky one.
    """
    told = f"{verdict.speedup:.3f}x the default [{verdict.ci_low:.3f}, {verdict.ci_high:.3f}], {verdict.n_pairs} pairs"
    if recorded is not None:
        told += f"; recorded {recorded.speedup:.3f}x [{recorded.ci_low:.3f}, {recorded.ci_high:.3f}]"
    allowed = 1.0 - options.max_regression
    lost = recorded is not None and _most_of(verdict, recorded, build_luck) < allowed
    if verdict.kind is VerdictKind.NOT_FASTER:
        slower = verdict.ci_high < allowed
        words = f"slower than the default: {told}" if slower else f"not faster by what matters: {told}"
        forbidden = slower or lost or options.require_faster
        return Question(FASTER, State.FAILED, words, forbidden), CheckAnswer.ADVANTAGE_GONE
    if lost:
        words = f"slower than recorded by more than {options.max_regression:.2%}: {told}"
        return Question(FASTER, State.FAILED, words, forbidden=True), CheckAnswer.SLOWER
    if verdict.kind is VerdictKind.FASTER or verdict.ci_low > 1.0:
        return Question(FASTER, State.PASSED, told), CheckAnswer.STILL_FASTER
    words = f"{told}: {verdict.reason}"
    return Question(FASTER, State.UNDECIDED, words, options.require_faster), CheckAnswer.UNDECIDED


def default_question(found: DefaultLatency, options: CheckOptions) -> tuple[Question, bool]:
    """Is the default as fast as it was on this device? Also whether it has regressed."""
    change = found.here_ms / found.recorded_ms
    told = (
        f"{found.here_ms:.4g} ms here, {found.recorded_ms:.4g} ms recorded in {found.recorded_in}: {change - 1:+.1%}; "
        f"less than {found.margin:.1%} may be noise"
    )
    regressed = change > (1.0 + found.margin) * (1.0 + options.max_regression)
    if not regressed:
        return Question(DEFAULT, State.PASSED, told), False
    return Question(DEFAULT, State.FAILED, f"the default is slower than it was: {told}", forbidden=True), True


def noise_margin(noise: Noise | None) -> float:
    """By how much two timings of the same default may differ, as a share: a session and a build each."""
    within = 0.0 if noise is None else noise.run.sd / math.sqrt(_ROUNDS)
    sd = _UNKNOWN_NOISE if noise is None else math.hypot(noise.load.sd, noise.build.sd, within)
    return math.expm1(_SESSIONS * sd)


def gravest(answers: Sequence[CheckAnswer]) -> CheckAnswer:
    """The one that a reader has to know first."""
    return min(answers, key=list(CheckAnswer).index)


def _most_of(verdict: Verdict, recorded: Recorded, build_luck: float) -> float:
    """Upper bound of the ratio of the speed-up here to the recorded one. Source: as `tuner.stats.judge`, quadrature."""
    if not (math.isfinite(verdict.ci_high) and recorded.ci_low > 0.0):
        return math.inf
    ours, theirs = math.log(verdict.speedup), math.log(recorded.speedup)
    reach = math.hypot(math.log(verdict.ci_high) - ours, theirs - math.log(recorded.ci_low), build_luck)
    return math.exp(ours - theirs + reach)
