"""Steps of a self-check: what happens inside the child process, one step a request.

Flow: selfcheck.py -> isolation -> worker.py -> take HERE -> SelfChecked, or Failed for what the backend raised. Each
step makes its own tiny model and builds what it needs, so that it says the same whatever went before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from objectives.accuracy import DEFAULT_LIMITS, compare, merge, violations
from objectives.backends.base import Backend, BuildTerms, Session, Values, tensor_session
from objectives.checks import troubles
from objectives.checks.result import Status
from objectives.digest import digest_of_file
from objectives.errors import CandidateError
from objectives.evaluate import OnStage, Progress, guarded
from objectives.inputs import Generation, generate, resolve_shapes
from objectives.knobs import KnobKind, KnobSpace
from objectives.metrics import DEFAULT_METRIC, Tolerance
from objectives.outcome import Accuracy, EngineFile, Failed, FailureKind, Stage
from objectives.requests import SelfChecked, SelfCheckRequest
from objectives.tensors import Array, Tensors, save_tensors
from objectives.tiny import TinyModel

BAD_ROUTE = "-no_such_knob_of_any_version=1"
OFF = "off"  # fact of a step: how far outputs are beyond the limit of accuracy
# A candidate's refusal is an answer; a crash or a hang inside a backend is none, whoever reports it.
_ANSWERS = (FailureKind.UNSUPPORTED, FailureKind.BUILD_FAILED, FailureKind.RUN_FAILED, FailureKind.FALLBACK)
_REPEATS, _ROUNDS = 10, 5


class Bench:
    """A backend with its tiny models, in a folder of this step's own."""

    def __init__(self, backend: Backend, folder: Path, asked: Values, progress: Progress) -> None:
        self.backend = backend
        self.asked = asked
        self.progress = progress
        self._folder = folder
        self._builds = 0
        (folder / "models").mkdir()
        self.models = backend.tiny_models(folder / "models")

    @property
    def fixed(self) -> TinyModel:
        return self.models.fixed

    def space(self) -> KnobSpace:
        return self.backend.knobs(self.fixed.path, self.backend.describe(self.fixed.path))

    def values(self) -> dict[str, str]:
        """Every knob with its value: the default, but for what is asked for."""
        space = self.space()
        return space.values(space.candidate(self.asked))

    def workdir(self) -> Path:
        """A new empty folder for a build."""
        self._builds += 1
        folder = self._folder / f"build-{self._builds}"
        folder.mkdir()
        return folder

    def build(self, tiny: TinyModel | None = None, cache: Path | None = None) -> EngineFile:
        """Build with the values asked for. Raises: as the backend does."""
        model = tiny or self.fixed
        with self.progress.enter(Stage.BUILD):
            terms = BuildTerms(shapes=model.shapes, calibration=(self._typical(model),), cache=cache)
            return self.backend.build(model.path, self.values(), self.workdir(), terms)

    def _typical(self, model: TinyModel) -> Path:
        """A file of inputs, as a study has them."""
        path = self._folder / f"{model.path.name}.typical"
        save_tensors(path, self.inputs(model))
        return path

    def open(self, tiny: TinyModel | None = None) -> Session:
        engine = self.build(tiny)
        with self.progress.enter(Stage.OPEN):
            return tensor_session(self.backend.open(engine, self.values()))

    def inputs(self, tiny: TinyModel | None = None, which: str = "opt") -> dict[str, Array]:
        """Generated inputs; for a range of shapes those of `which`: min, opt or max."""
        model = tiny or self.fixed
        spec = self.backend.describe(model.path)
        shapes = resolve_shapes(spec, {name: getattr(one, which) for name, one in model.shapes.items()})
        return generate(spec, shapes, Generation(count=1, hard=False))[0].tensors

    def accuracy(self, session: Session, inputs: Tensors, label: str, tiny: TinyModel | None = None) -> Accuracy:
        """Outputs of `session` against the reference; another form is a fault."""
        expected = self.backend.reference((tiny or self.fixed).path, inputs)
        with self.progress.enter(Stage.CHECK):
            outputs = session.run(inputs)
        trouble = troubles.of_form(outputs, expected)
        return Accuracy(faults=(trouble,)) if trouble else compare(label, outputs, expected, Tolerance())


