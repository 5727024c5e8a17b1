"""Device lock: one device, one process at a time; the lock goes when its holder goes, however that ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from objectives.device import device_lock
from objectives.errors import HarnessError

DEVICE = "cuda:GPU-1/2 ü"
HOLD = """
import sys
from objectives.device import device_lock
with device_lock(sys.argv[1], lambda device: print("waits", device, flush=True)):
    print("holds", flush=True)
    sys.stdin.readline()
"""
Hold = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where locks lie, for this process and those it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path / "tuner-device-locks"


@pytest.fixture
def hold(folder: Path) -> Iterator[Hold]:
    """Starts a process that takes the lock and keeps it until it is killed or its input ends."""
    started: list[subprocess.Popen[str]] = []

    def start(device: str) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", HOLD, device], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def taken(device: str = DEVICE) -> bool:
    """Whether somebody holds the lock: asked without waiting for it."""

    class Busy(Exception):
        pass

    def give_up(_: str) -> None:
        raise Busy

    try:
        with device_lock(device, give_up):
            return False
    except Busy:
        return True


def test_two_processes_exclude_each_other(hold: Hold) -> None:
    first = hold(DEVICE)
    assert line(first) == "holds"
    assert taken()
    second = hold(DEVICE)
    assert line(second) == f"waits {DEVICE}"
    assert first.stdin is not None
    first.stdin.write("\n")
    first.stdin.close()
    assert line(second) == "holds"
    assert taken()


def test_a_killed_holder_frees_the_device(hold: Hold) -> None:
    first = hold(DEVICE)
    assert line(first) == "holds"
    first.send_signal(signal.SIGKILL)
    with device_lock(DEVICE):
        assert taken()
    assert not taken()


def test_waiting_is_told_once(hold: Hold) -> None:
    holder, told = hold(DEVICE), []
    assert line(holder) == "holds"
    # Freed after several looks: a call for each look would be seen.
    release = threading.Timer(0.45, holder.kill)
    release.start()
    with device_lock(DEVICE, told.append):
        pass
    release.join()
    assert told == [DEVICE]


def test_nobody_is_told_when_nobody_waits(folder: Path) -> None:
    told: list[str] = []
    with device_lock(DEVICE, told.append):
        pass
    assert told == []


def test_it_is_freed_by_an_exception(folder: Path) -> None:
    def measure() -> None:
        with device_lock(DEVICE):
            assert taken()
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        measure()
    assert not taken()


def test_other_devices_are_free(hold: Hold) -> None:
    assert line(hold("cuda:1")) == "holds"
    assert not taken("cuda:0")


def test_an_empty_name_locks_nothing(hold: Hold, folder: Path) -> None:
    with device_lock(""):
        assert not taken("")
    assert not folder.exists()


def test_a_child_started_meanwhile_does_not_keep_the_lock(folder: Path) -> None:
    with device_lock(DEVICE):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert not taken()
    finally:
        child.communicate()


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "", ".."])
def test_a_name_never_leaves_the_folder(name: str, folder: Path) -> None:
    with device_lock(name):
        outside = [path for path in folder.parent.rglob("*") if path != folder and folder not in path.parents]
        assert outside == []


def test_other_users_can_take_it_too(folder: Path) -> None:
    # One GPU, two accounts: the second must be able to wait for the first, whatever the mask of new files.
    with device_lock(DEVICE):
        modes = [folder.stat().st_mode & 0o777, *(path.stat().st_mode & 0o666 for path in folder.iterdir())]
    assert modes == [0o777, 0o666]


def test_locks_that_cannot_be_made_are_the_harness(folder: Path) -> None:
    folder.write_text("a file where the folder should be")
    with pytest.raises(HarnessError), device_lock(DEVICE):
        pass


def test_a_name_too_long_for_a_file_is_the_harness(folder: Path) -> None:
    with pytest.raises(HarnessError, match="device lock"), device_lock("x" * 5000):
        pass


def test_the_wait_is_no_busy_loop(monkeypatch: pytest.MonkeyPatch, hold: Hold) -> None:
    holder = hold(DEVICE)
    assert line(holder) == "holds"
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        holder.kill()
        holder.wait()

    monkeypatch.setattr(time, "sleep", sleep)
    with device_lock(DEVICE):
        pass
    assert slept
    assert all(0.01 <= seconds <= 1 for seconds in slept)
