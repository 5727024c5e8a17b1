"""Isolation: an evaluation happens somewhere it can crash, hang and eat memory without taking the study along.

Flow: the study's loop hands over a Request -> HERE -> worker.py -> Reply. Two implementations, one contract
(`tests/contracts/isolation_contract.py`): Subprocess for everything real, InProcess for tests and debuggers.
"""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from objectives import errors
from objectives.child import Child, Death
from objectives.errors import HarnessError, ModelError
from objectives.outcome import Failed, FailureKind, Outcome, Stage, Trace
from objectives.requests import (
    Described,
    DescribeRequest,
    Evaluated,
    EvaluateRequest,
    Message,
    Referenced,
    ReferenceRequest,
    Refused,
    Request,
    StageEvent,
)
from objectives.worker import answer

OnStage = Callable[[Stage], None]
T = TypeVar("T", Described, Referenced, Evaluated)


def _ignore(_: Stage) -> None:
    return


class Limits(msgspec.Struct, frozen=True):
    """What one evaluation may take before it is killed: wall-clock seconds, and bytes of resident memory."""

    deadline_s: float = 600.0
    memory_bytes: int | None = None


class Isolation(ABC):
    """Carries out requests. Used by one thread; a context manager; `close` leaves no process behind."""

    @abstractmethod
    def describe(self, request: DescribeRequest) -> Described:
        """Raises: InputError (backend missing, model unusable), HarnessError."""

    @abstractmethod
    def reference(self, request: ReferenceRequest) -> Referenced:
        """Raises: InputError (the model does not run on the data), HarnessError."""

    @abstractmethod
    def evaluate(self, request: EvaluateRequest, on_stage: OnStage = _ignore) -> Outcome:
        """Whatever the candidate does is an outcome. Raises: HarnessError."""

    @abstractmethod
    def close(self) -> None:
        """End every process. May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class InProcess(Isolation):
    """No isolation at all: same calls, same process, no deadline. For tests and for a debugger."""

    def describe(self, request: DescribeRequest) -> Described:
        return _expect(Described, answer(request, lambda _: None))

    def reference(self, request: ReferenceRequest) -> Referenced:
        return _expect(Referenced, answer(request, lambda _: None))

    def evaluate(self, request: EvaluateRequest, on_stage: OnStage = _ignore) -> Outcome:
        def emit(message: Message) -> None:
            if isinstance(message, StageEvent):
                on_stage(message.stage)

        return _expect(Evaluated, answer(request, emit)).outcome

    def close(self) -> None:
        return


class Subprocess(Isolation):
    """A child process in its own group, kept alive between requests and replaced after every failure."""

    def __init__(self, limits: Limits = Limits()) -> None:  # noqa: B008 - frozen
        self._limits = limits
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the living child, None when there is none."""
        return self._child.pid if self._child else None

    def describe(self, request: DescribeRequest) -> Described:
        return _expect(Described, self._ask(request))

    def reference(self, request: ReferenceRequest) -> Referenced:
        return _expect(Referenced, self._ask(request))

    def evaluate(self, request: EvaluateRequest, on_stage: OnStage = _ignore) -> Outcome:
        outcome = self._evaluate_once(request, on_stage)
        if not (isinstance(outcome, Failed) and outcome.kind is FailureKind.OUT_OF_MEMORY):
            return outcome
        # Memory may have been short because of somebody else: once more, in a fresh process, before it counts.
        again = self._evaluate_once(request, on_stage)
        return msgspec.structs.replace(again, trace=msgspec.structs.replace(again.trace, attempts=2))

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _evaluate_once(self, request: EvaluateRequest, on_stage: OnStage) -> Outcome:
        reply = self._exchange(request, on_stage)
        if isinstance(reply, Death):
            return _failed(reply, request)
        outcome = _expect(Evaluated, reply).outcome
        if isinstance(outcome, Failed):
            self.close()  # a library that has failed once may have left anything behind
        return outcome

    def _ask(self, request: Request) -> Message:
        reply = self._exchange(request, _ignore)
        if isinstance(reply, Death):
            raise ModelError(
                f"the runtime {reply.describe()} while reading or running the model",
                hint=f"does the model run in the runtime by itself? its last words: {reply.log or 'none'}",
            )
        return reply

    def _exchange(self, request: Request, on_stage: OnStage) -> Message | Death:
        if self._child is None or not self._child.is_alive():
            self.close()
            self._child = Child(self._limits.deadline_s, self._limits.memory_bytes)
        try:
            reply = self._child.exchange(request, on_stage)
        except BaseException:
            self.close()  # interrupted or broken in the middle of an exchange: the pipes hold half a conversation
            raise
        if isinstance(reply, Death | Refused):
            self.close()
        return reply


def _expect(wanted: type[T], reply: Message) -> T:
    if isinstance(reply, wanted):
        return reply
    if isinstance(reply, Refused):
        kind = getattr(errors, reply.error, HarnessError)
        raise kind(reply.message, hint=reply.hint)
    raise HarnessError(f"the child answered {type(reply).__name__} where {wanted.__name__} was expected")


def _failed(death: Death, request: EvaluateRequest) -> Failed:
    trace = Trace(asked=request.values, stage_s=death.stage_s)
    detail = death.describe() + (f"; last output: {death.log}" if death.log else "")
    return Failed(trace, death.stage, _kind(death), detail, death.signal)


def _kind(death: Death) -> FailureKind:
    if death.reason == "deadline":
        return FailureKind.TIMED_OUT
    # Nobody but the kernel's memory guard sends SIGKILL as a rule; a wrong guess costs one retry.
    if death.reason == "memory" or death.signal == signal.SIGKILL:
        return FailureKind.OUT_OF_MEMORY
    return FailureKind.CRASHED
