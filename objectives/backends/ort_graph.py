"""ONNX graphs for this backend: what is in them, and how an optimized one becomes a file.

Flow: ort_variants.py and ort.py -> save_optimized HERE -> the engine file -> stamp HERE -> ort.py opens it.
"""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
from onnx.external_data_helper import uses_external_data

# A protobuf file ends at 2 GiB, and optimizing can grow a model (folded constants, blocked weights).
SINGLE_FILE_BYTES = 512 << 20
PROVIDERS = ("CPUExecutionProvider",)
_FATAL = 4  # the library logs each error that it also raises, and warnings by the hundred
_EXTERNAL_NAME = "session.optimized_model_external_initializers_file_name"
_EXTERNAL_MIN = "session.optimized_model_external_initializers_min_size_in_bytes"
_STAMP = "tuner.built"
_ALIASES = {"float": "float32", "double": "float64"}


def new_options() -> Any:
    """SessionOptions with the library's defaults, quiet."""
    options = ort.SessionOptions()
    options.log_severity_level = _FATAL
    return options


def new_session(path: Path | bytes, options: Any, providers: Sequence[Any] = PROVIDERS) -> Any:
    """An InferenceSession on `providers`, without the Python layer's own retry on other ones."""
    source = path if isinstance(path, bytes) else str(path)
    return ort.InferenceSession(source, options, providers=list(providers), enable_fallback=0)


def graphs(model: Any) -> Iterator[Any]:
    """Every graph of a ModelProto, the nested ones (If, Loop, Scan) included, and its local functions."""
    pending = [model.graph, *model.functions]
    while pending:
        graph = pending.pop()
        yield graph
        for attribute in (attribute for node in graph.node for attribute in node.attribute):
            pending.extend([*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])])


def initializers(model: Any) -> Iterator[Any]:
    """Every initializer of every graph, as TensorProto."""
    for graph in graphs(model):
        yield from getattr(graph, "initializer", ())  # a FunctionProto has none


def constants(model: Any) -> Iterator[Any]:
    """Every tensor that a node carries as an attribute, as TensorProto."""
    for attribute in (attribute for graph in graphs(model) for node in graph.node for attribute in node.attribute):
        if attribute.HasField("t"):
            yield attribute.t


def op_types(model: Any) -> frozenset[str]:
    """Operator names of every node of every graph."""
    return frozenset(node.op_type for graph in graphs(model) for node in graph.node)


def weight_types(model: Any) -> str:
    """How many values the weights have in which type, the most frequent first: `float32 81920, int64 12`."""
    counts: Counter[str] = Counter()
    for tensor in (*initializers(model), *constants(model)):
        counts[onnx.TensorProto.DataType.Name(tensor.data_type).lower()] += math.prod(tensor.dims)
    return ", ".join(f"{_ALIASES.get(name, name)} {count}" for name, count in counts.most_common())


def load_graph(path: Path) -> Any:
    """The ModelProto in `path` without its external weights."""
    return onnx.load(str(path), load_external_data=False)


def total_bytes(path: Path) -> tuple[int, bool]:
    """Size of a model with its external weights, and whether it has any."""
    model = load_graph(path)
    external = [t for t in (*initializers(model), *constants(model)) if uses_external_data(t)]
    lengths = (int(entry.value) for t in external for entry in t.external_data if entry.key == "length")
    return path.stat().st_size + sum(lengths), bool(external)


def save_copy(source: Path, target: Path) -> tuple[str, ...]:
    """Write the model in `source` to `target` as it is, weights in files of their own taken along.

    Returns the names of files beside `target` that hold weights (none below SINGLE_FILE_BYTES).
    """
    size, external = total_bytes(source)
    if not external:
        shutil.copyfile(source, target)
        return ()
    sidecar = target.name + ".data"
    model = onnx.load(str(source))
    onnx.save(model, str(target), save_as_external_data=size > SINGLE_FILE_BYTES, location=sidecar)
    return (sidecar,) if (target.parent / sidecar).exists() else ()


def save_optimized(source: Path, target: Path, options: Any) -> tuple[Any, tuple[str, ...]]:
    """Let the library optimize `source` as `options` say and write the result to `target`.

    Returns the session that did it, and the names of files beside `target` that hold its weights (none below
    SINGLE_FILE_BYTES).
    Tried with 1.32: all 1526 node tests of the onnx package that the CPU runs, and ten trained networks,
    save, load again and give bit-equal outputs; so there is no second path for models that do not.
    """
    size, external = total_bytes(source)
    sidecar = target.name + ".data"
    if external or size > SINGLE_FILE_BYTES:
        # Always named for a model with external weights: without it the library writes references to the
        # source's weight files, which are not beside the target.
        least = 1024 if size > SINGLE_FILE_BYTES else SINGLE_FILE_BYTES
        options.add_session_config_entry(_EXTERNAL_NAME, sidecar)
        options.add_session_config_entry(_EXTERNAL_MIN, str(least))
    options.optimized_model_filepath = str(target)
    session = new_session(source, options)
    return session, (sidecar,) if (target.parent / sidecar).exists() else ()


def stamp(path: Path, built: Mapping[str, str]) -> None:
    """Write into the engine file how it was made, names to values; `read_stamp` gives them back."""
    addition = onnx.ModelProto()
    addition.metadata_props.add(key=_STAMP, value=json.dumps(dict(built)))
    # Protobuf merges concatenated messages: no need to parse and write a large model again.
    with path.open("ab") as stream:
        stream.write(addition.SerializeToString())


def read_stamp(session: Any) -> dict[str, str] | None:
    """What `stamp` wrote into the file of an open engine; None if it is no engine of ours."""
    text = session.get_modelmeta().custom_metadata_map.get(_STAMP)
    return None if text is None else {str(name): str(value) for name, value in json.loads(text).items()}
