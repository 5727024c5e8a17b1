"""Durations and sizes in words: `90s`, `1.5m`, `8G`. One way to write them, on the command line and in backend options.

Flow: text of a user -> HERE -> seconds or bytes.
"""

from __future__ import annotations

import re

from objectives.errors import InputError

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_SECONDS = {"ms": 1e-3, None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def duration_s(text: str) -> float:
    """Seconds in `90`, `90s`, `1.5m`, `2h`, `1d` or `250ms`. Raises: InputError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{text!r} is no duration", hint="write 90, 90s, 15m or 2h")
    return float(match[1]) * _SECONDS[match[2]]


def size_bytes(text: str) -> int:
    """Bytes in `8G`, `512M`, `1.5GiB`, or a plain number of bytes; units are powers of 1024. Raises: InputError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{text!r} is no size", hint="write 8G or 512M")
    return int(float(match[1]) * _BYTES[match[2].upper()])
