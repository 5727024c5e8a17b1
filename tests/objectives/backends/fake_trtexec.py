"""Puts the fake trtexec of `assets/` into a folder as a program of that name, with settings of its own."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

FAKE = Path(__file__).parent / "assets" / "fake_trtexec.py"
V8, V10, V11 = "8601", "101600", "110100"


def install(folder: Path, **settings: Any) -> Path:
    """The program in `folder`; `settings` as the fake's own text says."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "trtexec"
    variable = f"FAKE_TRTEXEC={shlex.quote(json.dumps(settings))}"
    # Isolated and without site packages: it starts in a fraction of the time.
    words = shlex.join([sys.executable, "-I", "-S", str(FAKE)])
    program.write_text(f'#!/bin/sh\n{variable} exec {words} "$@"\n')
    program.chmod(0o755)
    return program


def calls(log: Path) -> list[list[str]]:
    """The arguments of every call that the fake wrote to `log`."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
