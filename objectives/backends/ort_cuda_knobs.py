"""Knobs of ONNX Runtime on a GPU: options of its CUDA provider, and what the session's own options do there.

Flow: `tuner knobs`, `study create` -> knob_space HERE; open -> changes HERE -> provider options and SessionOptions ->
read back. An option is offered only if the installed provider names it, and its default is what a session without any
option says; so a knob at its default sets nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from objectives.backends import ort_knobs
from objectives.backends.ort_bfloat import without_bfloat
from objectives.backends.ort_graph import op_types
from objectives.backends.ort_settings import OrtKnob, Settings
from objectives.errors import CandidateError
from objectives.knobs import Knob, KnobKind, KnobSpace
from objectives.outcome import FailureKind

Options = Mapping[str, str]  # of the provider: name -> value
CUDA_GRAPH = "cuda_graph"
PRECISION = Knob(
    "precision",
    ("fp32", "fp16", "fp16-mixed", "bf16", "bf16-mixed"),
    "fp32",
    KnobKind.PRECISION,
    "Number format of weights and activations: 16 bit of either kind, mixed: but for sums and exponentials.",
)
_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose", "FusedConv"})
_ATTENTION = frozenset({"Softmax", "Attention", "MultiHeadAttention", "GroupQueryAttention", "PackedAttention"})
_NORMS = frozenset({"LayerNormalization", "SkipLayerNormalization", "ReduceMean"})
_PRODUCTS = frozenset({"MatMul", "Gemm", "Attention", "MultiHeadAttention"})
# Bits of the library's AttentionBackend, by name: each value allows exactly one kind of kernel.
_SDPA = {"flash": "1", "efficient": "2", "cudnn": "8", "math": "16"}
_TRUE = frozenset({"1", "true", "on"})
_FALSE = frozenset({"0", "false", "off"})


@dataclass(frozen=True, slots=True)
class CudaKnob:
    """A knob, and what each of its values but the default sets: provider options, session settings."""

    knob: Knob
    options: Mapping[str, Options]  # by value
    settings: Settings  # by value
    needs_op: frozenset[str] = frozenset()  # offered only for models with one of these operators; empty: for all


def all_knobs(defaults: Options) -> tuple[CudaKnob, ...]:
    """What the installed version offers for some model or other; `defaults` are the provider's options."""
    provider = (one for one in (*_switches(defaults), *_choices(defaults)) if one is not None)
    return (CudaKnob(PRECISION, {}, {}), *_session_knobs(), *provider)


def knob_space(knobs: Iterable[CudaKnob], model: Any = None) -> KnobSpace:
    """Those of `knobs` that mean something for `model`, a ModelProto; without one, all."""
    if model is None:
        return KnobSpace(tuple(one.knob for one in knobs))
    present = op_types(model)
    kept = (one for one in knobs if not one.needs_op or not one.needs_op.isdisjoint(present))
    return KnobSpace(tuple(_possible(one.knob, present, model) for one in kept))


def _possible(knob: Knob, present: frozenset[str], model: Any) -> Knob:
    """`knob` with the values that `model` can take: bfloat16 only where something with weights takes it."""
    if knob != PRECISION or (present & (_PRODUCTS | _CONVOLUTIONS)) - frozenset(without_bfloat(model)):
        return knob
    return structs.replace(knob, values=tuple(value for value in knob.values if not value.startswith("bf16")))


def settings(knobs: Iterable[CudaKnob], values: Mapping[str, str]) -> Settings:
    """What `values` set on SessionOptions, by knob."""
    return {
        one.knob.name: one.settings[values[one.knob.name]] for one in knobs if values[one.knob.name] in one.settings
    }


def options(knobs: Iterable[CudaKnob], values: Mapping[str, str]) -> dict[str, str]:
    """What `values` set on the provider."""
    found: dict[str, str] = {}
    for one in knobs:
        found |= one.options.get(values[one.knob.name], {})
    return found


def require_options(found: Options, asked: Options) -> None:
    """Raises: CandidateError of kind `fallback` if an open session's provider options are not as `asked`."""
    for name, value in asked.items():
        if name not in found or not _is_same(found[name], value):
            words = f"asked for {name}={value}, the provider has {found.get(name, 'no such option')}"
            raise CandidateError(FailureKind.FALLBACK, words)


def _is_same(one: str, other: str) -> bool:
    return one == other or any(one.lower() in words and other.lower() in words for words in (_TRUE, _FALSE))


