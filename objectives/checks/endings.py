"""Ends from outside: a step that misses its deadline, and one that is killed; the machine has to be usable after both.

Flow: selfcheck.py -> HERE -> steps that never end by themselves -> a step that has to work.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable

from objectives.checks.asking import Asker, found
from objectives.checks.result import Status
from objectives.errors import ObjectiveError
from objectives.isolation import Subprocess
from objectives.outcome import Failed, FailureKind, Stage
from objectives.requests import SelfChecked

_INTO_THE_BUILD_S = 0.3


def miss_a_deadline(asker: Asker, endless: str, afterwards: str, deadline_s: float) -> SelfChecked:
    """Take the step `endless` until its deadline; it has to end as timed out, and the step `afterwards` to work."""
    start = time.monotonic()
    with asker.isolation(deadline_s) as isolation:
        answer = _answer(lambda: asker.send(isolation, endless))
    if not isinstance(answer, Failed) or answer.kind is not FailureKind.TIMED_OUT:
        return SelfChecked(Status.FAIL, f"not ended at its deadline of {deadline_s:.0f} s: {found(answer).detail}")
    return _usable(asker, afterwards, f"ended as timed out after {time.monotonic() - start:.1f} s")


def kill_a_build(asker: Asker) -> SelfChecked:
    """Kill the process of a build in progress; the next build has to work."""
    timers: list[threading.Timer] = []
    with asker.isolation() as isolation:

        def when_it_builds(stage: Stage, detail: str) -> None:
            if stage is Stage.BUILD and not timers:
                timers.append(threading.Timer(_INTO_THE_BUILD_S, _kill, (isolation,)))
                timers[0].start()

        answer = _answer(lambda: asker.send(isolation, "build for ever", on_stage=when_it_builds))
        for timer in timers:
            timer.cancel()
            timer.join()
    if not isinstance(answer, Failed) or answer.signal != signal.SIGKILL:
        return SelfChecked(Status.FAIL, f"no build that could be killed: {found(answer).detail}")
    return _usable(asker, "build", "killed while it built")


def _answer(ask: Callable[[], SelfChecked | Failed]) -> SelfChecked | Failed:
    try:
        return ask()
    except ObjectiveError as error:
        return SelfChecked(Status.FAIL, str(error))


def _kill(isolation: Subprocess) -> None:
    pid = isolation.pid
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(pid, signal.SIGKILL)


def _usable(asker: Asker, step: str, words: str) -> SelfChecked:
    after = asker.ask(step)
    if after.status is not Status.PASS:
        return SelfChecked(Status.FAIL, f"{words}; {step} not right afterwards: {after.detail}")
    return SelfChecked(Status.PASS, f"{words}; {step} right afterwards")
