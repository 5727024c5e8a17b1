"""Replicated backend: a backend whose engines are run in several processes at once, as a knob of deployment.

Flow: `--backend-option replicas=N` -> the registry wraps the backend HERE -> knob `replicas` with values 1 to N -> open
starts instances: one on each device where there are several, else all on the one that there is, sharing it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

from objectives.backends.base import (
    NO_TERMS,
    REPLICAS,
    Backend,
    BuildTerms,
    Environment,
    Session,
    Values,
    tensor_session,
)
from objectives.device import device_lock
from objectives.devices import Device, choose
from objectives.errors import InputError, KnobError
from objectives.knobs import Knob, KnobKind, KnobSpace
from objectives.model import ModelSpec
from objectives.outcome import EngineFile, FailureKind
from objectives.replicas.messages import Open
from objectives.replicas.process import ReplicaProcess
from objectives.replicas.session import replicated_session
from objectives.tensors import Array, Tensors
from objectives.tiny import TinyModels

KNOB = REPLICAS.name
_MOST = 64  # on one device that is shared
_HELP = "Processes that run the engine at once: throughput is that of all together, and the slowest counts."


def replicated(inner: Backend, wanted: str, given: Mapping[str, str]) -> Backend:
    """`inner` with a knob for how many instances run; `wanted`: a number, names of devices with commas, or `all`.

    `given`: the options of `inner`, which its replicas get too. What is wrong with `wanted` is said with the knobs.
    """

    class OfOne(_ReplicatedBackend):
        name = inner.name
        options = inner.options

        def __init__(self) -> None:
            super().__init__(inner, wanted, given)

    return OfOne()


class _ReplicatedBackend(Backend):
    """See `replicated`. Processes of replicas are kept for the next session: a start costs seconds."""

    def __init__(self, inner: Backend, wanted: str, options: Mapping[str, str]) -> None:
        self._inner = inner
        self._wanted = wanted
        self._given = dict(options)
        self._idle: dict[int, list[ReplicaProcess]] = {}  # by number of their place

    def environment(self) -> Environment:
        return self._inner.environment()

    def devices(self) -> tuple[Device, ...]:
        return self._inner.devices()

    def cannot_run(self) -> str:
        return self._inner.cannot_run()

    def environment_for(self, path: Path) -> Environment:
        return self._inner.environment_for(path)

    def cannot_check(self) -> str:
        return self._inner.cannot_check()

    def describe(self, path: Path) -> ModelSpec:
        return self._inner.describe(path)

    def knobs(self, path: Path, model: ModelSpec) -> KnobSpace:
        values = tuple(str(number) for number in range(1, len(self._places) + 1))
        knob = Knob(KNOB, values, "1", KnobKind.DEPLOYMENT, _HELP)
        return KnobSpace((*self._inner.knobs(path, model).knobs, knob))

    def reference(self, path: Path, inputs: Tensors) -> dict[str, Array]:
        return self._inner.reference(path, inputs)

    def build(self, path: Path, values: Values, workdir: Path, terms: BuildTerms = NO_TERMS) -> EngineFile:
        self._number(values)
        return self._inner.build(path, _without(values), workdir, terms)

    def is_sound(self, kind: FailureKind) -> bool:
        return self._inner.is_sound(kind)

    def tiny_models(self, folder: Path) -> TinyModels:
        return self._inner.tiny_models(folder)

    def build_raw_route(self, path: Path, route: str, workdir: Path, terms: BuildTerms = NO_TERMS) -> EngineFile | None:
        return self._inner.build_raw_route(path, route, workdir, terms)

    def open(self, engine: EngineFile, values: Values) -> Session:
        """As the base class says. While it is open the session holds the locks of the further devices that it uses."""
        number, plain = self._number(values), _without(values)
        first = tensor_session(self._inner.open(engine, plain))
        if number == 1:
            return first
        held = ExitStack()
        try:
            for place in self._places[1:number]:
                held.enter_context(device_lock("" if place is None else place.key))
            processes = [self._process(index) for index in range(1, number)]
            held.callback(self._take_back, processes)
            order = Open(self._inner.name, self._given, engine, plain)
            for process in processes:
                process.send(order)
            for process in processes:
                process.receive()
        except BaseException:
            held.close()
            first.close()
            raise
        return replicated_session(first, processes, {KNOB: str(number), **self._facts(number)}, held)

    @cached_property
    def _places(self) -> tuple[Device | None, ...]:
        """Where instances run, the first that of this process; None: on the device that all of them share."""
        if self._inner.shares_device:
            return (None,) * self._count(_MOST)
        here = self._inner.environment().device
        offered = sorted(self._inner.devices(), key=lambda device: device.key != here)
        if self._wanted.isdecimal():
            return tuple(offered[: self._count(len(offered))])
        chosen = choose(self.name, offered, [word.strip() for word in self._wanted.split(",") if word.strip()])
        if here not in {device.key for device in chosen} or len(chosen) < 2:
            raise InputError(
                f"{KNOB}={self._wanted}: at least two devices are needed, {here} among them, which this process uses",
                hint=f"write {KNOB}=all, or a number",
            )
        return tuple(sorted(chosen, key=lambda device: device.key != here))

    def _count(self, most: int) -> int:
        number = int(self._wanted) if self._wanted.isdecimal() else 0
        if not 2 <= number <= most:
            raise InputError(
                f"{KNOB}={self._wanted}: {f'at most {most}' if most > 1 else 'no more than one'} can run here",
                hint=f"give a number from 2 to {most}" if most > 1 else "several devices are needed; see `env`",
            )
        return number

    def _number(self, values: Values) -> int:
        text = values.get(KNOB, "1")
        if not text.isdecimal() or not 1 <= int(text) <= len(self._places):
            raise KnobError(f"{KNOB}={text}: not one of 1 to {len(self._places)}")
        return int(text)

    def _process(self, index: int) -> ReplicaProcess:
        """A living process for a place, idle or new."""
        idle = self._idle.setdefault(index, [])
        while idle:
            found = idle.pop()
            if found.is_alive():
                return found
            found.end()
        place = self._places[index]
        variables = {} if place is None else place.variables
        return ReplicaProcess(index, str(index) if place is None else f"{index} on device {place.name}", variables)

    def _take_back(self, processes: Sequence[ReplicaProcess]) -> None:
        for process in processes:
            if process.is_idle():
                self._idle.setdefault(process.index, []).append(process)
            else:
                process.end()

    def _facts(self, number: int) -> dict[str, str]:
        found = [place.name for place in self._places[:number] if place is not None]
        return {"replica_devices": " ".join(found)} if found else {}


def _without(values: Values) -> dict[str, str]:
    return {name: value for name, value in values.items() if name != KNOB}
