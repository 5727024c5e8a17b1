"""Processes: everything that a process has started is seen, weighed and ended, whatever session it went to."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from objectives import processes
from tests.processes import is_gone, wait_for_end

# Starts a child in a session of its own, which starts another one; each writes its number.
TREE = """
import os, subprocess, sys, time
depth, folder = int(sys.argv[1]), sys.argv[2]
held = bytearray(int(sys.argv[3]) << 20)
if depth:
    command = [sys.executable, "-c", os.environ["TREE"], str(depth - 1), folder, sys.argv[3]]
    subprocess.Popen(command, start_new_session=True)
with open(f"{folder}/{depth}.part", "w") as stream:
    stream.write(str(os.getpid()))
os.rename(f"{folder}/{depth}.part", f"{folder}/{depth}")
time.sleep(1e6)
"""

STARTED: list[subprocess.Popen[bytes]] = []


@pytest.fixture(autouse=True)
def _nobody_stays() -> Iterator[None]:
    yield
    while STARTED:
        one = STARTED.pop()
        processes.end_tree(one.pid)
        one.wait()


def start(folder: Path, mib: int = 0) -> tuple[int, int, int]:
    """A process, its child and grandchild."""
    command = [sys.executable, "-c", TREE, "2", str(folder), str(mib)]
    STARTED.append(subprocess.Popen(command, env={**os.environ, "TREE": TREE}, start_new_session=True))
    while len(found := [one for one in folder.iterdir() if one.suffix == ""]) < 3:
        time.sleep(0.01)
    numbers = {one.name: int(one.read_text()) for one in found}
    return numbers["2"], numbers["1"], numbers["0"]


@pytest.fixture(params=["kernel", "psutil"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel does not list children, psutil finds them."""
    if request.param == "psutil":
        monkeypatch.setattr(processes, "_kernel_lists_children", lambda: False)


@pytest.mark.usefixtures("_way")
class TestTree:
    def test_descendants_are_seen_in_sessions_of_their_own(self, tmp_path: Path) -> None:
        root, child, grandchild = start(tmp_path)
        assert processes.descendants(root) == [child, grandchild]
        processes.end_tree(root)

    def test_all_of_it_ends(self, tmp_path: Path) -> None:
        tree = start(tmp_path)
        processes.end_tree(tree[0])
        wait_for_end(*tree)

    def test_what_is_to_be_kept_is_kept(self, tmp_path: Path) -> None:
        root, child, grandchild = start(tmp_path)
        processes.end_below(root, keep=[child])
        wait_for_end(grandchild)
        assert not is_gone(root)
        assert not is_gone(child)
        processes.end_tree(root)

    def test_memory_is_that_of_all(self, tmp_path: Path) -> None:
        root, _, _ = start(tmp_path, mib=60)
        alone = psutil.Process(root).memory_info().rss
        assert not processes.is_over(root, 500 << 20)
        assert processes.is_over(root, max(alone, 120 << 20))
        processes.end_tree(root)


def test_what_is_shared_counts_once(tmp_path: Path) -> None:
    code = "import os, time; x = bytes(100 << 20).replace(b'\\0', b'a'); [os.fork() for _ in range(2)]; time.sleep(1e6)"
    root = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    while len(processes.descendants(root.pid)) < 3:
        time.sleep(0.01)
    total = sum(psutil.Process(one).memory_info().rss for one in [root.pid, *processes.descendants(root.pid)])
    assert total > 400 << 20
    assert not processes.is_over(root.pid, 250 << 20)
    processes.end_tree(root.pid)
    root.wait()


def test_what_has_ended_is_nobody(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert processes.descendants(ended.pid) == []
    assert not processes.is_over(ended.pid, 1)


def test_processor_time_of_what_we_started_is_ours() -> None:
    before = processes.cpu_s()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"], check=True)
    assert processes.cpu_s() - before > 0.25
