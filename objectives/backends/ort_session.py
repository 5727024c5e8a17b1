"""An open ONNX Runtime engine: inputs in, outputs out, and what really took effect.

Flow: ort.py opens an engine -> OrtSession HERE -> evaluate.py checks and times it.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto

from objectives.backends.base import Session, Values
from objectives.backends.ort_denormals import denormals
from objectives.backends.ort_errors import translate_errors
from objectives.errors import CandidateError, HarnessError
from objectives.outcome import FailureKind
from objectives.tensors import Array, Tensors, dtype_of, name_of

# Types that numpy has only through ml_dtypes: the library takes and gives them as raw memory with a type
# number.
_RAW_TYPES = {
    "bfloat16": TensorProto.BFLOAT16,
    "float8_e4m3fn": TensorProto.FLOAT8E4M3FN,
    "float8_e4m3fnuz": TensorProto.FLOAT8E4M3FNUZ,
    "float8_e5m2": TensorProto.FLOAT8E5M2,
    "float8_e5m2fnuz": TensorProto.FLOAT8E5M2FNUZ,
}
_RAW_OUTPUTS = {f"tensor({name.replace('_', '')})": name for name in _RAW_TYPES}  # as the library spells them
_STRING = "tensor(string)"


class OrtSession(Session):
    """An InferenceSession with `effective`, the knob values that were read back from it and its threads.

    `flush` is whether the calling thread treats denormals as zero while the session runs; see
    ort_denormals.py.
    """

    def __init__(self, session: Any, effective: Values, flush: bool) -> None:
        self._session = session
        self._effective = dict(effective)
        self._flush = flush
        self._output_types = {output.name: output.type for output in session.get_outputs()}
        self._takes_strings = any(entry.type == _STRING for entry in session.get_inputs())
        self._binding: Any = None
        self._feeds: dict[str, Any] | None = None

    @property
    def effective(self) -> Values:
        return self._effective

    def run(self, inputs: Tensors) -> dict[str, Array]:
        feeds = {name: _feed(array) for name, array in inputs.items()}
        with self._at_work():
            if _RAW_OUTPUTS.keys().isdisjoint(self._output_types.values()):
                outputs = self._session.run(None, feeds)
            else:
                outputs = [_read(value) for value in self._run_raw(feeds)]
        return {name: np.asarray(output) for name, output in zip(self._output_types, outputs, strict=True)}

    def bind(self, inputs: Tensors) -> None:
        """As the base class says; but string inputs are not resident, each timing holds their conversion."""
        feeds = {name: _feed(array) for name, array in inputs.items()}
        if self._takes_strings:
            self._feeds, self._effective["inputs"] = feeds, "converted each time"
            return
        with self._at_work():
            binding = self._session.io_binding()
            for name, value in feeds.items():
                binding.bind_ortvalue_input(name, _as_ort_value(value))
            for name in self._output_types:
                binding.bind_output(name)
        self._binding, self._effective["inputs"] = binding, "resident"

    def _execute(self, repeats: int) -> None:
        if self._binding is None and self._feeds is None:
            raise HarnessError("measure was called before bind")
        with self._at_work():
            if self._binding is None:
                for _ in range(repeats):
                    self._session.run(None, self._feeds)
            else:
                for _ in range(repeats):
                    self._session.run_with_iobinding(self._binding)

    def close(self) -> None:
        self._binding = self._feeds = None
        self._session = None  # its threads end with the last reference

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        if self._session is None:
            raise HarnessError("this session is closed")
        with translate_errors(FailureKind.RUN_FAILED), denormals(self._flush):
            yield

    def _run_raw(self, feeds: dict[str, Any]) -> list[Any]:
        if self._takes_strings:
            words = "a model with string inputs and bfloat16 or float8 outputs cannot be run through numpy"
            raise CandidateError(FailureKind.UNSUPPORTED, words)
        values = {name: _as_ort_value(value) for name, value in feeds.items()}
        return list(self._session.run_with_ort_values(None, values))


@contextmanager
def new_threads(created: list[int]) -> Iterator[None]:
    """Append to `created` how many native threads the inside started; nothing where the system does not tell.

    Threads of Python's own, such as a heartbeat that starts meanwhile, do not count.
    """
    before = _native_threads()
    yield
    after = _native_threads()
    if before is not None and after is not None:
        created.append(len(after - before))


def _native_threads() -> set[int] | None:
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        return None
    return {int(name) for name in os.listdir(tasks)} - {thread.native_id or 0 for thread in threading.enumerate()}


def _feed(array: Array) -> Any:
    """`array` as the library takes it: native, contiguous; an OrtValue for types that numpy lacks."""
    kind = name_of(array.dtype)
    if kind == "string":
        return array if array.dtype == object else array.astype(np.str_).astype(object)
    array = np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
    if kind in _RAW_TYPES:
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, _RAW_TYPES[kind])
    return array


def _as_ort_value(value: Any) -> Any:
    return value if isinstance(value, ort.OrtValue) else ort.OrtValue.ortvalue_from_numpy(value)


def _read(value: Any) -> Array:
    """A copy of an OrtValue's content."""
    name = _RAW_OUTPUTS.get(value.data_type())
    if name is None:
        return np.array(value.numpy())
    dtype = dtype_of(name)
    shape = tuple(value.shape())
    count = int(np.prod(shape, dtype=np.int64))
    raw = ctypes.string_at(value.data_ptr(), count * dtype.itemsize) if count else b""
    return np.frombuffer(raw, dtype=dtype).reshape(shape).copy()
