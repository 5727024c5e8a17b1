"""What is recorded of a host, and that it makes no other environment."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from objectives.backends.base import Environment
from objectives.host import container, recorded

HERE = Environment("b", "1", "cpu", {"cpu": "x"}, {"python": "3"})


def test_host_and_container_are_recorded_and_nothing_else_changes(tmp_path: Path) -> None:
    found = recorded(HERE, tmp_path)
    assert found.details["host"] == socket.gethostname()
    assert (found.details["container"], found.details["python"]) == ("none", "3")
    assert found.identity == HERE.identity
    assert found.digest == HERE.digest


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        (".dockerenv", "", "docker"),
        ("run/.containerenv", "", "podman"),
        ("var/run/secrets/kubernetes.io/token", "", "kubernetes"),
        ("proc/self/mounts", "proc /proc proc rw 0 0\noverlay / overlay rw 0 0\n", "unknown kind"),
        ("proc/self/mounts", "/dev/sda1 / ext4 rw 0 0\noverlay /var/lib/x overlay rw 0 0\n", "none"),
    ],
)
def test_kinds_of_container(tmp_path: Path, file: str, text: str, name: str) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text)
    assert container(tmp_path) == name


@pytest.mark.parametrize(
    ("there", "is_same"),
    [("cuda:GPU-2", True), ("cuda:1", True), ("cpu", False), ("", False)],
)
def test_two_devices_of_one_model_are_one_environment(there: str, is_same: bool) -> None:
    first = Environment("b", "1", "cuda:GPU-1", {"gpu": "X"}, {})
    assert (Environment("b", "1", there, {"gpu": "X"}, {}).digest == first.digest) is is_same
