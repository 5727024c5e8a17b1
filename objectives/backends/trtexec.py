"""The backend `trtexec`: TensorRT through NVIDIA's own command, for those who have it as a container or archive.

Flow: evaluate.py -> build (a run of trtexec) -> plan and manifest -> open -> session (trtexec_session.py). Knobs, route
reader, precision variants and manifest are those of trt.py; no Python package of TensorRT is needed. A wrapper script
that starts trtexec in a container is fine as program, if the container sees the same paths.
What was proven on the real program stands in docs/verification.md; the tests here use a fake.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from objectives.backends import cuda_runtime, trt_options
from objectives.backends.base import NO_TERMS, Backend, BuildTerms, Environment, Session, Values
from objectives.backends.gpu_facts import gpu_details, gpu_identity
from objectives.backends.keep import KEEP, read_keep
from objectives.backends.ort import OnnxRuntimeBackend
from objectives.backends.trt_errors import route_refusal
from objectives.backends.trt_log import Log
from objectives.backends.trt_manifest import Manifest, Route, read_manifest
from objectives.backends.trt_precision import NAME as PRECISION
from objectives.backends.trt_precision import choose, quantizer_identity
from objectives.backends.trt_routes import RouteDatabase, read_routes
from objectives.backends.trtexec_command import Offer, build_arguments, changes_of, knob_space
from objectives.backends.trtexec_process import Ended, run
from objectives.backends.trtexec_results import count_layers, read_log, read_report, read_routes_text
from objectives.backends.trtexec_session import Program, TrtexecSession, TrtexecSettings, require_good
from objectives.digest import digest_of_file
from objectives.errors import BackendUnavailableError, CandidateError, KnobError, WorkloadError
from objectives.knobs import KnobKind, KnobSpace
from objectives.model import ModelSpec, read_onnx
from objectives.outcome import EngineFile, FailureKind
from objectives.shapes import ShapeRange, Shapes
from objectives.tensors import Array, Tensors
from objectives.trtexec_flags import route_of

_NAME = "trtexec"
_PLAN, _LAYERS, _COMMAND = "engine.plan", "engine.layers.json", "engine.command.txt"
_HINT = (
    "put the folder of TensorRT's bin/trtexec on PATH, or a script of that name that runs it in its container; "
    "--backend tensorrt needs no command"
)


class TrtexecBackend(Backend):
    """`program` is a path or a name to be found on PATH."""

    name = _NAME
    options = (trt_options.PROGRAM, trt_options.DEVICE, trt_options.BUILD_TIMEOUT, trt_options.LADDER, KEEP)

    def __init__(self, program: str | Path = _NAME, settings: TrtexecSettings | None = None) -> None:
        self._wanted = str(program)
        self._settings = settings or TrtexecSettings()

    def configure(self, options: Mapping[str, str]) -> None:
        super().configure(options)
        self._wanted = options.get(trt_options.PROGRAM.name, self._wanted)
        self._settings = replace(
            self._settings,
            build_limit_s=trt_options.limit_s(options, None) or self._settings.build_limit_s,
            device=trt_options.device(options),
            ladders=trt_options.ladders(options),
            keep=read_keep(options),
        )

    def environment(self) -> Environment:
        offer, gpu = self._program.offer, _gpu()
        routes = self._routes.tuner_version or self._no_routes_because
        details = {"trtexec_build": offer.build or "unknown", "build_routes": routes}
        details |= {key: gpu[key] for key in ("driver",) if key in gpu}
        identity = {key: value for key, value in gpu.items() if key not in ("uuid", "driver")} | quantizer_identity()
        device = f"cuda:{gpu['uuid']}" if "uuid" in gpu else f"cuda:{self._settings.device or 0}"
        return Environment(self.name, offer.version, device, identity, details)

    def describe(self, path: Path) -> ModelSpec:
        return read_onnx(path)

    def knobs(self, path: Path, model: ModelSpec) -> KnobSpace:
        return self._space

    def reference(self, path: Path, inputs: Tensors) -> dict[str, Array]:
        return OnnxRuntimeBackend().reference(path, inputs)

    def build(self, path: Path, values: Values, workdir: Path, terms: BuildTerms = NO_TERMS) -> EngineFile:
        return self._build(path, self._complete(values), "", workdir, terms)

    def build_raw_route(self, path: Path, route: str, workdir: Path, terms: BuildTerms = NO_TERMS) -> EngineFile | None:
        return self._build(path, self._complete({}), route, workdir, terms)

    def _build(self, path: Path, full: Values, raw_route: str, workdir: Path, terms: BuildTerms) -> EngineFile:
        program, model = self._program, self.describe(path)
        profile = _profile(model, terms.shapes)
        plan, layers = workdir / _PLAN, workdir / _LAYERS
        with tempfile.TemporaryDirectory(dir=workdir, prefix="variant.") as folder:
            choice = choose(
                program.offer.library, path, full[PRECISION], Path(folder), terms.calibration, self._settings.keep
            )
            changes = changes_of(full, self._space)
            arguments = build_arguments(program.offer, choice, changes, profile, plan, layers)
            arguments += [f"--setBuildRoute={raw_route}"] if raw_route else []
            ended = program.call(arguments, self._settings.build_limit_s)
        route = raw_route or route_of(dict(self._space.candidate(full).changes))
        used = _require_built(ended, route, plan)
        manifest = Manifest(
            backend=self.name,
            version=program.offer.version,
            target="the GPU at hand",
            values={knob.name: full[knob.name] for knob in self._space.knobs if knob.kind != KnobKind.RUNTIME},
            inputs={spec.name: spec.dtype for spec in model.inputs},
            outputs={spec.name: spec.dtype for spec in model.outputs},
            profile={name: [list(one.min), list(one.opt), list(one.max)] for name, one in profile.items()},
            route=Route(route, route, used),
            tuner_version=self._routes.tuner_version,
            timing_cache=None,
            warnings=read_log(ended.text).warnings,
        )
        (workdir / _COMMAND).write_text(_shown(arguments, path, workdir) + "\n")
        names = [manifest.write(plan), _COMMAND, *([_LAYERS] if layers.exists() else [])]
        size = sum((workdir / name).stat().st_size for name in (_PLAN, *names))
        sidecars = {name: digest_of_file(workdir / name) for name in names}
        return EngineFile(str(plan), digest_of_file(plan), size, "tensorrt-plan", sidecars)

    def open(self, engine: EngineFile, values: Values) -> Session:
        """As the base class says; the engine is loaded by the first run, in a process of its own."""
        full = self._complete(values)
        plan = Path(engine.path)
        manifest = read_manifest(plan)
        for name, value in manifest.values.items():
            if full.get(name) != value:
                words = f"{name}={full.get(name)} was asked for, the engine has {value}"
                raise CandidateError(FailureKind.FALLBACK, words)
        effective = {**full, **_facts(manifest, plan.with_name(_LAYERS))}
        return TrtexecSession(self._program, plan, manifest, changes_of(full, self._space), effective)

    @cached_property
    def _program(self) -> Program:
        """Raises: BackendUnavailableError if it is not there, or is something else."""
        path = shutil.which(self._wanted)
        if path is None:
            raise BackendUnavailableError(f"there is no program {self._wanted!r}", hint=_HINT)
        ended = run([path, "--help"], self._settings.query_limit_s)
        version, build = _version(path, ended, self._settings.query_limit_s)
        if not version or "--saveEngine" not in ended.text:
            raise BackendUnavailableError(f"{path!r} does not answer like trtexec; it {ended.describe()}", hint=_HINT)
        return Program(path, Offer(version, build, ended.text), self._settings)

    @cached_property
    def _route_answer(self) -> tuple[RouteDatabase, str]:
        """The build routes that this installation lists, or none and why."""
        program = self._program
        if not program.offer.has("--helpBuildRoute"):
            return RouteDatabase(), "none: this version has no build routes"
        ended = program.call(["--helpBuildRoute"], self._settings.query_limit_s)
        text = read_routes_text(ended.text)
        if not ended.is_good or not text:
            words = "; ".join(read_log(ended.text).errors) or f"trtexec --helpBuildRoute {ended.describe()}"
            return RouteDatabase(), f"none: {words}"
        try:
            return read_routes(text), ""
        except KnobError as error:
            return RouteDatabase(), f"none: {error}"

    @property
    def _routes(self) -> RouteDatabase:
        return self._route_answer[0]

    @property
    def _no_routes_because(self) -> str:
        return self._route_answer[1]

    @cached_property
    def _space(self) -> KnobSpace:
        return knob_space(self._program.offer, self._routes, self._settings.ladders)

    def _complete(self, values: Values) -> dict[str, str]:
        """Every knob with its value. Raises: KnobError for a knob or value that this version does not offer."""
        return self._space.values(self._space.candidate(values))


def _version(path: str, helped: Ended, limit_s: float) -> tuple[str, str]:
    """Version and build number from the banner that every run prints; `--version` where the help came without one."""
    report = read_report(helped.text)
    if not report.version:
        report = read_report(run([path, "--version"], limit_s).text)
    return report.version, report.build


def _profile(model: ModelSpec, shapes: Shapes) -> dict[str, ShapeRange]:
    """Shapes of the inputs that need some. Raises: WorkloadError: trtexec would take 1 for what is not given."""
    dynamic = [spec for spec in model.inputs if spec.is_dynamic]
    for spec in dynamic:
        if spec.name not in shapes:
            raise WorkloadError(
                f"input {spec.name!r} has dynamic dimensions {spec.describe_shape()}, and no shapes are given for it",
                hint="give its smallest, most typical and largest shape",
            )
    return {spec.name: shapes[spec.name] for spec in dynamic}


def _require_built(ended: Ended, route: str, plan: Path) -> str | None:
    """What the program said it used as route. Raises: CandidateError if there is no engine, or not the one asked for.

    A failed build may print that an engine was created, and leave an empty file (read from the source).
    """
    log = read_log(ended.text)
    refusal = route_refusal(log) if route else ""
    if refusal and not ended.is_good and ended.code is not None:
        raise CandidateError(FailureKind.UNSUPPORTED, f"build route {route!r}: {refusal}")
    require_good(ended, FailureKind.BUILD_FAILED, "no engine was built")
    if not plan.is_file() or plan.stat().st_size == 0:
        words = "; ".join(log.errors) or "trtexec ended well, but wrote no engine"
        raise CandidateError(FailureKind.BUILD_FAILED, words)
    if not route:
        return None
    if refusal:
        raise CandidateError(FailureKind.FALLBACK, f"built, but not with build route {route!r}: {refusal}")
    return _require_route(route, log, ended)


def _require_route(route: str, log: Log, ended: Ended) -> str:
    used = read_report(ended.text).route
    if used is None:
        words = f"build route {route!r} was asked for, trtexec does not say that it used one"
        raise CandidateError(FailureKind.FALLBACK, words)
    # Knobs at their defaults may be spelled out, so it is enough that what was asked for is among them.
    if not set(route.split()) <= set(used.split()):
        raise CandidateError(FailureKind.FALLBACK, f"asked for build route {route!r}, trtexec used {used!r}")
    return used


def _facts(manifest: Manifest, layers: Path) -> dict[str, str]:
    facts = {"tensorrt": manifest.version}
    if manifest.route.asked:
        facts |= {"build_route": manifest.route.asked, "build_route_used": manifest.route.used or "not told"}
    if layers.exists() and (count := count_layers(layers.read_text(errors="replace"))) is not None:
        facts["layers"] = str(count)
    return facts


def _shown(arguments: list[str], model: Path, workdir: Path) -> str:
    """The command that built an engine, with file names instead of this machine's paths."""
    variant = f"{workdir}/variant."
    words = [
        "--onnx=CONVERTED.onnx" if one.startswith(f"--onnx={variant}") else one.replace(f"{workdir}/", "")
        for one in arguments
    ]
    return shlex.join([_NAME, *(one.replace(str(model), model.name) for one in words)])


def _gpu() -> Mapping[str, str]:
    """What is known about the GPU: from the CUDA bindings, else from nvidia-smi, which comes with the driver."""
    gpu = cuda_runtime.gpu()
    if gpu is not None:
        return {**gpu_identity(gpu), "uuid": gpu.uuid, "driver": gpu_details(gpu)["driver"]}
    fields = ("name", "uuid", "compute_cap", "memory.total", "driver_version")
    program = shutil.which("nvidia-smi")
    if program is None:
        return {"gpu": "unknown"}
    query = [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {"gpu": "unknown"}
    values = [value.strip() for value in answer.partition("\n")[0].split(",")]
    names = ("gpu", "uuid", "compute_capability", "memory_mib", "driver")
    return dict(zip(names, values, strict=True)) if len(values) == len(names) else {"gpu": "unknown"}
