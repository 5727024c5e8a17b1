"""From a plan file to an engine with one execution context, with the run-time knobs applied and read back.

Flow: trt.py open -> load HERE -> trt_session.py runs it. Loading a plan runs native code from it: only plans that this
backend wrote come here, and plans with host code of their own stay refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from objectives.backends import trt_knobs
from objectives.backends.trt_errors import failure
from objectives.backends.trt_log import capture, recorder
from objectives.errors import CandidateError
from objectives.outcome import FailureKind

_FALLBACK = FailureKind.FALLBACK


@dataclass(slots=True)
class Loaded:
    """A runtime, its engine and a context: alive together, ended in reverse order."""

    library: Any
    runtime: Any
    engine: Any
    context: Any

    def names(self, mode: Any) -> Iterator[str]:
        """Inputs or outputs, in the engine's order."""
        for name in (str(self.engine.get_tensor_name(index)) for index in range(self.engine.num_io_tensors)):
            if self.engine.get_tensor_mode(name) == mode:
                yield name


def load(library: Any, plan: Path, values: Mapping[str, str], persisting_l2_bytes: int) -> Loaded:
    """Deserialize `plan` and make a context with the run-time knobs in `values`.

    Raises: CandidateError in the library's words; of kind `fallback` if a knob did not take.
    """
    with capture(library) as log:
        runtime = library.Runtime(recorder(library))
        engine = runtime.deserialize_cuda_engine(plan.read_bytes())
        if engine is None:
            raise failure(log, FailureKind.BUILD_FAILED, "the plan cannot be loaded")
        context = _context(library, engine, values)
        if context is None:
            raise failure(log, FailureKind.BUILD_FAILED, "the engine gives no execution context")
        _apply_to_context(library, context, values, persisting_l2_bytes)
    return Loaded(library, runtime, engine, context)


def _context(library: Any, engine: Any, values: Mapping[str, str]) -> Any:
    """A context; with every run-time knob at its default the library is asked for nothing in particular."""
    strategy = _strategy(library, values)
    wanted = dict(_runtime_settings(library, values))
    if not wanted:
        return engine.create_execution_context() if strategy is None else engine.create_execution_context(strategy)
    config = engine.create_runtime_config()
    if strategy is not None:
        config.set_execution_context_allocation_strategy(strategy)
    for name, value in wanted.items():
        setattr(config, name, value)
        if getattr(config, name) != value:
            raise CandidateError(_FALLBACK, f"{name}: asked for {value}, the library has {getattr(config, name)}")
    return engine.create_execution_context(config)


def _strategy(library: Any, values: Mapping[str, str]) -> Any:
    if values.get(trt_knobs.ALLOCATION, "static") == "static":
        return None
    return library.ExecutionContextAllocationStrategy.ON_PROFILE_CHANGE


def _runtime_settings(library: Any, values: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    if values.get(trt_knobs.CUDA_GRAPH) == "library":
        yield "cuda_graph_strategy", library.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE
    specialization = values.get(trt_knobs.SPECIALIZATION, "lazy")
    if specialization != "lazy":
        members = library.DynamicShapesKernelSpecializationStrategy.__members__
        yield "dynamic_shapes_kernel_specialization_strategy", members[specialization.upper()]


def _apply_to_context(library: Any, context: Any, values: Mapping[str, str], persisting_l2_bytes: int) -> None:
    wanted: dict[str, Any] = {}
    if values.get(trt_knobs.NVTX) == "off":
        wanted["nvtx_verbosity"] = library.ProfilingVerbosity.NONE
    share = values.get(trt_knobs.L2_PERSISTENCE, "none")
    if share != "none":
        wanted["persistent_cache_limit"] = persisting_l2_bytes // (2 if share == "half" else 1)
    for name, value in wanted.items():
        setattr(context, name, value)
        if (found := getattr(context, name)) != value:
            raise CandidateError(_FALLBACK, f"{name}: asked for {value}, the context has {found}")


def inspector_json(library: Any, plan: Path) -> str:
    """All that the inspector tells of `plan`: as much as the profiling verbosity of its build left in it.

    Raises: CandidateError if it cannot be loaded.
    """
    with capture(library) as log:
        runtime = library.Runtime(recorder(library))
        engine = runtime.deserialize_cuda_engine(plan.read_bytes())
        if engine is None:
            raise failure(log, FailureKind.BUILD_FAILED, "the plan cannot be loaded")
        return _told(library, engine)


def _told(library: Any, engine: Any) -> str:
    return str(engine.create_engine_inspector().get_engine_information(library.LayerInformationFormat.JSON))


def inspect(library: Any, engine: Any) -> dict[str, str]:
    """A short account of the engine: its layers, its memory, and a digest of all that the inspector tells."""
    facts = {"engine.layers": str(engine.num_layers)}
    if hasattr(engine, "device_memory_size_v2"):
        facts["engine.activation_bytes"] = str(engine.device_memory_size_v2)
    if hasattr(engine, "num_aux_streams"):
        facts["engine.aux_streams"] = str(engine.num_aux_streams)
    told = _told(library, engine)
    facts["engine.inspector"] = hashlib.sha256(told.encode()).hexdigest()[:16]
    try:
        layers = json.loads(told).get("Layers", [])
    except (ValueError, AttributeError):
        return facts  # a version that words it otherwise: the digest still tells engines apart
    kinds = sorted({str(layer["LayerType"]) for layer in layers if isinstance(layer, dict) and "LayerType" in layer})
    return {**facts, **({"engine.layer_types": " ".join(kinds)} if kinds else {})}
