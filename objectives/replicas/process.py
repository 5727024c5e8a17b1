"""Process: a replica as the evaluating process sees it: started, asked, found dead.

Flow: session.py -> HERE -> `python -m objectives.replicas.replica`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress

from objectives.errors import CandidateError
from objectives.outcome import FailureKind
from objectives.replicas.messages import Done, Order, Trouble, decode_answer, encode

_END_S = 5.0  # for a process whose pipe was closed


class ReplicaProcess:
    """One more process in the group of this one; `index` is its place, `name` what messages call it."""

    def __init__(self, index: int, name: str, variables: Mapping[str, str]) -> None:
        self.index = index
        self.name = name
        self._open_orders = 0
        (order_read, order_write), (answer_read, answer_write) = os.pipe(), os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "objectives.replicas.replica", str(order_read), str(answer_write)],
                pass_fds=(order_read, answer_write),
                stdin=subprocess.DEVNULL,
                env={**os.environ, **variables},
            )
        finally:
            os.close(order_read)
            os.close(answer_write)
        self._orders = os.fdopen(order_write, "wb")
        self._answers = os.fdopen(answer_read, "rb")

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def is_idle(self) -> bool:
        """Whether it lives and owes no answer: can be given to somebody else."""
        return self.is_alive() and not self._open_orders

    def send(self, order: Order) -> None:
        """Give an order; its answer is to be received. Raises: CandidateError if the process is gone."""
        try:
            self._orders.write(encode(order))
            self._orders.flush()
        except BrokenPipeError:
            raise self._death() from None
        self._open_orders += 1

    def receive(self) -> Done:
        """The answer to the last order. Raises: CandidateError for its trouble, and if the process has died."""
        line = self._answers.readline()
        if not line:
            raise self._death()
        self._open_orders -= 1
        answer = decode_answer(line)
        if isinstance(answer, Trouble):
            raise CandidateError(answer.kind, f"replica {self.name}: {answer.words}")
        return answer

    def ask(self, order: Order) -> Done:
        """Give an order and wait for its answer. Raises: as `send` and `receive`."""
        self.send(order)
        return self.receive()

    def end(self) -> None:
        """Let the process end, by force if it does not."""
        for pipe in (self._orders, self._answers):
            with suppress(OSError):
                pipe.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _death(self) -> CandidateError:
        code = self._process.wait()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        kind = FailureKind.OUT_OF_MEMORY if code == -signal.SIGKILL else FailureKind.CRASHED
        return CandidateError(kind, f"replica {self.name} {how}")
