"""Isolation: an evaluation happens somewhere it can crash, hang and eat memory without taking the study along.

Flow: the study's loop hands over a Request -> HERE -> worker.py -> Reply. Two implementations, one contract
(`tests/contracts/isolation_contract.py`): Subprocess for everything real, InProcess for tests and debuggers.
"""

from __future__ import annotations

import shutil
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from objectives import errors
from objectives.child import Child, Death
from objectives.errors import HarnessError, ModelError, StartError, StoppedError
from objectives.outcome import Built, Failed, FailureKind, Outcome, Rejected, Round, Samples, Stage, Trace
from objectives.requests import (
    BuildRequest,
    Checked,
    CheckRequest,
    Described,
    DescribeRequest,
    Evaluated,
    EvaluateRequest,
    Message,
    Opened,
    OpenRequest,
    Referenced,
    ReferenceRequest,
    Refused,
    Request,
    Rounded,
    RoundRequest,
    SelfChecked,
    SelfCheckRequest,
    StageEvent,
    Timed,
    TimeRequest,
)
from objectives.worker import Desk

_START_ATTEMPTS = 3  # of a process that ends before it is ready: says nothing about a candidate
OnStage = Callable[[Stage, str], None]  # the stage entered or, with words, how far it is
T = TypeVar("T", Described, Referenced, Evaluated, Checked, Opened, Rounded, Timed, SelfChecked)
Result = TypeVar("Result", Outcome, Built | Rejected | Failed)
Anything = TypeVar("Anything")


def _ignore(stage: Stage, detail: str) -> None:
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
    def build(self, request: BuildRequest, on_stage: OnStage = _ignore) -> Built | Rejected | Failed:
        """Build and check a candidate, not timed. Raises: HarnessError."""

    @abstractmethod
    def check(self, request: CheckRequest) -> Built | Rejected | Failed:
        """Compare an engine that is there with the references. Raises: EngineFileError, HarnessError."""

    @abstractmethod
    def time(self, request: TimeRequest) -> Samples | Failed:
        """Time an engine as an evaluation would. Raises: EngineFileError, HarnessError."""

    @abstractmethod
    def open(self, request: OpenRequest) -> Opened | Failed:
        """Open an engine and keep it open, warm, for `round`; what was open before is closed.

        Raises: EngineFileError, HarnessError.
        """

    @abstractmethod
    def round(self) -> Round | Failed:
        """One round of the open engine. Raises: HarnessError, also when none is open."""

    @abstractmethod
    def self_check(self, request: SelfCheckRequest, on_stage: OnStage = _ignore) -> SelfChecked | Failed:
        """One step of a backend's self-check. Raises: InputError (backend missing), HarnessError."""

    def stop(self) -> None:
        """End what is going on: it raises StoppedError, and so does every later request. From any thread."""
        return

    def prepare(self) -> None:
        """Start what can be started before the first request, without waiting for it."""
        return

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

    def __init__(self) -> None:
        self._desk = Desk()

    def describe(self, request: DescribeRequest) -> Described:
        return _expect(Described, self._desk.answer(request, _drop))

    def reference(self, request: ReferenceRequest) -> Referenced:
        return _expect(Referenced, self._desk.answer(request, _drop))

    def evaluate(self, request: EvaluateRequest, on_stage: OnStage = _ignore) -> Outcome:
        return _expect(Evaluated, self._desk.answer(request, _stages_to(on_stage))).outcome

    def build(self, request: BuildRequest, on_stage: OnStage = _ignore) -> Built | Rejected | Failed:
        return _expect(Checked, self._desk.answer(request, _stages_to(on_stage))).outcome

    def check(self, request: CheckRequest) -> Built | Rejected | Failed:
        return _expect(Checked, self._desk.answer(request, _drop)).outcome

    def time(self, request: TimeRequest) -> Samples | Failed:
        return _samples(self._desk.answer(request, _drop))

    def open(self, request: OpenRequest) -> Opened | Failed:
        return _opened(self._desk.answer(request, _drop))

    def round(self) -> Round | Failed:
        return _round(self._desk.answer(RoundRequest(), _drop))

    def self_check(self, request: SelfCheckRequest, on_stage: OnStage = _ignore) -> SelfChecked | Failed:
        return _self_checked(self._desk.answer(request, _stages_to(on_stage)))

    def close(self) -> None:
        self._desk.close()


