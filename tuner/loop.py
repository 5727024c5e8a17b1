"""Loop: propose, evaluate, record, tell, until the budget is spent. And its resume.

Flow: `study run` -> HERE, with search to propose, isolation to evaluate and the ledger to remember. The order of
writing is what makes a kill harmless: the proposal before the evaluation, the outcome before Optuna hears of it.
On several devices each has a lane (lanes.py) that takes one task after another from here; what is known is one and the
same, and changes under one lock.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Self

from objectives.device import device_lock
from objectives.errors import HarnessError, StoppedError
from objectives.knobs import BASELINE, Candidate
from objectives.outcome import Built, EngineFile, Failed, Measured, Outcome, Rejected
from objectives.requests import EvaluateRequest
from storage import trials as table
from storage.records import TrialRecord
from tuner import engines, noise
from tuner.ask import evaluation
from tuner.budget import why_done
from tuner.context import Context
from tuner.controls import Controls
from tuner.dashboard import attributes
from tuner.errors import StudyError
from tuner.home import Home
from tuner.lanes import DeviceLostError, Lane, run_all
from tuner.ledger import Trial, to_candidate, to_finish, to_trial
from tuner.noise import NewIsolation
from tuner.objective import cost_of
from tuner.owner import heartbeat, is_alive
from tuner.places import Place, places_of
from tuner.progress import Progress
from tuner.results import Summary, baseline_of, summarize
from tuner.search.projection import Projection
from tuner.searching import Searching
from tuner.spec import StudySpec
from tuner.teller import Teller

_MOST_INCUMBENT_SAMPLES = 60  # they travel with every request, and more make no test sharper
Task = Callable[[], None]


class StudyLoop:
    """One run of one context. Use as a context manager; `run` may be called once.

    `where`: the places to work at, or how to start a process at the one place that there is.
    """

    def __init__(
        self,
        home: Home,
        spec: StudySpec,
        context: Context,
        where: Sequence[Place] | NewIsolation,
        progress: Progress,
    ) -> None:
        self._home = home
        self._spec = spec
        self._context = context
        self._progress = progress
        places = places_of(where, context.device)
        self._lanes = [Lane(one, progress.for_device(one.name) if len(places) > 1 else progress) for one in places]
        self._owner = self._lanes[0].owner
        self._changed = threading.Condition()  # its lock guards everything below
        self._busy: set[Lane] = set()  # with a task
        self._lost: set[Lane] = set()
        self._trials: dict[str, Trial] = {}
        self._to_tell: set[str] = set()  # what Optuna is to hear from us; the rest is told by its own process
        self._asked_for_noise = False
        self._summary = summarize([], spec.judging.limits)
        self._controls = Controls(home, spec, context)
        self._search = Searching(spec, context, noise.known(home, context))
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        owners = [lane.owner for lane in self._lanes]
        for lane in self._lanes:
            self._exit.callback(lane.close)
            self._exit.callback(table.release, self._home.database, lane.owner)
        engines.tidy(self._home, self._owner)
        self._exit.enter_context(self._home.artifacts.at_work())
        # Claimed first: what is told between the claim and the opening is seen by the opening.
        self._to_tell = set(table.claim_untold(self._home.database, self._context.id, self._owner, is_alive))
        projection = Projection(self._home.url, self._context.name, self._context.space, self._spec.objective)
        self._exit.callback(projection.close)
        self._teller = Teller(self._home.database, projection)
        self._exit.callback(self._teller.close)
        self._exit.enter_context(heartbeat(self._home.database, owners))
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    @property
    def summary(self) -> Summary:
        """What all finished trials of the context say so far."""
        return self._summary

    def run(self) -> Summary:
        """Work until the budget is spent, the search has no more to propose, or going on is not worth it.

        Raises: StudyError if the default cannot be measured or the machinery keeps failing on every device; what is
        recorded stays.
        """
        with self._changed:
            self._sync()
            self._prune()
            self._progress.on_start(self._context, self._spec.budget, self.summary)
            if (floor := noise.known(self._home, self._context)) is not None:
                self._progress.on_known_noise(floor)
        reason = run_all(self._lanes, self._work, self._stop)
        summary = self.summary
        self._progress.on_end(reason, summary)
        return summary

    def load(self) -> None:
        """Take in what earlier runs recorded, without running anything."""
        self._sync()

    def trial(self, uid: str) -> Trial:
        """A finished trial. Raises: KeyError."""
        return self._trials[uid]

    def evaluate(self, candidate: Candidate, source: str) -> Trial:
        """The trial of `candidate`, outside the budget: the one there is, or a new one, evaluated now.

        Raises: StudyError if the machinery keeps failing, or if another process has the candidate at this moment.
        """
        database = self._home.database
        record = table.propose(
            database, self._context.id, candidate.changes, candidate.digest, source, self._owner, None
        )
        if record is not None:
            self._carry_out(self._lanes[0], record)
        self._sync()
        for trial in self._trials.values():
            if trial.candidate == candidate:
                return trial
        raise StudyError(f"{candidate} is being tried by another process", hint="wait for it, then confirm again")

    def _work(self, lane: Lane) -> str:
        """Carry out one task after another on a lane's device; returns why it ended."""
        while True:
            task, reason = self._next_task(lane)
            if task is None:
                return reason
            try:
                task()
            except StoppedError:
                raise
            except (DeviceLostError, HarnessError) as error:
                return self._leave(lane, error)
            finally:
                with self._changed:
                    self._busy.discard(lane)
                    self._changed.notify_all()

    def _next_task(self, lane: Lane) -> tuple[Task | None, str]:
        """What a lane is to do; None, and why, once nothing is left and nobody is at work who could change that."""
        with self._changed:
            while not lane.is_stopped():
                task, reason = self._look(lane)
                if task is not None:
                    self._busy.add(lane)
                    return task, ""
                if not self._busy:
                    return None, reason
                self._changed.wait()
            raise StoppedError("the run was stopped")

    def _look(self, lane: Lane) -> tuple[Task | None, str]:
        self._sync()
        rows = table.list_candidates(self._home.database, self._context.id)
        if len(rows) > len(self._trials):
            left = table.reclaim(self._home.database, self._context.id, lane.owner, is_alive, 1)
            if left:
                return partial(self._carry_out, lane, left[0]), ""
        summary = self.summary
        self._require_baseline(summary)
        if summary.baseline is None and self._busy and BASELINE.digest in rows:
            return None, "the default is being measured"
        if reason := why_done(self._spec.budget, summary.n_trials, summary.spent_s):
            return None, reason
        if reason := self._not_worth_it(rows):
            return None, reason
        if (task := self._due(lane, summary)) is not None:
            return task, ""
        record, reason = self._propose(lane)
        return (None, reason) if record is None else (partial(self._carry_out, lane, record), "")

    def _leave(self, lane: Lane, error: DeviceLostError | HarnessError) -> str:
        """Give a device up while there are others; its trial is theirs then. Raises: `error` if it was the last."""
        with self._changed:
            self._lost.add(lane)
            table.release(self._home.database, lane.owner)
            if len(self._lost) == len(self._lanes):
                raise error
            self._progress.on_device_lost(lane.name, str(error))
        return f"{lane.name} was given up"

    def _stop(self) -> None:
        for lane in self._lanes:
            lane.stop()
        with self._changed:
            self._changed.notify_all()

    def _due(self, lane: Lane, summary: Summary) -> Task | None:
        """What is to be found out about the machine before the next trial on a lane's device; None: nothing."""
        baseline = summary.baseline
        if baseline is None:
            return None
        engine = engines.file_of(self._home, self._context, baseline)
        if engine is not None and not self._controls.is_known(lane.device, baseline):
            return partial(self._control, lane, engine, is_first=True)
        if self._spec.noise_sessions and not self._asked_for_noise and noise.known(self._home, self._context) is None:
            self._asked_for_noise = True
            return partial(self._measure_noise, lane)
        if engine is not None and self._controls.due(lane.device, self._n_trials(lane)):
            return partial(self._control, lane, engine)
        return None

    def _n_trials(self, lane: Lane) -> int:
        return sum(trial.device == lane.device for trial in self._trials.values())

    def _measure_noise(self, lane: Lane) -> None:
        lane.progress.on_task("measuring the noise floor")
        with device_lock(lane.device, lane.progress.on_wait, lane.is_stopped):
            floor = noise.measure(self._home, self._spec, self._context, lane.fresh, lane.device)
        with self._changed:
            self._search.know(floor)
            self._learn_again()
            self._progress.on_noise(floor)

    def _control(self, lane: Lane, engine: EngineFile, is_first: bool = False) -> None:
        """Time the default on a lane's device. One that has not yet done so, and cannot, is of no use."""
        lane.progress.on_task("timing the default again")
        with device_lock(lane.device, lane.progress.on_wait, lane.is_stopped):
            trouble = self._controls.take(lane.isolation, lane.device, engine, self._n_trials(lane))
        if is_first and trouble is not None:
            raise DeviceLostError(
                f"the default does not run on device {lane.name}: {trouble.reason}",
                hint="compare `env` on both devices; another one can be chosen with --devices",
            )
        with self._changed:
            lane.progress.on_control(trouble)
            self._learn_again()

    def _propose(self, lane: Lane) -> tuple[TrialRecord | None, str]:
        """The next proposal, recorded and leased; or None and why there is none."""
        database, budget = self._home.database, self._spec.budget
        while True:
            rows = table.list_candidates(database, self._context.id)
            if budget.n_trials is not None and len(rows) >= budget.n_trials:
                return None, "the last trials of the budget are with other processes"
            candidate, source = self._search.next(rows, self._pending(len(rows)))
            if candidate is None:
                return None, source
            record = table.propose(
                database,
                self._context.id,
                candidate.changes,
                candidate.digest,
                source,
                lane.owner,
                budget.n_trials,
            )
            if record is not None:
                return record, ""
            # Another process has taken the candidate or the number in this moment: look again.

    def _not_worth_it(self, rows: Mapping[str, int]) -> str | None:
        """Why the search ends by itself, as a phrase; None if it goes on."""
        advice = self._search.advice(rows, self._pending(len(rows)))
        if advice is None:
            return None
        self._progress.on_advice(advice)
        if advice.worth_it or not self._spec.early_end:
            return None
        return f"not worth it: {advice.reason}; --no-early-end goes on all the same"

    def _pending(self, n_proposed: int) -> list[Candidate]:
        """Candidates of trials without an end: other lanes or processes are at work on them."""
        if n_proposed == len(self._trials):
            return []
        return [to_candidate(record) for record in table.unfinished(self._home.database, self._context.id)]

    def _carry_out(self, lane: Lane, record: TrialRecord) -> None:
        candidate = to_candidate(record)
        lane.progress.on_propose(record.number, candidate)
        with self._home.artifacts.scratch() as workdir:
            request = self._request(lane, candidate, workdir)
            with device_lock(lane.device, lane.progress.on_wait, lane.is_stopped):
                start = time.monotonic()  # waiting for somebody else is no cost of this trial
                outcome = self._evaluate(lane, request)
            kept = self._keep_files(lane, candidate, outcome)
            end = to_finish(outcome, time.monotonic() - start, kept.digest if kept else None, lane.device)
            engine = None
            if kept is not None:
                engine = engines.registration(self._spec, self._context, record.number, candidate, outcome, kept)
            with self._changed:  # nobody may see it finished before it is known who tells of it
                table.finish(self._home.database, record.uid, end, engine)
                self._to_tell.add(record.uid)
                trial = self._learn(record.uid)
                if kept is not None:
                    self._prune()
                lane.progress.on_trial(trial, self.summary)

    def _prune(self) -> None:
        if self._spec.keep_engines != "all":
            # Of what others have finished in this moment it is not known yet whether it is the default, or the best.
            engines.prune(self._home, self._context, self.summary, self._trials)

    def _evaluate(self, lane: Lane, request: EvaluateRequest) -> Outcome:
        return lane.evaluate(request)

    def _request(self, lane: Lane, candidate: Candidate, workdir: Path) -> EvaluateRequest:
        with self._changed:
            self._teller.go()
            cache, incumbent_ms = self._frozen_cache(), self._incumbent_ms(lane)
        return evaluation(
            self._home, self._spec, self._context, candidate, workdir, cache=cache, incumbent_ms=incumbent_ms
        )

    def _frozen_cache(self) -> Path | None:
        """What the baseline's build left for others, from its kept engine: the same for every later trial."""
        baseline = self._summary.baseline
        return None if baseline is None else engines.cache_of(self._home, self._context, baseline)

    def _incumbent_ms(self, lane: Lane) -> tuple[float, ...]:
        """Samples of the best so far, as slow as this device is now: what a hopeless candidate is compared with."""
        best, standard = self._summary.best, self._summary.standard
        if best is None or standard is None or not isinstance(best.outcome, Measured):
            return ()
        then = standard.slowness(best.device, best.finished_at.timestamp())
        slower = math.exp(standard.slowness(lane.device, time.time()) - then)
        samples = best.outcome.samples.all_ms
        step = max(1, len(samples) // _MOST_INCUMBENT_SAMPLES)
        return tuple(sample * slower for sample in samples[::step])

    def _keep_files(self, lane: Lane, candidate: Candidate, outcome: Outcome) -> EngineFile | None:
        """Copy the engine out of the scratch folder if it is worth keeping."""
        if not isinstance(outcome, Measured | Built) or outcome.engine is None:
            return None
        if self._spec.keep_engines != "all" and not self._is_worth_keeping(lane, candidate, outcome):
            return None
        engines.keep_files(self._home, outcome.engine)
        return outcome.engine

    def _is_worth_keeping(self, lane: Lane, candidate: Candidate, outcome: Measured | Built) -> bool:
        with self._changed:
            standard, best = self._summary.standard, self._summary.speedup
        cost = cost_of(outcome, self._spec.objective)
        if candidate.is_baseline or standard is None or best is None or cost is None:
            return True
        return standard.baseline_cost / (cost * math.exp(-standard.slowness(lane.device, time.time()))) > best

    def _sync(self) -> None:
        """Take in what is recorded but not known here: earlier runs at start, other processes later."""
        known = table.finished_uids(self._home.database, self._context.id)
        new = [uid for uid in known if uid not in self._trials]
        self._take_in(new)
        if new and self._controls.refresh():
            self._learn_again()

    def _learn(self, uid: str) -> Trial:
        self._take_in([uid])
        return self._trials[uid]

    def _take_in(self, uids: Sequence[str]) -> None:
        if not uids:
            return
        records = table.get_trials(self._home.database, uids)
        had_standard = self._summary.standard is not None
        for record in records:
            self._trials[record.uid] = to_trial(record)
        self._summarize()
        # What others finished before the default was measured had nothing to be compared with: told anew.
        again = not had_standard and self._summary.standard is not None and len(self._trials) > len(records)
        for record in records:
            trial = self._trials[record.uid]
            seen = self._search.observe(trial, self._summary.standard)
            if not again:
                self._search.learn(seen)
            if record.uid in self._to_tell:
                told = attributes.of_trial(trial, self._summary.ratio(trial), self._spec.judging.limits)
                self._teller.tell(trial, seen, told)
        if again:
            self._learn_again()

    def _summarize(self) -> None:
        ordered = sorted(self._trials.values(), key=lambda trial: trial.number)
        standard = self._controls.standard(baseline_of(ordered))
        self._summary = summarize(ordered, self._spec.judging.limits, standard)

    def _learn_again(self) -> None:
        """Drift or noise are known better now: what the search has seen is told to it anew."""
        self._summarize()
        self._search.learn_again(self._trials.values(), self._summary.standard)

    def _require_baseline(self, summary: Summary) -> None:
        baseline = summary.baseline
        if baseline is None or isinstance(baseline.outcome, Measured | Built):
            return
        outcome = baseline.outcome
        reason = outcome.reason if isinstance(outcome, Failed | Rejected) else ""
        hint = (
            "does the model run in this backend by itself? Build and time limits: --trial-timeout, --memory-limit"
            if isinstance(outcome, Failed)
            else "no candidate can be judged against limits that the default itself breaks: raise --max-loss"
        )
        raise StudyError(f"the default cannot be measured: {reason}", hint=hint)
