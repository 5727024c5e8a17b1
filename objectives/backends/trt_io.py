"""Inputs and outputs of an engine for one set of arrays: types, buffers, addresses.

Flow: trt_session.py -> a Feed HERE per set of inputs -> the context's shapes and addresses -> outputs as arrays.
Every type of TensorRT that a network may have at its border maps to numpy or ml_dtypes; a type that the model has and
TensorRT has not (float64; int64 before TensorRT 10) is converted on the way in and back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from objectives.backends.cuda_runtime import Buffer, Stream
from objectives.backends.trt_errors import failure
from objectives.backends.trt_log import capture, note
from objectives.backends.trt_open import Loaded
from objectives.errors import CandidateError
from objectives.outcome import FailureKind
from objectives.tensors import Array, Tensors, dtype_of

_ALIGNMENT_BYTES = 256
TYPES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "BF16": "bfloat16",
    "FP8": "float8_e4m3fn",
    "INT8": "int8",
    "INT32": "int32",
    "INT64": "int64",
    "UINT8": "uint8",
    "BOOL": "bool",
}


def numpy_type(native: Any) -> np.dtype[Any]:
    """The numpy type of a member of DataType. Raises: CandidateError for types that take less than a byte."""
    if native.name not in TYPES:
        raise CandidateError(FailureKind.UNSUPPORTED, f"inputs and outputs of type {native.name} are not supported")
    return dtype_of(TYPES[native.name])


@dataclass(slots=True)
class Slot:
    """One input or output: where its data is. `allocator` is set for an output whose size only the data tells."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    buffer: Buffer | None = None
    host: Array | None = None  # inputs and outputs that hold shapes live on the host
    allocator: Any = None


class Feed:
    """Buffers for one set of inputs, filled; owned until `close`. `attach` gives them to the context."""

    def __init__(self, loaded: Loaded, stream: Stream, inputs: Tensors) -> None:
        self._loaded = loaded
        self._stream = stream
        self._inputs: list[Slot] = []
        self._outputs: list[Slot] = []
        try:
            for name in loaded.names(loaded.library.TensorIOMode.INPUT):
                self._inputs.append(self._filled(name, inputs[name]))
            stream.synchronize()
        except BaseException:
            self.close()
            raise

    @property
    def slots(self) -> tuple[Slot, ...]:
        return (*self._inputs, *self._outputs)

    def attach(self) -> None:
        """Set shapes and addresses of everything. Raises: CandidateError in the library's words."""
        context, library = self._loaded.context, self._loaded.library
        with capture(library) as log:
            for slot in self._inputs:
                if not context.set_input_shape(slot.name, slot.shape):
                    raise failure(log, FailureKind.RUN_FAILED, f"shape {slot.shape} of {slot.name!r} is refused")
                self._address(slot)
            if missing := context.infer_shapes():
                raise failure(log, FailureKind.RUN_FAILED, f"the shapes of {', '.join(missing)} stay unknown")
            if not self._outputs:
                self._outputs = [self._room(name) for name in self._loaded.names(library.TensorIOMode.OUTPUT)]
            for slot in self._outputs:
                self._address(slot)

    def outputs(self) -> dict[str, Array]:
        """What the last inference gave, after everything on the stream."""
        return {slot.name: self._read(slot) for slot in self._outputs}

    def close(self) -> None:
        for slot in self.slots:
            if slot.buffer is not None:
                slot.buffer.close()
            if slot.allocator is not None:
                slot.allocator.release()
        self._inputs, self._outputs = [], []

    def _filled(self, name: str, given: Array) -> Slot:
        dtype = numpy_type(self._loaded.engine.get_tensor_dtype(name))
        array = _converted(name, given, dtype)
        slot = Slot(name, dtype, array.shape)
        if self._is_on_host(name):
            slot.host = array
        else:
            slot.buffer = Buffer(array.nbytes)
            self._stream.upload(slot.buffer, array)
            self._stream.synchronize()  # before the array goes
        return slot

    def _room(self, name: str) -> Slot:
        dtype = numpy_type(self._loaded.engine.get_tensor_dtype(name))
        shape = tuple(int(dim) for dim in self._loaded.context.get_tensor_shape(name))
        if -1 in shape:
            return Slot(name, dtype, shape, allocator=new_allocator(self._loaded.library))
        if self._is_on_host(name):
            return Slot(name, dtype, shape, host=np.empty(shape, dtype))
        return Slot(name, dtype, shape, Buffer(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize))

    def _is_on_host(self, name: str) -> bool:
        return bool(self._loaded.engine.get_tensor_location(name) == self._loaded.library.TensorLocation.HOST)

    def _address(self, slot: Slot) -> None:
        context = self._loaded.context
        if slot.allocator is not None:
            taken = context.set_output_allocator(slot.name, slot.allocator)
        elif slot.host is not None:
            taken = context.set_tensor_address(slot.name, slot.host.ctypes.data)
        else:
            assert slot.buffer is not None
            taken = context.set_tensor_address(slot.name, slot.buffer.pointer)
        if not taken:
            raise CandidateError(FailureKind.RUN_FAILED, f"the address of {slot.name!r} is refused")

    def _read(self, slot: Slot) -> Array:
        if slot.host is not None:
            self._stream.synchronize()
            return slot.host.copy()
        if slot.allocator is not None:
            self._stream.synchronize()
            return self._stream.download(slot.allocator.buffer, slot.allocator.shape, slot.dtype)
        assert slot.buffer is not None
        return self._stream.download(slot.buffer, slot.shape, slot.dtype)


def _converted(name: str, given: Array, dtype: np.dtype[Any]) -> Array:
    """`given` as the engine takes it. Raises: CandidateError if an integer does not fit."""
    if given.dtype == dtype:
        return np.array(given, order="C")
    converted = np.ascontiguousarray(given.astype(dtype)).reshape(given.shape)
    if given.dtype.kind in "iu" and not np.array_equal(converted, given):
        words = f"input {name!r} holds integers that the engine's type {dtype.name} does not"
        raise CandidateError(FailureKind.UNSUPPORTED, words)
    return converted


def new_allocator(library: Any) -> Any:
    """An output allocator of the library's kind: memory grows as asked for, and the shape is noted."""

    class Allocator(library.IOutputAllocator):  # type: ignore[misc]  # the base comes from the library, untyped
        def __init__(self) -> None:
            library.IOutputAllocator.__init__(self)
            self.buffer = Buffer(_ALIGNMENT_BYTES)
            self.shape: tuple[int, ...] = ()

        def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:
            try:
                if size > self.buffer.size_bytes:
                    self.buffer.close()
                    self.buffer = Buffer(size)
            except CandidateError as error:  # an exception must not cross the library
                note(library, str(error))
                return 0
            return self.buffer.pointer

        def reallocate_output_async(self, tensor_name: str, memory: int, size: int, alignment: int, stream: int) -> int:
            return self.reallocate_output(tensor_name, memory, size, alignment)

        def notify_shape(self, tensor_name: str, shape: Any) -> None:
            self.shape = tuple(int(dim) for dim in shape)

        def release(self) -> None:
            self.buffer.close()

    return Allocator()
