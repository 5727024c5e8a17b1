"""Worker: the child process. `python -m objectives.worker REQUEST_FD REPLY_FD` answers requests until its pipe closes.

Flow: isolation.py starts it -> one request line in -> stage events and one reply line out, on a pipe of its own; stdout
and stderr belong to the runtime's log. Bounded from inside too, in case the parent is gone: an alarm of the kernel ends
it after the deadline even where a library hangs without giving Python the word, and it leaves when the pipe closes.
"""

from __future__ import annotations

import importlib
import os
import select
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from objectives.accuracy import MetricFunction, compare, merge
from objectives.backends import load
from objectives.backends.base import Backend, OpenEngine, Reporter, tensor_session
from objectives.checks.steps import take
from objectives.errors import HarnessError, InputError, MetricError, ObjectiveError
from objectives.evaluate import (
    LoadedPair,
    OnStage,
    Progress,
    build,
    check,
    evaluate,
    guarded,
    watched,
    watched_reports,
)
from objectives.host import recorded
from objectives.outcome import Failed, Outcome, Round, Stage, require_intact
from objectives.processes import WORKER_FOLDER, adopt_orphans, end_below
from objectives.reported import ReportTimer
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
    PairFiles,
    Ready,
    Referenced,
    ReferenceRequest,
    Refused,
    Reply,
    Request,
    Rounded,
    RoundRequest,
    SelfCheckRequest,
    StageEvent,
    Timed,
    TimeRequest,
    decode_request,
    encode,
)
from objectives.tensors import Tensors, load_tensors, save_tensors
from objectives.timing import Timer, plan_for

Emit = Callable[[Message], None]
_OfBackend = (
    DescribeRequest
    | ReferenceRequest
    | EvaluateRequest
    | BuildRequest
    | CheckRequest
    | OpenRequest
    | TimeRequest
    | SelfCheckRequest
)


@lru_cache
def _loaded(name: str, options: tuple[tuple[str, str], ...]) -> Backend:
    return load(name, dict(options))


def _backend(request: _OfBackend) -> Backend:
    return _loaded(request.backend, tuple(sorted(request.options.items())))


@lru_cache(maxsize=1)
def _pairs(files: tuple[PairFiles, ...]) -> tuple[LoadedPair, ...]:
    # The files are named by content, so what was loaded once stays true for the whole study.
    return tuple(
        LoadedPair(one.label, load_tensors(Path(one.inputs)), load_tensors(Path(one.reference))) for one in files
    )


@lru_cache
def _function(path: str) -> MetricFunction:
    module, _, name = path.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except Exception as error:  # importing runs the user's code, which may raise anything; it is theirs to mend
        raise MetricError(
            f"cannot load the metric function {path!r}: {type(error).__name__}: {error}",
            hint="write package.module:function, importable from the current folder",
        ) from error
    if not callable(function):
        raise MetricError(f"{path!r} is not a function")
    found: MetricFunction = function
    return found


class Desk:
    """Answers requests one after another; keeps at most one engine open between them."""

    def __init__(self) -> None:
        self._opened: OpenEngine | None = None
        self._timer: Timer | ReportTimer | None = None

    def answer(self, request: Request, emit: Emit) -> Reply:
        """Do what a request asks. Errors of the user and of the harness come back as Refused, never as an exception."""
        try:
            return self._answer(request, emit)
        except ObjectiveError as error:
            return Refused(type(error).__name__, str(error), error.hint)
        except Exception as error:  # the parent decides what a broken harness means; it must hear of it
            return Refused(HarnessError.__name__, f"{type(error).__name__}: {error}", "")

    def close(self) -> None:
        """Close the open engine, if there is one."""
        if self._opened is not None:
            self._opened.close()
        self._opened = self._timer = None

    def _answer(self, request: Request, emit: Emit) -> Reply:
        match request:
            case RoundRequest():
                return self._round()
            case OpenRequest():
                self.close()
                require_intact(request.engine)
                return self._open(request, emit)
            case DescribeRequest():
                return _describe(request)
            case ReferenceRequest():
                return _reference(request)
            case EvaluateRequest():
                outcome = _run(evaluate, request, emit)
                return Evaluated(outcome, _is_sound(_backend(request), outcome))
            case BuildRequest():
                built = _run(build, request, emit)
                return Checked(built, _is_sound(_backend(request), built))
            case CheckRequest():
                return Checked(_run(check, request, emit))
            case TimeRequest():
                return _time(request, emit)
            case SelfCheckRequest():
                found = take(_backend(request), request, _stage_sender(emit))
                return Checked(found) if isinstance(found, Failed) else found

    def _open(self, request: OpenRequest, emit: Emit) -> Reply:
        progress = Progress(request.values, _stage_sender(emit))

        def steps() -> Opened:
            with progress.enter(Stage.OPEN):
                self._opened = _backend(request).open(request.engine, request.values)
            with progress.enter(Stage.TIME):
                self._timer = _timer(self._opened, request)
                self._timer.warm_up()
            return Opened(tuple(self._timer.warmup_ms), self._timer.warmup_reason)

        opened = guarded(progress, steps)
        return Checked(opened) if isinstance(opened, Failed) else opened

    def _round(self) -> Reply:
        if self._timer is None or self._opened is None:
            raise HarnessError("a round was asked for, but no engine is open")
        progress = Progress({}, lambda stage, detail: None)
        progress.stage = Stage.TIME
        timer, opened = self._timer, self._opened

        def steps() -> Round:
            timer.settle()
            watch = opened.watch()
            one = timer.round()
            conditions, flags = watch.stop()
            return msgspec.structs.replace(one, conditions=conditions, flags=flags)

        taken = guarded(progress, steps)
        return Checked(taken) if isinstance(taken, Failed) else Rounded(taken)