class Subprocess(Isolation):
    """A child process in its own group, kept alive between requests and replaced after failures.

    Only a backend that knows itself to be sound after a failure keeps its process.

    `variables` are added to its environment: which device it sees, for one.
    """

    def __init__(
        self,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._limits = limits
        self._variables = dict(variables or {})
        self._child: Child | None = None
        self._stopped = threading.Event()

    @property
    def pid(self) -> int | None:
        """Process id of the living child, None when there is none."""
        return self._child.pid if self._child else None

    def stop(self) -> None:
        self._stopped.set()

    def prepare(self) -> None:
        self._living_child()

    def describe(self, request: DescribeRequest) -> Described:
        return _expect(Described, self._ask(request))

    def reference(self, request: ReferenceRequest) -> Referenced:
        return _expect(Referenced, self._ask(request))

    def evaluate(self, request: EvaluateRequest, on_stage: OnStage = _ignore) -> Outcome:
        return self._twice_if_memory(lambda: self._evaluate_once(request, on_stage), Path(request.workdir))

    def build(self, request: BuildRequest, on_stage: OnStage = _ignore) -> Built | Rejected | Failed:
        return self._twice_if_memory(lambda: self._build_once(request, on_stage), Path(request.workdir))

    def check(self, request: CheckRequest) -> Built | Rejected | Failed:
        reply = self._exchange(request, _ignore)
        if isinstance(reply, Death):
            return _failed(reply, request.values)
        return self._keep_if_good(_expect(Checked, reply).outcome)

    def time(self, request: TimeRequest) -> Samples | Failed:
        reply = self._exchange(request, _ignore)
        return _failed(reply, request.values) if isinstance(reply, Death) else self._keep_if_good(_samples(reply))

    def open(self, request: OpenRequest) -> Opened | Failed:
        reply = self._exchange(request, _ignore)
        return _failed(reply, request.values) if isinstance(reply, Death) else self._keep_if_good(_opened(reply))

    def round(self) -> Round | Failed:
        if self._child is None:
            raise HarnessError("a round was asked for, but no engine is open")
        reply = self._exchange(RoundRequest(), _ignore)
        return _failed(reply, {}) if isinstance(reply, Death) else self._keep_if_good(_round(reply))

    def self_check(self, request: SelfCheckRequest, on_stage: OnStage = _ignore) -> SelfChecked | Failed:
        reply = self._exchange(request, on_stage)
        return _failed(reply, request.values) if isinstance(reply, Death) else self._keep_if_good(_self_checked(reply))

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _twice_if_memory(self, once: Callable[[], Result], workdir: Path) -> Result:
        first = once()
        if not (isinstance(first, Failed) and first.kind is FailureKind.OUT_OF_MEMORY):
            return first
        # Memory may have been short because of somebody else: once more, in a fresh process, before it counts.
        _empty(workdir)
        again = once()
        return msgspec.structs.replace(again, trace=msgspec.structs.replace(again.trace, attempts=2))

    def _evaluate_once(self, request: EvaluateRequest, on_stage: OnStage) -> Outcome:
        reply = self._exchange(request, on_stage)
        if isinstance(reply, Death):
            return _failed(reply, request.values)
        evaluated = _expect(Evaluated, reply)
        return self._keep_if_good(evaluated.outcome, evaluated.is_sound)

    def _build_once(self, request: BuildRequest, on_stage: OnStage) -> Built | Rejected | Failed:
        reply = self._exchange(request, on_stage)
        if isinstance(reply, Death):
            return _failed(reply, request.values)
        checked = _expect(Checked, reply)
        return self._keep_if_good(checked.outcome, checked.is_sound)

    def _keep_if_good(self, result: Anything, is_sound: bool = False) -> Anything:
        if isinstance(result, Failed) and not is_sound:
            self.close()  # a library that has failed once may have left anything behind
        return result

    def _ask(self, request: Request) -> Message:
        reply = self._exchange(request, _ignore)
        if isinstance(reply, Death):
            raise ModelError(
                f"the runtime {reply.describe()} while reading or running the model",
                hint=f"does the model run in the runtime by itself? its last words: {reply.log or 'none'}",
            )
        return reply

    def _living_child(self) -> Child:
        if self._child is None or not self._child.is_alive():
            self.close()
            self._child = Child(
                self._limits.deadline_s, self._limits.memory_bytes, self._variables, self._stopped.is_set
            )
        return self._child

    def _exchange(self, request: Request, on_stage: OnStage) -> Message | Death:
        for attempt in range(1, _START_ATTEMPTS + 1):
            if self._stopped.is_set():
                raise StoppedError("the evaluation was stopped")
            try:
                return self._exchange_once(request, on_stage)
            except StartError:
                if attempt == _START_ATTEMPTS:
                    raise
        raise AssertionError("unreachable: the loop returns or raises")

    def _exchange_once(self, request: Request, on_stage: OnStage) -> Message | Death:
        child = self._living_child()
        try:
            reply = child.exchange(request, on_stage)
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


def _empty(folder: Path) -> None:
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _samples(reply: Message) -> Samples | Failed:
    return _broken(reply) or _expect(Timed, reply).samples


def _opened(reply: Message) -> Opened | Failed:
    return _broken(reply) or _expect(Opened, reply)


def _round(reply: Message) -> Round | Failed:
    return _broken(reply) or _expect(Rounded, reply).round


def _self_checked(reply: Message) -> SelfChecked | Failed:
    return _broken(reply) or _expect(SelfChecked, reply)


def _broken(reply: Message) -> Failed | None:
    return reply.outcome if isinstance(reply, Checked) and isinstance(reply.outcome, Failed) else None


def _drop(_: Message) -> None:
    return


def _stages_to(on_stage: OnStage) -> Callable[[Message], None]:
    def emit(message: Message) -> None:
        if isinstance(message, StageEvent):
            on_stage(message.stage, message.detail)

    return emit


def _failed(death: Death, asked: Mapping[str, str]) -> Failed:
    trace = Trace(asked=asked, stage_s=death.stage_s)
    detail = death.describe() + (f"; last output: {death.log}" if death.log else "")
    return Failed(trace, death.stage, _kind(death), detail, death.signal)


def _kind(death: Death) -> FailureKind:
    if death.reason == "deadline":
        return FailureKind.TIMED_OUT
    # Nobody but the kernel's memory guard sends SIGKILL as a rule; a wrong guess costs one retry.
    if death.reason == "memory" or death.signal == signal.SIGKILL:
        return FailureKind.OUT_OF_MEMORY
    return FailureKind.CRASHED
