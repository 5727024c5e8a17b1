"""Synthetic backend: a simulated runtime with a known optimum and candidates that go wrong in every way.

Flow: the same as any backend; its model is a landscape file (landscape.py). Latencies pass on a simulated clock, so a
study of hundreds of trials takes seconds; crashes, hangs and memory are real.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from objectives.backends.base import NO_TERMS, Backend, BuildTerms, Environment, Session, Values
from objectives.backends.synthetic_devices import DEVICES, VARIABLE, SimulatedDevice, read_devices
from objectives.conditions import Watch
from objectives.devices import Device, told
from objectives.digest import digest_of, digest_of_file
from objectives.errors import CandidateError, HarnessError, WorkloadError
from objectives.knobs import KnobSpace
from objectives.landscape import Fault, Landscape, read_landscape, tiny_landscape
from objectives.model import ModelSpec, TensorSpec, require_file
from objectives.outcome import EngineFile, FailureKind
from objectives.tensors import Array, Tensors
from objectives.tiny import TinyModel, TinyModels

VERSION = "1"
_INPUT, _OUTPUT, _WIDTH = "x", "y", 8


class SyntheticBackend(Backend):
    name = "synthetic"
    options = (DEVICES,)
    _devices: tuple[SimulatedDevice, ...] = ()

    def configure(self, options: Mapping[str, str]) -> None:
        super().configure(options)
        self._devices = read_devices(options)

    def environment(self) -> Environment:
        here = self._here()
        identity = {"machine": platform.machine()} | ({"device": here.model} if here else {})
        key = here.key if here else ""
        return Environment(self.name, VERSION, key, identity, {"python": platform.python_version()})

    def devices(self) -> tuple[Device, ...]:
        return tuple(Device(one.name, one.key, one.model, {VARIABLE: one.name}) for one in self._devices)

    def _here(self) -> SimulatedDevice | None:
        """The pretended device of this process: the one it was started for, else the first; None without any."""
        wanted = told(VARIABLE)
        return next((one for one in self._devices if wanted in (None, one.name)), None)

    def describe(self, path: Path) -> ModelSpec:
        read_landscape(require_file(path))
        return ModelSpec(
            digest=digest_of_file(path),
            name=path.stem,
            format="landscape",
            inputs=(TensorSpec(_INPUT, "float32", (_WIDTH,)),),
            outputs=(TensorSpec(_OUTPUT, "float32", (_WIDTH,)),),
            files=(path.name,),
            size_bytes=path.stat().st_size,
        )

    def knobs(self, path: Path, model: ModelSpec) -> KnobSpace:
        return read_landscape(path).space()

    def reference(self, path: Path, inputs: Tensors) -> dict[str, Array]:
        read_landscape(path)
        return {_OUTPUT: _answer(inputs)}

    def build(self, path: Path, values: Values, workdir: Path, terms: BuildTerms = NO_TERMS) -> EngineFile:
        landscape = read_landscape(path)
        full = landscape.space().values(landscape.space().candidate(values))
        time.sleep(landscape.build_s)
        _fail_build(landscape.fault(full))
        engine = workdir / "engine.json"
        seed = 0 if landscape.repeatable else int.from_bytes(os.urandom(4))
        engine.write_text(json.dumps({"landscape": str(path), "values": full, "build": seed}, sort_keys=True))
        return EngineFile(str(engine), digest_of_file(engine), engine.stat().st_size, "synthetic")

    def tiny_models(self, folder: Path) -> TinyModels:
        return TinyModels(TinyModel(tiny_landscape().save(folder / "tiny.json")))

    def open(self, engine: EngineFile, values: Values) -> Session:
        content = json.loads(Path(engine.path).read_text())
        landscape = read_landscape(Path(content["landscape"]))
        here = self._here()
        return SyntheticSession(landscape, content["values"], content["build"], here.slowness if here else 1.0)


class SyntheticSession(Session):
    """`y = 2 x + 1`, off by the candidate's loss; latencies come from the landscape."""

    clock = "simulated"

    def __init__(self, landscape: Landscape, values: Values, build: int, slowness: float = 1.0) -> None:
        self._landscape = landscape
        self._values = dict(values)
        self._fault = landscape.fault(values)
        self._bound: Tensors = {}
        self._closed = False
        if self._fault is Fault.FALLBACK:
            raise CandidateError(FailureKind.FALLBACK, "asked for one thing, got another (simulated)")
        key = int(digest_of(self._values)[:8], 16)
        load = 0 if landscape.repeatable else int.from_bytes(os.urandom(4))
        self._random = np.random.default_rng([landscape.seed, key, load])
        built = np.random.default_rng([landscape.seed, key, build]).normal(0.0, landscape.build_noise)
        offset = built + self._random.normal(0.0, landscape.load_noise)
        self._latency_ms = slowness * landscape.latency_ms(values) * float(np.exp(offset))

    @property
    def effective(self) -> Values:
        return self._values

    def close(self) -> None:
        self._closed = True

    def run(self, inputs: Tensors) -> dict[str, Array]:
        self._require_open()
        _fail_run(self._fault)
        outputs = {_OUTPUT: (_answer(inputs) * (1.0 + self._landscape.loss(self._values))).astype(np.float32)}
        return _spoil(self._fault, outputs)

    def bind(self, inputs: Tensors) -> None:
        self._bound = inputs

    def _execute(self, repeats: int) -> None:
        self._require_open()
        if not self._bound:
            raise HarnessError("measure needs bound inputs")

    def _require_open(self) -> None:
        if self._closed:
            raise HarnessError("the session is closed")

    def watch(self) -> Watch:
        return _NoWatch()  # time is simulated: what the machine does meanwhile means nothing

    def measure(self, repeats: int) -> float:
        self._execute(repeats)
        noise = self._random.normal(0.0, self._landscape.noise)
        return self._latency_ms * 1e-3 * repeats * float(np.exp(noise))


