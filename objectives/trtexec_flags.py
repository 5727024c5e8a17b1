"""trtexec flags: what a knob value is on the command line of NVIDIA's trtexec.

Flow: backends/trtexec_command.py runs these, tuner/trtexec.py prints them as the command that replays a candidate.
Pure text; knob names and values are those of the TensorRT backends, so that a candidate means the same in all of them.
Source: option parser of trtexec 8.6 to 11.4 (github.com/NVIDIA/TensorRT, samples/common/sampleOptions.cpp).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from objectives.shapes import Shapes

ROUTE_PREFIX = "route:"
PRECISION = "precision"
CUDA_GRAPH = "cuda_graph"
AVG_TIMING = "avg_timing_iterations"
DEFAULT_AVG_TIMING = "8"  # trtexec's own; the library takes 1
_NUMBERS = {
    "builder_optimization_level": "--builderOptimizationLevel",
    "max_num_tactics": "--maxTactics",
    "max_aux_streams": "--maxAuxStreams",
    AVG_TIMING: "--avgTiming",
}
_BUILD: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("tf32", "off"): ("--noTF32",),
    ("sparse_weights", "on"): ("--sparsity=enable",),
    ("distributive_independence", "on"): ("--distributiveIndependence",),
    ("tiling", "fast"): ("--tilingOptimizationLevel=1",),
    ("tiling", "moderate"): ("--tilingOptimizationLevel=2",),
    ("tiling", "full"): ("--tilingOptimizationLevel=3",),
    ("tiling", "full-l2-8MiB"): ("--tilingOptimizationLevel=3", f"--l2LimitForTiling={8 << 20}"),
    ("tiling", "full-l2-32MiB"): ("--tilingOptimizationLevel=3", f"--l2LimitForTiling={32 << 20}"),
    ("hardware_compatibility", "ampere-plus"): ("--hardwareCompatibilityLevel=ampere+",),
    ("hardware_compatibility", "same-compute-capability"): ("--hardwareCompatibilityLevel=sameComputeCapability",),
    ("tactic_sources", "without-edge-mask-convolutions"): ("--tacticSources=-EDGE_MASK_CONVOLUTIONS",),
    ("tactic_sources", "without-jit-convolutions"): ("--tacticSources=-JIT_CONVOLUTIONS",),
    ("workspace", "64MiB"): ("--memPoolSize=workspace:64",),
    ("workspace", "256MiB"): ("--memPoolSize=workspace:256",),
    ("workspace", "1024MiB"): ("--memPoolSize=workspace:1024",),
    # In MiB, the unit without suffix: which suffixes are known depends on the version.
    ("tactic_shared_memory", "48KiB"): (f"--memPoolSize=tacticSharedMem:{48 / 1024}",),
    ("tactic_shared_memory", "96KiB"): (f"--memPoolSize=tacticSharedMem:{96 / 1024}",),
}
_RUN: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("allocation_strategy", "on-profile-change"): ("--allocationStrategy=profile",),
    ("l2_persistence", "half"): ("--persistentCacheRatio=0.5",),
    ("l2_persistence", "all"): ("--persistentCacheRatio=1",),
}
# Up to 10.x only; from 11.0 on these options are unknown, and the types in the model count.
_PRECISION = {"fp16": ("--fp16",), "bf16": ("--bf16",), "strongly-typed": ("--stronglyTyped",)}


class Flags(msgspec.Struct, frozen=True):
    """Arguments for a set of changes, and the changes that no argument can make, as `name=value`."""

    build: tuple[str, ...]
    run: tuple[str, ...]
    inexpressible: tuple[str, ...]


def values_of(knob: str) -> tuple[str, ...]:
    """The values of a knob that are flags, in order; empty for numbers, which all are."""
    return tuple(value for name, value in (*_BUILD, *_RUN) if name == knob)


def flag_of(knob: str, value: str = "") -> str:
    """The option that a knob (with one of its values) is set by, without the option's own value."""
    if knob in _NUMBERS:
        return _NUMBERS[knob]
    return (_BUILD.get((knob, value)) or _RUN[knob, value])[0].partition("=")[0]


def flags_of(changes: Mapping[str, str], *, is_weakly_typed: bool) -> Flags:
    """Arguments that make `changes`, values that differ from their default; CUDA graphs are in `always`."""
    build: list[str] = []
    run: list[str] = []
    left: list[str] = []
    for name, value in changes.items():
        if name.startswith(ROUTE_PREFIX) or name == CUDA_GRAPH:
            continue
        if name in _NUMBERS:
            build.append(f"{_NUMBERS[name]}={value}")
        elif (name, value) in _BUILD:
            build += _BUILD[name, value]
        elif (name, value) in _RUN:
            run += _RUN[name, value]
        elif name == PRECISION and is_weakly_typed and value in _PRECISION:
            build += _PRECISION[value]
        else:
            left.append(f"{name}={value}")
    if route := route_of(changes):
        build.append(f"--setBuildRoute={route}")
    return Flags(_pooled(build), tuple(run), tuple(left))


def route_of(changes: Mapping[str, str]) -> str:
    """The build route among `changes`, in their order; empty if there is none."""
    routes = ((name, value) for name, value in changes.items() if name.startswith(ROUTE_PREFIX))
    return " ".join(f"-{name.removeprefix(ROUTE_PREFIX)}={value}" for name, value in routes)


def always(graph: str, *, has_new_defaults: bool, with_transfers: bool) -> tuple[str, ...]:
    """Arguments that say what 10.x and 11.x take differently when nothing is said: the numbers can be compared then.

    CUDA graph as the knob says, copies between host and device on or off, waiting by spinning.
    """
    if has_new_defaults:
        flags = (
            *(() if graph == "capture" else ("--noCudaGraph",)),
            *(("--includeDataTransfers",) if with_transfers else ()),
        )
    else:
        flags = (
            *(("--useCudaGraph",) if graph == "capture" else ()),
            *(() if with_transfers else ("--noDataTransfers",)),
            "--useSpinWait",
        )
    return flags


def profile_flags(shapes: Shapes) -> tuple[str, ...]:
    """Arguments of the build for inputs with dynamic dimensions."""
    if not shapes:
        return ()
    return (
        f"--minShapes={shape_list({name: one.min for name, one in shapes.items()})}",
        f"--optShapes={shape_list({name: one.opt for name, one in shapes.items()})}",
        f"--maxShapes={shape_list({name: one.max for name, one in shapes.items()})}",
    )


def shape_list(shapes: Mapping[str, Sequence[int]]) -> str:
    """Shapes by input, as `x:1x8,y:4`."""
    return ",".join(f"{quoted(name)}:{'x'.join(str(dim) for dim in dims)}" for name, dims in shapes.items())


def quoted(name: str) -> str:
    """A tensor's name as specifications take it: in single quotes where it holds what separates them."""
    return f"'{name}'" if set(name) & set(":,") else name


def _pooled(flags: list[str]) -> tuple[str, ...]:
    """`flags` with all memory pools in one option: of a repeated option only one counts."""
    option = "--memPoolSize="
    pools = [flag.removeprefix(option) for flag in flags if flag.startswith(option)]
    rest = [flag for flag in flags if not flag.startswith(option)]
    return (*rest, option + ",".join(pools)) if pools else tuple(rest)
