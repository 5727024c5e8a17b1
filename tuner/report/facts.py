"""Facts: everything that a report says, as frozen values. No database, no figure, no HTML in here.

Flow: gather.py reads the database -> values HERE -> figures/, page.py, markdown.py, as_json.py, and the dashboard.
Ratios are speed-ups over the default (1.041 is 4.1 % faster; of sizes and build times: how many times smaller), times
are milliseconds where a name ends in `_ms`, seconds where it ends in `_s`. None means: not known, never zero.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from tuner.objective import Objective


class Outcome(StrEnum):
    """What became of a candidate, as a report tells it."""

    FEASIBLE = "feasible"
    REJECTED = "rejected"  # wrong outputs, or outside a limit
    FAILED = "failed"


class Answer(StrEnum):
    """What may be said of a study, from nothing at all to a confirmed winner."""

    NOTHING = "nothing measured yet"
    NO_CANDIDATE = "no feasible candidate"
    NO_BETTER = "none better than the default"  # seen in the search: there is nothing to confirm
    OBSERVED = "not confirmed"  # of objectives that no confirmation is for: what was built and found
    UNCONFIRMED = "not confirmed yet"
    FASTER = "faster"
    NOT_FASTER = "not faster"
    UNDECIDED = "undecided"


class LimitFacts(msgspec.Struct, frozen=True):
    """A limit of the context: `loss` of candidates is compared with `limit`; `output` None: of every output."""

    metric: str
    limit: float
    output: str | None

    @property
    def label(self) -> str:
        return self.metric if self.output is None else f"{self.metric} of {self.output}"


class TrialFacts(msgspec.Struct, frozen=True):
    """A finished trial. `losses`: worst loss under each limit of the context, infinite where it is not finite.

    `value` is the figure as it was measured, `corrected` the same with the machine's drift taken out, both in the unit
    of `Objective.metric`; `words` is the library's or the judge's sentence; `at_s`: seconds that the trials until then
    have taken together.
    """

    number: int
    candidate: str
    changes: Mapping[str, str]
    source: str
    outcome: Outcome
    status: str
    kind: str  # of a failure: "crashed"; else empty
    stage: str
    words: str
    value: float | None
    corrected: float | None
    ratio: float | None
    losses: tuple[float | None, ...]
    flags: tuple[str, ...]
    at_s: float
    spent_s: float
    starts: int
    device: str = ""  # as recorded: what its lock guards

    @property
    def is_default(self) -> bool:
        return not self.changes


class EffectFacts(msgspec.Struct, frozen=True):
    """One value of a knob against its default, the other knobs' effects taken out: log gain with a 95 % interval."""

    knob: str
    value: str
    default: str
    gain: float
    low: float
    high: float
    n_trials: int


class KnobFacts(msgspec.Struct, frozen=True):
    """How much of the differences between feasible candidates a knob explains, between 0 and 1."""

    knob: str
    share: float


class CellFacts(msgspec.Struct, frozen=True):
    """Two values together: their log gain, the other knobs' effects taken out, None where no trial had both."""

    gain: float | None
    n_trials: int


class PairingFacts(msgspec.Struct, frozen=True):
    """Two knobs that matter, every value against every value: `cells[row][column]`; rows are `first_values`."""

    first: str
    second: str
    first_values: tuple[str, ...]
    second_values: tuple[str, ...]
    cells: tuple[tuple[CellFacts, ...], ...]
    extra: float  # largest gap between what two values do together and by themselves, log units


class FailureFacts(msgspec.Struct, frozen=True):
    """Trials that went wrong in one way. `words`: of the first of them; `common`: a value that all of them have."""

    outcome: Outcome
    kind: str
    stage: str
    n_trials: int
    trials: tuple[int, ...]
    words: str
    common: str


class FlagFacts(msgspec.Struct, frozen=True):
    """A quality flag, how many of the timed trials have it, and what it means."""

    flag: str
    n_trials: int
    meaning: str


class ControlFacts(msgspec.Struct, frozen=True):
    """A re-timing of the default. `at_s`: seconds since the context's first timing; purpose "noise" or "drift"."""

    purpose: str
    at_s: float
    latency_ms: float
    build: int
    session: int
    device: str = ""  # as recorded: what its lock guards


class DeviceFacts(msgspec.Struct, frozen=True):
    """One of several devices of a context. `level`: how much slower than the default's own, log units."""

    device: str
    level: float
    n_controls: int
    n_trials: int


class MachineFacts(msgspec.Struct, frozen=True):
    """What the machine did to everybody. Noise levels are standard deviations of the log latency (0.01: about 1 %)."""

    controls: tuple[ControlFacts, ...] = ()
    drift_s: tuple[float, ...] = ()  # since the context's first timing
    drift: tuple[float, ...] = ()  # believed slowness then against the median, log units
    drift_range: float | None = None
    drift_share: float | None = None
    run_sd: float | None = None
    load_sd: float | None = None
    build_sd: float | None = None
    detectable: float | None = None  # smallest gain that a usual confirmation sees, as a share
    baseline_ms: float | None = None
    flags: tuple[FlagFacts, ...] = ()
    n_timed: int = 0
    home: str = ""  # the device that the default was measured on: `drift` is its drift
    devices: tuple[DeviceFacts, ...] = ()  # empty where there was one