class _NoWatch:
    def stop(self) -> tuple[dict[str, float], tuple[str, ...]]:
        return {}, ()


def _answer(inputs: Tensors) -> Array:
    if set(inputs) != {_INPUT} or inputs[_INPUT].shape != (_WIDTH,):
        raise WorkloadError(f"the synthetic model takes one input {_INPUT!r} of shape ({_WIDTH},)")
    result: Array = (inputs[_INPUT] * 2 + 1).astype(np.float32)
    return result


def _fail_build(fault: Fault | None) -> None:
    if fault is Fault.UNSUPPORTED:
        raise CandidateError(FailureKind.UNSUPPORTED, "this combination is not supported (simulated)")
    if fault is Fault.BUILD_FAILED:
        raise CandidateError(FailureKind.BUILD_FAILED, "no implementation found for node 7 (simulated)")
    if fault is Fault.BUILD_CRASH:
        os.kill(os.getpid(), signal.SIGSEGV)


def _fail_run(fault: Fault | None) -> None:
    match fault:
        case Fault.SEGFAULT:
            ctypes.string_at(0)  # a read through a null pointer, as a broken kernel would do it
        case Fault.ABORT:
            os.abort()
        case Fault.EXIT:
            os._exit(3)
        case Fault.HANG:
            time.sleep(1e6)
        case Fault.EAT_MEMORY:
            _eat_memory()
        case Fault.MEMORY_ERROR:
            raise MemoryError("cannot allocate 1.0 TiB (simulated)")
        case Fault.RUN_FAILED:
            raise CandidateError(FailureKind.RUN_FAILED, "kernel launch failed (simulated)")
        case _:
            return


def _eat_memory() -> None:
    eaten = []
    while True:
        eaten.append(np.ones(8 << 20, dtype=np.uint8))
        time.sleep(0.002)  # about 4 GB in a second: the guard has time, the machine stays whole


def _spoil(fault: Fault | None, outputs: dict[str, Array]) -> dict[str, Array]:
    output = outputs[_OUTPUT]
    match fault:
        case Fault.NAN:
            output[3] = np.nan
        case Fault.WRONG_SHAPE:
            return {_OUTPUT: output[:-1]}
        case Fault.WRONG_TYPE:
            return {_OUTPUT: output.astype(np.float64)}
        case Fault.MISSING_OUTPUT:
            return {}
    return outputs
