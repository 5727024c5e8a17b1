"""Groups of values and ends from outside, with answers made up: what is counted, what is said, when time is up."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from objectives.backends.base import Environment
from objectives.checks.asking import Asker, CheckPlan, found
from objectives.checks.endings import kill_a_build, miss_a_deadline
from objectives.checks.options import every, one_each, take_a_route, try_all
from objectives.checks.result import Status
from objectives.checks.selfcheck import self_check
from objectives.checks.steps import OFF
from objectives.errors import BackendUnavailableError, HarnessError
from objectives.isolation import Subprocess
from objectives.knobs import Knob, KnobKind, KnobSpace
from objectives.outcome import Failed, FailureKind, Stage, Trace
from objectives.requests import Described, SelfChecked

PASS = SelfChecked(Status.PASS, "works")
FAIL = SelfChecked(Status.FAIL, "it broke")
REFUSED = SelfChecked(Status.UNSUPPORTED, "the library does not like it")
SPACE = KnobSpace(
    (
        *(Knob(f"route:{n}", ("on", "off"), "off", KnobKind.ROUTE, "help") for n in range(7)),
        Knob("cuda_graph", ("off", "capture", "library"), "off", KnobKind.RUNTIME, "help"),
        Knob("threads", ("1", "2"), "2", KnobKind.RUNTIME, "help"),
    )
)


class Answering:
    """An asker that gives the answers it was given, by `name=value` or step."""

    def __init__(self, answers: Mapping[str, Any], plan: CheckPlan = CheckPlan(), slow_s: float = 0.0) -> None:  # noqa: B008
        self.plan = plan
        self.asked: list[str] = []
        self._answers, self._slow_s = answers, slow_s

    def isolation(self, deadline_s: float | None = None) -> contextlib.nullcontext[None]:
        return contextlib.nullcontext()

    def ask(self, step: str, values: Mapping[str, str] | None = None) -> Any:
        return self.ask_in(None, step, values or {})

    def ask_in(self, isolation: object, step: str, values: Mapping[str, str]) -> Any:
        time.sleep(self._slow_s)
        self.asked.append(", ".join(f"{name}={value}" for name, value in values.items()) or step)
        return self._answers.get(self.asked[-1], PASS)

    def send(self, isolation: object, step: str, on_stage: Callable[[Stage, str], None] = lambda *_: None) -> Any:
        answer = self._answers[step]
        if isinstance(answer, Exception):
            raise answer
        return answer


def ignore(_: str) -> None:
    return


def failed(kind: FailureKind, detail: str = "what was seen", number: int | None = None) -> Failed:
    return Failed(Trace(), Stage.BUILD, kind, detail, number)


def test_which_values_are_tried() -> None:
    assert one_each(SPACE, KnobKind.RUNTIME) == [("cuda_graph", "capture"), ("threads", "1")]
    assert every(SPACE, KnobKind.RUNTIME, "graph") == [("cuda_graph", "capture"), ("cuda_graph", "library")]
    assert every(SPACE, KnobKind.PRECISION) == []


@pytest.mark.parametrize(
    ("answers", "status", "words"),
    [
        ({}, Status.PASS, "3 values tried: 3 good"),
        ({"a=1": REFUSED, "b=1": REFUSED}, Status.PASS, "1 good, 2 refused; a=1 refused: the library does not"),
        (dict.fromkeys(("a=1", "b=1", "c=1"), REFUSED), Status.UNSUPPORTED, "3 refused; a=1 refused"),
        ({"a=1": FAIL, "b=1": REFUSED}, Status.FAIL, "1 good, 1 refused, 1 failed; a=1 failed: it broke; b=1 refused"),
        ({"a=1": FAIL, "c=1": FAIL}, Status.FAIL, "1 good, 2 failed; a=1, c=1 failed: it broke"),
        ({"b=1": SelfChecked(Status.PASS, "works", {OFF: "far"})}, Status.PASS, "outputs are less exact with b=1"),
        ({"a=1": SelfChecked(Status.FAIL, "long " * 99)}, Status.FAIL, "…"),
    ],
)
def test_what_is_said_of_values(answers: Mapping[str, Any], status: Status, words: str) -> None:
    notes: list[str] = []
    answer = try_all(Answering(answers), [("a", "1"), ("b", "1"), ("c", "1")], notes.append)  # type: ignore[arg-type]
    assert answer.status is status
    assert words in answer.detail
    assert notes == ["1 of 3: a=1", "2 of 3: b=1", "3 of 3: c=1"]


def test_values_stop_when_the_time_is_spent_and_say_so() -> None:
    asker = Answering({}, CheckPlan(group_s=0.05), slow_s=0.1)
    answer = try_all(asker, [("a", "1"), ("b", "1")], ignore)  # type: ignore[arg-type]
    assert asker.asked == ["a=1"]
    assert answer.detail == "1 of 2 values tried in the time given: 1 good"


def test_a_route_is_read_back() -> None:
    told = SelfChecked(Status.PASS, "works", {"build_route": "-0=on", "build_route_used": "-0=on -1=off"})
    answer = take_a_route(Answering({"route:0=on": REFUSED, "route:1=on": told}), SPACE, ignore)  # type: ignore[arg-type]
    assert answer == SelfChecked(Status.PASS, "route:1=on works; read back: -0=on; used: -0=on -1=off")


@pytest.mark.parametrize(("answer", "asked"), [(REFUSED, 5), (FAIL, 1)])
def test_no_route_that_is_taken_is_a_failure(answer: SelfChecked, asked: int) -> None:
    asker = Answering({f"route:{n}=on": answer for n in range(7)})
    found_ = take_a_route(asker, SPACE, ignore)  # type: ignore[arg-type]
    assert found_.status is Status.FAIL
    assert f"route:0=on: {answer.detail}" in found_.detail
    assert len(asker.asked) == asked


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (PASS, "not ended at its deadline of 5 s: works"),
        (failed(FailureKind.CRASHED), "not ended at its deadline of 5 s: crashed: what was seen"),
        (HarnessError("the pipe broke"), "not ended at its deadline of 5 s: the pipe broke"),
        (failed(FailureKind.TIMED_OUT), "outputs not right afterwards: it broke"),
    ],
)
def test_a_deadline_that_ends_nothing_is_a_failure(answer: object, words: str) -> None:
    asker = Answering({"for ever": answer, "outputs": FAIL})
    ended = miss_a_deadline(asker, "for ever", "outputs", 5.0)  # type: ignore[arg-type]
    assert ended.status is Status.FAIL
    assert words in ended.detail


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (failed(FailureKind.BUILD_FAILED, "no engine"), "no build that could be killed: no engine"),
        (failed(FailureKind.OUT_OF_MEMORY, number=signal.SIGKILL), "build not right afterwards: it broke"),
    ],
)
def test_a_kill_that_leaves_something_broken_is_a_failure(answer: Failed, words: str) -> None:
    ended = kill_a_build(Answering({"build for ever": answer, "build": FAIL}))  # type: ignore[arg-type]
    assert ended.status is Status.FAIL
    assert words in ended.detail


def test_how_a_process_ended_is_told_as_it_was_seen() -> None:
    killed = failed(FailureKind.OUT_OF_MEMORY, "was killed by SIGKILL", signal.SIGKILL)
    assert found(killed).detail == "crashed: was killed by SIGKILL"
    assert found(failed(FailureKind.OUT_OF_MEMORY, "no memory")).detail == "out of memory: no memory"
    assert found(failed(FailureKind.RUN_FAILED, "ValueError: no")).detail == "ValueError: no"


def test_what_needs_knobs_says_so_where_none_could_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Asker, "ask", lambda *_: FAIL)
    monkeypatch.setattr(Asker, "send", lambda *_, **__: failed(FailureKind.CRASHED))
    results = {result.name: result for result in self_check("synthetic").results}
    waiting = ("graph capture", "build route", "bad route", "builder options", "precision", "runtime options")
    assert {results[name].detail for name in waiting} == {"the knobs could not be listed, see there"}
    assert {results[name].status for name in waiting} == {Status.UNSUPPORTED}
    assert results["environment"].status is Status.PASS
    assert results["deadline"].status is results["cancelling"].status is Status.FAIL


def test_a_backend_that_is_usable_once_only_is_a_failed_check(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Described(Environment("synthetic", "1", "", {}, {}))
    answers = iter((here, BackendUnavailableError("the device is gone")))

    def describe(*_: object) -> Described:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(Subprocess, "describe", describe)
    monkeypatch.setattr(Asker, "ask", lambda *_: PASS)
    monkeypatch.setattr(Asker, "send", lambda *_, **__: failed(FailureKind.CRASHED))
    first = self_check("synthetic").results[0]
    assert (first.name, first.status, first.detail) == ("environment", Status.FAIL, "the device is gone")