def take(backend: Backend, request: SelfCheckRequest, on_stage: OnStage) -> SelfChecked | Failed:
    """Take the step that `request` names. Whatever the backend raises is Failed. Raises: HarnessError, KeyError."""
    step = STEPS[request.step]
    progress = Progress(request.values, on_stage)
    return guarded(progress, lambda: step(Bench(backend, Path(request.workdir), request.values, progress)))


def _model(bench: Bench) -> SelfChecked:
    path = bench.fixed.path
    model = bench.backend.describe(path)
    given, made = (
        ", ".join(f"{one.name} {one.describe_shape()} {one.dtype}" for one in specs)
        for specs in (model.inputs, model.outputs)
    )
    trouble = troubles.of_description(model, bench.backend.describe(path), path)
    return _judged(trouble, f"{given} -> {made}")


def _knobs(bench: Bench) -> SelfChecked:
    space = bench.space()
    if trouble := troubles.of_space(space, bench.space()):
        return SelfChecked(Status.FAIL, trouble)
    kinds = Counter(knob.kind for knob in space.knobs)
    words = ", ".join(f"{kinds[kind]} {kind}" for kind in KnobKind if kinds[kind])
    return SelfChecked(Status.PASS, f"{len(space.knobs)} knobs: {words}", knobs=space)


def _unknown_values(bench: Bench) -> SelfChecked:
    trouble = troubles.of_unknown_values(bench.backend, bench.fixed.path, bench.space(), bench.workdir())
    return _judged(trouble, "an unknown knob and an unknown value are refused")


def _build(bench: Bench) -> SelfChecked:
    return _built(bench, bench.fixed)


def _ranged_build(bench: Bench) -> SelfChecked:
    return _built(bench, bench.models.ranged) if bench.models.ranged else _no_ranges()


def _built(bench: Bench, tiny: TinyModel) -> SelfChecked:
    engine = bench.build(tiny)
    trouble = troubles.of_engine(engine, Path(engine.path).parent)
    shapes = "; ".join(
        f"{name} {_dims(one.min)} to {_dims(one.max)}, best at {_dims(one.opt)}" for name, one in tiny.shapes.items()
    )
    return _judged(trouble, f"{engine.format}, {engine.size_bytes:,} bytes" + (f"; {shapes}" if shapes else ""))


def _outputs(bench: Bench) -> SelfChecked:
    inputs = bench.inputs()
    with bench.open() as session:
        first = bench.accuracy(session, inputs, "first")
        session.bind(inputs)
        session.measure(2)
        return _judged_outputs(merge([first, bench.accuracy(session, inputs, "after timing")]))


def _ranged_outputs(bench: Bench) -> SelfChecked:
    tiny = bench.models.ranged
    if tiny is None:
        return _no_ranges()
    with bench.open(tiny) as session:
        return _judged_outputs(
            merge(bench.accuracy(session, bench.inputs(tiny, which), which, tiny) for which in ("opt", "min", "max"))
        )


def _fresh_outputs(bench: Bench) -> SelfChecked:
    with bench.open() as session:
        return _judged(troubles.of_freshness(session, bench.inputs()), "each inference gives arrays of its own")


def _read_only_inputs(bench: Bench) -> SelfChecked:
    with bench.open() as session:
        return _judged(troubles.of_reading(session, bench.inputs()), "inputs are as they were")


def _two_sessions(bench: Bench) -> SelfChecked:
    engine, values = bench.build(), bench.values()
    trouble = troubles.of_two_sessions(bench.backend, engine, values, bench.inputs())
    return _judged(trouble, "two at a time, and a third after them")


def _timing(bench: Bench) -> SelfChecked:
    with bench.open() as session:
        if trouble := troubles.of_timing(session, bench.inputs()):
            return SelfChecked(Status.FAIL, trouble)
        best_ms = min(session.measure(_REPEATS) for _ in range(_ROUNDS)) * 1e3 / _REPEATS
        return SelfChecked(Status.PASS, f"{best_ms:.3g} ms an inference, by the clock {session.clock!r}")


def _values(bench: Bench) -> SelfChecked:
    """The values asked for are built, run where that is possible, and take effect; or the library says why not."""
    try:
        return _tried(bench)
    except CandidateError as error:
        if error.kind not in _ANSWERS or not str(error):
            return SelfChecked(Status.FAIL, f"{error.kind}: {error}")
        kind = "" if error.kind == FailureKind.UNSUPPORTED else f"{error.kind.replace('_', ' ')}: "
        return SelfChecked(Status.UNSUPPORTED, f"{kind}{error}")


