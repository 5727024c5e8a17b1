"""Builder and run-time knobs of TensorRT, found from the installed version: attributes, enum members, what can be set.

Flow: `tuner knobs`, `study create` -> HERE; trt_build.py and trt_session.py look their settings up here. Every value is
tried on a configuration that builds nothing; one that cannot be read back is not offered. A knob at its default sets
nothing: the baseline is the library untouched.
Source of the value sets: the header of TensorRT 11.1; defaults are read from a fresh configuration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from objectives.backends.trt_settings import Attribute, Flag, Pool, Preview, Setting, Tactics, TrtKnob, takes
from objectives.knobs import Knob, KnobKind

_MIB = 1 << 20
_FLAGS = {
    "TF32": "Round the factors of float32 products to 10 bits of mantissa, on tensor cores; changes results.",
    "SPARSE_WEIGHTS": "Use 2:4 sparse kernels where the weights have that pattern; otherwise without effect.",
    "STRICT_NANS": "Forbid rewrites that are not safe for NaN and infinity; safer, and may be slower.",
    "DISTRIBUTIVE_INDEPENDENCE": "Rows of a batch do not depend on the others; restricts the choice of kernels.",
}
# Plugins and several devices belong to the network, not to a search.
_NO_PREVIEW = ("PLUGIN", "MULTIDEVICE")
CUDA_GRAPH = "cuda_graph"
ALLOCATION = "allocation_strategy"
NVTX = "nvtx_verbosity"
SPECIALIZATION = "dynamic_shapes_specialization"
L2_PERSISTENCE = "l2_persistence"


def builder_knobs(library: Any, new_config: Any) -> tuple[TrtKnob, ...]:
    """What the installed version offers, in a fixed order; `new_config` makes fresh builder configurations."""
    fresh = new_config()
    offered = (_only_settable(one, new_config) for one in _builder_knobs(library, fresh))
    return tuple(one for one in offered if one is not None)


def _only_settable(one: TrtKnob, new_config: Any) -> TrtKnob | None:
    """`one` with only the values that a configuration takes; None if but the default is left."""
    kept = {value: group for value, group in one.settings.items() if takes(new_config(), group)}
    values = tuple(value for value in one.knob.values if value in kept or value == one.knob.default)
    knob = Knob(one.knob.name, values, one.knob.default, one.knob.kind, one.knob.help)
    return TrtKnob(knob, kept) if kept else None


def _builder_knobs(library: Any, fresh: Any) -> Iterator[TrtKnob]:
    yield from _numbers(fresh)
    yield from _levels(library, fresh)
    yield from _tactic_sources(library, fresh)
    for name, text in _FLAGS.items():
        if hasattr(library.BuilderFlag, name):
            flag = getattr(library.BuilderFlag, name)
            yield _switch(name.lower(), bool(fresh.get_flag(flag)), lambda on, flag=flag: Flag(flag, on), text)
    yield from _pools(library)
    yield from _previews(library, fresh)


def _numbers(fresh: Any) -> Iterator[TrtKnob]:
    table = (
        ("builder_optimization_level", (0, 1, 2, 3, 4, 5), "How hard the builder tries; higher builds longer."),
        ("max_num_tactics", (4, 16, 64, 256), "How many kernels are timed per layer; auto: the builder decides."),
        ("max_aux_streams", (0, 1, 2, 4, 8), "Streams for parallel branches of one inference, at most; 0: none."),
        ("avg_timing_iterations", (1, 2, 4, 8, 16), "Runs that a kernel's time is averaged over; steadier choices."),
    )
    for name, numbers, text in table:
        if hasattr(fresh, name):
            default = int(getattr(fresh, name))
            # Observed: -1 stands for the builder's own choice, and assigning it is ignored or refused.
            first = "auto" if default < 0 else str(default)
            settings = {str(n): (Attribute(name, n),) for n in numbers if n != default}
            values = tuple(sorted({*settings, first}, key=lambda value: -1 if value == "auto" else int(value)))
            yield TrtKnob(Knob(name, values, first, KnobKind.BUILDER, text), settings)


def _levels(library: Any, fresh: Any) -> Iterator[TrtKnob]:
    if hasattr(fresh, "tiling_optimization_level") and hasattr(library, "TilingOptimizationLevel"):
        yield _tiling(library, fresh)
    if hasattr(fresh, "hardware_compatibility_level"):
        levels = library.HardwareCompatibilityLevel.__members__
        settings = {_word(name): (Attribute("hardware_compatibility_level", level),) for name, level in levels.items()}
        text = "Whether the engine also runs on other GPUs than this one; costs kernels and fusions."
        yield _others("hardware_compatibility", "none", settings, text)


def _tiling(library: Any, fresh: Any) -> TrtKnob:
    """Level and cache limit are one knob: the limit does nothing without a level."""
    levels = library.TilingOptimizationLevel.__members__
    name = "tiling_optimization_level"
    settings: dict[str, tuple[Setting, ...]] = {
        _word(level): (Attribute(name, member),) for level, member in levels.items()
    }
    if hasattr(fresh, "l2_limit_for_tiling") and "FULL" in levels:
        for mib in (8, 32):
            limit = Attribute("l2_limit_for_tiling", mib * _MIB)
            settings[f"full-l2-{mib}MiB"] = (Attribute(name, levels["FULL"]), limit)
    return _others("tiling", "none", settings, "How far tiling across layers is searched to stay within the L2 cache.")


def _tactic_sources(library: Any, fresh: Any) -> Iterator[TrtKnob]:
    if not hasattr(library, "TacticSource") or not hasattr(fresh, "get_tactic_sources"):
        return
    default = int(fresh.get_tactic_sources())
    settings: dict[str, tuple[Setting, ...]] = {}
    for name, member in library.TacticSource.__members__.items():
        bit = 1 << int(member)
        sign = "without" if default & bit else "with"
        settings[f"{sign}-{_word(name)}"] = (Tactics(default ^ bit),)
    yield _others("tactic_sources", "default", settings, "Which families of kernels the builder chooses from.")


def _pools(library: Any) -> Iterator[TrtKnob]:
    table = (
        ("WORKSPACE", "workspace", (64 * _MIB, 256 * _MIB, 1024 * _MIB), "all", "Scratch memory of a kernel, at most."),
        ("TACTIC_SHARED_MEMORY", "tactic_shared_memory", (48 << 10, 96 << 10), "all", "Shared memory of a kernel."),
    )
    for member, name, sizes, default, text in table:
        if hasattr(library.MemoryPoolType, member):
            pool = getattr(library.MemoryPoolType, member)
            yield _others(name, default, {_size(size): (Pool(pool, size),) for size in sizes}, text)


def _previews(library: Any, fresh: Any) -> Iterator[TrtKnob]:
    if not hasattr(library, "PreviewFeature") or not hasattr(fresh, "get_preview_feature"):
        return
    for name, member in library.PreviewFeature.__members__.items():
        if not any(word in name for word in _NO_PREVIEW):
            is_on = bool(fresh.get_preview_feature(member))
            text = "A feature that this version offers for trial."
            yield _switch(f"preview:{name.lower()}", is_on, lambda on, member=member: Preview(member, on), text)


def runtime_knobs(library: Any, persisting_l2_bytes: int = 0) -> tuple[Knob, ...]:
    """What acts when an engine is opened and run. `persisting_l2_bytes` is what the GPU can set aside, 0: nothing."""
    return tuple(_runtime_knobs(library, persisting_l2_bytes))


def _runtime_knobs(library: Any, persisting_l2_bytes: int) -> Iterator[Knob]:
    own = hasattr(library, "CudaGraphStrategy")
    values = ("off", "capture", *(("library",) if own else ()))
    text = "One launch for the whole inference: captured by us, or by the library where it offers that."
    yield Knob(CUDA_GRAPH, values, "off", KnobKind.RUNTIME, text)
    if hasattr(library, "ExecutionContextAllocationStrategy"):
        text = "When memory for activations is taken: for the largest shape, or for the profile in use."
        yield Knob(ALLOCATION, ("static", "on-profile-change"), "static", KnobKind.RUNTIME, text)
    if hasattr(library.IExecutionContext, "nvtx_verbosity"):
        text = "Names of layers for profilers; off makes launching a little cheaper."
        yield Knob(NVTX, ("default", "off"), "default", KnobKind.RUNTIME, text)
    if hasattr(library, "DynamicShapesKernelSpecializationStrategy"):
        text = "When kernels for the shape at hand are compiled: beside running (lazy), before (eager), never (none)."
        yield Knob(SPECIALIZATION, ("lazy", "eager", "none"), "lazy", KnobKind.RUNTIME, text)
    if persisting_l2_bytes and hasattr(library.IExecutionContext, "persistent_cache_limit"):
        text = "Share of the L2 cache that may be set aside that activations stay in it."
        yield Knob(L2_PERSISTENCE, ("none", "half", "all"), "none", KnobKind.RUNTIME, text)


def settings_of(knobs: tuple[TrtKnob, ...], values: Mapping[str, str]) -> dict[str, tuple[Setting, ...]]:
    """What `values` set, by knob; knobs at their default are not in it."""
    chosen = ((one, values.get(one.knob.name, one.knob.default)) for one in knobs)
    return {one.knob.name: one.settings[value] for one, value in chosen if value in one.settings}


def _others(name: str, default: str, settings: Mapping[str, tuple[Setting, ...]], text: str) -> TrtKnob:
    others = {value: group for value, group in settings.items() if value != default}
    return TrtKnob(Knob(name, (default, *others), default, KnobKind.BUILDER, text), others)


def _switch(name: str, is_on: bool, setting: Any, text: str) -> TrtKnob:
    default, other = ("on", "off") if is_on else ("off", "on")
    return _others(name, default, {other: (setting(not is_on),)}, text)


def _word(member: str) -> str:
    return member.lower().replace("_", "-")


def _size(size_bytes: int) -> str:
    return f"{size_bytes // _MIB}MiB" if size_bytes >= _MIB else f"{size_bytes >> 10}KiB"
