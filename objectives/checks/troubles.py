"""What can be wrong with a backend, each as a function that says it in a sentence; an empty one: nothing is wrong.

Flow: steps.py (a self-check on the user's machine) and the contract suite of the tests ask the same questions HERE.
What a backend raises passes through.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from objectives.backends.base import Backend, Environment, Session, Values, tensor_session
from objectives.digest import digest_of_file
from objectives.errors import ObjectiveError
from objectives.knobs import KnobSpace
from objectives.model import ModelSpec
from objectives.outcome import EngineFile
from objectives.tensors import Array, Tensors, name_of


def of_environment(first: Environment, second: Environment, name: str) -> str:
    """Of an environment that was read twice."""
    if first != second or first.digest != second.digest:
        return f"read twice, it differs: {_differences(first, second)}"
    if first.backend != name:
        return f"it names the backend {first.backend!r} instead of {name!r}"
    return "" if first.backend_version else "it names no version of the library"


def of_description(first: ModelSpec, second: ModelSpec, path: Path) -> str:
    """Of a model that was described twice."""
    if first != second:
        return "described twice, the model differs"
    if not first.outputs:
        return "the model has no outputs"
    return "" if first.files[0] == path.name else f"the first of its files is {first.files[0]!r}, not {path.name!r}"


def of_space(space: KnobSpace, again: KnobSpace) -> str:
    """Of the knobs of one model, listed twice."""
    if not space.knobs:
        return "no knobs are listed"
    for knob in space.knobs:
        if len(knob.values) < 2:
            return f"{knob.name} leaves nothing to choose"
        if not knob.help:
            return f"{knob.name} explains nothing"
    return "" if space.digest == again.digest else "listed twice, the knobs differ"


def of_engine(engine: EngineFile, workdir: Path) -> str:
    """Of a built engine in its folder."""
    path = Path(engine.path)
    if not path.is_file():
        return "the build left no engine file"
    if not path.resolve().is_relative_to(workdir.resolve()):
        return "the engine lies outside the folder of its build"
    if engine.digest != digest_of_file(path):
        return "the engine's digest is not that of its file"
    if engine.size_bytes < path.stat().st_size:
        return f"the engine is said to have {engine.size_bytes} bytes, its file has {path.stat().st_size}"
    found, named = {entry.name for entry in workdir.iterdir()}, {path.name, *engine.sidecars}
    if found != named:
        return f"the folder holds {_list(sorted(found))}, the engine names {_list(sorted(named))}"
    return "" if engine.format else "the engine names no format"


def of_unknown_values(backend: Backend, path: Path, space: KnobSpace, workdir: Path) -> str:
    """Of a backend that is asked to build with a knob, and a value, that it does not have."""
    for name, value in (("no such knob", "on"), (space.knobs[0].name, "no such value")):
        try:
            backend.build(path, {name: value}, workdir)
        except ObjectiveError:
            continue
        return f"{name}={value} was taken without a word"
    return ""


def of_form(outputs: Mapping[str, object], expected: Tensors) -> str:
    """Of the names, order, types and shapes of outputs; how close the numbers are is for the accuracy check to say."""
    if list(outputs) != list(expected):
        return f"outputs are {_list(outputs)}, the reference has {_list(expected)}"
    for name, array in outputs.items():
        wanted = expected[name]
        if not isinstance(array, np.ndarray):
            return f"output {name!r} is of type {type(array).__name__}, no array"
        if name_of(array.dtype) != name_of(wanted.dtype):
            return f"output {name!r} has type {name_of(array.dtype)}, the reference {name_of(wanted.dtype)}"
        if array.shape != wanted.shape:
            return f"output {name!r} has shape {list(array.shape)}, the reference {list(wanted.shape)}"
    return ""


def of_freshness(session: Session, inputs: Tensors) -> str:
    """Of outputs, which belong to the caller and are not changed by later calls."""
    first = session.run(inputs)
    before = {name: array.copy() for name, array in first.items()}
    second = session.run(inputs)
    for name, array in first.items():
        if not _same(array, before[name]):
            return f"output {name!r} was changed by the next inference"
        if not array.flags.writeable:
            return f"output {name!r} cannot be written to; the caller owns it"
        if np.shares_memory(array, second[name]):
            return f"output {name!r} of two inferences is the same memory"
        if any(np.shares_memory(array, given) for given in inputs.values()):
            return f"output {name!r} is the memory of an input"
    return ""


def of_reading(session: Session, inputs: Tensors) -> str:
    """Of inputs, which are only read: marked so for numpy, and compared afterwards for what does not ask."""
    frozen = {name: _frozen(array) for name, array in inputs.items()}
    session.run(frozen)
    session.bind(frozen)
    session.measure(1)
    changed = [name for name, array in frozen.items() if not _same(array, inputs[name])]
    return f"input {changed[0]!r} was written to" if changed else ""


def of_timing(session: Session, inputs: Tensors) -> str:
    """Of the seconds that inferences are said to take, and of the clock's name."""
    session.bind(inputs)
    for repeats in (1, 3):
        seconds = session.measure(repeats)
        if not math.isfinite(seconds) or seconds <= 0:
            return f"{repeats} inference{'s' if repeats > 1 else ''} took {seconds} s, says the clock"
    return "" if session.clock else "the clock has no name"


def of_two_sessions(backend: Backend, engine: EngineFile, values: Values, inputs: Tensors) -> str:
    """Of an engine that is opened twice at a time, and once more afterwards."""
    with (
        tensor_session(backend.open(engine, values)) as first,
        tensor_session(backend.open(engine, values)) as second,
    ):
        if trouble := of_form(first.run(inputs), second.run(inputs)):
            return f"two at a time differ: {trouble}"
    with tensor_session(backend.open(engine, values)) as third:
        return "" if third.run(inputs) else "opened again, it gives no outputs"


def of_effect(asked: Values, effective: Values) -> str:
    """Of values that were asked for, against what took effect as far as that can be read back."""
    dropped = [name for name, value in asked.items() if effective.get(name, value) != value]
    return "; ".join(f"{name}={asked[name]} was asked for, {effective[name]} took effect" for name in dropped)


def _differences(first: Environment, second: Environment) -> str:
    before, after = (
        {"version": one.backend_version, "device": one.device, **one.identity, **one.details} for one in (first, second)
    )
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    return ", ".join(f"{name}: {before.get(name)} and {after.get(name)}" for name in names)


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "nothing"


def _same(array: Array, other: Array) -> bool:
    """Whether two arrays are the same to the bit, a NaN too."""
    return bool(np.array_equal(array, other)) or (array.dtype.kind not in "OUS" and array.tobytes() == other.tobytes())


def _frozen(array: Array) -> Array:
    copy = array.copy()
    copy.flags.writeable = False
    return copy
