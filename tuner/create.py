"""Create: from a name, a model and options to a study, with every check before the first trial.

Flow: `study create` -> HERE (describe the model, select knobs, make the workload, compute references) -> StudySpec in
the database, model and tensors among the artifacts, first context opened. Until all of that is known to be good,
nothing is written outside a temporary folder.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from objectives.accuracy import ALL_OUTPUTS, require_known
from objectives.errors import BackendUnavailableError, MetricError
from objectives.isolation import Isolation, Limits, Subprocess
from objectives.metrics import METRICS
from objectives.model import ModelSpec, require_file
from objectives.requests import Described, DescribeRequest, Judging
from storage.artifacts import ArtifactFolder, default_folder
from storage.errors import AlreadyExistsError
from storage.records import StudyRecord
from storage.studies import add_study, list_studies
from tuner.ask import MODELS
from tuner.home import Home, create_home, open_home, require_usable
from tuner.ledger import to_model_record
from tuner.lineage import open_or_resume
from tuner.programs import require_programs_own, try_out
from tuner.search.strategies import make_strategy
from tuner.searches import require_installed
from tuner.selection import expand, select
from tuner.spec import StudyOptions, StudySpec, require_name
from tuner.workload import Draft, Gather, ReferenceTask, compute_references, draft

_DESCRIBE_DEADLINE_S = 600.0


@dataclass(frozen=True, slots=True)
class Created:
    """A new study: its specification, what the model is, and which hard pairs the model refused."""

    spec: StudySpec
    model: ModelSpec
    n_knobs: int
    n_candidates: int
    dropped_pairs: tuple[tuple[str, str], ...]


def create(
    name: str, model: Path, options: StudyOptions, url: str, artifacts: Path | None = None, *, gather: Gather = draft
) -> Created:
    """Create a study, of the data that `gather` brings: as `options` say, unless a clone has others.

    Raises: errors with exit code 2 for anything wrong in what was given; nothing is changed then.
    """
    require_name(name)
    require_installed(options.search)
    require_file(model)
    ArtifactFolder(artifacts or default_folder(url)).require_writable()
    if require_usable(url):
        _require_free(name, url, artifacts)
    with (
        tempfile.TemporaryDirectory(prefix="tuner-create-") as folder,
        Subprocess(Limits(max(options.trial_timeout_s, _DESCRIBE_DEADLINE_S), options.memory_bytes)) as isolation,
    ):
        return _create(name, model, options, (url, artifacts), Path(folder), isolation, gather)


def _create(
    name: str,
    model: Path,
    options: StudyOptions,
    where: tuple[str, Path | None],
    scratch: Path,
    isolation: Isolation,
    gather: Gather,
) -> Created:
    found = isolation.describe(DescribeRequest(options.backend, str(model.resolve()), dict(options.backend_options)))
    assert found.model is not None, "a model was asked for"
    assert found.knobs is not None, "a model was asked for"
    if found.cannot_run and not options.build_only:
        raise BackendUnavailableError(
            f"backend {options.backend!r} can build engines here but not time them: {found.cannot_run}",
            hint="create the study on the machine whose engines are to be tuned, or search for small engines or short "
            "builds with --build-only --objective engine-size",
        )
    judging = options.judging if found.model.measures_itself else _complete(options.judging)
    _require_outputs(judging, found.model)
    patterns = expand(options.knobs, found.knobs, where[0])
    space = select(found.knobs, patterns, options.objective)
    make_strategy(options.search, space, options.workload.seed)  # a sampler that cannot be made is said now
    work = _work(model, found.model, options, judging, scratch, isolation, gather)
    with create_home(*where) as home:
        spec = _spec(name, found.model, msgspec.structs.replace(options, knobs=patterns), judging, work, home)
        home.artifacts.put_group(MODELS, found.model.digest, model.resolve().parent, found.model.files)
        _record(home, spec, found)
        open_or_resume(home, spec, found.environment, space)
    return Created(spec, found.model, len(space.knobs), space.size, work.dropped)


def _work(
    model: Path,
    found: ModelSpec,
    options: StudyOptions,
    judging: Judging,
    scratch: Path,
    isolation: Isolation,
    gather: Gather,
) -> Draft:
    """The data with references; for a program, which has its own, no data and the proof that it runs."""
    if found.measures_itself:
        require_programs_own(options)
        try_out(isolation, model.resolve(), options, scratch)
        return Draft((), {}, {})
    pairs, start = gather(found, options.workload, scratch)
    task = ReferenceTask(options.backend, model.resolve(), judging, options.backend_options)
    return compute_references(isolation, task, found, pairs, start)


def _spec(name: str, model: ModelSpec, options: StudyOptions, judging: Judging, work: Draft, home: Home) -> StudySpec:
    is_timed = options.objective.is_timed
    return StudySpec(
        name=name,
        model_digest=model.digest,
        model_file=model.files[0],
        pairs=work.store(home.artifacts),
        backend=options.backend,
        knobs=options.knobs,
        judging=judging,
        budget=options.budget,
        timing=options.timing,
        search=options.search,
        early_end=options.early_end,
        transfer=options.transfer,
        seed=options.workload.seed,
        control_every=options.control_every if is_timed else 0,  # sizes do not drift
        noise_sessions=options.noise_sessions if is_timed else 0,
        objective=options.objective,
        keep_engines=options.keep_engines,
        build_only=options.build_only,
        trial_timeout_s=options.trial_timeout_s,
        memory_bytes=options.memory_bytes,
        shapes=work.shapes,
        ranges=work.ranges,
        backend_options=options.backend_options,
        calibration=work.calibration,
    )


def _record(home: Home, spec: StudySpec, found: Described) -> None:
    assert found.model is not None, "a model was asked for"
    record = StudyRecord(spec.name, spec.backend, to_model_record(found.model), spec.to_json(), datetime.now(UTC))
    add_study(home.database, record)


def _require_free(name: str, url: str, artifacts: Path | None) -> None:
    with open_home(url, artifacts) as home:
        if name in {study.name for study in list_studies(home.database)}:
            raise AlreadyExistsError(
                f"a study named {name!r} exists",
                hint=f"choose another name, go on with `study run {name}`, or `study delete {name}`",
            )


def _complete(judging: Judging) -> Judging:
    """Every limit's metric is known: built in, or a function that was given (or is now taken from the limit itself)."""
    require_known(judging.limits)
    if not judging.limits:
        raise MetricError("no limit: outputs are always judged", hint="`--max-loss none` is for programs of your own")
    functions = list(judging.functions)
    for limit in judging.limits:
        if limit.metric not in METRICS and limit.metric not in functions:
            functions.append(limit.metric)
    for name in functions:
        if ":" not in name:
            raise MetricError(f"metric function {name!r} is not of the form package.module:function")
        if name not in {limit.metric for limit in judging.limits}:
            raise MetricError(
                f"metric function {name!r} has no limit",
                hint=f"say how much is allowed: --max-loss '{name}=0.01'",
            )
    return Judging(judging.limits, judging.tolerance, tuple(functions))


def _require_outputs(judging: Judging, model: ModelSpec) -> None:
    outputs = [spec.name for spec in model.outputs]
    if model.measures_itself:
        return
    for limit in judging.limits:
        if limit.output is not None and limit.output not in (*outputs, ALL_OUTPUTS):
            raise MetricError(
                f"the limit {limit} names {limit.output!r}, no output of the model",
                hint=f"outputs: {', '.join(outputs)}",
            )
