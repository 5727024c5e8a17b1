"""TensorRT backends: an ONNX model becomes a plan, which runs on an NVIDIA GPU.

Flow: evaluate.py -> build (trt_build.py) -> plan and manifest -> open (trt_open.py) -> session (trt_session.py).
One implementation for the family; trt_enterprise.py and trt_rtx.py name the library. What a version offers is found by
looking, not by its number. What was proven where stands in docs/verification.md.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from objectives.backends import cuda_runtime, trt_knobs, trt_options, trt_timing_cache
from objectives.backends.base import NO_TERMS, Backend, BuildTerms, Environment, Option, Session, Values
from objectives.backends.gpu_facts import gpu_details, gpu_devices, gpu_identity, new_gpu_watch
from objectives.backends.keep import KEEP, read_keep
from objectives.backends.ort import OnnxRuntimeBackend
from objectives.backends.trt_build import BuildSettings, Order, build, new_builder, routes_of
from objectives.backends.trt_log import capture
from objectives.backends.trt_manifest import Manifest, read_manifest
from objectives.backends.trt_open import inspect, inspector_json, load
from objectives.backends.trt_precision import NAME as PRECISION
from objectives.backends.trt_precision import choose, precision_knob, quantizer_identity
from objectives.backends.trt_routes import RouteDatabase, route_knobs, route_string
from objectives.backends.trt_session import TrtSession
from objectives.backends.trt_settings import TrtKnob
from objectives.devices import Device
from objectives.digest import digest_of_file
from objectives.errors import BackendUnavailableError, CandidateError
from objectives.knobs import KnobKind, KnobSpace
from objectives.model import ModelSpec, read_onnx
from objectives.outcome import EngineFile, FailureKind
from objectives.tensors import Array, Tensors

_PLAN, _INSPECTED = "engine.plan", "engine.inspector.json"


class TrtBackend(Backend):
    """The family's implementation. A subclass names `library`, and what its library takes but ignores."""

    library: ClassVar[Any]
    inert: ClassVar[frozenset[str]] = frozenset()
    options: ClassVar[tuple[Option, ...]] = (
        trt_options.WORKSPACE,
        trt_options.BUILD_TIMEOUT,
        trt_options.TIMING_CACHE,
        trt_options.LADDER,
        KEEP,
    )

    def __init__(self, settings: BuildSettings | None = None) -> None:
        self.settings = settings or BuildSettings()

    def configure(self, options: Mapping[str, str]) -> None:
        super().configure(options)
        self.settings = replace(
            self.settings,
            workspace_bytes=trt_options.workspace_bytes(options),
            limit_s=trt_options.limit_s(options, None),
            keeps_timings=trt_options.keeps_timings(options),
            ladders=trt_options.ladders(options),
            keep=read_keep(options),
            compute_capability=options.get(trt_options.CAPABILITY.name, self.settings.compute_capability),
        )

    def environment(self) -> Environment:
        gpu, target = cuda_runtime.gpu(), self._target()
        identity = {"gpu": "none, build only", "target": target or "the GPU at hand", **quantizer_identity()}
        details = {"build_routes": self._routes.tuner_version or "none"}
        if gpu is not None:
            identity |= gpu_identity(gpu)
            details |= gpu_details(gpu)
        device = f"cuda:{gpu.uuid}" if gpu else ""
        return Environment(self.name, str(self.library.__version__), device, identity, details)

    def devices(self) -> tuple[Device, ...]:
        return gpu_devices(cuda_runtime.gpus())

    def cannot_run(self) -> str:
        reason = cuda_runtime.why_unavailable()
        return f"engines cannot be run here: {reason}" if reason else ""

    def describe(self, path: Path) -> ModelSpec:
        return read_onnx(path)

    def knobs(self, path: Path, model: ModelSpec) -> KnobSpace:
        return self._space

    def reference(self, path: Path, inputs: Tensors) -> dict[str, Array]:
        return OnnxRuntimeBackend().reference(path, inputs)

    def build(self, path: Path, values: Values, workdir: Path, terms: BuildTerms = NO_TERMS) -> EngineFile:
        """As the base class says. `terms.shapes` gives the profile of inputs with dynamic dimensions.

        Raises: also WorkloadError if a dynamic input has no shapes.
        """
        full = self._complete(values)
        return self._build(path, full, route_string(full, self._space.knobs), workdir, terms)

    def build_raw_route(self, path: Path, route: str, workdir: Path, terms: BuildTerms = NO_TERMS) -> EngineFile | None:
        return self._build(path, self._complete({}), route, workdir, terms)

    def _build(self, path: Path, full: Values, route: str, workdir: Path, terms: BuildTerms) -> EngineFile:
        built = {knob.name: full[knob.name] for knob in self._space.knobs if knob.kind != KnobKind.RUNTIME}
        plan = workdir / _PLAN
        with tempfile.TemporaryDirectory(dir=workdir, prefix="variant.") as folder:
            order = Order(
                library=self.library,
                backend=self.name,
                model=self.describe(path),
                choice=choose(self.library, path, full[PRECISION], Path(folder), terms.calibration, self.settings.keep),
                values=built,
                knob_settings=trt_knobs.settings_of(self._builder_knobs, full),
                route=route,
                terms=terms,
                target=self._target(),
                settings=self.settings,
            )
            sidecar = build(order, plan).write(plan)
        cache = trt_timing_cache.FILE if self.settings.keeps_timings else ""
        inspected = self._inspect(plan)
        files = {name: digest_of_file(workdir / name) for name in (sidecar, cache, inspected) if name}
        size = sum((workdir / name).stat().st_size for name in (_PLAN, sidecar))
        return EngineFile(str(plan), digest_of_file(plan), size, "tensorrt-plan", files, cache)

    def open(self, engine: EngineFile, values: Values) -> Session:
        full = self._complete(values)
        manifest = read_manifest(Path(engine.path))
        _require_built(manifest, full)
        if reason := self.cannot_run():
            raise BackendUnavailableError(reason, hint="run on a machine with a supported NVIDIA GPU")
        gpu = cuda_runtime.gpu()
        loaded = load(self.library, Path(engine.path), full, gpu.persisting_l2_bytes if gpu else 0)
        effective = {**full, **_route_facts(manifest), **inspect(self.library, loaded.engine)}
        is_captured = full[trt_knobs.CUDA_GRAPH] == "capture"
        return TrtSession(loaded, manifest.outputs, effective, is_captured, new_gpu_watch(gpu))

    def _inspect(self, plan: Path) -> str:
        """Write what the inspector tells beside `plan`. Returns the file's name, empty where no plan can be loaded."""
        if self.cannot_run():
            return ""
        path = plan.with_name(_INSPECTED)
        path.write_text(inspector_json(self.library, plan))
        return path.name

    def _target(self) -> str:
        """The SM name to build for; empty where only the GPU at hand can be built for."""
        return ""

    @cached_property
    def _space(self) -> KnobSpace:
        gpu = cuda_runtime.gpu()
        return KnobSpace(
            (
                precision_knob(self.library),
                *(one.knob for one in self._builder_knobs),
                *route_knobs(self._routes, self.settings.ladders),
                *trt_knobs.runtime_knobs(self.library, gpu.persisting_l2_bytes if gpu else 0),
            )
        )

    @cached_property
    def _builder_knobs(self) -> tuple[TrtKnob, ...]:
        builder = new_builder(self.library)
        with capture(self.library):  # values that are tried and refused are no news
            found = trt_knobs.builder_knobs(self.library, builder.create_builder_config)
        return tuple(one for one in found if one.knob.name not in self.inert)

    @cached_property
    def _routes(self) -> RouteDatabase:
        return routes_of(self.library, new_builder(self.library).create_builder_config())

    def _complete(self, values: Values) -> dict[str, str]:
        """Every knob with its value. Raises: KnobError for a knob or value that this version does not offer."""
        return self._space.values(self._space.candidate(values))


def _require_built(manifest: Manifest, full: Mapping[str, str]) -> None:
    for name, value in manifest.values.items():
        if full.get(name) != value:
            words = f"{name}={full.get(name)} was asked for, the engine has {value}"
            raise CandidateError(FailureKind.FALLBACK, words)


def _route_facts(manifest: Manifest) -> dict[str, str]:
    if not manifest.route.asked:
        return {}
    used = manifest.route.used
    return {"build_route": manifest.route.read_back, "build_route_used": "not told" if used is None else used}
