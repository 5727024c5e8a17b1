"""The model: what its file says about inputs and outputs, and its identity.

Flow: `study create --model m.onnx` -> describe HERE -> inputs.py makes data for it -> a backend builds it.
Knows the ONNX format (through the onnx package), no runtime.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # ships no types

from objectives.errors import ModelError
from objectives.tensors import dtype_of

_NUMPY_NAMES = {  # where ONNX and numpy (or ml_dtypes) call a type differently
    "float": "float32",
    "double": "float64",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
}
Dim = int | str  # a size, or the name of a dynamic dimension ("?" when it has none)


class TensorSpec(msgspec.Struct, frozen=True):
    """One input or output: `dtype` as in `tensors.dtype_of`; a dynamic dimension is its name; None: rank unknown."""

    name: str
    dtype: str
    shape: tuple[Dim, ...] | None

    @property
    def is_dynamic(self) -> bool:
        return self.shape is None or any(isinstance(dim, str) for dim in self.shape)

    def describe_shape(self) -> str:
        """The shape as a user writes it, `1x3x?x?`; `scalar` when it has no dimension."""
        if self.shape is None:
            return "unknown rank"
        return "x".join(str(dim) for dim in self.shape) or "scalar"


class ModelSpec(msgspec.Struct, frozen=True):
    """A model's identity and interface. `files` are all its files, the main one first, relative to its folder.

    `measures_itself`: it brings its own inputs, samples and losses, so that it has no tensors that we could see.
    """

    digest: str
    name: str
    format: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    files: tuple[str, ...]
    size_bytes: int
    measures_itself: bool = False

    def input(self, name: str) -> TensorSpec:
        """The input called `name`. Raises: KeyError."""
        return {spec.name: spec for spec in self.inputs}[name]


def require_file(path: Path) -> Path:
    """`path` if it is a file. Raises: ModelError."""
    if not path.exists():
        raise ModelError(f"model file {str(path)!r} does not exist", hint="check the path given with --model")
    if not path.is_file():
        raise ModelError(f"{str(path)!r} is not a file", hint="--model takes the model file itself")
    return path


def read_onnx(path: Path) -> ModelSpec:
    """Describe an ONNX file without loading its external weights.

    Raises: ModelError if it is missing, not ONNX, truncated, has no output, or lacks an external weight file.
    """
    proto = _parse(require_file(path))
    files = (path.name, *sorted(set(_external_files(proto.graph))))
    _require_external_files(path.parent, files[1:])
    initialized = {tensor.name for tensor in proto.graph.initializer}
    initialized |= {sparse.values.name for sparse in proto.graph.sparse_initializer}
    return ModelSpec(
        digest=_digest(path.parent, files),
        name=path.stem,
        format="onnx",
        inputs=tuple(_spec(value) for value in proto.graph.input if value.name not in initialized),
        outputs=tuple(_spec(value) for value in proto.graph.output),
        files=files,
        size_bytes=sum((path.parent / name).stat().st_size for name in files),
    )


def _parse(path: Path) -> Any:
    hint = "give an .onnx file written by an exporter; a truncated download must be fetched again"
    try:
        # Named, or the file's ending would choose another reader.
        proto = onnx.load(str(path), format="protobuf", load_external_data=False)
    except (DecodeError, ValueError, TypeError) as error:
        raise ModelError(f"{str(path)!r} is not a readable ONNX file ({error})", hint=hint) from error
    except OSError as error:
        raise ModelError(f"cannot read {str(path)!r}: {error}", hint="check the file's permissions") from error
    # Protobuf accepts many byte strings, the empty one first of all: ask for what every model has.
    if not proto.graph.output or not proto.opset_import:
        raise ModelError(f"{str(path)!r} is not an ONNX model: it has no outputs or no operator set", hint=hint)
    return proto


def _spec(value: Any) -> TensorSpec:
    if not value.type.HasField("tensor_type"):
        kind = value.type.WhichOneof("value") or "untyped"
        raise ModelError(
            f"input or output {value.name!r} is of kind {kind}, not a tensor",
            hint="convert sequence, map and optional values to tensors when exporting the model",
        )
    tensor = value.type.tensor_type
    return TensorSpec(value.name, _dtype(value.name, tensor.elem_type), _shape(tensor))


def _dtype(name: str, number: int) -> str:
    try:
        found: str = onnx.TensorProto.DataType.Name(number).lower()
        found = _NUMPY_NAMES.get(found, found)
        dtype_of(found)
    except (ValueError, TypeError) as error:
        raise ModelError(
            f"input or output {name!r} has element type {number}, which this version cannot handle",
            hint="convert it to a common type when exporting the model",
        ) from error
    return found


def _shape(tensor: Any) -> tuple[Dim, ...] | None:
    if not tensor.HasField("shape"):
        return None
    # Some exporters write -1 for a size that is not known.
    return tuple(
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else dim.dim_param or "?"
        for dim in tensor.shape.dim
    )


def _external_files(graph: Any) -> Iterator[str]:
    for tensor in _tensors(graph):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield from (_text(entry.value) for entry in tensor.external_data if entry.key == "location")


def _text(value: str | bytes) -> str:
    # Protobuf hands over as bytes what is no valid text.
    return value if isinstance(value, str) else value.decode(errors="replace")


def _tensors(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        yield from ([attribute.t] if attribute.HasField("t") else [])
        yield from attribute.tensors
        for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            yield from _tensors(inner)


def _require_external_files(folder: Path, names: tuple[str, ...]) -> None:
    for name in names:
        inside, there = _whereabouts(folder, name)
        if not inside or not there:
            reason = "is missing" if inside else "lies outside the model's folder"
            raise ModelError(
                f"the model's external weight file {name!r} {reason}",
                hint=f"keep it beside the model, in {str(folder)!r}",
            )


def _whereabouts(folder: Path, name: str) -> tuple[bool, bool]:
    """Whether `name` lies in `folder`, and whether it is there; a name that no file can have is not."""
    try:
        # By name, not by what links point to: caches of model hubs keep weights as links to another folder.
        inside = Path(os.path.normpath(folder / name)).is_relative_to(os.path.normpath(folder))
        return inside, (folder / name).is_file()
    except (OSError, ValueError):
        return True, False


def _digest(folder: Path, files: tuple[str, ...]) -> str:
    hasher = hashlib.sha256()
    for index, name in enumerate(files):
        # The main file may be renamed without becoming another model; external names are part of its content.
        hasher.update(b"" if index == 0 else name.encode() + b"\0")
        with (folder / name).open("rb") as stream:
            while chunk := stream.read(1 << 20):
                hasher.update(chunk)
    return hasher.hexdigest()
