"""Keep-lists: nodes whose number format no variant of the model changes, because the user says so.

Flow: `--backend-option keep-fp32=PATTERN,...` -> read HERE -> the converters (ort_variants.py, ort_bfloat.py) leave the
nodes alone. For a network that sixteen bits ruin, a few nodes kept at full precision are often all it takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from objectives.backends.base import Option
from objectives.backends.ort_graph import graphs
from objectives.errors import CandidateError, InputError
from objectives.outcome import FailureKind

KEEP = Option(
    "keep-fp32",
    "PATTERN,...",
    "Nodes that every precision leaves as they are: names or operator types, with wildcards: Sigmoid,/head/*.",
)


def read_keep(options: Mapping[str, str]) -> tuple[str, ...]:
    """The patterns of the option, none without it. Raises: InputError."""
    if KEEP.name not in options:
        return ()
    found = tuple(part.strip() for part in options[KEEP.name].split(",") if part.strip())
    if not found:
        raise InputError(f"{KEEP.name} names nothing", hint=f"write {KEEP.name}=Sigmoid,/head/*")
    return found


def kept_nodes(model: Any, patterns: Sequence[str]) -> list[str]:
    """Names of the nodes of an onnx ModelProto, nested graphs included, that the patterns match, by name or by type.

    Raises: CandidateError of kind `unsupported` for a pattern that matches none: the list would not do what it says.
    """
    nodes = [node for graph in graphs(model) for node in graph.node]
    found: dict[str, None] = {}
    for pattern in patterns:
        matched = [n.name for n in nodes if fnmatchcase(n.name, pattern) or fnmatchcase(n.op_type, pattern)]
        if not matched:
            types = ", ".join(sorted({node.op_type for node in nodes}))
            words = f"{KEEP.name}={pattern}: no node has such a name or type once the model is prepared; types: {types}"
            raise CandidateError(FailureKind.UNSUPPORTED, words)
        found.update(dict.fromkeys(matched))
    return list(found)
