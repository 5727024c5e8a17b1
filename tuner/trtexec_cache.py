"""The file format of trtexec's tuning caches: one JSON object a line, a header and then a row per iteration.

Flow: `--tuningCacheFile` of trtexec -> read_cache HERE -> trtexec.py maps routes to candidates; write_cache is the way
back.
Source of the format: trtexec 11.1 and 11.4 of github.com/NVIDIA/TensorRT, samples/common/sampleUtils.cpp.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tuner.errors import UsageError


class Header(msgspec.Struct, frozen=True):
    """First line of a cache. A field that the file lacks is empty; fields that are not known are ignored."""

    tuner_version: str = ""
    accuracy_algorithm: str = ""
    accuracy_parameter: Mapping[str, float | None] = {}
    searching_algorithm: str = ""
    command_line: str = ""
    default_build_route: str = ""
    tuning_expr: str = ""
    files: Mapping[str, Any] | None = None
    argv: tuple[str, ...] = ()


class Row(msgspec.Struct, frozen=True):
    """One iteration. `iter` counts within its phase, so it may come twice. `gpu_time`: milliseconds."""

    iter: int
    build_route: str
    crash: bool = False
    error_message: str = ""
    accuracy_loss: Mapping[str, float | None] | None = None
    gpu_time: float | None = None

    @property
    def why_unusable(self) -> str:
        """Why the row is no measurement; empty if it is one."""
        if self.crash:
            return f"it crashed: {self.error_message or 'no reason given'}"
        if self.error_message:  # what broke the accuracy limit ends so, and has a time all the same
            return f"it failed: {self.error_message}"
        if self.gpu_time is None or not math.isfinite(self.gpu_time) or self.gpu_time <= 0:
            return "it has no time"
        return ""


class TuningCache(msgspec.Struct, frozen=True):
    """A cache file. `faults`: lines that could not be read, and why."""

    header: Header
    rows: tuple[Row, ...] = ()
    faults: tuple[str, ...] = ()


def read_cache(path: Path) -> TuningCache:
    """Read a cache; an unreadable line, as a killed run leaves at the end, is a fault and no error.

    Raises: UsageError if the file is missing or holds no line of a cache.
    """
    hint = "give the file that trtexec wrote for --tuningCacheFile (best_config.json unless told otherwise)"
    try:
        lines = path.read_bytes().decode(errors="replace").split("\n")
    except OSError as error:
        raise UsageError(f"cannot read the tuning cache {str(path)!r}: {error.strerror}", hint=hint) from error
    header: Header | None = None
    rows: list[Row] = []
    faults: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        found = _read_line(line)
        if isinstance(found, Row):
            rows.append(found)
        elif isinstance(found, Header) and header is None and not rows:
            header = found
        else:
            words = found if isinstance(found, str) else "a second header"
            last = not any(rest.strip() for rest in lines[number:])
            faults.append(f"line {number}: {words}" + (" (the last line: a run that was cut off)" if last else ""))
    if header is None and not rows:
        raise UsageError(f"{str(path)!r} is not a tuning cache: {faults[0] if faults else 'it is empty'}", hint=hint)
    if header is None:
        faults.insert(0, "there is no header line")
    return TuningCache(header or Header(), tuple(rows), tuple(faults))


def write_cache(path: Path, cache: TuningCache) -> None:
    """Write a cache file in trtexec's key order, whole or not at all. Raises: UsageError."""
    lines = [_header_json(cache.header), *(_row_json(row) for row in cache.rows)]
    text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}", hint="choose another place") from error


def _read_line(line: str) -> Row | Header | str:
    """A row, a header, or what is wrong."""
    try:
        found = json.loads(line)
    except ValueError as error:
        return f"not JSON ({error})"
    if not isinstance(found, dict):
        return "not an object"
    kind: type[Row] | type[Header] = Row if "build_route" in found or "iter" in found else Header
    if kind is Header and not {"tuning_expr", "tuner_version", "default_build_route"} & found.keys():
        return "neither a header nor a row of a tuning cache"
    present = {key: value for key, value in found.items() if value is not None}
    try:
        return msgspec.convert(present, kind)
    except msgspec.ValidationError as error:
        return str(error)


def _header_json(header: Header) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(header)
    return found


def _row_json(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(row)
    return found
