"""Worker: bounded from inside. It ends when its parent does, however that happened, and whatever it is doing then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from objectives.errors import InputError
from objectives.landscape import Fault, Interaction, Landscape
from objectives.requests import Described, DescribeRequest, Refused, Request, encode
from objectives.worker import Desk
from tests.contracts import plugin
from tests.contracts.isolation_contract import Task, knob
from tests.processes import is_gone, wait_for_end

ROOT = Path(__file__).parents[2]
LONG_S, SHORT_S = 600, 2

# A parent as small as can be: starts a worker, sends what it is given, tells the worker's pid once the worker has
# entered the stage that is asked for (or has answered, when none is), and does nothing more.
PARENT = """
import os, subprocess, sys, time
limit, stage, line = sys.argv[1:4]
request_read, request_write = os.pipe()
reply_read, reply_write = os.pipe()
command = [sys.executable, "-m", "objectives.worker", str(request_read), str(reply_write), limit]
worker = subprocess.Popen(command, pass_fds=(request_read, reply_write), start_new_session=True)
os.close(request_read), os.close(reply_write)
os.write(request_write, line.encode() + b"\\n")
seen = b""
while ('"stage":"%s"' % stage if stage else '"described"').encode() not in seen:
    data = os.read(reply_read, 65536)
    if not data:
        sys.exit("the worker has ended before")
    seen += data
print(worker.pid, flush=True)
time.sleep(600)
"""
Start = Callable[..., tuple[subprocess.Popen[str], int]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a parent, which starts a worker; returns the parent and the worker's pid."""
    plugin.install(tmp_path / "site")
    path = os.pathsep.join((str(ROOT), str(tmp_path / "site")))
    parents: list[subprocess.Popen[str]] = []
    workers: list[int] = []

    def run(request: Request, stage: str = "", limit_s: int = LONG_S) -> tuple[subprocess.Popen[str], int]:
        command = [sys.executable, "-c", PARENT, str(limit_s), stage, encode(request).decode().strip()]
        parents.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path})
        )
        stdout = parents[-1].stdout
        assert stdout is not None
        workers.append(int(stdout.readline()))
        assert psutil.pid_exists(workers[-1])
        return parents[-1], workers[-1]

    yield run
    for parent in parents:
        parent.kill()
        parent.wait()
        if parent.stdout is not None:
            parent.stdout.close()
    for worker in workers:
        with suppress(ProcessLookupError):
            os.killpg(worker, signal.SIGKILL)


@pytest.fixture
def hanging(tmp_path: Path) -> Request:
    landscape = Landscape((knob("bad"),), interactions=(Interaction({"mode": "bad"}, fault=Fault.HANG),))
    return Task(tmp_path, landscape.save(tmp_path / "landscape.json")).evaluation(mode="bad")


@pytest.fixture
def acting(tmp_path: Path) -> Callable[[str], Request]:
    """A request to somebody else's backend, which does what it is told."""

    def make(act: str) -> Request:
        path = plugin.landscape(act, tmp_path / "trace").save(tmp_path / "landscape.json")
        return Task(tmp_path, path, plugin.NAME).evaluation(**plugin.landscape_values(path))

    return make


class TestItsParentIsKilled:
    def test_while_it_waits_for_work(self, start: Start) -> None:
        parent, worker = start(DescribeRequest("synthetic"))
        parent.kill()
        wait_for_end(worker)

    def test_while_a_candidate_hangs(self, start: Start, hanging: Request) -> None:
        parent, worker = start(hanging, "check")
        parent.kill()
        wait_for_end(worker)

    def test_while_a_library_holds_the_interpreter(self, start: Start, acting: Callable[[str], Request]) -> None:
        # No thread of ours can act here: the alarm of the kernel does.
        parent, worker = start(acting("hold the interpreter"), "check", SHORT_S)
        parent.kill()
        wait_for_end(worker)


def test_a_request_may_not_take_longer_than_its_limit_though_the_parent_lives(start: Start, hanging: Request) -> None:
    parent, worker = start(hanging, "check", SHORT_S)
    wait_for_end(worker)
    assert parent.poll() is None


def test_the_limit_is_for_a_request_and_not_for_the_wait_between_two(start: Start) -> None:
    _, worker = start(DescribeRequest("synthetic"), "", 1)
    time.sleep(1.5)  # idle for longer than the limit
    assert not is_gone(worker)


def test_an_interrupt_is_the_parents_to_handle(start: Start) -> None:
    _, worker = start(DescribeRequest("synthetic"))
    os.kill(worker, signal.SIGINT)
    time.sleep(0.5)
    assert not is_gone(worker)


class TestDesk:
    def test_a_broken_backend_is_told_and_not_raised(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(name: str) -> None:
            raise ZeroDivisionError("of its own making")

        monkeypatch.setattr("objectives.worker._backend", broken)
        reply = Desk().answer(DescribeRequest("any"), lambda _: None)
        assert reply == Refused("HarnessError", "ZeroDivisionError: of its own making", "")

    def test_an_error_of_the_users_keeps_class_and_hint(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refusing(name: str) -> None:
            raise InputError("what", hint="what to do")

        monkeypatch.setattr("objectives.worker._backend", refusing)
        assert Desk().answer(DescribeRequest("any"), lambda _: None) == Refused("InputError", "what", "what to do")

    def test_a_desk_can_be_closed_at_any_time(self) -> None:
        desk = Desk()
        desk.close()
        assert isinstance(desk.answer(DescribeRequest("synthetic"), lambda _: None), Described)
        desk.close()
