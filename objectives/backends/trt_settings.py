"""Settings of TensorRT's builder: one assignment each, applied to a configuration and read back from it.

Flow: trt_knobs.py defines knobs by settings HERE -> trt_build.py applies them -> reads them back. The Python bindings
throw away whether an assignment took, so reading back is the only answer there is.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from objectives.errors import CandidateError
from objectives.knobs import Knob
from objectives.outcome import FailureKind


class Setting(Protocol):
    """One assignment on an IBuilderConfig."""

    @property
    def value(self) -> Any:
        """What `read` gives once it took."""

    def apply(self, config: Any) -> None:
        """Make the assignment."""

    def read(self, config: Any) -> Any:
        """What the configuration holds now."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """A property such as `max_aux_streams`."""

    name: str
    value: Any

    def apply(self, config: Any) -> None:
        setattr(config, self.name, self.value)

    def read(self, config: Any) -> Any:
        return getattr(config, self.name)


@dataclass(frozen=True, slots=True)
class Flag:
    """A member of BuilderFlag, set or cleared."""

    flag: Any
    value: bool

    def apply(self, config: Any) -> None:
        if self.value:
            config.set_flag(self.flag)
        else:
            config.clear_flag(self.flag)

    def read(self, config: Any) -> Any:
        return config.get_flag(self.flag)


@dataclass(frozen=True, slots=True)
class Tactics:
    """The sources that kernels are taken from, a mask."""

    value: int

    def apply(self, config: Any) -> None:
        config.set_tactic_sources(self.value)

    def read(self, config: Any) -> Any:
        return config.get_tactic_sources()


@dataclass(frozen=True, slots=True)
class Pool:
    """The limit of a member of MemoryPoolType, bytes."""

    pool: Any
    value: int

    def apply(self, config: Any) -> None:
        config.set_memory_pool_limit(self.pool, self.value)

    def read(self, config: Any) -> Any:
        return config.get_memory_pool_limit(self.pool)


@dataclass(frozen=True, slots=True)
class Preview:
    """A member of PreviewFeature, on or off."""

    feature: Any
    value: bool

    def apply(self, config: Any) -> None:
        config.set_preview_feature(self.feature, self.value)

    def read(self, config: Any) -> Any:
        return config.get_preview_feature(self.feature)


Settings = Mapping[str, tuple[Setting, ...]]  # by value


@dataclass(frozen=True, slots=True)
class TrtKnob:
    """A knob, and what each of its values but the default sets."""

    knob: Knob
    settings: Settings


def apply(config: Any, settings: Iterable[Setting]) -> None:
    """Make the assignments, in order; the library warns of deprecated ones, which is not news here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for setting in settings:
            setting.apply(config)


def takes(config: Any, settings: Iterable[Setting]) -> bool:
    """Whether the assignments can be made and are then read back as made."""
    group = tuple(settings)
    try:
        apply(config, group)
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return False  # a binding that knows the name, of a library that refuses the value
    return all(setting.read(config) == setting.value for setting in group)


def require(config: Any, name: str, settings: Iterable[Setting]) -> None:
    """Raises: CandidateError of kind `fallback` if an assignment of knob `name` did not take."""
    for setting in settings:
        if (found := setting.read(config)) != setting.value:
            words = f"{name}: asked for {setting.value}, the builder configuration holds {found}"
            raise CandidateError(FailureKind.FALLBACK, words)
