"""From an ONNX file to a TensorRT network with one optimization profile.

Flow: trt_build.py -> parse HERE -> network and profile -> the builder. Failures carry the parser's own words.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from objectives.backends.ort_graph import load_graph
from objectives.backends.trt_errors import failure
from objectives.backends.trt_log import Log, recorder
from objectives.errors import CandidateError, WorkloadError
from objectives.outcome import FailureKind
from objectives.shapes import ShapeRange, Shapes


def parse(library: Any, builder: Any, path: Path, flags: int, shapes: Shapes, log: Log) -> tuple[Any, Any]:
    """The network of the model in `path`, and the parser, which must live as long as the network (it holds weights).

    Raises: CandidateError in the parser's words.
    """
    network = builder.create_network(flags)
    parser = library.OnnxParser(network, recorder(library))
    renamed = _without_conflicts(path, shapes)
    taken = parser.parse(renamed, str(path)) if renamed is not None else parser.parse_from_file(str(path))
    if not taken:
        said = "; ".join(str(parser.get_error(index)) for index in range(parser.num_errors))
        log.add("ERROR", said)
        raise failure(log, FailureKind.BUILD_FAILED, "the model cannot be parsed")
    return network, parser


def network_flags(library: Any, strongly_typed: bool) -> int:
    """Creation flags: explicit batch where the other kind still exists, strong typing where it is a choice."""
    members = library.NetworkDefinitionCreationFlag.__members__
    flags = 0
    if "EXPLICIT_BATCH" in members and hasattr(library.Builder, "max_batch_size"):
        flags |= 1 << int(members["EXPLICIT_BATCH"])
    if strongly_typed and "STRONGLY_TYPED" in members:
        flags |= 1 << int(members["STRONGLY_TYPED"])
    return flags


def add_profile(builder: Any, network: Any, config: Any, shapes: Shapes, log: Log) -> dict[str, list[list[int]]]:
    """Add one profile for every input that needs one. Returns minimum, optimum and maximum by input.

    Raises: WorkloadError if `shapes` lacks a dynamic input or fits it not.
    """
    profile = builder.create_optimization_profile()
    used: dict[str, list[list[int]]] = {}
    for tensor in (network.get_input(index) for index in range(network.num_inputs)):
        dims = tuple(int(dim) for dim in tensor.shape)
        if not tensor.is_shape_tensor and -1 not in dims:
            continue
        wanted = shapes.get(tensor.name)
        if wanted is None:
            raise WorkloadError(
                f"input {tensor.name!r} has dynamic dimensions {dims}, and no shapes are given for it",
                hint="give its smallest, most typical and largest shape",
            )
        _set(profile, tensor, dims, wanted)
        used[tensor.name] = [list(wanted.min), list(wanted.opt), list(wanted.max)]
    if used and config.add_optimization_profile(profile) < 0:
        raise failure(log, FailureKind.BUILD_FAILED, f"the optimization profile {used} is refused")
    return used


def _set(profile: Any, tensor: Any, dims: tuple[int, ...], wanted: ShapeRange) -> None:
    if tensor.is_shape_tensor:
        profile.set_shape_input(tensor.name, wanted.min, wanted.opt, wanted.max)
        return
    fits = len(wanted.opt) == len(dims) and all(
        dim in (-1, low, high) and (dim == -1 or low == high)
        for dim, low, high in zip(dims, wanted.min, wanted.max, strict=True)
    )
    if not fits:
        raise WorkloadError(f"shapes {wanted.min} to {wanted.max} do not fit input {tensor.name!r} of shape {dims}")
    profile.set_shape(tensor.name, wanted.min, wanted.opt, wanted.max)


def _without_conflicts(path: Path, shapes: Shapes) -> bytes | None:
    """The model with contradicting names of input dimensions replaced; None if there are none.

    TensorRT takes dimensions of one name to be equal. Exporters give all of them one name (PP-OCR: `?`), and then no
    profile with different sizes is accepted.
    """
    model = load_graph(path)
    sizes: dict[str, set[tuple[int, int, int]]] = defaultdict(set)
    places: dict[str, list[tuple[Any, str]]] = defaultdict(list)
    for value in model.graph.input:
        given = shapes.get(value.name)
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.dim_param:
                places[dim.dim_param].append((dim, f"{value.name}_{axis}"))
                if given is not None and axis < len(given.opt):
                    sizes[dim.dim_param].add((given.min[axis], given.opt[axis], given.max[axis]))
    conflicting = {name for name, found in sizes.items() if len(found) > 1}
    if not conflicting:
        return None
    for dim, unique in (place for name in conflicting for place in places[name]):
        dim.dim_param = unique
    for value in (*model.graph.output, *model.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in conflicting:
                dim.ClearField("dim_param")
    content: bytes = model.SerializeToString()
    return content


def require_types(network: Any) -> None:
    """Raises: CandidateError if an input or output has a type that takes less than a byte."""
    tensors = [network.get_input(index) for index in range(network.num_inputs)]
    tensors += [network.get_output(index) for index in range(network.num_outputs)]
    for tensor in tensors:
        if tensor.dtype.name in ("INT4", "FP4"):
            words = f"{tensor.name!r} is of type {tensor.dtype.name}; such inputs and outputs are not supported here"
            raise CandidateError(FailureKind.UNSUPPORTED, words)