def _session_knobs() -> tuple[CudaKnob, ...]:
    """Knobs of the session that act on the GPU too; threads, the CPU's arena and denormals do not."""
    auto_tune = ort_knobs.run_knob(
        "gemm_auto_tune",
        "off",
        {"on": ort_knobs.config_key("ep.cuda.enable_gemm_auto_tune", "1")},
        "Let matrix products of this provider time their variants on first use.",
        needs_op=_PRODUCTS,
    )
    memory = (one for one in ort_knobs.memory_knobs() if one.knob.name in ("mem_pattern", "prepacking"))
    found = (ort_knobs.optimization_level(), *ort_knobs.graph_knobs(), *memory, auto_tune)
    offered = (ort_knobs.only_offered(one) for one in found)
    return tuple(_from_session(one) for one in offered if one is not None)


def _from_session(one: OrtKnob) -> CudaKnob:
    return CudaKnob(one.knob, {}, one.settings, one.needs_op)


def _switches(defaults: Options) -> tuple[CudaKnob | None, ...]:
    return (
        _switch(defaults, "enable_cuda_graph", "Record one inference as a CUDA graph and replay it.", name=CUDA_GRAPH),
        _switch(defaults, "use_tf32", "Let fp32 products and convolutions round their inputs to TF32."),
        _switch(defaults, "prefer_nhwc", "Lay tensors out with channels last.", _CONVOLUTIONS),
        _switch(defaults, "fuse_conv_bias", "Let cuDNN compile convolution and bias into one kernel.", _CONVOLUTIONS),
        _switch(
            defaults,
            "cudnn_conv_use_max_workspace",
            "Let the search for a convolution use as much memory as it likes.",
            _CONVOLUTIONS,
        ),
        _switch(
            defaults,
            "cudnn_conv1d_pad_to_nc1d",
            "Pad one-dimensional convolutions to [N, C, 1, D] instead of [N, C, D, 1].",
            _CONVOLUTIONS,
        ),
        _switch(defaults, "enable_cudnn", "Use cuDNN, or this provider's own kernels where it has some."),
        _switch(
            defaults, "enable_skip_layer_norm_strict_mode", "Add up layer norms in fp32 where they are fused.", _NORMS
        ),
        _switch(defaults, "do_copy_in_default_stream", "Copy between host and GPU on the stream that computes."),
    )


def _choices(defaults: Options) -> tuple[CudaKnob | None, ...]:
    tuning = {
        "use": {"tunable_op_enable": "1"},
        "tune": {"tunable_op_enable": "1", "tunable_op_tuning_enable": "1"},
    }
    return (
        _named(
            defaults,
            "cudnn_conv_algo_search",
            ("EXHAUSTIVE", "HEURISTIC", "DEFAULT"),
            "How a convolution's algorithm is found: by timing all, by cuDNN's guess, or always the same.",
            _CONVOLUTIONS,
        ),
        _named(
            defaults,
            "arena_extend_strategy",
            ("kNextPowerOfTwo", "kSameAsRequested"),
            "How the memory arena grows.",
        ),
        _choice(
            defaults,
            "tunable_op",
            "off",
            tuning,
            "Matrix products that choose among kernels: by what was found before, or by timing them now.",
            _PRODUCTS,
        ),
        _choice(
            defaults,
            "sdpa_kernel",
            "auto",
            {name: {"sdpa_kernel": bits} for name, bits in _SDPA.items()},
            "Which kernels fused attention may use.",
            _ATTENTION,
        ),
    )


def _switch(
    defaults: Options, option: str, text: str, needs_op: frozenset[str] = frozenset(), name: str = ""
) -> CudaKnob | None:
    """An option that is on or off; None if the provider has no such option."""
    if option not in defaults:
        return None
    is_on = defaults[option].lower() in _TRUE
    default, other = ("on", "off") if is_on else ("off", "on")
    return _choice(defaults, name or option, default, {other: {option: "0" if is_on else "1"}}, text, needs_op)


def _named(
    defaults: Options, option: str, values: tuple[str, ...], text: str, needs_op: frozenset[str] = frozenset()
) -> CudaKnob | None:
    """An option with named values, whichever the default is; None if the provider has no such option."""
    if option not in defaults:
        return None
    others = {value: {option: value} for value in values if value != defaults[option]}
    return _choice(defaults, option, defaults[option], others, text, needs_op)


def _choice(
    defaults: Options,
    name: str,
    default: str,
    others: Mapping[str, Options],
    text: str,
    needs_op: frozenset[str] = frozenset(),
) -> CudaKnob | None:
    """A knob whose `others`, by value, set provider options; only those that the provider has."""
    kept = {value: sets for value, sets in others.items() if sets.keys() <= defaults.keys()}
    if not kept:
        return None
    return CudaKnob(Knob(name, (default, *kept), default, KnobKind.RUNTIME, text), kept, {}, needs_op)