def _timer(opened: OpenEngine, request: OpenRequest) -> Timer | ReportTimer:
    if isinstance(opened, Reporter):
        return ReportTimer(opened, request.timing)
    session = tensor_session(opened)
    session.bind(_inputs(request.pair))
    return Timer(session.measure, plan_for(request.timing, session.least_sample_ms))


def _inputs(pair: PairFiles | None) -> Tensors:
    if pair is None:
        raise HarnessError("this engine is timed on inputs, and none were sent")
    return load_tensors(Path(pair.inputs))


def _describe(request: DescribeRequest) -> Reply:
    backend = _backend(request)
    cannot_run, cannot_check = backend.cannot_run(), backend.cannot_check()
    if request.model is None:
        here = recorded(backend.environment())
        return Described(here, None, None, cannot_run, backend.options, cannot_check, backend.devices())
    path = Path(request.model)
    model = backend.describe(path)
    here = recorded(backend.environment_for(path))
    knobs = backend.knobs(path, model)
    return Described(here, model, knobs, cannot_run, backend.options, cannot_check, backend.devices())


def _reference(request: ReferenceRequest) -> Reply:
    backend = _backend(request)
    dropped = []
    for pair, required in zip(request.pairs, request.required, strict=True):
        if Path(pair.reference).exists():
            continue
        try:
            outputs = backend.reference(Path(request.model), load_tensors(Path(pair.inputs)))
        except InputError as error:
            if required:
                raise
            dropped.append((pair.label, str(error)))
            continue
        save_tensors(Path(pair.reference), outputs)
    gone = {label for label, _ in dropped}
    _try_functions(request, tuple(pair for pair in request.pairs if pair.label not in gone))
    return Referenced(tuple(dropped))


def _try_functions(request: ReferenceRequest, files: tuple[PairFiles, ...]) -> None:
    """A metric function that cannot judge the reference against itself would only fail later, in every trial."""
    functions = {name: _function(name) for name in request.judging.functions}
    for pair in _pairs(files) if functions else ():
        for name, function in functions.items():
            try:
                one = {name: function}
                losses = merge([compare(pair.label, pair.expected, pair.expected, request.judging.tolerance, one)])
            except Exception as error:  # the user's function may raise anything; it is theirs to mend
                raise MetricError(
                    f"the metric function {name!r} raised {type(error).__name__} on the reference outputs: {error}",
                    hint="it is called as function(actual, expected), two dicts of arrays by output name",
                ) from error
            if losses.losses[-1].losses[name] is None:
                raise MetricError(f"the metric function {name!r} gives no finite loss for perfect outputs")


Judged = TypeVar("Judged", EvaluateRequest, BuildRequest, CheckRequest)
Verdict = TypeVar("Verdict")


def _run(
    step: Callable[[Backend, Judged, tuple[LoadedPair, ...], dict[str, MetricFunction], OnStage], Verdict],
    request: Judged,
    emit: Emit,
) -> Verdict:
    functions = {name: _function(name) for name in request.judging.functions}
    return step(_backend(request), request, _pairs(request.pairs), functions, _stage_sender(emit))


def _is_sound(backend: Backend, outcome: Outcome) -> bool:
    """Whether this process can take the next request after a failure."""
    if not isinstance(outcome, Failed):
        return True
    try:
        return backend.is_sound(outcome.kind)
    except Exception:  # whoever cannot tell is not well; the outcome is what counts
        return False


def _time(request: TimeRequest, emit: Emit) -> Reply:
    require_intact(request.engine)
    progress = Progress(request.values, _stage_sender(emit))

    def steps() -> Timed:
        with progress.enter(Stage.OPEN):
            opened = _backend(request).open(request.engine, request.values)
        with opened, progress.enter(Stage.TIME):
            if isinstance(opened, Reporter):
                return Timed(watched_reports(opened, request.timing))
            session = tensor_session(opened)
            session.bind(_inputs(request.pair))
            return Timed(watched(session, request.timing))

    timed = guarded(progress, steps)
    return Checked(timed) if isinstance(timed, Failed) else timed


def _stage_sender(emit: Emit) -> OnStage:
    return lambda stage, detail: emit(StageEvent(stage, detail))


def _die_with_the_pipe(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, 0)  # a hang-up is always reported, whatever is asked for
    poll.poll()
    end_below(os.getpid())
    folder = Path(tempfile.gettempdir())
    if folder.name.startswith(WORKER_FOLDER):  # our parent made it for us, and is gone
        shutil.rmtree(folder, ignore_errors=True)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _serve(requests: BinaryIO, replies: BinaryIO, limit_s: int) -> None:
    def emit(message: Message) -> None:
        replies.write(encode(message))
        replies.flush()

    desk = Desk()
    emit(Ready())
    for line in requests:
        signal.alarm(limit_s)
        emit(desk.answer(decode_request(line), emit))
        signal.alarm(0)


def main(arguments: list[str]) -> int:
    """Serve until the request pipe closes: request descriptor, reply descriptor, seconds that a request may take."""
    request_fd, reply_fd, limit_s = (int(argument) for argument in arguments)
    adopt_orphans()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_die_with_the_pipe, args=(request_fd,), daemon=True).start()
    with os.fdopen(request_fd, "rb") as requests, os.fdopen(reply_fd, "wb") as replies:
        _serve(requests, replies, limit_s)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
