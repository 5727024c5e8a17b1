"""Limits: what an evaluation of a study may take on this machine.

Flow: a study's specification -> HERE -> the isolation that its requests go through.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import psutil

from objectives.isolation import Limits, Subprocess
from tuner.spec import StudySpec

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def isolation_for(spec: StudySpec, variables: Mapping[str, str] | None = None) -> Subprocess:
    """A child process within the study's limits; `variables` of its environment say which device it sees."""
    return Subprocess(Limits(spec.trial_timeout_s, spec.memory_bytes or memory_bytes()), variables)


def memory_bytes() -> int:
    """Four fifths of the memory that this machine, or the container we are in, has."""
    total = int(psutil.virtual_memory().total)
    try:
        allowed = int(_CGROUP_LIMIT.read_text())
    except (OSError, ValueError):  # no such file, or the word "max": no limit of a container
        allowed = total
    return min(total, allowed) * 4 // 5
