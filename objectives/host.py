"""Host: facts about this machine that are recorded with every environment and make none another one.

Flow: worker.py describes a backend -> HERE -> `details` of its Environment. A study goes on in a new container, on a
machine of another name, after a restart: none of that changes a measurement by itself.
"""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path

import msgspec

from objectives.backends.base import Environment

_MARKS = (
    ("kubernetes", "var/run/secrets/kubernetes.io"),
    ("docker", ".dockerenv"),
    ("podman", "run/.containerenv"),
)


def recorded(environment: Environment, root: Path = Path("/")) -> Environment:
    """`environment` with the host's name, its system and the container added to what is only recorded."""
    facts = {"host": socket.gethostname(), "container": container(root), "os": platform.platform()}
    return msgspec.structs.replace(environment, details={**facts, **environment.details})


def container(root: Path = Path("/")) -> str:
    """What kind of container this looks like, `none` if it does not look like one."""
    for name, mark in _MARKS:
        if (root / mark).exists():
            return name
    try:
        # The root of a container is as a rule a stack of layers; that of a machine is a disk.
        mounts = [line.split() for line in (root / "proc/self/mounts").read_text(errors="replace").splitlines()]
    except OSError:
        return "none"
    is_layered = any(len(fields) > 2 and fields[1] == os.sep and fields[2] == "overlay" for fields in mounts)
    return "unknown kind" if is_layered else "none"
