"""Check: is the engine that ships still loadable, right and fast, in this environment? For CI and after an upgrade.

Flow: `python -m tuner check` -> which engine, and can it be used here -> entrants.py brings both sides, kept or built
again -> process pairs HERE -> check_answers.py judges -> CheckResult. A check is no trial: the study does not change.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from objectives.device import device_lock
from objectives.errors import BackendUnavailableError
from objectives.outcome import Failed
from storage.studies import get_study
from tuner import ask
from tuner.check_answers import (
    ACCURACY,
    DEFAULT,
    FASTER,
    LOADS,
    CheckAnswer,
    CheckOptions,
    CheckResult,
    DefaultLatency,
    Question,
    State,
    default_question,
    faster_question,
    gravest,
    noise_margin,
)
from tuner.check_record import Release, default_recorded, release_of
from tuner.context import contexts
from tuner.controls import provenance
from tuner.entrants import Entrant, Entrants
from tuner.errors import UsageError
from tuner.home import DEFAULT_STORAGE, Home, open_home
from tuner.limits import isolation_for
from tuner.noise import NewIsolation
from tuner.pairs import BrokenPair, Contestant, TakenPair, take_pair
from tuner.progress import Progress
from tuner.spec import StudySpec, read_spec
from tuner.stats import REPRODUCIBLE, Level, PairBlock, Side, Verdict, judge, next_step
from tuner.views import view_of

_LUCKY = 2.0  # standard deviations: the default's kept file is one build, what is recorded is of its rebuilds
_SAME_FILES = 2  # "builds" of a side that has one file: what is compared are these two files, so builds have no luck


def check_study(
    name: str,
    options: CheckOptions = CheckOptions(),  # noqa: B008 - frozen
    *,
    storage: str = DEFAULT_STORAGE,
    artifacts: str | Path | None = None,
    progress: Progress = Progress(),  # noqa: B008 - stateless
) -> CheckResult:
    """Check the engine of a study that ships (confirmed, else promoted, else best) in this environment.

    Where it was made for another environment, or is not kept, its candidate and the default are built again here.
    Raises: NotFoundError; UsageError if the study has nothing to check; BackendUnavailableError if nothing runs here.
    """
    with open_home(storage, None if artifacts is None else Path(artifacts)) as home:
        spec = read_spec(get_study(home.database, name).spec)
        return Check(home, spec, lambda: isolation_for(spec), progress).run(options)


class Check:
    """One check of one study; `run` may be called once."""

    def __init__(self, home: Home, spec: StudySpec, fresh: NewIsolation, progress: Progress) -> None:
        self._home = home
        self._spec = spec
        self._fresh = fresh
        self._progress = progress
        self._pairs: list[TakenPair] = []

    def run(self, options: CheckOptions) -> CheckResult:
        """Raises: as `check_study`."""
        start = time.monotonic()
        release = self._release()
        result = CheckResult(
            study=self._spec.name,
            trial=release.trial.number,
            candidate=str(release.trial.candidate),
            answer=CheckAnswer.UNDECIDED,
            questions=(),
            how=release.how,
            environment=release.here_words,
            recorded_environment=release.recorded_words,
            lost=release.lost,
            recorded=release.recorded,
        )
        with self._home.artifacts.at_work(), self._home.artifacts.scratch() as folder:
            found = self._answered(release, options, folder, start, result)
        return replace(found, n_pairs=len(self._pairs), spent_s=time.monotonic() - start)

    def _release(self) -> Release:
        if not self._spec.objective.is_timed:
            raise UsageError(
                f"study {self._spec.name!r} is about {self._spec.objective.value}: there is no speed to check",
                hint=f"python -m tuner engine verify {self._spec.name}",
            )
        with self._fresh() as isolation:
            here = isolation.describe(ask.describe(self._home, self._spec))
        if here.cannot_run:
            raise BackendUnavailableError(f"engines cannot be run here: {here.cannot_run}", hint="check where they run")
        views = [view_of(self._home, self._spec, one) for one in contexts(self._home, self._spec.name)]
        return release_of(self._home, self._spec, views, here)

    def _answered(
        self, release: Release, options: CheckOptions, folder: Path, start: float, result: CheckResult
    ) -> CheckResult:
        if release.candidate.is_baseline:
            return _nothing_left(result, options)
        entrants = Entrants(self._home, self._spec, release.context, self._fresh, self._progress, folder)
        candidate = entrants.candidate(release, options.builds)
        if candidate.trouble is not None:
            return _refused(result, candidate)
        baseline = entrants.baseline(release, options.builds)
        loads = Question(LOADS, State.PASSED, candidate.how)
        accuracy = Question(ACCURACY, State.PASSED, "outputs are within the limits")
        if baseline.trouble is not None:
            return _default_broken(result, loads, accuracy, f"{baseline.how}: {baseline.reason}")
        ran = self._time(release, candidate, baseline, options, start)
        if isinstance(ran, BrokenPair) and ran.side is Side.CANDIDATE:
            return _refused(result, replace(candidate, trouble=ran.failed))
        if isinstance(ran, BrokenPair):
            return _default_broken(result, loads, accuracy, f"it does not run here: {ran.failed.reason}")
        known = release.view.noise
        luck = 0.0 if known is None or release.kept is None else _LUCKY * known.build.sd
        faster, answer = faster_question(ran, release.recorded, options, luck)
        latency = self._default(release)
        default, regressed = _of_default(latency, release, options)
        answers = [answer] + [CheckAnswer.DEFAULT_REGRESSED] * regressed
        questions = (loads, accuracy, faster, default)
        return replace(result, answer=gravest(answers), questions=questions, verdict=ran, default=latency)

    def _time(
        self, release: Release, candidate: Entrant, baseline: Entrant, options: CheckOptions, start: float
    ) -> Verdict | BrokenPair:
        """Process pairs until there is a verdict or the budget is spent."""
        builds = max(_SAME_FILES, len(candidate.engines), len(baseline.engines))
        plan = options.plan(release.min_gain, builds)
        known = _builds_known(release, candidate, baseline)
        origin, name = provenance(self._spec, release.context), release.candidate.digest
        pair_file = ask.timed_pair(self._home, self._spec)
        blocks: list[PairBlock] = []
        while needs := next_step(blocks, [name], plan, known).needs:
            self._progress.on_check(f"timing: {len(blocks)} pairs")
            for index in range(needs[0].first_pair, needs[0].first_pair + needs[0].pairs):
                if options.timeout_s is not None and time.monotonic() - start > options.timeout_s:
                    return judge(blocks, [name], plan, known)[0]
                build, baseline_build = plan.builds_of(index)
                sides = {
                    Side.BASELINE: self._contestant(release, baseline, baseline_build),
                    Side.CANDIDATE: self._contestant(release, candidate, build),
                }
                with device_lock(release.context.record.environment.device, self._progress.on_wait):
                    taken = take_pair(self._fresh, sides, pair_file, self._spec.timing, index)
                if isinstance(taken, BrokenPair):
                    return taken
                self._pairs.append(taken)
                blocks.append(PairBlock(name, build, baseline_build, index, taken.log_ratio, origin))
        return judge(blocks, [name], plan, known)[0]

    def _contestant(self, release: Release, entrant: Entrant, build: int) -> Contestant:
        values = release.context.space.values(entrant.candidate)
        engine = entrant.engines[build % len(entrant.engines)]
        return Contestant(self._spec.backend, engine, values, self._spec.backend_options)

    def _default(self, release: Release) -> DefaultLatency | None:
        """The default here and as recorded; None where nothing was timed or recorded on this device."""
        recorded = default_recorded(release)
        if recorded is None or not self._pairs:
            return None
        view, cost = recorded
        medians = [
            np.median(
                [
                    np.median(one.samples_ms)
                    for side, one in zip(taken.order, taken.rounds, strict=True)
                    if side is Side.BASELINE
                ]
            )
            for taken in self._pairs
        ]
        record = view.context.record
        words = f"context {record.number} ({record.environment.backend} {record.environment.backend_version})"
        return DefaultLatency(float(np.median(medians)), cost, noise_margin(view.noise), words)


def _builds_known(release: Release, candidate: Entrant, baseline: Entrant) -> Level | None:
    """What is known of the luck of builds: none where each side is one file, however often it was built."""
    if candidate.is_one_file and baseline.is_one_file:
        return REPRODUCIBLE
    noise = release.view.noise
    return None if noise is None or not noise.build.df else noise.build


def _of_default(latency: DefaultLatency | None, release: Release, options: CheckOptions) -> tuple[Question, bool]:
    if latency is not None:
        return default_question(latency, options)
    words = f"nothing is recorded of this device; recorded on {release.recorded_words}"
    return Question(DEFAULT, State.SKIPPED, words), False


def _refused(result: CheckResult, entrant: Entrant) -> CheckResult:
    """The engine does not load or its outputs are wrong: nothing is timed."""
    broken, words = isinstance(entrant.trouble, str | Failed), entrant.reason
    skipped = "the engine cannot be used" if broken else "the engine's outputs are wrong"
    if broken:
        loads = Question(LOADS, State.FAILED, words, forbidden=True)
        accuracy = Question(ACCURACY, State.SKIPPED, skipped)
    else:
        loads = Question(LOADS, State.PASSED, entrant.how)
        accuracy = Question(ACCURACY, State.FAILED, words, forbidden=True)
    rest = tuple(Question(name, State.SKIPPED, skipped) for name in (FASTER, DEFAULT))
    answer = CheckAnswer.CANNOT_LOAD if broken else CheckAnswer.ACCURACY_BROKEN
    return replace(result, answer=answer, questions=(loads, accuracy, *rest))


def _default_broken(result: CheckResult, loads: Question, accuracy: Question, words: str) -> CheckResult:
    faster = Question(FASTER, State.SKIPPED, "there is no default to compare with")
    default = Question(DEFAULT, State.FAILED, words, forbidden=True)
    return replace(result, answer=CheckAnswer.DEFAULT_BROKEN, questions=(loads, accuracy, faster, default))


def _nothing_left(result: CheckResult, options: CheckOptions) -> CheckResult:
    """None of the candidate's changes exists here: what could be built is the default."""
    words = f"none of its changes exists here: {', '.join(result.lost)}"
    skipped = tuple(Question(name, State.SKIPPED, "there is nothing to build") for name in (LOADS, ACCURACY))
    faster = Question(FASTER, State.FAILED, words, options.require_faster)
    default = Question(DEFAULT, State.SKIPPED, "nothing was timed")
    return replace(result, answer=CheckAnswer.ADVANTAGE_GONE, questions=(*skipped, faster, default))