class RoundFacts(msgspec.Struct, frozen=True):
    """A round of a process pair: whose, and its median latency."""

    side: str  # "baseline" or "candidate"
    median_ms: float


class PairFacts(msgspec.Struct, frozen=True):
    """A process pair: its ratio (above 1 the candidate is faster), which builds met, its rounds in the order taken."""

    index: int
    build: int
    baseline_build: int
    ratio: float
    rounds: tuple[RoundFacts, ...]


class FinalistFacts(msgspec.Struct, frozen=True):
    """A finalist of a confirmation. `verdict` is "dropped" without one, empty while the confirmation is running."""

    trial: int
    candidate: str
    changes: Mapping[str, str]
    verdict: str
    speedup: float | None
    low: float | None
    high: float | None
    n_pairs: int
    reason: str
    is_winner: bool
    pairs: tuple[PairFacts, ...]

    def median_ms(self, side: str) -> float | None:
        """Median latency of a side over all rounds of all pairs; None without any."""
        found = [one.median_ms for pair in self.pairs for one in pair.rounds if one.side == side]
        return statistics.median(found) if found else None


class SpanFacts(msgspec.Struct, frozen=True):
    """A speed-up with its interval, and of what, in words."""

    words: str
    speedup: float
    low: float
    high: float


class ConfirmationFacts(msgspec.Struct, frozen=True):
    """A confirmation: `state` "running" or "done"; `verdict` of it all; `spans`: file, route and control apart."""

    purpose: str
    state: str
    verdict: str
    reason: str
    min_gain: float
    confidence: float | None
    n_pairs: int
    n_builds: int
    spent_s: float | None
    started_at: str
    finalists: tuple[FinalistFacts, ...]
    spans: tuple[SpanFacts, ...]


class EngineFacts(msgspec.Struct, frozen=True):
    """A kept engine file: of which trial, why it is kept, and where it lies."""

    trial: int
    candidate: str
    changes: Mapping[str, str]
    reasons: tuple[str, ...]
    digest: str
    format: str
    size_bytes: int
    file: str
    path: str
    open_with: Mapping[str, str]  # values of knobs that act when it is opened, not when it is built
    rebuild: str  # the command that builds it again; empty where the backend has none


class HeadlineFacts(msgspec.Struct, frozen=True):
    """The verdict: one word for it, a sentence that claims no more than was shown, and what it rests on."""

    answer: Answer
    sentence: str
    basis: str
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    candidate: str = ""
    changes: Mapping[str, str] = {}
    trial: int | None = None


class ContextFacts(msgspec.Struct, frozen=True):
    """A context whole: a study in one environment, judged in one way."""

    number: int
    parent: int | None
    backend: str
    backend_version: str
    device: str
    identity: Mapping[str, str]
    details: Mapping[str, str]
    environment_digest: str
    knob_space_digest: str
    optuna_study: str
    opened_at: str
    opened_because: str
    carried: tuple[str, ...]  # what it took over, in sentences
    n_knobs: int
    n_candidates: int
    knobs: tuple[Mapping[str, Any], ...]
    limits: tuple[LimitFacts, ...]
    objective: Objective
    trials: tuple[TrialFacts, ...]
    n_unfinished: int
    default: TrialFacts | None
    best: TrialFacts | None
    spent_s: float
    importance: tuple[KnobFacts, ...]
    unexplained: float | None  # share that no knob by itself explains
    effects: tuple[EffectFacts, ...]
    pairings: tuple[PairingFacts, ...]
    failures: tuple[FailureFacts, ...]
    machine: MachineFacts
    confirmations: tuple[ConfirmationFacts, ...]  # oldest first
    engines: tuple[EngineFacts, ...]
    headline: HeadlineFacts

    def count(self, outcome: Outcome) -> int:
        return sum(trial.outcome is outcome for trial in self.trials)

    @property
    def confirmation(self) -> ConfirmationFacts | None:
        """The confirmation that decides: the latest that is done; without one the one that is running."""
        done = [one for one in self.confirmations if one.state == "done"]
        return next(iter((done or list(self.confirmations))[::-1]), None)

    @property
    def place(self) -> str:
        """Backend, version and device in a few words."""
        return f"{self.backend} {self.backend_version} on {self.device}"


class StudyFacts(msgspec.Struct, frozen=True):
    """A study with all its contexts, oldest first; `shown` is the number of the one that the report is about."""

    name: str
    model: str
    model_digest: str
    model_bytes: int
    created_at: str
    made_at: str
    tuner_version: str
    storage: str  # without a password
    objective: Objective
    search: str
    seed: int
    budget: str
    n_pairs: int
    shapes: Mapping[str, tuple[int, ...]]
    build_only: bool
    contexts: tuple[ContextFacts, ...]
    shown: int | None

    @property
    def context(self) -> ContextFacts | None:
        """The context that the report is about, None while there is none."""
        return next((one for one in self.contexts if one.number == self.shown), None)
