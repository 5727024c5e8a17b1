"""Confirm: the search proposes, the confirmation decides.

Flow: trials -> finalists.py chooses and rebuilds -> pairs.py times fresh process pairs, stored as they come -> stats
judge HERE -> verdicts, a winner or the honest sentence that there is none, and the engine file that ships. Killed at
any moment it goes on with the next pair.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import msgspec

from objectives.device import device_lock
from storage import confirmations as table
from storage.records import ConfirmationRecord, PairRecord
from tuner import engines, noise
from tuner.answers import Confirmed, ConfirmOptions, answer_of, to_json, verdict_record, winner_of
from tuner.ask import timed_pair
from tuner.context import Context
from tuner.controls import provenance
from tuner.errors import StudyError
from tuner.finalists import BASELINE, Finalist, discard, rebuild
from tuner.home import Home
from tuner.lanes import DeviceLostError, Lane
from tuner.ledger import Trial
from tuner.noise import NewIsolation
from tuner.pairs import BrokenPair, Contestant, TakenPair, flags_of, take_pair
from tuner.places import Place, places_of
from tuner.progress import Progress
from tuner.spec import StudySpec
from tuner.spread import Job, Spread
from tuner.stats import (
    REPRODUCIBLE,
    ConfirmationPlan,
    Level,
    PairBlock,
    Side,
    Step,
    figures,
    fit_builds,
    grouped,
    judge,
    next_step,
)

_NEGLIGIBLE = 0.5  # of the smallest gain that matters: a lead by less does not pay for a further change
_SAME_BYTES_BUILDS = 2  # where rebuilding gives the same file, more builds are the same build


class Confirmation:
    """One confirmation of one context; `run` may be called once."""

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
        places = places_of(where, context.device)
        self._fresh = places[0].fresh
        self._spread = Spread(places, progress)
        self._progress = progress
        self._pair_file = timed_pair(home, spec)
        self._origin = provenance(spec, context)

    def run(
        self, baseline: Trial, chosen: Sequence[Trial], options: ConfirmOptions, purpose: str = "confirm"
    ) -> Confirmed:
        """Rebuild, restart and time until every finalist has a verdict or the budget is spent.

        Raises: StudyError if the default itself does not hold.
        """
        with self._home.artifacts.at_work():
            return self._run(baseline, chosen, options, purpose)

    def _run(self, baseline: Trial, chosen: Sequence[Trial], options: ConfirmOptions, purpose: str) -> Confirmed:
        start = time.monotonic()
        plan = _plan(options)
        record = self._resume(purpose, options, chosen) or self._open(purpose, options, baseline, chosen)
        finalists = self._rebuilt(record, options)
        plan, known = self._what_is_known(finalists, plan)
        until = math.inf if options.timeout_s is None else start + options.timeout_s
        finalists = self._time_pairs(record, finalists, plan, known, until)
        confirmed = self._judge(record, finalists, plan, known, time.monotonic() - start)
        self._close(record, confirmed, finalists, chosen)
        return confirmed

    def _open(
        self, purpose: str, options: ConfirmOptions, baseline: Trial, chosen: Sequence[Trial]
    ) -> ConfirmationRecord:
        entrants = [Finalist(one.uid, one.number, one.candidate).to_json() for one in (baseline, *chosen)]
        stored = msgspec.to_builtins(options)
        return table.open_confirmation(self._home.database, self._context.id, purpose, stored, entrants)

    def _resume(self, purpose: str, options: ConfirmOptions, chosen: Sequence[Trial]) -> ConfirmationRecord | None:
        """The last confirmation of this context if it was interrupted with the same question and the same finalists."""
        last = next(iter(table.confirmations_of(self._home.database, self._context.id)[::-1]), None)
        if last is None or last.state == "done" or last.purpose != purpose:
            return None
        same_question = {**last.plan, "timeout_s": None} == {**msgspec.to_builtins(options), "timeout_s": None}
        entrants = {str(one["trial_uid"]) for one in last.finalists[1:]}
        return last if same_question and entrants == {trial.uid for trial in chosen} else None

    def _rebuilt(self, record: ConfirmationRecord, options: ConfirmOptions) -> list[Finalist]:
        finalists = [msgspec.convert(dict(one), Finalist) for one in record.finalists]
        for index, finalist in enumerate(finalists):
            self._progress.on_confirm(f"building {_name(finalist)}")
            made = finalist
            for builds in (_SAME_BYTES_BUILDS, options.builds):
                if made.dropped or (len(made.builds) >= 2 and _same_bytes([made])):
                    break
                made = rebuild(self._home, self._spec, self._context, self._fresh, made, builds)
            finalists[index] = made
            table.set_finalists(self._home.database, record.id, [one.to_json() for one in finalists])
        if finalists[0].dropped:
            raise StudyError(f"the default cannot be rebuilt: {finalists[0].dropped}", hint="see `study show`")
        return finalists

    def _what_is_known(
        self, finalists: list[Finalist], plan: ConfirmationPlan
    ) -> tuple[ConfirmationPlan, Level | None]:
        """Where every rebuild gave the same bytes, builds have no luck and two of them are as good as four."""
        if _same_bytes([one for one in finalists if not one.dropped]):
            return msgspec.structs.replace(plan, builds=_SAME_BYTES_BUILDS), REPRODUCIBLE
        floor = noise.known(self._home, self._context)
        return plan, None if floor is None or not floor.build.df else floor.build

    def _time_pairs(
        self,
        record: ConfirmationRecord,
        finalists: list[Finalist],
        plan: ConfirmationPlan,
        known: Level | None,
        until: float,
    ) -> list[Finalist]:
        while True:
            running = {one.id: one for one in finalists[1:] if not one.dropped}
            if not running:
                return finalists
            blocks = self._blocks(record, running, plan)
            step = next_step(blocks, list(running), plan, known)
            self._progress.on_confirm(f"{len(blocks)} pairs, {len(step.needs)} finalists open")
            if not step.needs:
                return finalists
            finalists = self._take(record, finalists, plan, step, until)
            if self._is_over(until):
                return finalists

    def _take(
        self,
        record: ConfirmationRecord,
        finalists: list[Finalist],
        plan: ConfirmationPlan,
        step: Step,
        until: float,
    ) -> list[Finalist]:
        """Take the pairs that are needed; who breaks in one leaves."""
        # Every finalist gets one pair before any gets its next: what the machine does meanwhile meets all.
        jobs = self._jobs(record, step)
        lock, known = threading.Lock(), {one.id: one for one in finalists}

        def take(lane: Lane, job: Job) -> None:
            finalist = known[job[0]]
            if finalist.dropped:
                return
            trouble = self._pair(lane, record, finalists[0], finalist, job[1], plan)
            if trouble:
                with lock:
                    known[finalist.id] = msgspec.structs.replace(finalist, dropped=trouble)
                    stored = [one.to_json() for one in known.values()]
                    table.set_finalists(self._home.database, record.id, stored)

        self._spread.run(jobs, take, lambda: self._is_over(until))
        return list(known.values())

    def _jobs(self, record: ConfirmationRecord, step: Step) -> list[Job]:
        """The pairs that are needed, in turns; what an interruption left out between others comes first."""
        done = {(one.finalist, one.pair_index) for one in table.pairs_of(self._home.database, record.id)}
        free = {need.candidate_id: _free(need.candidate_id, done) for need in step.needs}
        turns = range(max(need.pairs for need in step.needs))
        return [
            (need.candidate_id, next(free[need.candidate_id])) for n in turns for need in step.needs if n < need.pairs
        ]

    @staticmethod
    def _is_over(until: float) -> bool:
        return time.monotonic() > until

    def _pair(
        self,
        lane: Lane,
        record: ConfirmationRecord,
        baseline: Finalist,
        finalist: Finalist,
        index: int,
        plan: ConfirmationPlan,
    ) -> str:
        """Take and store one pair on a device; returns why the finalist leaves, empty when all is well."""
        build, baseline_build = plan.builds_of(index)
        sides = {
            Side.BASELINE: self._contestant(baseline, baseline_build),
            Side.CANDIDATE: self._contestant(finalist, build),
        }
        with device_lock(lane.device, lane.progress.on_wait, lane.is_stopped):
            taken = take_pair(lane.fresh, sides, self._pair_file, self._spec.timing, index)
        if isinstance(taken, BrokenPair):
            if taken.side is Side.BASELINE:
                raise DeviceLostError(
                    f"the default no longer runs: {taken.failed.reason}", hint="nothing is lost: confirm again"
                )
            return f"did not run in pair {index}: {taken.failed.reason}"
        stored = PairRecord(finalist.id, index, build, baseline_build, taken.log_ratio, _raw(taken), device=lane.device)
        table.add_pair(self._home.database, record.id, stored)
        self._progress.on_pair(finalist, index, taken.log_ratio)
        return ""

    def _contestant(self, finalist: Finalist, build: int) -> Contestant:
        engine = finalist.builds[build % len(finalist.builds)]
        values = self._context.space.values(finalist.candidate)
        return Contestant(self._spec.backend, engine, values, self._spec.backend_options)

    def _blocks(
        self, record: ConfirmationRecord, running: dict[str, Finalist], plan: ConfirmationPlan
    ) -> list[PairBlock]:
        return [
            PairBlock(one.finalist, one.build, one.baseline_build, one.pair_index, one.log_ratio, self._origin)
            for one in table.pairs_of(self._home.database, record.id)
            if one.finalist in running
        ]

    def _judge(
        self,
        record: ConfirmationRecord,
        finalists: list[Finalist],
        plan: ConfirmationPlan,
        known: Level | None,
        spent_s: float,
    ) -> Confirmed:
        running = {one.id: one for one in finalists[1:] if not one.dropped}
        blocks = self._blocks(record, running, plan)
        verdicts = {v.candidate_id: v for v in judge(blocks, list(running), plan, known)} if running else {}
        answers = tuple((one, verdicts.get(one.id)) for one in finalists[1:])
        model = fit_builds(grouped(blocks, list(running)), known) if blocks else None
        told = {one: figures(model, one) for one in verdicts if verdicts[one].n_pairs} if model else {}
        winner = winner_of(running, verdicts, told, _NEGLIGIBLE * math.log1p(plan.min_gain))
        kind, reason = answer_of(winner, list(verdicts.values()), len(finalists) - 1)
        shipped = None if winner is None else told[winner.id]
        return Confirmed(kind, reason, winner, answers, shipped, plan.min_gain, len(blocks), spent_s)

    def _close(
        self, record: ConfirmationRecord, confirmed: Confirmed, finalists: list[Finalist], chosen: Sequence[Trial]
    ) -> None:
        if confirmed.winner is not None and confirmed.figures is not None:
            shipped = confirmed.winner.builds[confirmed.figures.shipped_build % len(confirmed.winner.builds)]
            trial = next(one for one in chosen if one.uid == confirmed.winner.trial_uid)
            facts = {"confirmed": True, "confirmation": to_json(confirmed)}
            engines.promote(self._home, self._spec, self._context, trial, shipped, facts)
        verdicts = [verdict_record(finalist, verdict) for finalist, verdict in confirmed.verdicts]
        table.close_confirmation(self._home.database, record.id, to_json(confirmed), verdicts)
        discard(self._home, finalists)


def _free(finalist: str, done: set[tuple[str, int]]) -> Iterator[int]:
    """Numbers of pairs that a finalist does not have yet, the lowest first."""
    return (index for index in count() if (finalist, index) not in done)


def _plan(options: ConfirmOptions) -> ConfirmationPlan:
    looks = {-(-look // options.builds) * options.builds for look in ConfirmationPlan().looks}
    return ConfirmationPlan(min_gain=options.min_gain, builds=options.builds, looks=tuple(sorted(looks)))


def _same_bytes(finalists: Sequence[Finalist]) -> bool:
    return all(len({engine.digest for engine in one.builds}) == 1 for one in finalists)


def _raw(taken: TakenPair) -> list[dict[str, Any]]:
    return [
        {
            "side": side.value,
            "repeats": one.repeats,
            "samples_ms": list(one.samples_ms),
            "conditions": dict(one.conditions),
            "flags": list(flags_of(one)),
        }
        for side, one in zip(taken.order, taken.rounds, strict=True)
    ]


def _name(finalist: Finalist) -> str:
    return "the default" if finalist.id == BASELINE else f"trial #{finalist.number}"
