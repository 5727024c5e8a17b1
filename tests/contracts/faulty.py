"""A backend that breaks nearly every promise, each at another place: what a self-check has to find.

Registered by `install` through an entry point in a folder, so that a child process finds it as it finds any backend.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import time
from pathlib import Path

import numpy as np

from objectives.backends.base import NO_TERMS, BuildTerms, Environment, Session, Values
from objectives.backends.synthetic import SyntheticBackend
from objectives.knobs import KnobKind
from objectives.landscape import Landscape, SimulatedKnob
from objectives.outcome import EngineFile
from objectives.tensors import Array, Tensors
from objectives.tiny import TinyModel, TinyModels

NAME, CRASHING = "faulty", "crashing"
KNOBS = (
    SimulatedKnob("tiles", ("8", "16"), "8"),
    SimulatedKnob("dropped", ("a", "b"), "a", kind=KnobKind.BUILDER),
    SimulatedKnob("kept", ("a", "b"), "a", kind=KnobKind.BUILDER),
    SimulatedKnob("number", ("full", "nan"), "full", kind=KnobKind.PRECISION),
    SimulatedKnob("graph", ("off", "abort"), "off", kind=KnobKind.RUNTIME),
    SimulatedKnob("memory", ("keep", "killed"), "keep", kind=KnobKind.RUNTIME),
)


def install(folder: Path) -> None:
    """Make `folder` a place from which Python sees the backends as installed."""
    info = folder / "tuner_faulty-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tuner-faulty\nVersion: 1.0\n")
    entries = f"{NAME} = {__name__}:FaultyBackend\n{CRASHING} = {__name__}:CrashingBackend\n"
    (info / "entry_points.txt").write_text(f"[tuner.backends]\n{entries}")


class CrashingBackend(SyntheticBackend):
    """Crashes before it can say where it is."""

    name = CRASHING

    def environment(self) -> Environment:
        os.kill(os.getpid(), signal.SIGSEGV)
        return super().environment()


class FaultyBackend(SyntheticBackend):
    name = NAME

    def environment(self) -> Environment:
        """Another one in each process."""
        here = super().environment()
        return Environment(self.name, here.backend_version, "", here.identity, {"process": str(os.getpid())})

    def tiny_models(self, folder: Path) -> TinyModels:
        fixed, ranged = (TinyModel(Landscape(KNOBS).save(folder / f"{name}.json")) for name in ("fixed", "ranged"))
        return TinyModels(fixed, ranged)

    def build(self, path: Path, values: Values, workdir: Path, terms: BuildTerms = NO_TERMS) -> EngineFile:
        """Drops a value, and a knob that it does not know; hangs with a range of shapes."""
        if path.stem == "ranged":
            time.sleep(600)
        known = {knob.name: knob.values for knob in KNOBS}
        taken = {name: value for name, value in values.items() if value in known.get(name, ())}
        return super().build(path, {**taken, "dropped": "a"}, workdir)

    def build_raw_route(self, path: Path, route: str, workdir: Path, terms: BuildTerms = NO_TERMS) -> EngineFile | None:
        """Takes anything."""
        return self.build(path, {}, workdir)

    def open(self, engine: EngineFile, values: Values) -> Session:
        built = json.loads(Path(engine.path).read_text())["values"]
        return _FaultySession(super().open(engine, values), built)


class _FaultySession(Session):
    _open = 0  # in this process

    def __init__(self, inner: Session, values: Values) -> None:
        type(self)._open += 1
        if type(self)._open > 1:
            raise ValueError("the device is busy")
        self._inner, self._values = inner, values
        self._output: Array = np.zeros(8, np.float32)

    @property
    def effective(self) -> Values:
        return self._values

    def close(self) -> None:
        type(self)._open -= 1

    def run(self, inputs: Tensors) -> dict[str, Array]:
        """Always the same array; an input loses its first element, also where numpy is told not to write."""
        if self._values["graph"] == "abort":
            os.abort()
        if self._values["memory"] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        self._output[:] = self._inner.run(inputs)["y"]
        if self._values["number"] == "nan":
            self._output[3] = np.nan
        ctypes.memset(inputs["x"].ctypes.data, 0, 4)
        return {"y": self._output}

    def bind(self, inputs: Tensors) -> None:
        self._inner.bind(inputs)

    def _execute(self, repeats: int) -> None:
        self._inner.measure(repeats)

    def measure(self, repeats: int) -> float:
        return 0.0
