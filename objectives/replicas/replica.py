"""Replica: a process that runs one more instance of an engine: `python -m objectives.replicas.replica PIPE PIPE`.

Flow: session.py starts it beside the evaluating process, in the same process group -> orders in, answers out. It ends
when its pipe closes, and with its group.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from functools import lru_cache
from pathlib import Path

from objectives.backends.base import Backend, Session, tensor_session
from objectives.backends.registry import load_plain
from objectives.errors import CandidateError
from objectives.outcome import FailureKind
from objectives.replicas.board import AbandonedError, Board
from objectives.replicas.messages import (
    Answer,
    Bind,
    Close,
    Done,
    Measure,
    Open,
    Order,
    Run,
    Spent,
    Trouble,
    decode_order,
    encode,
)
from objectives.tensors import load_tensors, save_tensors


@lru_cache
def _backend(name: str, options: tuple[tuple[str, str], ...]) -> Backend:
    return load_plain(name, dict(options))


class _Desk:
    """Carries out orders one after another."""

    def __init__(self) -> None:
        self._session: Session | None = None
        self._board: Board | None = None

    def answer(self, order: Order) -> Answer:
        try:
            return self._answer(order)
        except CandidateError as error:
            return Trouble(error.kind, str(error))
        except MemoryError as error:
            return Trouble(FailureKind.OUT_OF_MEMORY, str(error) or "out of host memory")
        except Exception as error:  # a runtime may raise anything; for this candidate it is a fact
            kind = FailureKind.BUILD_FAILED if isinstance(order, Open) else FailureKind.RUN_FAILED
            return Trouble(kind, f"{type(error).__name__}: {error}")

    def _answer(self, order: Order) -> Answer:
        match order:
            case Open():
                self._close()
                backend = _backend(order.backend, tuple(sorted(order.options.items())))
                self._session = tensor_session(backend.open(order.engine, order.values))
            case Run():
                save_tensors(Path(order.outputs), self._open.run(load_tensors(Path(order.inputs))))
            case Bind():
                self._open.bind(load_tensors(Path(order.inputs)))
                self._board = Board(Path(order.board), order.count, order.own)
            case Measure():
                return self._measured(order)
            case Spent():
                return Done(time.process_time())
            case Close():
                self._close()
        return Done()

    def _measured(self, order: Measure) -> Done:
        if self._board is None:
            raise CandidateError(FailureKind.RUN_FAILED, "no inputs are bound in this replica")
        parent = os.getppid()
        try:
            seconds = self._board.measured(
                order.turn, self._open.measure, order.repeats, lambda: os.getppid() != parent
            )
        except AbandonedError:
            return Done(is_abandoned=True)
        return Done(seconds)

    @property
    def _open(self) -> Session:
        if self._session is None:
            raise CandidateError(FailureKind.RUN_FAILED, "no engine is open in this replica")
        return self._session

    def _close(self) -> None:
        session, self._session, self._board = self._session, None, None
        if session is not None:
            session.close()


def main(arguments: list[str]) -> int:
    """Answer orders until the pipe closes."""
    order_fd, answer_fd = (int(argument) for argument in arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process above all to handle
    desk = _Desk()
    with os.fdopen(order_fd, "rb") as orders, os.fdopen(answer_fd, "wb") as answers:
        for line in orders:
            answers.write(encode(desk.answer(decode_order(line))))
            answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
