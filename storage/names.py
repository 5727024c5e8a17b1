"""Names: of studies and knobs in an SQLite file, for a shell that completes words and will not wait.

Flow: tuner/cli/completion.py -> HERE, by Python's own driver alone: loading SQLAlchemy takes longer than a keystroke.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from urllib.parse import quote

_SCHEME = "sqlite:///"
_BUSY_S = 0.5


def study_names(url: str) -> list[str]:
    """Names of the studies, newest first; none where there is no file or another kind of database."""
    return [name for (name,) in _rows(url, "SELECT name FROM tuner_study ORDER BY id DESC")]


def knob_names(url: str) -> list[str]:
    """Names of all knobs of any study, as `study_names`."""
    spaces = [json.loads(knobs) for (knobs,) in _rows(url, "SELECT knobs FROM tuner_knob_space ORDER BY id DESC")]
    return list(dict.fromkeys(str(knob["name"]) for space in spaces for knob in space))


def _rows(url: str, statement: str) -> list[tuple[str]]:
    path = Path(url.removeprefix(_SCHEME))
    if not url.startswith(_SCHEME) or not path.is_file():
        return []
    try:
        connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=_BUSY_S)
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()
    except sqlite3.Error:
        return []  # busy, or not ours
