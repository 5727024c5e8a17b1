"""What the installed trtexec offers, and the arguments of one run.

Flow: trtexec.py asks the program for its help -> Offer and knobs HERE; arguments of builds, runs and timings HERE.
What a version takes is read from its own help text, never from its number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from objectives.backends.trt_knobs import ALLOCATION, L2_PERSISTENCE
from objectives.backends.trt_precision import NAME as PRECISION
from objectives.backends.trt_precision import Choice, is_weakly_typed, precision_knob
from objectives.backends.trt_routes import Ladders, RouteDatabase, route_knobs
from objectives.errors import CandidateError
from objectives.knobs import Knob, KnobKind, KnobSpace
from objectives.outcome import FailureKind
from objectives.shapes import Shapes
from objectives.trtexec_flags import (
    AVG_TIMING,
    CUDA_GRAPH,
    DEFAULT_AVG_TIMING,
    Flags,
    always,
    flag_of,
    flags_of,
    profile_flags,
    quoted,
    shape_list,
    values_of,
)

_NUMBERS = (
    ("builder_optimization_level", ("0", "1", "2", "3", "4", "5"), "3", "How hard the builder tries."),
    ("max_num_tactics", ("auto", "4", "16", "64", "256"), "auto", "How many kernels are timed per layer."),
    ("max_aux_streams", ("auto", "0", "1", "2", "4", "8"), "auto", "Streams for parallel branches of one inference."),
    (
        AVG_TIMING,
        ("1", "2", "4", "8", "16"),
        DEFAULT_AVG_TIMING,
        "Runs that a kernel's time is averaged over (trtexec takes 8).",
    ),
)
_OTHERS = (
    ("tiling", "none", KnobKind.BUILDER, "How far tiling across layers is searched to stay within the L2 cache."),
    ("hardware_compatibility", "none", KnobKind.BUILDER, "Whether the engine also runs on other GPUs than this one."),
    ("tactic_sources", "default", KnobKind.BUILDER, "Which families of kernels the builder chooses from."),
    ("tf32", "on", KnobKind.BUILDER, "Round the factors of float32 products to 10 bits of mantissa; changes results."),
    ("sparse_weights", "off", KnobKind.BUILDER, "Use 2:4 sparse kernels where the weights have that pattern."),
    ("distributive_independence", "off", KnobKind.BUILDER, "Rows of a batch do not depend on the others."),
    ("workspace", "all", KnobKind.BUILDER, "Scratch memory of a kernel, at most."),
    ("tactic_shared_memory", "all", KnobKind.BUILDER, "Shared memory of a kernel, at most."),
    (ALLOCATION, "static", KnobKind.RUNTIME, "When memory for activations is taken."),
    (L2_PERSISTENCE, "none", KnobKind.RUNTIME, "Share of the L2 cache that may be set aside for activations."),
)
# Values that came later than their option: the word that a help text must hold.
_WORDS = {
    "same-compute-capability": "sameComputeCapability",
    "48KiB": "tacticSharedMem",
    "96KiB": "tacticSharedMem",
    "full-l2-8MiB": "--l2LimitForTiling",
    "full-l2-32MiB": "--l2LimitForTiling",
    "without-edge-mask-convolutions": "EDGE_MASK_CONVOLUTIONS",
    "without-jit-convolutions": "JIT_CONVOLUTIONS",
}


@dataclass(frozen=True, slots=True)
class Offer:
    """What the program says of itself: version, build number, help text."""

    version: str
    build: str
    help: str

    def has(self, option: str) -> bool:
        """Whether the help text names `option`, as a whole word."""
        return re.search(rf"(?<![\w-]){re.escape(option)}(?!\w)", self.help) is not None

    @property
    def has_new_defaults(self) -> bool:
        """Whether CUDA graphs, spinning and no copies are what nothing said means, as from 11.0 on."""
        return self.has("--noCudaGraph")

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0] or 0)

    @property
    def library(self) -> Any:
        """The part of a TensorRT module that precision is chosen by; its flags are options of the program."""
        names = {"FP16": "--fp16", "BF16": "--bf16", "INT8": "--int8"}
        creation = {"STRONGLY_TYPED": "--stronglyTyped"} if self.has("--stronglyTyped") else {}
        # Versions without options for number formats have them all in the model.
        types = {"FP8": "--fp8"} if self.has("--fp8") or not self.has("--fp16") else {}
        return SimpleNamespace(
            DataType=SimpleNamespace(**types),
            BuilderFlag=SimpleNamespace(**{name: option for name, option in names.items() if self.has(option)}),
            NetworkDefinitionCreationFlag=SimpleNamespace(**creation),
        )


def knob_space(offer: Offer, routes: RouteDatabase, ladders: Ladders) -> KnobSpace:
    """Every knob that the program takes, by the names of the TensorRT backends."""
    return KnobSpace((*_knobs(offer), *route_knobs(routes, ladders), *_graph(offer)))


def _knobs(offer: Offer) -> Iterator[Knob]:
    yield precision_knob(offer.library)
    for name, values, default, text in _NUMBERS:
        if offer.has(flag_of(name)):
            yield Knob(name, values, default, KnobKind.BUILDER, text)
    for name, default, kind, text in _OTHERS:
        found = tuple(value for value in values_of(name) if _offered(offer, name, value))
        if found:
            yield Knob(name, (default, *found), default, kind, text)


def _offered(offer: Offer, name: str, value: str) -> bool:
    return offer.has(flag_of(name, value)) and (value not in _WORDS or _WORDS[value] in offer.help)


def _graph(offer: Offer) -> Iterator[Knob]:
    if offer.has_new_defaults or offer.has("--useCudaGraph"):
        text = "One launch for the whole inference: captured by trtexec, or not at all."
        yield Knob(CUDA_GRAPH, ("off", "capture"), "off", KnobKind.RUNTIME, text)


@dataclass(frozen=True, slots=True)
class Changes:
    """What a candidate changes, as arguments; `graph` is the value of that knob, which is always said."""

    flags: Flags
    graph: str


def changes_of(full: Mapping[str, str], space: KnobSpace) -> Changes:
    """The arguments of a candidate; how kernels are timed is always said, the rest where it is not the default."""
    changed = {
        knob.name: full[knob.name]
        for knob in space.knobs
        if knob.name != PRECISION and (full[knob.name] != knob.default or knob.name == AVG_TIMING)
    }
    flags = flags_of(changed, is_weakly_typed=False)
    if flags.inexpressible:
        raise CandidateError(FailureKind.UNSUPPORTED, f"trtexec has no option for {', '.join(flags.inexpressible)}")
    return Changes(flags, full.get(CUDA_GRAPH, "off"))


def build_arguments(
    offer: Offer, choice: Choice, changes: Changes, profile: Shapes, plan: Path, layers: Path
) -> list[str]:
    """Arguments that build `plan` and run nothing."""
    typed = choice.strongly_typed and is_weakly_typed(offer.library)
    return [
        f"--onnx={choice.model}",
        f"--saveEngine={plan}",
        "--skipInference" if offer.has("--skipInference") else "--buildOnly",
        *(str(flag.flag) for flag in choice.flags),
        *(["--stronglyTyped"] if typed else []),
        *changes.flags.build,
        *(["--profilingVerbosity=layer_names_only"] if offer.has("--profilingVerbosity") else []),
        *([f"--exportLayerInfo={layers}"] if offer.has("--exportLayerInfo") else []),
        *profile_flags(profile),
    ]


def run_arguments(
    offer: Offer, changes: Changes, plan: Path, files: Mapping[str, Path], shapes: Mapping[str, Sequence[int]]
) -> list[str]:
    """Arguments that both a check and a timing need: engine, inputs, shapes, and what acts at run time."""
    return [
        f"--loadEngine={plan}",
        *changes.flags.run,
        *([f"--loadInputs={','.join(f'{quoted(name)}:{path}' for name, path in files.items())}"] if files else []),
        *([f"--shapes={shape_list(shapes)}"] if shapes else []),
    ]


def check_arguments(offer: Offer, changes: Changes, outputs: Path) -> list[str]:
    """One inference with copies, its outputs exported."""
    said = always(changes.graph, has_new_defaults=offer.has_new_defaults, with_transfers=True)
    return [*said, "--iterations=1", "--warmUp=0", "--duration=0", f"--exportOutput={outputs}"]


def timing_arguments(offer: Offer, changes: Changes, iterations: int, warmup_ms: int, times: Path) -> list[str]:
    """`iterations` timed inferences without copies, their times exported."""
    said = always(changes.graph, has_new_defaults=offer.has_new_defaults, with_transfers=False)
    rest = [f"--iterations={iterations}", f"--warmUp={warmup_ms}", "--duration=0", f"--exportTimes={times}"]
    return [*said, *rest]
