"""Parsing: the words of flags to plain values. Pure; a word that makes no sense is a UsageError that shows the form."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from objectives import quantities
from objectives.errors import InputError
from tuner.errors import UsageError

Number = TypeVar("Number", int, float)


def duration_s(text: str) -> float:
    """Seconds in `90`, `90s`, `1.5m`, `2h`, `1d` or `250ms`."""
    return _asked(quantities.duration_s, text)


def size_bytes(text: str) -> int:
    """Bytes in `8G`, `512M`, `1.5GiB`, or a plain number of bytes; units are powers of 1024."""
    return _asked(quantities.size_bytes, text)


def _asked(read: Callable[[str], Number], text: str) -> Number:
    try:
        return read(text)
    except InputError as error:
        raise UsageError(str(error), hint=error.hint) from None


def share(text: str) -> float:
    """A share from `1%`, `0.5 %` or `0.01`."""
    number, percent = text.strip().removesuffix("%"), text.strip().endswith("%")
    try:
        return float(number) / (100 if percent else 1)
    except ValueError:
        raise UsageError(f"{text!r} is no share", hint="write 1% or 0.01") from None


def assignments(flag: str, texts: Iterable[str]) -> dict[str, str]:
    """Values by name from `name=value`, one each; the value may hold anything."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (equals and name.strip() and value.strip()):
            raise UsageError(f"{flag} {text!r} is no setting", hint=f"write {flag} name=value")
        found[_new(flag, name.strip(), found)] = value.strip()
    return found


def shapes(flag: str, texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Shapes by input name from `name:1x3x224x224`, several with commas; the name may have colons itself."""
    found: dict[str, tuple[int, ...]] = {}
    for item in _items(texts):
        name, _, sizes = item.rpartition(":")
        try:
            found[_new(flag, name, found)] = tuple(int(size) for size in sizes.split("x"))
        except ValueError:
            raise UsageError(f"{flag} {item!r} is no shape", hint=f"write {flag} name:1x3x224x224") from None
    return found


def ranges(texts: Iterable[str]) -> dict[str, tuple[float, float]]:
    """Ranges by input name from `name:low:high`."""
    found: dict[str, tuple[float, float]] = {}
    for item in _items(texts):
        parts = item.rsplit(":", 2)
        try:
            name, low, high = parts
            found[_new("--range", name, found)] = (_number(low), _number(high))
        except ValueError:
            raise UsageError(f"--range {item!r} is no range", hint="write --range name:low:high") from None
    return found


def is_no_limit(texts: Sequence[str]) -> bool:
    """Whether `--max-loss none` was given. Raises: UsageError if it was given beside limits."""
    if "none" in texts and len(texts) > 1:
        raise UsageError("--max-loss none goes with no other limit", hint="leave one of them out")
    return list(texts) == ["none"]


def max_loss(text: str, default_metric: str) -> tuple[str, str | None, float]:
    """Metric, output (None: each) and limit from `1e-3`, `top1=0.01`, `rel_l2:logits=1e-3`, `package.module:f=0.1`."""
    subject, separator, number = text.rpartition("=")
    try:
        limit = float(number)
    except ValueError:
        raise UsageError(
            f"--max-loss {text!r} is no limit", hint="write 1e-3, top1=0.01, or metric:output=1e-3"
        ) from None
    if not separator:
        return default_metric, None, limit
    # A function is written package.module:name; what has no dot before its colon is metric:output.
    metric, colon, output = subject.partition(":")
    if colon and "." not in metric:
        return metric, output, limit
    function, colon, output = subject.rpartition(":")
    return (function, output, limit) if colon and ":" in function else (subject, None, limit)


def knob_patterns(texts: Iterable[str]) -> tuple[str, ...]:
    """Patterns in order, from flags that may hold several with commas; `@FILE` reads them from a file, one a line."""
    found: list[str] = []
    for item in _items(texts):
        found += _lines(item[1:]) if item.startswith("@") else [item]
    return tuple(found)


def _lines(file: str) -> list[str]:
    """What a file lists: one a line, blank lines and `#` comments apart."""
    try:
        text = Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--knobs @{file}: {error}", hint="one knob, kind or pattern a line") from None
    found = [line.partition("#")[0].strip() for line in text.splitlines()]
    if not any(found):
        raise UsageError(f"--knobs @{file} lists nothing", hint="one knob, kind or pattern a line")
    return [line for line in found if line]


def _number(text: str) -> float:
    # A whole number stays one: a float cannot hold the ends of 64-bit ranges.
    return int(text) if re.fullmatch(r"[+-]?\d+", text.strip()) else float(text)


def _items(texts: Iterable[str]) -> list[str]:
    return [item.strip() for text in texts for item in text.split(",") if item.strip()]


def _new(flag: str, name: str, found: Container[str]) -> str:
    if not name:
        raise ValueError
    if name in found:
        raise UsageError(f"{flag} names {name!r} twice")
    return name
