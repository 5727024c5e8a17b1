"""Loop: propose, evaluate, record, tell, until the budget is spent. And its resume.

Flow: `study run` -> HERE, with search to propose, isolation to evaluate and the ledger to remember. The order of
writing is what makes a kill harmless: the proposal before the evaluation, the outcome before Optuna hears of it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Self

from objectives.device import device_lock
from objectives.errors import HarnessError
from objectives.isolation import Isolation
from objectives.knobs import BASELINE, Candidate
from objectives.outcome import EngineFile, Failed, Measured, Outcome
from objectives.requests import EvaluateRequest, PairFiles
from storage import trials as table
from storage.records import TrialRecord
from tuner import engines
from tuner.budget import why_done
from tuner.context import Context
from tuner.create import model_path
from tuner.errors import StudyError
from tuner.home import Home
from tuner.ledger import Trial, to_candidate, to_finish, to_trial
from tuner.owner import heartbeat, is_alive, this_process
from tuner.progress import Progress
from tuner.results import Summary, summarize
from tuner.search.observation import observe
from tuner.search.projection import Projection
from tuner.search.proposer import Proposer
from tuner.spec import StudySpec
from tuner.workload import KIND as TENSORS

_HARNESS_ATTEMPTS = 3
_HARNESS_PAUSE_S = 1.0


class StudyLoop:
    """One run of one context. Use as a context manager; `run` may be called once."""

    def __init__(self, home: Home, spec: StudySpec, context: Context, isolation: Isolation, progress: Progress) -> None:
        self._home = home
        self._spec = spec
        self._context = context
        self._isolation = isolation
        self._progress = progress
        self._owner = this_process()
        self._trials: dict[str, Trial] = {}
        self._summary = summarize([], spec.judging.limits)
        self._proposer = Proposer(context.space, spec.search, spec.seed)
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        self._projection = Projection(self._home.url, self._context.name, self._context.space)
        self._exit.callback(self._projection.close)
        self._exit.enter_context(heartbeat(self._home.database, self._owner))
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    @property
    def summary(self) -> Summary:
        """What all finished trials of the context say so far."""
        return self._summary

    def run(self) -> Summary:
        """Work until the budget is spent or every candidate has been tried.

        Raises: StudyError if the default cannot be measured or the machinery keeps failing; what is recorded stays.
        """
        self._sync()
        self._progress.on_start(self._context, self._spec.budget, self.summary)
        for record in table.reclaim(self._home.database, self._context.id, self._owner, is_alive):
            self._carry_out(record)
        reason = self._work()
        summary = self.summary
        self._progress.on_end(reason, summary)
        return summary

    def _work(self) -> str:
        while True:
            self._sync()
            summary = self.summary
            if reason := why_done(self._spec.budget, summary.n_trials, summary.spent_s):
                return reason
            self._require_baseline(summary)
            record, reason = self._propose()
            if record is None:
                return reason
            self._carry_out(record)

    def _propose(self) -> tuple[TrialRecord | None, str]:
        """The next proposal, recorded and leased; or None and why there is none."""
        database, budget = self._home.database, self._spec.budget
        while True:
            rows = table.list_candidates(database, self._context.id)
            if budget.n_trials is not None and len(rows) >= budget.n_trials:
                return None, "the last trials of the budget are with other processes"
            number = len(rows)
            first = BASELINE.digest not in rows
            candidate = BASELINE if first else self._proposer.propose(number, rows)
            if candidate is None:
                return None, f"all {self._context.space.size} candidates have been tried"
            source = "baseline" if first else self._spec.search
            record = table.propose(
                database,
                self._context.id,
                candidate.changes,
                candidate.digest,
                source,
                self._owner,
                budget.n_trials,
            )
            if record is not None:
                return record, ""
            # Another process has taken the candidate or the number in this moment: look again.

    def _carry_out(self, record: TrialRecord) -> None:
        candidate = to_candidate(record)
        self._progress.on_propose(record.number, candidate)
        start = time.monotonic()
        with self._home.artifacts.scratch() as workdir:
            request = self._request(candidate, str(workdir))
            with device_lock(self._context.record.environment.device, self._progress.on_wait):
                outcome = self._evaluate(request)
            engine = _engine_of(outcome)
            kept = engine if engine and self._is_worth_keeping(candidate, outcome) else None
            if kept is not None:
                engines.keep_files(self._home, kept)
            end = to_finish(outcome, time.monotonic() - start, kept.digest if kept else None)
            table.finish(self._home.database, record.uid, end)
        trial = self._learn(record.uid)
        if kept is not None:
            engines.keep(self._home, self._spec, self._context, trial, kept, self.summary)
        self._progress.on_trial(trial, self.summary)

    def _evaluate(self, request: EvaluateRequest) -> Outcome:
        for attempt in range(1, _HARNESS_ATTEMPTS + 1):
            try:
                return self._isolation.evaluate(request, self._progress.on_stage)
            except HarnessError as error:
                if attempt == _HARNESS_ATTEMPTS:
                    raise StudyError(
                        f"the evaluation machinery failed {attempt} times in a row: {error}",
                        hint=error.hint or "nothing is lost: run the study again when the cause is gone",
                    ) from error
                time.sleep(_HARNESS_PAUSE_S)
        raise AssertionError("unreachable: the loop returns or raises")

    def _request(self, candidate: Candidate, workdir: str) -> EvaluateRequest:
        artifacts = self._home.artifacts
        return EvaluateRequest(
            backend=self._spec.backend,
            model=str(model_path(self._home, self._spec)),
            values=self._context.space.values(candidate),
            pairs=tuple(
                PairFiles(p.label, str(artifacts.path(TENSORS, p.inputs)), str(artifacts.path(TENSORS, p.reference)))
                for p in self._spec.pairs
            ),
            judging=self._spec.judging,
            timing=self._spec.timing,
            workdir=workdir,
        )

    def _is_worth_keeping(self, candidate: Candidate, outcome: Outcome) -> bool:
        best = self.summary.best
        if not isinstance(outcome, Measured):
            return False
        return candidate.is_baseline or best is None or outcome.samples.throughput > (best.throughput or 0.0)

    def _sync(self) -> None:
        """Take in what is recorded but not known here: earlier runs at start, other processes later."""
        known = table.finished_uids(self._home.database, self._context.id)
        self._take_in([uid for uid in known if uid not in self._trials])

    def _learn(self, uid: str) -> Trial:
        self._take_in([uid])
        return self._trials[uid]

    def _take_in(self, uids: Sequence[str]) -> None:
        if not uids:
            return
        records = table.get_trials(self._home.database, uids)
        for record in records:
            self._trials[record.uid] = to_trial(record)
        ordered = sorted(self._trials.values(), key=lambda trial: trial.number)
        self._summary = summarize(ordered, self._spec.judging.limits)
        baseline = self.summary.baseline
        scale = (baseline.throughput if baseline else None) or 0.0
        for record in records:
            trial = self._trials[record.uid]
            seen = observe(trial.candidate, trial.outcome, self._spec.judging.limits, scale)
            self._proposer.learn(seen)
            self._projection.tell(
                trial.uid, seen, engines.attributes(trial, scale), trial.started_at, trial.finished_at
            )
        table.mark_told(self._home.database, [record.uid for record in records if not record.told])

    def _require_baseline(self, summary: Summary) -> None:
        baseline = summary.baseline
        if baseline is None or baseline.throughput is not None:
            return
        outcome = baseline.outcome
        reason = outcome.reason if not isinstance(outcome, Measured) else ""
        hint = (
            "does the model run in this backend by itself? Build and time limits: --trial-timeout, --memory-limit"
            if isinstance(outcome, Failed)
            else "no candidate can be judged against limits that the default itself breaks: raise --max-loss"
        )
        raise StudyError(f"the default cannot be measured: {reason}", hint=hint)


def _engine_of(outcome: Outcome) -> EngineFile | None:
    return outcome.engine if isinstance(outcome, Measured) else None
