"""Inputs and outputs of a session on the GPU for one set of arrays: buffers of our own, bound for as long as they live.

Flow: ort_cuda_session.py -> a Feed HERE per set of inputs -> inferences -> outputs as arrays. How large the outputs
are is told by a first inference, whose outputs the library allocates; from then on everything stays at fixed addresses,
which is what a captured graph needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto

from objectives.backends.cuda_runtime import Buffer, Stream
from objectives.backends.ort_errors import translate_errors
from objectives.errors import CandidateError
from objectives.outcome import FailureKind
from objectives.tensors import Array, Tensors, dtype_of, name_of

DEVICE = "cuda"
_GRAPH_ID = "gpu_graph_id"
_NO_GRAPH = "-1"  # the library's own number for an inference that is neither captured nor replayed
ELEMENTS: Mapping[str, int] = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "float8_e4m3fn": TensorProto.FLOAT8E4M3FN,
    "float8_e4m3fnuz": TensorProto.FLOAT8E4M3FNUZ,
    "float8_e5m2": TensorProto.FLOAT8E5M2,
    "float8_e5m2fnuz": TensorProto.FLOAT8E5M2FNUZ,
    "int8": TensorProto.INT8,
    "int16": TensorProto.INT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "uint8": TensorProto.UINT8,
    "uint16": TensorProto.UINT16,
    "uint32": TensorProto.UINT32,
    "uint64": TensorProto.UINT64,
    "bool": TensorProto.BOOL,
}
_NAMES = {name.replace("_", ""): name for name in ELEMENTS} | {"float": "float32", "double": "float64"}


def type_name(native: str) -> str:
    """The name of a type that the library spells `tensor(float)`. Raises: CandidateError for what has no bytes."""
    name = _NAMES.get(native.removeprefix("tensor(").removesuffix(")"))
    if name is None:
        words = f"inputs and outputs of type {native} cannot be kept on the GPU"
        raise CandidateError(FailureKind.UNSUPPORTED, words)
    return name


class Feed:
    """Buffers for one set of inputs, filled, and for its outputs; owned until `close`.

    `graph`: the number under which the library captures this feed's inferences; None: it captures none.
    """

    def __init__(self, session: Any, stream: Stream, inputs: Tensors, graph: int | None) -> None:
        self._session = session
        self._stream = stream
        self._graph = graph
        self._buffers: list[Buffer] = []
        self._outputs: dict[str, tuple[Buffer, tuple[int, ...], np.dtype[Any]]] = {}
        try:
            with translate_errors(FailureKind.RUN_FAILED):
                self._binding = session.io_binding()
                self._fill(inputs)
                self._make_room()
                self._options = None if graph is None else _run_options(str(graph))
                # Once or twice without being looked at: the first allocates, and with a graph the last is captured.
                self.launch()
        except BaseException:
            self.discard()
            raise

    def launch(self) -> None:
        """Put one inference on the stream."""
        self._session.run_with_iobinding(self._binding, self._options)

    def outputs(self) -> dict[str, Array]:
        """What the last inference gave."""
        return {name: self._stream.download(*where) for name, where in self._outputs.items()}

    def close(self) -> None:
        """Give everything back. A captured graph goes where the installed version can release one."""
        session, self._session, self._binding = self._session, None, None
        buffers, self._buffers, self._outputs = self._buffers, [], {}
        if self._graph is not None and hasattr(session, "release_captured_graph"):
            with translate_errors(FailureKind.RUN_FAILED):
                session.release_captured_graph(self._graph)
        for buffer in buffers:
            buffer.close()

    def discard(self) -> None:
        """As `close`, after something went wrong: further complaints would hide the words of the first."""
        with suppress(CandidateError):
            self.close()

    def _fill(self, inputs: Tensors) -> None:
        for name, given in inputs.items():
            kind = name_of(given.dtype)
            if kind not in ELEMENTS:
                words = f"input {name!r} of type {kind} cannot be kept on the GPU"
                raise CandidateError(FailureKind.UNSUPPORTED, words)
            array = np.asarray(given, dtype=given.dtype.newbyteorder("="), order="C")
            buffer = self._new_buffer(array.nbytes)
            self._stream.upload(buffer, array)
            self._stream.synchronize()  # before the array goes
            self._binding.bind_input(name, DEVICE, 0, ELEMENTS[kind], list(array.shape), buffer.pointer)

    def _make_room(self) -> None:
        """A first inference tells shapes and types; then every output gets a buffer of ours."""
        names = [output.name for output in self._session.get_outputs()]
        for name in names:
            self._binding.bind_output(name, DEVICE, 0)
        first = None if self._graph is None else _run_options(_NO_GRAPH)
        self._session.run_with_iobinding(self._binding, first)
        found = [(type_name(value.data_type()), tuple(value.shape())) for value in self._binding.get_outputs()]
        self._binding.clear_binding_outputs()
        for name, (kind, shape) in zip(names, found, strict=True):
            dtype = dtype_of(kind)
            buffer = self._new_buffer(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
            self._binding.bind_output(name, DEVICE, 0, ELEMENTS[kind], list(shape), buffer.pointer)
            self._outputs[name] = (buffer, shape, dtype)

    def _new_buffer(self, size_bytes: int) -> Buffer:
        buffer = Buffer(size_bytes)
        self._buffers.append(buffer)
        return buffer


def _run_options(graph: str) -> Any:
    options = ort.RunOptions()
    options.add_run_config_entry(_GRAPH_ID, graph)
    return options
