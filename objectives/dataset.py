"""Data files of users: `.npz`, folders of `.npy`, and trtexec-style raw files, as named tensors.

Flow: `--inputs` and `--reference` -> read HERE -> inputs.require_fit -> tensors.py files of the study.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

import numpy as np

from objectives.errors import WorkloadError
from objectives.model import ModelSpec, TensorSpec
from objectives.tensors import UNREADABLE, Array, dtype_of

Shapes = Mapping[str, tuple[int, ...]]


def read_pairs(
    sources: Sequence[str], tensors: Iterable[TensorSpec], shapes: Shapes
) -> list[tuple[str, dict[str, Array]]]:
    """Every pair in `sources`, labelled, in order.

    A source is a `.npz` file (a pair), a folder of `.npz` files (a pair each, by name), a folder of `.npy` files (a
    pair; a file is named as its tensor, percent-encoded where the name has a slash), or `name:file[,name:file]` with
    raw binary files (a pair; shapes come from `shapes` or the model). Raises: WorkloadError.
    """
    specs = {spec.name: spec for spec in tensors}
    pairs = [pair for source in sources for pair in _read_source(source, specs, shapes)]
    return list(zip(_unique([label for label, _ in pairs]), (data for _, data in pairs), strict=True))


def _unique(labels: Sequence[str]) -> list[str]:
    """The labels, numbered where one comes twice; also where a numbered one is another's own."""
    taken = set(labels)
    found = []
    for index, label in enumerate(labels):
        one, number = label, index
        while labels.count(label) > 1 and (one in taken):
            one, number = f"{label}-{number}", number + len(labels)
        taken.add(one)
        found.append(one)
    return found


def _read_source(source: str, specs: Mapping[str, TensorSpec], shapes: Shapes) -> list[tuple[str, dict[str, Array]]]:
    path = Path(source)
    if path.is_dir():
        return _read_folder(path)
    if path.suffix == ".npz":
        return [(path.stem, _read_npz(path))]
    if ":" in source:
        return [(_raw_label(source), _read_raw(source, specs, shapes))]
    raise WorkloadError(
        f"cannot read data from {source!r}",
        hint="give a .npz file, a folder of .npz or .npy files, or name:file for raw binary data",
    )


def _read_folder(folder: Path) -> list[tuple[str, dict[str, Array]]]:
    archives, arrays = sorted(folder.glob("*.npz")), sorted(folder.glob("*.npy"))
    if not archives and not arrays:
        raise WorkloadError(f"folder {str(folder)!r} holds neither .npz nor .npy files")
    if arrays and archives:
        raise WorkloadError(
            f"folder {str(folder)!r} holds .npz and .npy files",
            hint="a folder holds one kind: many pairs or one",
        )
    if archives:
        return [(path.stem, _read_npz(path)) for path in archives]
    return [(folder.name, {unquote(path.stem): _read_npy(path) for path in arrays})]


_PICKLE_HINT = "arrays of Python objects are not read (they could run code): save text as numpy str_ arrays"


def _read_npy(path: Path) -> Array:
    loaded = _load(path)
    if not isinstance(loaded, np.ndarray):
        raise WorkloadError(f"{str(path)!r} is an archive, not one array", hint="call it .npz")
    return loaded


def _read_npz(path: Path) -> dict[str, Array]:
    loaded = _load(path)
    if isinstance(loaded, np.ndarray):
        raise WorkloadError(f"{str(path)!r} is not an .npz archive")
    return loaded


