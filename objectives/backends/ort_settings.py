"""Settings of ONNX Runtime: one assignment on its SessionOptions, and whether the installed version knows it.

Flow: ort_knobs.py defines knobs by settings HERE -> build and open apply them -> read back from the session.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import onnxruntime as ort

from objectives.errors import CandidateError
from objectives.knobs import Knob, KnobKind
from objectives.outcome import FailureKind, Stage

_NATIVE = re.compile(r"\.(so|dll|dylib|pyd)\b")


@dataclass(frozen=True, slots=True)
class Setting:
    """One assignment on SessionOptions: `target` with a dot is a configuration key, else an attribute."""

    target: str
    value: Any

    @property
    def is_offered(self) -> bool:
        return library_has(self.target) if "." in self.target else hasattr(ort.SessionOptions, self.target)

    def apply(self, options: Any) -> None:
        if "." in self.target:
            options.add_session_config_entry(self.target, self.value)
        else:
            setattr(options, self.target, self.value)

    def read(self, options: Any) -> Any:
        """What an open session's options say; of a configuration key that is an echo, no proof of effect."""
        if "." in self.target:
            return options.get_session_config_entry(self.target)
        return getattr(options, self.target)


Settings = Mapping[str, tuple[Setting, ...]]  # by value


def apply_settings(options: Any, chosen: Settings) -> None:
    """Set everything in `chosen` (knob name -> settings) on SessionOptions."""
    for setting in (setting for group in chosen.values() for setting in group):
        setting.apply(options)


def require_settings(session: Any, chosen: Settings) -> None:
    """Raises: CandidateError of kind `fallback` if the open session's options are not as `chosen` says."""
    options = session.get_session_options()
    for name, group in chosen.items():
        for setting in group:
            if (found := setting.read(options)) != setting.value:
                words = f"{name}: asked for {setting.target}={setting.value}, the session has {found}"
                raise CandidateError(FailureKind.FALLBACK, words)


@dataclass(frozen=True, slots=True)
class OrtKnob:
    """A knob, and what each of its values but the default sets."""

    knob: Knob
    settings: Settings
    needs_op: frozenset[str] = frozenset()  # offered only for models with one of these operators; empty: for all

    @property
    def stage(self) -> Stage:
        """BUILD or OPEN: where its settings are applied."""
        return Stage.OPEN if self.knob.kind == KnobKind.RUNTIME else Stage.BUILD


@cache
def library_has(key: str) -> bool:
    """Whether `key` stands as a whole string in one of the installed native libraries of ONNX Runtime."""
    return any(_contains(path, b"\0" + key.encode() + b"\0") for path in _native_libraries())


@cache
def _native_libraries() -> tuple[Path, ...]:
    folder = Path(ort.__file__).parent / "capi"
    return tuple(sorted(path for path in folder.iterdir() if _NATIVE.search(path.name)))


def _contains(path: Path, needle: bytes) -> bool:
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(needle) >= 0
