"""Knobs of ONNX Runtime, found from the installed version: attributes, enum members, configuration keys.

Flow: `tuner knobs`, `study create` -> knob_space HERE; build and open -> settings HERE -> SessionOptions ->
read back. The library accepts any configuration key with any value and ignores what it does not know, so a
key is offered only if it stands in the installed shared library. A knob at its default sets nothing: the
baseline is the library untouched.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import onnxruntime as ort

from objectives.backends.ort_denormals import float_mode
from objectives.backends.ort_graph import op_types
from objectives.backends.ort_settings import OrtKnob, Setting, Settings
from objectives.backends.ort_variants import PRECISION
from objectives.knobs import Knob, KnobKind, KnobSpace
from objectives.outcome import Stage

_LOOP = "session.graph_optimizations_loop_level"


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def all_knobs() -> tuple[OrtKnob, ...]:
    """What the installed version offers for some model or other, in a fixed order."""
    return _all_knobs(usable_cores())


def knob_space(model: Any = None) -> KnobSpace:
    """The knobs for `model`, a ModelProto; without one, every knob that some model can have."""
    present = None if model is None else op_types(model)
    return KnobSpace(
        tuple(
            one.knob
            for one in all_knobs()
            if present is None or not one.needs_op or not one.needs_op.isdisjoint(present)
        )
    )


def settings(values: Mapping[str, str], stage: Stage) -> dict[str, tuple[Setting, ...]]:
    """What `values` set at `stage`, by knob; knobs at their default are not in it."""
    return {
        one.knob.name: one.settings[values[one.knob.name]]
        for one in all_knobs()
        if one.stage == stage and values.get(one.knob.name, one.knob.default) in one.settings
    }


def names(stage: Stage) -> tuple[str, ...]:
    """The knobs that act at `stage`."""
    return tuple(one.knob.name for one in all_knobs() if one.stage == stage)


@lru_cache(maxsize=4)
def _all_knobs(cores: int) -> tuple[OrtKnob, ...]:
    candidates = (
        optimization_level(),
        *graph_knobs(),
        *_thread_knobs(cores),
        *_waiting_knobs(),
        *memory_knobs(),
        *_denormals(),
    )
    offered = (only_offered(one) for one in candidates)
    return (OrtKnob(PRECISION, {}), *(one for one in offered if one is not None))


def only_offered(one: OrtKnob) -> OrtKnob | None:
    """`one` with only the values that the installed version has; None if but the default is left."""
    kept = {value: group for value, group in one.settings.items() if all(setting.is_offered for setting in group)}
    values = tuple(value for value in one.knob.values if value in kept or value == one.knob.default)
    knob = Knob(one.knob.name, values, one.knob.default, one.knob.kind, one.knob.help)
    return OrtKnob(knob, kept, one.needs_op) if kept else None


def optimization_level() -> OrtKnob:
    """How far the library rewrites the graph, by the members of its own enumeration."""
    levels = {_level_name(level): level for level in ort.GraphOptimizationLevel.__members__.values()}
    default = _level_name(ort.SessionOptions().graph_optimization_level)
    text = "How far the graph is rewritten: constants folded (basic), operators fused (extended), then layout."
    return OrtKnob(
        Knob("graph_optimization_level", tuple(levels), default, KnobKind.BUILDER, text),
        {name: (Setting("graph_optimization_level", level),) for name, level in levels.items() if name != default},
    )


def _level_name(level: Any) -> str:
    return str(level.name).removeprefix("ORT_").lower()


def graph_knobs() -> tuple[OrtKnob, ...]:
    """What else steers the rewriting of the graph; not yet narrowed to what the installed version has."""
    return (
        build_knob(
            "gelu_approximation",
            "off",
            {"on": config_key("optimization.enable_gelu_approximation", "1")},
            "Replace GELU by a faster approximation; changes results slightly.",
        ),
        build_knob(
            "cast_chain_elimination",
            "off",
            {"on": config_key("optimization.enable_cast_chain_elimination", "1")},
            "Drop chains of type conversions; changes results where one of them was narrower.",
        ),
        build_knob(
            "optimization_loop",
            "after-layout",
            {value: config_key(_LOOP, level) for value, level in (("never", "0"), ("always", "2"))},
            "Whether a graph optimization that changed something starts the others again.",
        ),
        build_knob(
            "qdq_cleanup",
            "off",
            {"on": config_key("session.enable_quant_qdq_cleanup", "1")},
            "Drop pairs of quantize and dequantize that no kernel absorbed; changes results slightly.",
            needs_op=frozenset({"QuantizeLinear"}),
        ),
    )


def _thread_knobs(cores: int) -> tuple[OrtKnob, ...]:
    """Threads beyond the usable cores are not offered within an operator: they only spin against each other."""
    counts = sorted({2**power for power in range(cores.bit_length())} | {cores})
    # Mode and pool size are one knob: a size without the mode does nothing, and with a pool of one thread
    # the library silently goes back to sequential (1.32).
    parallel = Setting("execution_mode", ort.ExecutionMode.ORT_PARALLEL)
    pools = sorted({2, *counts} - {1})
    return (
        run_knob(
            "intra_op_threads",
            "auto",
            {str(count): (Setting("intra_op_num_threads", count),) for count in counts},
            "Threads within one operator; auto: one per physical core, each pinned to its core.",
        ),
        run_knob(
            "inter_op",
            "sequential",
            {f"parallel-{count}": (parallel, Setting("inter_op_num_threads", count)) for count in pools},
            "Operators one after the other, or side by side on a pool.",
        ),
    )


def _waiting_knobs() -> tuple[OrtKnob, ...]:
    # One knob, since duration and pauses mean nothing where threads do not spin.
    spin = {
        "off": config_key("session.intra_op.allow_spinning", "0"),
        "100us": config_key("session.intra_op.spin_duration_us", "100"),
        "1000us": config_key("session.intra_op.spin_duration_us", "1000"),
        "backoff-4": config_key("session.intra_op.spin_backoff_max", "4"),
        "backoff-16": config_key("session.intra_op.spin_backoff_max", "16"),
    }
    return (
        run_knob(
            "intra_op_spinning",
            "on",
            spin,
            "How idle threads wait: spinning (on), asleep (off), spinning for a time or with pauses.",
        ),
        run_knob(
            "dynamic_block_base",
            "off",
            {base: config_key("session.dynamic_block_base", base) for base in ("2", "4", "8")},
            "Split work into blocks that shrink as it gets done; a larger base starts with smaller blocks.",
        ),
    )


def memory_knobs() -> tuple[OrtKnob, ...]:
    """How the session keeps memory and weights; not yet narrowed to what the installed version has."""
    return (
        by_attribute("cpu_mem_arena", "enable_cpu_mem_arena", "Keep freed memory for the next operator."),
        by_attribute("mem_pattern", "enable_mem_pattern", "Plan the memory of a whole inference as one block."),
        by_attribute("mem_reuse", "enable_mem_reuse", "Let operators write into buffers that are no longer needed."),
        run_knob(
            "prepacking",
            "on",
            {"off": config_key("session.disable_prepacking", "1")},
            "Lay constant weights out as the kernels like them, once, when loading.",
        ),
    )


def _denormals() -> tuple[OrtKnob, ...]:
    if float_mode() is None:
        return ()
    flush = {"on": config_key("session.set_denormal_as_zero", "1")}
    text = "Treat denormal numbers as zero: faster where they occur, and only there another result."
    return (run_knob("flush_denormals", "off", flush, text),)


def run_knob(name: str, default: str, others: Settings, text: str, needs_op: frozenset[str] = frozenset()) -> OrtKnob:
    """A knob that acts at opening; `others` by value, without the default."""
    return OrtKnob(Knob(name, (default, *others), default, KnobKind.RUNTIME, text), others, needs_op)


def build_knob(name: str, default: str, others: Settings, text: str, needs_op: frozenset[str] = frozenset()) -> OrtKnob:
    """A knob that acts on the graph; `others` by value, without the default."""
    return OrtKnob(Knob(name, (default, *others), default, KnobKind.BUILDER, text), others, needs_op)


def config_key(key: str, value: str) -> tuple[Setting, ...]:
    """One configuration entry of the session."""
    return (Setting(key, value),)


def by_attribute(name: str, attribute: str, text: str) -> OrtKnob:
    """A switch that is a bool attribute of SessionOptions; its default is what fresh options say."""
    is_on = bool(getattr(ort.SessionOptions(), attribute, True))
    default, other = ("on", "off") if is_on else ("off", "on")
    return run_knob(name, default, {other: (Setting(attribute, not is_on),)}, text)
