"""One TensorRT build: a model and values become a plan, or an error in the library's own words.

Flow: trt.py -> build HERE: parse, configure, set the route, build, check -> plan and manifest. Everything that was
asked for is read back before the build and looked for in the log after it; what did not take is a failure, never a
silent default.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from objectives.backends import trt_timing_cache
from objectives.backends.base import BuildTerms
from objectives.backends.trt_errors import failure, route_refusal, route_used, was_canceled
from objectives.backends.trt_log import Log, capture, recorder
from objectives.backends.trt_manifest import Manifest, Route
from objectives.backends.trt_monitor import Watchdog, attach
from objectives.backends.trt_network import add_profile, network_flags, parse, require_types
from objectives.backends.trt_precision import Choice
from objectives.backends.trt_routes import Ladders, RouteDatabase, read_routes
from objectives.backends.trt_settings import Pool, Setting, apply, require
from objectives.errors import BackendUnavailableError, CandidateError
from objectives.model import ModelSpec
from objectives.outcome import FailureKind


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """What a user may set beside the knobs. It is the same for every candidate of a study."""

    keeps_timings: bool = False  # whether a build starts from the cache it is given, and leaves one beside its plan
    workspace_bytes: int | None = None  # scratch memory of a kernel, at most; None: the library's limit
    limit_s: float | None = None  # a build that takes longer is stopped and counts as timed out
    cancel: threading.Event | None = None  # when set, the build in progress is stopped
    compute_capability: str = "SM89"  # what is built for where there is no GPU; TensorRT-RTX only
    keep: tuple[str, ...] = ()  # nodes that a conversion leaves as they are, see keep.py
    ladders: Ladders = field(default_factory=dict)  # ranges of open-ended build-route knobs


@dataclass(frozen=True, slots=True)
class Order:
    """One build: what to parse, what to set, and what the user allows."""

    library: Any
    backend: str
    model: ModelSpec
    choice: Choice
    values: Mapping[str, str]  # every knob that acts in the build
    knob_settings: Mapping[str, tuple[Setting, ...]]
    route: str
    terms: BuildTerms
    target: str  # an SM name to build for; empty: the GPU at hand
    settings: BuildSettings


def new_builder(library: Any) -> Any:
    """A builder. Raises: BackendUnavailableError if the library makes none, as enterprise TensorRT without a GPU."""
    with capture(library) as log:
        try:
            builder = library.Builder(recorder(library))
        except (TypeError, RuntimeError) as error:  # the binding's word for a null pointer
            words = "; ".join(log.errors) or str(error)
            hint = "TensorRT needs an NVIDIA GPU and driver, also to build"
            raise BackendUnavailableError(f"TensorRT makes no builder here: {words}", hint=hint) from error
    return builder


def routes_of(library: Any, config: Any) -> RouteDatabase:
    """The build routes that this installation lists: none before 11.1, and on platforms without the feature."""
    if not hasattr(library.IBuilderConfig, "all_build_routes"):
        return RouteDatabase()
    return read_routes(str(config.all_build_routes))


def build(order: Order, plan_path: Path) -> Manifest:
    """Build into `plan_path`. Raises: CandidateError, and HarnessError if the build was cancelled."""
    library = order.library
    builder = new_builder(library)
    with capture(library) as log:
        config = builder.create_builder_config()
        flags = network_flags(library, order.choice.strongly_typed)
        network, parser = parse(library, builder, order.choice.model, flags, order.terms.shapes, log)
        require_types(network)
        _configure(order, config)
        read_back = _set_route(order.route, config, log)
        profile = add_profile(builder, network, config, order.terms.shapes, log)
        keeps = order.settings.keeps_timings
        before = trt_timing_cache.load(config, order.terms.cache, log) if keeps else ""
        plan = _run(order, builder, network, config, log)
        del parser  # held until here: the network points into its weights
    used = _require_route(order.route, log)
    plan_path.write_bytes(plan)
    return Manifest(
        backend=order.backend,
        version=str(library.__version__),
        target=order.target or "the GPU at hand",
        values=order.values,
        inputs={spec.name: spec.dtype for spec in order.model.inputs},
        outputs={spec.name: spec.dtype for spec in order.model.outputs},
        profile=profile,
        route=Route(order.route, read_back, used),
        tuner_version=routes_of(library, config).tuner_version,
        timing_cache=(before, trt_timing_cache.store(config, plan_path.parent)) if keeps else None,
        warnings=log.warnings,
    )


def _configure(order: Order, config: Any) -> None:
    if order.target:
        config.num_compute_capabilities = 1
        member = order.library.ComputeCapability.__members__[order.target]
        if not config.set_compute_capability(member, 0):
            raise CandidateError(FailureKind.UNSUPPORTED, f"this version does not build for {order.target}")
    limit = order.settings.workspace_bytes
    everything: dict[str, tuple[Setting, ...]] = {}
    if limit is not None:
        everything["the workspace limit"] = (Pool(order.library.MemoryPoolType.WORKSPACE, limit),)
    everything["precision"] = order.choice.flags
    everything |= {name: _within(group, limit) for name, group in order.knob_settings.items()}
    apply(config, (setting for group in everything.values() for setting in group))
    for name, group in everything.items():
        if name != "the workspace limit" or "workspace" not in everything:
            require(config, name, group)


def _within(group: tuple[Setting, ...], limit: int | None) -> tuple[Setting, ...]:
    """A knob does not raise the workspace above the user's limit."""
    if limit is None:
        return group
    return tuple(
        Pool(one.pool, min(one.value, limit)) if isinstance(one, Pool) and one.pool.name == "WORKSPACE" else one
        for one in group
    )


def _set_route(route: str, config: Any, log: Log) -> str:
    """Set the route and read it back; "" where none is asked for: then nothing is touched."""
    if not route:
        return ""
    if not hasattr(config, "build_route"):
        raise CandidateError(FailureKind.UNSUPPORTED, "this version of TensorRT has no build routes")
    config.build_route = route
    read_back = str(config.build_route)
    if refusal := route_refusal(log):
        raise CandidateError(FailureKind.UNSUPPORTED, f"build route {route!r}: {refusal}")
    if read_back.split() != route.split():
        words = f"build route {route!r} was set, the builder configuration holds {read_back!r}"
        raise CandidateError(FailureKind.FALLBACK, words)
    return read_back


def _require_route(route: str, log: Log) -> str | None:
    """What the library said it used. Raises: CandidateError if that, or a complaint, shows another route."""
    if not route:
        return None
    if refusal := route_refusal(log):
        raise CandidateError(FailureKind.FALLBACK, f"built, but not with build route {route!r}: {refusal}")
    used = route_used(log)
    # The library may spell out knobs at their defaults, so it is enough that it used what was asked for.
    if used is not None and not set(route.split()) <= set(used.split()):
        words = f"asked for build route {route!r}, the library used {used!r}"
        raise CandidateError(FailureKind.FALLBACK, words)
    return used


def _run(order: Order, builder: Any, network: Any, config: Any, log: Log) -> bytes:
    settings = order.settings
    watchdog = Watchdog(settings.limit_s, settings.cancel, order.terms.on_step)
    monitor = attach(order.library, config, watchdog)
    memory = builder.build_serialized_network(network, config)
    del monitor  # alive during the build, which holds no reference of its own
    plan = b"" if memory is None else bytes(memory)
    if not plan:
        if was_canceled(log):
            watchdog.require()
        raise failure(log, FailureKind.BUILD_FAILED, "the builder gave no engine")
    return plan
