"""Precision: a flag where the installed TensorRT chooses types itself, another model where it takes them as given.

Flow: trt_build.py -> choose HERE -> a model file, network flags and builder flags. Up to 10.x networks are weakly typed
unless asked otherwise and BuilderFlag has FP16 and its like; from 11.0 on, and in TensorRT-RTX, the types in the model
count, so fp16 and bf16 are conversions of the model (inputs and outputs keep their types). int8 and fp8 are explicit
quantization, a conversion everywhere (trt_quantize.py): weakly typed networks take int8 with its flag and choose the
rest, fp8 is always built strongly typed, as NVIDIA advises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from objectives.backends.ort_bfloat import write_bfloat
from objectives.backends.ort_graph import load_graph, op_types
from objectives.backends.ort_variants import MIXED, write_variant
from objectives.backends.trt_quantize import RECIPES, Recipe, version, write_quantized
from objectives.backends.trt_settings import Flag
from objectives.knobs import Knob, KnobKind

NAME = "precision"
_FLAGGED = {"fp16": "FP16", "bf16": "BF16"}


@dataclass(frozen=True, slots=True)
class Choice:
    """What a precision means for one build: the model to parse, flags of its network, flags of its builder."""

    model: Path
    strongly_typed: bool
    flags: tuple[Flag, ...]


def is_weakly_typed(library: Any) -> bool:
    """Whether the installed version chooses types itself when told to by flags."""
    return hasattr(library.BuilderFlag, "FP16")


def precision_knob(library: Any) -> Knob:
    """`as-given` first: the model's own types, nothing set."""
    strong = is_weakly_typed(library) and hasattr(library.NetworkDefinitionCreationFlag, "STRONGLY_TYPED")
    values = ("as-given", *_offered(library), *_quantized(library), *(("strongly-typed",) if strong else ()))
    text = (
        "Number format: as given, 16 bit where the library (flag) or a conversion of the model allows it; int8 and fp8 "
        "by ModelOpt where it is installed, the rest as given or in fp16."
    )
    return Knob(NAME, values, "as-given", KnobKind.PRECISION, text)


def _offered(library: Any) -> tuple[str, ...]:
    if not is_weakly_typed(library):
        return tuple(name + end for name in _FLAGGED for end in ("", MIXED))
    return tuple(name for name, flag in _FLAGGED.items() if hasattr(library.BuilderFlag, flag))


def quantizer_identity() -> dict[str, str]:
    """What converts to int8 and fp8 here, as part of an environment's identity; nothing where nothing does."""
    found = version()
    return {"modelopt": found} if found else {}


def _quantized(library: Any) -> tuple[str, ...]:
    if not version():
        return ()
    weak = is_weakly_typed(library)
    takes = {
        "int8": not weak or hasattr(library.BuilderFlag, "INT8"),
        "fp8": hasattr(library.DataType, "FP8") and hasattr(library.NetworkDefinitionCreationFlag, "STRONGLY_TYPED"),
    }
    return tuple(name for name, recipe in RECIPES.items() if takes[recipe.mode])


def choose(
    library: Any,
    model: Path,
    precision: str,
    folder: Path,
    calibration: Sequence[Path] = (),
    keep: Sequence[str] = (),
) -> Choice:
    """What to build for `precision`; a converted model is written into the empty `folder`.

    `calibration` as in BuildTerms; `keep` as in `ort_variants.write_variant`, where 16 bit is a conversion.
    Raises: CandidateError.
    """
    if recipe := RECIPES.get(precision):
        return _choose_quantized(library, model, recipe, folder, calibration)
    if not is_weakly_typed(library):
        return Choice(_variant(model, precision, folder, keep), True, ())
    if precision == "strongly-typed":
        return Choice(model, True, ())
    names = [_FLAGGED[precision]] if precision in _FLAGGED else []
    # Weakly typed networks with explicit quantization are refused without this flag.
    if "QuantizeLinear" in op_types(load_graph(model)) and hasattr(library.BuilderFlag, "INT8"):
        names.append("INT8")
    return Choice(model, False, tuple(Flag(getattr(library.BuilderFlag, name), True) for name in names))


def _choose_quantized(library: Any, model: Path, recipe: Recipe, folder: Path, calibration: Sequence[Path]) -> Choice:
    if not is_weakly_typed(library) or recipe.mode == "fp8":
        return Choice(write_quantized(model, recipe, calibration, folder), True, ())
    names = ["INT8", *(["FP16"] if recipe.rest == "fp16" else [])]
    # With the flag, the library tries 16 bit for whatever is not quantized: the model need not say it.
    converted = write_quantized(model, Recipe(recipe.mode), calibration, folder)
    return Choice(converted, False, tuple(Flag(getattr(library.BuilderFlag, name), True) for name in names))


def _variant(model: Path, precision: str, folder: Path, keep: Sequence[str]) -> Path:
    if precision == "as-given":
        return model
    if precision.startswith("bf16"):
        return write_bfloat(model, folder, keep, is_mixed=precision.endswith(MIXED))
    return write_variant(model, precision, folder, keep)