def _tried(bench: Bench) -> SelfChecked:
    if bench.backend.cannot_run():
        bench.build()
        return SelfChecked(Status.PASS, "builds")
    inputs = bench.inputs()
    with bench.open() as session:
        accuracy = bench.accuracy(session, inputs, "tiny")
        session.bind(inputs)
        session.measure(2)
        # Some settings show only once inferences have run, such as a graph that was not captured.
        effective = dict(session.effective)
    trouble = troubles.of_effect(bench.asked, effective) or _not_finite(accuracy)
    if trouble:
        return SelfChecked(Status.FAIL, trouble)
    facts = {name: value for name, value in effective.items() if name not in bench.values()}
    wrong = violations(accuracy, DEFAULT_LIMITS)
    return SelfChecked(Status.PASS, "works", {**facts, **({OFF: wrong[0]} if wrong else {})})


def _build_cache(bench: Bench) -> SelfChecked:
    engine = bench.build()
    if not engine.cache:
        return SelfChecked(Status.UNSUPPORTED, "a build leaves nothing for others, with the options given")
    cache = Path(engine.path).with_name(engine.cache)
    before = digest_of_file(cache)
    again = bench.build(cache=cache)
    trouble = troubles.of_engine(again, Path(again.path).parent)
    if digest_of_file(cache) != before:
        trouble = f"{engine.cache} was changed by a build that only reads it"
    return _judged(trouble, f"{cache.stat().st_size:,} bytes, read by the next build")


def _bad_route(bench: Bench) -> SelfChecked:
    bench.build()  # what is refused below is then refused for its route
    try:
        engine = bench.backend.build_raw_route(bench.fixed.path, BAD_ROUTE, bench.workdir())
    except CandidateError as error:
        return SelfChecked(Status.PASS, str(error))
    if engine is None:
        return SelfChecked(Status.UNSUPPORTED, "routes of this backend are knobs only")
    return SelfChecked(Status.FAIL, f"an engine was built with {BAD_ROUTE}, and nothing was said")


def _build_for_ever(bench: Bench) -> SelfChecked:
    """Ends only from outside."""
    while True:
        bench.build()


def _time_for_ever(bench: Bench) -> SelfChecked:
    """Ends only from outside."""
    with bench.open() as session:
        session.bind(bench.inputs())
        while True:
            session.measure(_REPEATS)


STEPS: Mapping[str, Callable[[Bench], SelfChecked]] = {
    "model": _model,
    "knobs": _knobs,
    "unknown values": _unknown_values,
    "build": _build,
    "ranged build": _ranged_build,
    "outputs": _outputs,
    "ranged outputs": _ranged_outputs,
    "fresh outputs": _fresh_outputs,
    "read-only inputs": _read_only_inputs,
    "two sessions": _two_sessions,
    "timing": _timing,
    "values": _values,
    "bad route": _bad_route,
    "build cache": _build_cache,
    "build for ever": _build_for_ever,
    "time for ever": _time_for_ever,
}


def _judged(trouble: str, otherwise: str) -> SelfChecked:
    return SelfChecked(Status.FAIL, trouble) if trouble else SelfChecked(Status.PASS, otherwise)


def _judged_outputs(accuracy: Accuracy) -> SelfChecked:
    if wrong := violations(accuracy, DEFAULT_LIMITS):
        return SelfChecked(Status.FAIL, wrong[0])
    worst = accuracy.worst(DEFAULT_METRIC)
    loss = worst.number(DEFAULT_METRIC) if worst else 0.0
    limit = DEFAULT_LIMITS[0].limit
    return SelfChecked(Status.PASS, f"{DEFAULT_METRIC} {loss:.2g} off the reference; limit {limit:g}")


def _not_finite(accuracy: Accuracy) -> str:
    """Faults, and numbers that the reference does not have; how close outputs are is left to a study's own limits."""
    if accuracy.faults:
        return accuracy.faults[0]
    broken = [one for one in accuracy.losses if None in one.losses.values()]
    return f"output {broken[0].output!r} is not finite where the reference is; {broken[0].worst}" if broken else ""


def _no_ranges() -> SelfChecked:
    return SelfChecked(Status.UNSUPPORTED, "models of this backend have fixed shapes")


def _dims(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
