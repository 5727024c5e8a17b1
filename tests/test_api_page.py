"""docs/api.md is what the code says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tuner

ROOT = Path(__file__).parents[1]


def test_the_page_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "docs" / "make_api.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_page_has_every_public_name() -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    assert [name for name in tuner.__all__ if f"### tuner.{name}\n" not in text] == []
