"""Waiting for processes to be gone, without a guess about how long that takes."""

from __future__ import annotations

import time

import psutil

_PATIENCE_S = 60.0  # only for the case that it never happens


def is_gone(pid: int) -> bool:
    """Whether the process has ended; one that nobody has waited for yet has ended too."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_for_end(*pids: int) -> None:
    """Return when all of them are gone; fail if one stays."""
    until = time.monotonic() + _PATIENCE_S
    while not all(map(is_gone, pids)):
        assert time.monotonic() < until, f"still there: {[pid for pid in pids if not is_gone(pid)]}"
        time.sleep(0.02)
