"""Processes: what a process has started, how much memory all of that holds, and its end as a whole.

Flow: child.py watches and ends a worker HERE, a worker its programs. A group is not enough: a program may begin a
session of its own, or hand its work to a process that goes on without it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Collection
from functools import cache
from pathlib import Path

import psutil

WORKER_FOLDER = "tuner-worker-"  # beginning of the name of a worker's temporary folder
_PR_SET_CHILD_SUBREAPER = 36
_SWEEPS = 20  # what is killed may just have started something else
_SWEEP_S = 0.002
_PROC = Path("/proc")


def adopt_orphans() -> None:
    """Let whatever we start, however deep, stay below us when its own parent ends; no effect but on Linux."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid: int) -> list[int]:
    """Living processes below `pid`, parents first."""
    if not _kernel_lists_children():
        return _by_psutil(pid)
    found: list[int] = []
    waiting = _children(pid)
    while waiting:
        one = waiting.pop(0)
        waiting += _children(one)
        if not _is_zombie(one):
            found.append(one)
    return found


def is_over(pid: int, limit_bytes: int) -> bool:
    """Whether `pid` and everything below it hold more memory than `limit_bytes`, what they share counted once."""
    tree = [pid, *descendants(pid)]
    resident = sum(_resident_bytes(one) for one in tree)
    if resident <= limit_bytes or len(tree) == 1:
        return resident > limit_bytes
    return sum(_own_share_bytes(one) for one in tree) > limit_bytes


def end_tree(pid: int) -> None:
    """Kill `pid`, everything below it and its process group. Nothing happens to what has ended already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)  # it shall not answer the end of its children with new ones
        end_below(pid)
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody is left in the group, or it never was one
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def end_below(pid: int, keep: Collection[int] = ()) -> None:
    """Kill everything below `pid` but for the processes in `keep`."""
    for _ in range(_SWEEPS):
        found = [one for one in descendants(pid) if one not in keep]
        if not found:
            return
        for one in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        time.sleep(_SWEEP_S)


def reap_below(keep: Collection[int]) -> None:
    """Forget ended children of ours that were handed to us, all but those in `keep`."""
    for one in psutil.Process().children():
        if one.pid not in keep:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(one.pid, os.WNOHANG)


def cpu_s() -> float:
    """Processor seconds that we and everything we have started have used so far."""
    own = os.times()
    total = own.user + own.system + own.children_user + own.children_system
    for pid in descendants(os.getpid()):
        with contextlib.suppress(psutil.Error):
            one = psutil.Process(pid).cpu_times()
            total += one.user + one.system + one.children_user + one.children_system
    return total


@cache
def _kernel_lists_children() -> bool:
    return (_PROC / f"{os.getpid()}/task/{os.getpid()}/children").exists()


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):  # it has just ended
        for thread in os.listdir(_PROC / str(pid) / "task"):
            with contextlib.suppress(OSError):
                found += map(int, (_PROC / str(pid) / "task" / thread / "children").read_text().split())
    return found


def _by_psutil(pid: int) -> list[int]:
    try:
        return [one.pid for one in psutil.Process(pid).children(recursive=True) if not _is_zombie(one.pid)]
    except psutil.Error:
        return []


def _is_zombie(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return True


def _resident_bytes(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0  # it has just ended


def _own_share_bytes(pid: int) -> int:
    """Resident bytes with each page divided among the processes that map it."""
    with contextlib.suppress(OSError):
        for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return _resident_bytes(pid)
