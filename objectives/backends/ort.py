"""ONNX Runtime backend: an ONNX model is optimized into another ONNX file, which is run on the CPU.

Flow: evaluate.py -> build (precision variant, graph optimizations, file) -> open (threads, memory) ->
session. The engine is the optimized file itself, what would be shipped; it is opened with optimization
switched off.
Verified with 1.32 on magika, PP-OCR and silero-vad at every level: the reopened file runs the same kernels,
counted by the profiler, with bit-equal outputs, as the session that optimized it. Blocked memory layouts in
it fit this CPU only.
"""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime as ort

from objectives.backends import ort_knobs
from objectives.backends.base import NO_TERMS, REPLICAS, Backend, BuildTerms, Environment, Session, Values
from objectives.backends.cpu_facts import cpu_identity
from objectives.backends.keep import KEEP, read_keep
from objectives.backends.ort_denormals import denormals
from objectives.backends.ort_errors import translate_errors
from objectives.backends.ort_graph import (
    PROVIDERS,
    load_graph,
    new_options,
    new_session,
    read_stamp,
    save_optimized,
    stamp,
    weight_types,
)
from objectives.backends.ort_session import OrtSession, new_threads
from objectives.backends.ort_settings import Settings, apply_settings, require_settings
from objectives.backends.ort_variants import write_variant
from objectives.devices import Device
from objectives.digest import digest_of_file
from objectives.errors import CandidateError, ModelError, WorkloadError
from objectives.knobs import KnobSpace
from objectives.model import ModelSpec, read_onnx
from objectives.outcome import EngineFile, FailureKind, Stage
from objectives.tensors import Array, Tensors

__all__ = ["OnnxRuntimeBackend", "OrtSession"]

_FALLBACK = FailureKind.FALLBACK


class OnnxRuntimeBackend(Backend):
    name = "onnxruntime"
    options = (KEEP, REPLICAS)
    shares_device = True
    _keep: tuple[str, ...] = ()

    def configure(self, options: Mapping[str, str]) -> None:
        super().configure(options)
        self._keep = read_keep(options)

    def environment(self) -> Environment:
        return Environment(
            backend=self.name,
            backend_version=str(ort.__version__),
            device="cpu",
            identity={
                **cpu_identity(),
                "architecture": platform.machine(),
                "usable_cores": str(ort_knobs.usable_cores()),
                "providers": " ".join(PROVIDERS),
            },
            details={
                "os": platform.platform(),
                "python": platform.python_version(),
                "onnxruntime_build": str(getattr(ort, "get_build_info", str)()),
            },
        )

    def devices(self) -> tuple[Device, ...]:
        return (Device("cpu", "cpu", cpu_identity()["cpu"]),)

    def is_sound(self, kind: FailureKind) -> bool:
        return kind in (FailureKind.UNSUPPORTED, FailureKind.FALLBACK)  # refused before anything ran

    def describe(self, path: Path) -> ModelSpec:
        return read_onnx(path)

    def knobs(self, path: Path, model: ModelSpec) -> KnobSpace:
        return ort_knobs.knob_space(load_graph(path))

    def reference(self, path: Path, inputs: Tensors) -> dict[str, Array]:
        options = new_options()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            session = OrtSession(_load(path, options), {}, flush=False)
        except CandidateError as error:
            raise ModelError(
                f"onnxruntime {ort.__version__} cannot load {str(path)!r}: {error}",
                hint="try a newer onnxruntime, or export the model with an older operator set",
            ) from error
        try:
            with session:
                return session.run(inputs)
        except CandidateError as error:
            raise WorkloadError(
                f"the model does not run on these inputs: {error}",
                hint="check names, types and shapes of the inputs against the model's",
            ) from error

    def build(self, path: Path, values: Values, workdir: Path, terms: BuildTerms = NO_TERMS) -> EngineFile:
        full = _complete(values)
        engine = workdir / "engine.onnx"
        built = {name: full[name] for name in ort_knobs.names(Stage.BUILD)}
        with tempfile.TemporaryDirectory(dir=workdir, prefix="variant.") as folder:
            source = write_variant(path, full["precision"], Path(folder), self._keep)
            options = new_options()
            options.intra_op_num_threads = 1  # the building session never runs
            chosen = ort_knobs.settings(full, Stage.BUILD)
            apply_settings(options, chosen)
            with translate_errors(FailureKind.BUILD_FAILED), denormals(flush=False):
                session, sidecars = save_optimized(source, engine, options)
        require_settings(session, chosen)
        stamp(engine, {**built, "weights": weight_types(load_graph(engine))})
        size = sum((workdir / name).stat().st_size for name in (engine.name, *sidecars))
        digests = {name: digest_of_file(workdir / name) for name in sidecars}
        return EngineFile(str(engine), digest_of_file(engine), size, "onnx", digests)

    def open(self, engine: EngineFile, values: Values) -> Session:
        full = _complete(values)
        chosen = ort_knobs.settings(full, Stage.OPEN)
        options = new_options()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        apply_settings(options, chosen)
        created: list[int] = []
        with new_threads(created):
            session = _load(Path(engine.path), options)
        effective = _read_back(session, full, chosen, created)
        return OrtSession(session, effective, flush=full.get("flush_denormals") == "on")


def _complete(values: Values) -> dict[str, str]:
    """Every knob with its value. Raises: KnobError for a knob or value that this version does not offer."""
    space = ort_knobs.knob_space()
    return space.values(space.candidate(values))


def _load(path: Path, options: Any) -> Any:
    # The library changes the calling thread's denormal mode in a process's first session; see
    # ort_denormals.py.
    with translate_errors(FailureKind.BUILD_FAILED), denormals(flush=False):
        return new_session(path, options)


def _read_back(session: Any, full: Values, chosen: Settings, created: Sequence[int]) -> dict[str, str]:
    """What took effect, from the open session, its file and its threads.

    Providers, execution mode and threads are what the library made of them; the memory switches and
    configuration keys are only an echo of what it was told.
    Raises: CandidateError of kind `fallback` if anything is not as asked.
    """
    providers = tuple(session.get_providers())
    if providers != PROVIDERS:
        raise CandidateError(_FALLBACK, f"asked for {PROVIDERS}, the session runs on {providers}")
    require_settings(session, chosen)
    built = read_stamp(session)
    if built is None:
        raise CandidateError(FailureKind.BUILD_FAILED, "the file was not built by this backend")
    for name in (name for name in ort_knobs.names(Stage.BUILD) if built.get(name) != full[name]):
        raise CandidateError(_FALLBACK, f"{name}={full[name]} was asked for, the engine has {built.get(name)}")
    # The weights tell what became of a precision: where the CPU has no fp16 kernels, the library folds
    # conversions into the weights and they are float32 again.
    facts = {"providers": " ".join(providers), "weights": built["weights"]}
    if created:
        _require_threads(full, created[0])
        facts["threads_started"] = str(created[0])
    return {**full, **facts}


def _require_threads(full: Values, created: int) -> None:
    """A pool of n threads starts n - 1, the calling thread is the last (measured with 1.32, both pools)."""
    intra, inter = full["intra_op_threads"], full.get("inter_op", "sequential")
    if intra == "auto":
        return
    expected = int(intra) - 1 + (int(inter.removeprefix("parallel-")) - 1 if inter != "sequential" else 0)
    if created != expected:
        words = f"intra_op_threads={intra} inter_op={inter}: {expected} new threads expected, found {created}"
        raise CandidateError(_FALLBACK, words)
