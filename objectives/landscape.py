"""Landscape: a simulated tuning problem with a known optimum, as a value and as a JSON file.

Flow: tests, notebooks and benchmarks write a landscape file -> `--backend synthetic --model file.json` reads it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import msgspec

from objectives.errors import ModelError
from objectives.knobs import Candidate, Knob, KnobKind, KnobSpace


class Fault(StrEnum):
    """Every way in which a candidate can go wrong, made real: the process does crash, hang, or eat memory."""

    UNSUPPORTED = "unsupported"
    BUILD_FAILED = "build_failed"
    BUILD_CRASH = "build_crash"
    FALLBACK = "fallback"
    SEGFAULT = "segfault"
    ABORT = "abort"
    EXIT = "exit"
    HANG = "hang"
    EAT_MEMORY = "eat_memory"
    MEMORY_ERROR = "memory_error"
    RUN_FAILED = "run_failed"
    NAN = "nan"
    WRONG_SHAPE = "wrong_shape"
    WRONG_TYPE = "wrong_type"
    MISSING_OUTPUT = "missing_output"


class SimulatedKnob(msgspec.Struct, frozen=True):
    """A knob whose values change log latency by `effects` (a value that is not named: by 0)."""

    name: str
    values: tuple[str, ...]
    default: str
    effects: Mapping[str, float] = {}
    kind: KnobKind = KnobKind.ROUTE
    help: str = "simulated"


class Interaction(msgspec.Struct, frozen=True):
    """Where all of `when` hold: a change of log latency, an accuracy loss, a fault."""

    when: Mapping[str, str]
    effect: float = 0.0
    loss: float = 0.0
    fault: Fault | None = None

    def holds(self, values: Mapping[str, str]) -> bool:
        return all(values.get(name) == value for name, value in self.when.items())


class Landscape(msgspec.Struct, frozen=True):
    """`base_ms` is the latency with every knob at its default; `noise` the standard deviation of a sample's logarithm.

    `load_noise` is drawn once for each time that an engine is opened, `build_noise` once for each build.
    `repeatable`: noise depends on the candidate alone, not on chance.
    """

    knobs: tuple[SimulatedKnob, ...]
    base_ms: float = 1.0
    noise: float = 0.01
    load_noise: float = 0.0
    build_noise: float = 0.0
    interactions: tuple[Interaction, ...] = ()
    seed: int = 0
    repeatable: bool = False
    build_s: float = 0.0  # real seconds that a build takes

    def space(self) -> KnobSpace:
        """The knobs as a backend offers them."""
        return KnobSpace(tuple(Knob(k.name, k.values, k.default, k.kind, k.help) for k in self.knobs))

    def latency_ms(self, values: Mapping[str, str]) -> float:
        """True latency, without noise."""
        log = sum(k.effects.get(values.get(k.name, k.default), 0.0) for k in self.knobs)
        return self.base_ms * math.exp(log + sum(i.effect for i in self.interactions if i.holds(values)))

    def loss(self, values: Mapping[str, str]) -> float:
        """True relative error of the outputs."""
        return sum(i.loss for i in self.interactions if i.holds(values))

    def fault(self, values: Mapping[str, str]) -> Fault | None:
        return next((i.fault for i in self.interactions if i.fault and i.holds(values)), None)

    def best(self, max_loss: float) -> tuple[Candidate, float]:
        """The fastest feasible candidate and its latency in milliseconds, by trying all: for small spaces."""
        space = self.space()
        names = [knob.name for knob in space.knobs]
        feasible = (
            values
            for combination in itertools.product(*[knob.values for knob in space.knobs])
            if self.fault(values := dict(zip(names, combination, strict=True))) is None
            and self.loss(values) <= max_loss
        )
        best = min(feasible, key=self.latency_ms)
        return space.candidate(best), self.latency_ms(best)

    def save(self, path: Path) -> Path:
        """Write the landscape as JSON; returns `path`."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self)))
        return path


def tiny_landscape() -> Landscape:
    """A landscape with a knob of each kind that a runtime has, for a self-check; one value is refused."""
    knobs = (
        SimulatedKnob("tiles", ("8", "16"), "8", {"16": -0.1}),
        SimulatedKnob("effort", ("low", "high"), "low", {"high": -0.1}, KnobKind.BUILDER),
        SimulatedKnob("fusion", ("on", "off"), "on", {"off": 0.1}, KnobKind.BUILDER),
        SimulatedKnob("precision", ("full", "half", "quarter"), "full", {"half": -0.2}, KnobKind.PRECISION),
        SimulatedKnob("graph", ("off", "capture"), "off", {"capture": -0.1}, KnobKind.RUNTIME),
    )
    refused = Interaction({"precision": "quarter"}, fault=Fault.UNSUPPORTED)
    return Landscape(knobs, interactions=(refused, Interaction({"precision": "half"}, loss=0.001)))


def read_landscape(path: Path) -> Landscape:
    """Raises: ModelError if the file is not a landscape."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Landscape)
    except (msgspec.MsgspecError, OSError) as error:
        raise ModelError(
            f"{str(path)!r} is not a landscape for the synthetic backend: {error}",
            hint="write one with objectives.landscape.Landscape(...).save(path), or choose another --backend",
        ) from error
