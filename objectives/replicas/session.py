"""Replicated session: several instances of one engine at once, as a service would run them, as one Session.

Flow: backend.py opens an engine here and in the replicas' processes -> evaluate.py checks and times it like any other.
A timing begins when all are at work (board.py); the slowest counts, and its time is divided by their number, so that a
latency is the time per inference of the whole and its reciprocal the throughput of the whole.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path

import numpy as np

from objectives.backends.base import Session, Values
from objectives.conditions import HostWatch, Watch, merge
from objectives.errors import CandidateError, HarnessError
from objectives.outcome import FailureKind
from objectives.replicas.board import AbandonedError, Board
from objectives.replicas.messages import Bind, Close, Measure, Run, Spent
from objectives.replicas.process import ReplicaProcess
from objectives.tensors import Array, Tensors, load_tensors, save_tensors

_DIFFERENCE = 1e-3  # relative, between the outputs of two instances of one engine


def replicated_session(first: Session, processes: Sequence[ReplicaProcess], facts: Values, held: ExitStack) -> Session:
    """`first`, which runs here, and those that `processes` have open, as one; `held` is given back when it closes."""

    class OfOne(_ReplicatedSession):
        clock = first.clock

    return OfOne(first, processes, facts, held)


class _ReplicatedSession(Session):
    """See `replicated_session`."""

    least_sample_ms = 20.0  # until all are at work a whole slice of the scheduler's may pass

    def __init__(self, first: Session, processes: Sequence[ReplicaProcess], facts: Values, held: ExitStack) -> None:
        self._first = first
        self._processes = tuple(processes)
        self._facts = dict(facts)
        self._held = held
        self._board: Board | None = None
        self._turn = 0
        self._numbers = count()
        self._folder = held.enter_context(tempfile.TemporaryDirectory(prefix="tuner-replicas-"))

    @property
    def effective(self) -> Values:
        return {**self._first.effective, **self._facts}

    def run(self, inputs: Tensors) -> dict[str, Array]:
        """One inference of every instance; the answers of the first, which the others have to give too."""
        given = self._path("inputs")
        save_tensors(given, inputs)
        found = [self._path(f"outputs-{index}") for index in range(len(self._processes))]
        for process, target in zip(self._processes, found, strict=True):
            process.send(Run(str(given), str(target)))
        outputs = self._first.run(inputs)
        for process, target in zip(self._processes, found, strict=True):
            process.receive()
            _require_same(outputs, load_tensors(target), process.name)
        return outputs

    def bind(self, inputs: Tensors) -> None:
        self._turn = 0
        number = len(self._processes) + 1
        given, board = self._path("bound"), self._path(f"board-{next(self._numbers)}")
        save_tensors(given, inputs)
        self._board = Board(board, number, 0)
        for own, process in enumerate(self._processes, start=1):
            process.send(Bind(str(given), str(board), number, own))
        self._first.bind(inputs)
        for process in self._processes:
            process.receive()

    def measure(self, repeats: int) -> float:
        """Seconds per `repeats` inferences of the whole: of the slowest instance, over their number."""
        if self._board is None:
            raise HarnessError("measure was called before bind")
        turn, self._turn = self._turn, self._turn + 1
        for process in self._processes:
            process.send(Measure(repeats, turn))
        try:
            seconds = self._board.measured(turn, self._first.measure, repeats, self._is_alone)
        except AbandonedError:
            seconds = 0.0  # who has failed says so now
        answers = [process.receive() for process in self._processes]
        if not seconds or any(one.is_abandoned for one in answers):
            raise CandidateError(FailureKind.RUN_FAILED, "the instances did not run beside one another")
        return max(seconds, *(one.seconds for one in answers)) / (len(answers) + 1)

    def _is_alone(self) -> bool:
        return not all(process.is_alive() for process in self._processes)

    def _execute(self, repeats: int) -> None:
        self.measure(repeats)

    def watch(self) -> Watch:
        return _Watch(self._first.watch(), HostWatch(self._spent_s))

    def close(self) -> None:
        processes, self._processes = self._processes, ()
        try:
            self._first.close()
            for process in processes:
                if process.is_idle():
                    with suppress(CandidateError):  # it is gone, and was found so where it mattered
                        process.ask(Close())
        finally:
            self._held.close()

    def _spent_s(self) -> float:
        """Processor time of all instances."""
        return time.process_time() + sum(process.ask(Spent()).seconds for process in self._processes)

    def _path(self, name: str) -> Path:
        return Path(self._folder) / name


class _Watch:
    """What the first instance's session watches, but for the host's load, of which all instances have a part."""

    def __init__(self, first: Watch, host: HostWatch) -> None:
        self._first = first
        self._host = host

    def stop(self) -> tuple[dict[str, float], tuple[str, ...]]:
        """Figures and flags."""
        figures, flags = self._first.stop()
        return merge((figures, tuple(flag for flag in flags if flag not in HostWatch.flags)), self._host.stop())


def _require_same(expected: Tensors, found: Tensors, name: str) -> None:
    """Raises: CandidateError if another instance of the same engine gives other answers."""
    for output, array in expected.items():
        other = found.get(output)
        if other is None or other.shape != array.shape or other.dtype != array.dtype:
            raise CandidateError(FailureKind.RUN_FAILED, f"replica {name}: output {output!r} is not that of the first")
        if array.dtype.kind in "OSU" or np.array_equal(array, other):
            continue
        one, two = array.astype(np.float64), other.astype(np.float64)
        finite = np.isfinite(one) & np.isfinite(two)
        difference = float(np.linalg.norm((one - two)[finite]) / max(float(np.linalg.norm(one[finite])), 1e-30))
        if difference > _DIFFERENCE or not np.array_equal(np.isfinite(one), np.isfinite(two)):
            words = f"replica {name}: output {output!r} differs from that of the first by {difference:.2g} (relative)"
            raise CandidateError(FailureKind.RUN_FAILED, words)