def _load(path: Path) -> Array | dict[str, Array]:
    """An array, or every array of an archive, whatever the file is called."""
    try:
        # Opened here: numpy leaves a file that it cannot read open.
        with path.open("rb") as stream:
            loaded = np.load(stream, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return loaded
            return {name: loaded[name] for name in loaded.files}
    except FileNotFoundError:
        raise WorkloadError(f"data file {str(path)!r} does not exist") from None
    except UNREADABLE as error:
        raise WorkloadError(f"cannot read {str(path)!r}: {error}", hint=_PICKLE_HINT) from error


def _raw_label(source: str) -> str:
    return Path(source.split(",")[0].rpartition(":")[2]).stem


def _read_raw(source: str, specs: Mapping[str, TensorSpec], shapes: Shapes) -> dict[str, Array]:
    tensors = {}
    for item in source.split(","):
        name, _, file = item.rpartition(":")
        if name not in specs:
            raise WorkloadError(
                f"raw data {item!r} name no tensor of the model", hint=f"names: {', '.join(specs) or 'none'}"
            )
        tensors[name] = _read_binary(Path(file), specs[name], shapes.get(name))
    return tensors


def _read_binary(path: Path, spec: TensorSpec, shape: tuple[int, ...] | None) -> Array:
    if spec.dtype == "string":
        raise WorkloadError(f"{spec.name!r} holds text, which raw files cannot", hint="use an .npz file")
    if shape is None:
        if spec.is_dynamic:
            raise WorkloadError(
                f"raw data for {spec.name!r} need a shape", hint=f"add --shapes '{spec.name}:...' or use .npz"
            )
        shape = tuple(dim for dim in spec.shape or () if isinstance(dim, int))
    try:
        data = path.read_bytes()
    except OSError as error:
        raise WorkloadError(f"cannot read {str(path)!r}: {error.strerror}") from error
    dtype = dtype_of(spec.dtype)
    expected = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    if len(data) != expected:
        raise WorkloadError(
            f"{str(path)!r} has {len(data)} bytes; {spec.name!r} of shape {shape}, type {spec.dtype}, takes {expected}"
        )
    return np.frombuffer(data, dtype=dtype).reshape(shape).copy()


def require_references(model: ModelSpec, pairs: Sequence[str], references: Sequence[Mapping[str, Array]]) -> None:
    """Check user-given reference outputs: one set per pair, names that are outputs, and every output's type.

    Raises: WorkloadError. Shapes are compared with real outputs later, since they may depend on the data.
    """
    if len(references) != len(pairs):
        raise WorkloadError(
            f"{len(references)} reference set(s) for {len(pairs)} input pair(s)",
            hint="give --reference once for each --inputs, in the same order",
        )
    outputs = {spec.name: spec for spec in model.outputs}
    for label, tensors in zip(pairs, references, strict=True):
        if unknown := [name for name in tensors if name not in outputs]:
            raise WorkloadError(
                f"the reference of pair {label!r} names {', '.join(map(repr, unknown))}, no output of the model",
                hint=f"outputs: {', '.join(outputs)}",
            )
        if missing := [name for name in outputs if name not in tensors]:
            raise WorkloadError(
                f"the reference of pair {label!r} lacks output {', '.join(map(repr, missing))}",
                hint="every output is judged; an output without reference would pass unchecked",
            )
        _require_output_types(label, tensors, outputs)


def _require_output_types(label: str, tensors: Mapping[str, Array], outputs: Mapping[str, TensorSpec]) -> None:
    for name, array in tensors.items():
        spec = outputs[name]
        text = spec.dtype == "string" and array.dtype.kind in "OUS"
        if array.dtype != dtype_of(spec.dtype) and not text:
            raise WorkloadError(
                f"the reference of pair {label!r}: {name!r} is {array.dtype.name}, the model gives {spec.dtype}",
                hint=f"save it as {spec.dtype}",
            )
        fixed = spec.shape
        sizes_differ = fixed is not None and (
            len(fixed) != array.ndim
            or any(isinstance(d, int) and d != n for d, n in zip(fixed, array.shape, strict=True))
        )
        if sizes_differ:
            raise WorkloadError(
                f"the reference of pair {label!r}: {name!r} has shape {list(array.shape)}, "
                f"the model gives {spec.describe_shape()}",
                hint="the reference must come from the same model and inputs",
            )
