"""Inputs: generated data for a model, ordinary and hard, and the shapes it is run with.

Flow: `study create` -> resolve_shapes, generate HERE -> tensors.py files -> every evaluation runs on the same data.
Seeded: the same seed, model, shapes and ranges give the same arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import ml_dtypes
import msgspec
import numpy as np

from objectives.errors import WorkloadError
from objectives.model import ModelSpec, TensorSpec
from objectives.tensors import Array, Tensors, dtype_of

Shapes = Mapping[str, tuple[int, ...]]

# Without a range: what a normalized feature looks like, and the largest size that raw pixels or counts usually have.
_ORDINARY_SCALE, _LARGE = 1.0, 100.0
_DENORMAL = {"float16": 3e-6, "bfloat16": 1e-39, "float32": 1e-40, "float64": 1e-310}
_BYTES = {
    "uint8": (0.0, 255.0),
    "int8": (-128.0, 127.0),
}  # pixels and quantized values: the whole range is sensible


class Pair(msgspec.Struct, frozen=True):
    """One set of inputs, `tensors` by input name. `required`: the model must run on it, or the study is not created."""

    label: str
    tensors: dict[str, Any]
    required: bool = True


class Generation(msgspec.Struct, frozen=True):
    """How to make inputs: `ranges` per input (low, high; both inclusive for integers), `count` ordinary pairs."""

    seed: int = 0
    count: int = 3
    hard: bool = True
    ranges: Mapping[str, tuple[float, float]] = {}


def resolve_shapes(model: ModelSpec, shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """A full shape for every input: what the model fixes, completed by `shapes`.

    Raises: WorkloadError for an unknown input, a rank or size that the model does not take, a dynamic dimension without
    a size, or one name of a dynamic dimension with two sizes.
    """
    known = {spec.name for spec in model.inputs}
    for name in shapes:
        if name not in known:
            raise WorkloadError(
                f"--shapes names {name!r}, which is no input of the model",
                hint=f"inputs: {', '.join(sorted(known)) or 'none'}",
            )
    resolved = {spec.name: _resolve(spec, shapes.get(spec.name)) for spec in model.inputs}
    _require_same_symbols(model, resolved)
    return resolved


def _resolve(spec: TensorSpec, given: tuple[int, ...] | None) -> tuple[int, ...]:
    if given is None:
        if spec.is_dynamic:
            example = "x".join(str(d) if isinstance(d, int) else "1" for d in spec.shape or ("1",))
            raise WorkloadError(
                f"input {spec.name!r} has dynamic shape {spec.describe_shape()}",
                hint=f"give the shape to tune for: --shapes '{spec.name}:{example}'",
            )
        return tuple(dim for dim in spec.shape or () if isinstance(dim, int))
    if any(size < 0 for size in given):
        raise WorkloadError(f"the shape of {spec.name!r} has a negative size: {given}")
    fixed = spec.shape if spec.shape is not None else tuple("?" for _ in given)
    if len(fixed) != len(given) or any(
        isinstance(want, int) and want != got for want, got in zip(fixed, given, strict=True)
    ):
        raise WorkloadError(
            f"input {spec.name!r} has shape {spec.describe_shape()}, not {'x'.join(map(str, given)) or 'scalar'}",
            hint="only dynamic dimensions can be chosen",
        )
    return given


def _require_same_symbols(model: ModelSpec, shapes: Mapping[str, tuple[int, ...]]) -> None:
    seen: dict[str, tuple[int, str]] = {}
    for spec in model.inputs:
        for dim, size in zip(spec.shape or (), shapes[spec.name], strict=False):
            if not isinstance(dim, str) or dim == "?":
                continue
            first = seen.setdefault(dim, (size, spec.name))
            if first[0] != size:
                raise WorkloadError(
                    f"dimension {dim!r} is {first[0]} in {first[1]!r} and {size} in {spec.name!r}",
                    hint="inputs that share a dimension need the same size there",
                )


def generate(
    model: ModelSpec, shapes: Shapes, how: Generation, edges: Mapping[str, Shapes] | None = None
) -> list[Pair]:
    """Ordinary pairs first, the first of them for timing; then hard ones, if asked for.

    `shapes` is complete (see `resolve_shapes`); `edges` names further shapes, "shortest" and "longest" say.
    Raises: WorkloadError for an integer input without a range, a text input, or a bad range.
    """
    for spec in model.inputs:
        _require_range(spec, how.ranges)
    for name in how.ranges:
        if name not in {spec.name for spec in model.inputs}:
            raise WorkloadError(f"--range names {name!r}, which is no input of the model")
    pairs = [Pair(f"random-{index}", _fill(model, shapes, how, "ordinary", index)) for index in range(how.count)]
    if how.hard:
        pairs += list(_hard_pairs(model, shapes, how, edges or {}))
    return pairs


def _hard_pairs(model: ModelSpec, shapes: Shapes, how: Generation, edges: Mapping[str, Shapes]) -> Iterator[Pair]:
    kinds = ["zeros", "large"]
    if any(spec.dtype in _DENORMAL and spec.name not in how.ranges for spec in model.inputs):
        kinds.append("denormal")
    for index, kind in enumerate(kinds):
        yield Pair(kind, _fill(model, shapes, how, kind, 1000 + index), required=False)
    for index, (label, edge) in enumerate(edges.items()):
        if dict(edge) != dict(shapes):
            yield Pair(label, _fill(model, edge, how, "ordinary", 2000 + index), required=False)


def _fill(model: ModelSpec, shapes: Shapes, how: Generation, kind: str, stream: int) -> dict[str, Array]:
    random = np.random.default_rng([how.seed, stream])
    return {spec.name: _tensor(spec, shapes[spec.name], how.ranges, kind, random) for spec in model.inputs}


def _tensor(
    spec: TensorSpec,
    shape: tuple[int, ...],
    ranges: Mapping[str, tuple[float, float]],
    kind: str,
    random: np.random.Generator,
) -> Array:
    bounds = ranges.get(spec.name) or _BYTES.get(spec.dtype)
    if spec.dtype == "bool":
        values = random.integers(0, 2, shape) if kind == "ordinary" else np.full(shape, int(kind == "large"))
    elif _is_integer(spec.dtype):
        values = _integers(bounds or (0, 0), shape, kind, random, spec.dtype)
    else:
        values = _floats(bounds, shape, kind, random, _DENORMAL.get(spec.dtype, 0.0))
    if _is_float(spec.dtype):
        largest = float(ml_dtypes.finfo(dtype_of(spec.dtype)).max)
        values = np.clip(values, -largest, largest)
    return np.asarray(values).astype(dtype_of(spec.dtype))


def _integers(
    bounds: tuple[float, float], shape: tuple[int, ...], kind: str, random: np.random.Generator, dtype: str
) -> Array:
    low, high = math.ceil(bounds[0]), math.floor(bounds[1])
    wide = np.uint64 if dtype == "uint64" else np.int64
    if kind == "ordinary":
        return random.integers(low, high, shape, endpoint=True, dtype=wide)
    # An index must stay in its range: the hard values are the range's ends, zero where it lies inside.
    return np.full(shape, high if kind == "large" else min(max(0, low), high), dtype=wide)


def _floats(
    bounds: tuple[float, float] | None,
    shape: tuple[int, ...],
    kind: str,
    random: np.random.Generator,
    denormal: float,
) -> Array:
    if kind == "denormal" and bounds is None:
        return random.choice([-denormal, denormal], shape)
    if kind == "zeros":
        return np.full(shape, 0.0 if bounds is None else min(max(0.0, bounds[0]), bounds[1]))
    if bounds is None:
        return random.standard_normal(shape) * (_ORDINARY_SCALE if kind == "ordinary" else _LARGE)
    # With a range of the user's: the ends of it, in any mixture, are the largest that can come.
    return random.choice(list(bounds), shape) if kind == "large" else random.uniform(*bounds, shape)


def _is_integer(dtype: str) -> bool:
    return dtype.startswith(("int", "uint"))


def _require_range(spec: TensorSpec, ranges: Mapping[str, tuple[float, float]]) -> None:
    if spec.dtype == "string":
        raise WorkloadError(
            f"input {spec.name!r} takes text, which cannot be generated",
            hint="give data with --inputs data.npz",
        )
    if spec.name in ranges:
        if not _fits(spec.dtype, *ranges[spec.name]):
            low, high = ranges[spec.name]
            raise WorkloadError(
                f"the range {low:g}..{high:g} does not fit input {spec.name!r} ({spec.dtype})",
                hint=f"write --range '{spec.name}:low:high' with low <= high",
            )
    elif _is_integer(spec.dtype) and spec.dtype not in _BYTES:
        raise WorkloadError(
            f"input {spec.name!r} takes {spec.dtype} numbers, and their range is not known (indices, ids, lengths?)",
            hint=f"say it: --range '{spec.name}:low:high', or give data with --inputs",
        )


def _fits(dtype: str, low: float, high: float) -> bool:
    """Whether a range has values of this type, and none outside it."""
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        return False
    if _is_integer(dtype):
        info = ml_dtypes.iinfo(dtype_of(dtype))
        return info.min <= low and high <= info.max and math.ceil(low) <= math.floor(high)
    if _is_float(dtype):
        largest = float(ml_dtypes.finfo(dtype_of(dtype)).max)
        return -largest <= low and high <= largest
    return True


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def require_fit(model: ModelSpec, label: str, tensors: Tensors) -> None:
    """Check a user's data against the model's inputs: every name, type, rank and fixed size.

    Raises: WorkloadError naming the input; data are never converted, since a silent cast changes what is tuned.
    """
    wanted = {spec.name: spec for spec in model.inputs}
    if missing := [name for name in wanted if name not in tensors]:
        raise WorkloadError(
            f"inputs {label!r} lack {', '.join(map(repr, missing))}",
            hint=f"the model takes: {', '.join(wanted)}",
        )
    if extra := [name for name in tensors if name not in wanted]:
        raise WorkloadError(
            f"inputs {label!r} have {', '.join(map(repr, extra))}, which the model does not take",
            hint=f"the model takes: {', '.join(wanted)}",
        )
    for name, spec in wanted.items():
        _require_dtype(spec, label, tensors[name])
        try:
            _resolve(spec, tensors[name].shape)
        except WorkloadError as error:
            raise WorkloadError(f"inputs {label!r}: {error}", hint="save the array in the model's shape") from None
    _require_same_symbols(model, {name: tensors[name].shape for name in wanted})


def _require_dtype(spec: TensorSpec, label: str, array: Array) -> None:
    want = dtype_of(spec.dtype)
    text = spec.dtype == "string" and array.dtype.kind in "OUS"
    if array.dtype != want and not text:
        raise WorkloadError(
            f"inputs {label!r}: {spec.name!r} is {array.dtype.name}, the model takes {spec.dtype}",
            hint=f"save it as {spec.dtype}: array.astype({spec.dtype!r})",
        )
