"""Tensors on their way between processes and runs: a safe file format for named arrays.

Flow: inputs.py and reference outputs -> files HERE, named by digest -> the worker reads them back.
NumPy's own `.npz` cannot hold bfloat16 or float8, refuses some names, and stores strings by pickling; so entries are
numbered, and a JSON entry carries names and types.
"""

from __future__ import annotations

import io
import os
import struct
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes  # registers bfloat16 and the float8 family with numpy by name
import msgspec
import numpy as np
import numpy.typing as npt

from objectives.errors import WorkloadError

Array = npt.NDArray[Any]
Tensors = Mapping[str, Array]

# Whatever a damaged archive or array file was seen to make Python's and numpy's readers raise.
UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    SyntaxError,
    RuntimeError,
    OverflowError,
    MemoryError,
    struct.error,
    tokenize.TokenError,
    zlib.error,
    zipfile.BadZipFile,
    msgspec.MsgspecError,
)
_FORMAT = 1
_EXTENDED = {
    name: np.dtype(found)
    for name in (
        *("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
        *("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "int4", "uint4", "int2", "uint2"),
    )
    if (found := getattr(ml_dtypes, name, None)) is not None
}


class _Entry(msgspec.Struct, frozen=True):
    name: str
    dtype: str


class _Head(msgspec.Struct, frozen=True):
    format: int
    tensors: tuple[_Entry, ...]


_HEAD = msgspec.json.Decoder(_Head)


def dtype_of(name: str) -> np.dtype[Any]:
    """The numpy dtype of a type name such as `float32`, `bfloat16` or `string` (an object array of `str`)."""
    if name == "string":
        return np.dtype(object)
    return _EXTENDED.get(name) or np.dtype(name)


def name_of(dtype: np.dtype[Any]) -> str:
    """The type name of a numpy dtype; every kind of text array is `string`."""
    return "string" if dtype.kind in "OUS" else dtype.name


def save_tensors(path: Path, tensors: Tensors) -> None:
    """Write `tensors` to `path` atomically; the same tensors give the same bytes."""
    head = _Head(_FORMAT, tuple(_Entry(name, name_of(array.dtype)) for name, array in tensors.items()))
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".")
    try:
        with os.fdopen(descriptor, "wb") as stream, zipfile.ZipFile(stream, "w") as archive:
            _write(archive, "tensors.json", msgspec.json.encode(head))
            for index, array in enumerate(tensors.values()):
                _write(archive, f"{index}.npy", _to_bytes(array))
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load_tensors(path: Path) -> dict[str, Array]:
    """Read back what `save_tensors` wrote.

    Raises: WorkloadError if the file is missing, damaged or of a newer format.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            head = _HEAD.decode(archive.read("tensors.json"))
            if head.format != _FORMAT:
                raise WorkloadError(f"{path} has tensor format {head.format}, this version reads {_FORMAT}")
            return {
                entry.name: _from_bytes(archive.read(f"{index}.npy"), entry.dtype)
                for index, entry in enumerate(head.tensors)
            }
    except UNREADABLE as error:
        raise WorkloadError(f"cannot read the tensors in {path}: {error}") from error


def _write(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    # A fixed date keeps the bytes, and with them the digest, a function of the tensors alone.
    archive.writestr(zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0)), data)


def _to_bytes(array: Array) -> bytes:
    if name_of(array.dtype) == "string":
        # numpy's own text arrays drop trailing NUL characters.
        return msgspec.json.encode([array.shape, [_text(one) for one in array.reshape(-1).tolist()]])
    if array.dtype.name in _EXTENDED:
        array = array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint8)
    buffer = io.BytesIO()
    # The shape is taken before: ascontiguousarray gives a scalar one dimension.
    np.save(buffer, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)
    return buffer.getvalue()


def _from_bytes(data: bytes, dtype: str) -> Array:
    if dtype == "string":
        shape, texts = msgspec.json.decode(data, type=tuple[tuple[int, ...], list[str]])
        flat = np.empty(len(texts), dtype=object)
        flat[:] = texts
        return flat.reshape(shape)
    array: Array = np.load(io.BytesIO(data), allow_pickle=False)
    return array.view(_EXTENDED[dtype]) if dtype in _EXTENDED else array


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
