"""The Python API: the same verbs as the command line, typed.

Flow: notebooks, scripts and tuner/cli call HERE. Every call opens what it needs and closes it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from objectives.accuracy import Limit
from objectives.backends import available
from objectives.checks.asking import CheckPlan
from objectives.checks.result import Report
from objectives.checks.selfcheck import Listener, self_check
from objectives.errors import BackendUnavailableError
from objectives.isolation import Limits, Subprocess
from objectives.knobs import KnobSpace
from objectives.model import require_file
from objectives.requests import Described, DescribeRequest
from storage import migrate
from storage import studies as table
from storage.artifacts import ArtifactFolder
from storage.database import open_engine
from storage.errors import NotFoundError, StorageError
from tuner import ask, engines
from tuner.announcer import announced
from tuner.answers import Confirmed, ConfirmOptions
from tuner.ask import MODELS, model_path
from tuner.confirm import Confirmation
from tuner.context import Context, contexts
from tuner.create import Created, create
from tuner.dashboard import pages
from tuner.errors import StudyError
from tuner.finalists import choose
from tuner.home import DEFAULT_STORAGE, Home, open_home
from tuner.limits import isolation_for, memory_bytes
from tuner.lineage import open_or_resume, resume
from tuner.loop import StudyLoop
from tuner.minimize import minimize
from tuner.noise import NewIsolation
from tuner.places import Place, find_places
from tuner.progress import Progress
from tuner.results import Summary
from tuner.retarget import reopen, retargeted
from tuner.runnable import runnable
from tuner.search import projection
from tuner.selection import select
from tuner.spec import Budget, StudyOptions, StudySpec, read_spec
from tuner.views import Best, EnvironmentView, Runnable, StudyView, view_of
from tuner.workload import KIND as TENSORS

_DESCRIBE_DEADLINE_S = 600.0


def create_study(
    name: str,
    model: str | Path,
    options: StudyOptions = StudyOptions(),  # noqa: B008 - frozen
    *,
    storage: str = DEFAULT_STORAGE,
    artifacts: str | Path | None = None,
) -> Created:
    """Create a study of `model`. Raises: errors with `exit_code` 2 for bad input; nothing is changed then."""
    return create(name, Path(model), options, storage, _path(artifacts))


def run_study(
    name: str,
    *,
    storage: str = DEFAULT_STORAGE,
    artifacts: str | Path | None = None,
    budget: Budget | None = None,
    early_end: bool | None = None,
    transfer: bool | None = None,
    devices: Sequence[str] | None = None,
    progress: Progress = Progress(),  # noqa: B008 - stateless
) -> Summary:
    """Run the search of a study in this environment until its budget is spent; goes on where an earlier run stopped.

    A search that can say so ends before that when going on is not worth it, unless `early_end` is off; running it again
    ends at once then. In an environment that the study has not seen, a new context opens and starts from what the
    others have taught, unless `transfer` is off. `budget`, `early_end` and `transfer` replace the study's own for good.
    What the search saw decides nothing: `confirm_study` does.
    `devices`: names as `environments` lists them, `("all",)` for every one; trials run on all of them at once, and the
    time budget is the devices' together. None: on the one that the backend takes by itself.
    Raises: StudyError, storage and objective errors; UsageError for devices that are not alike.
    """
    with open_home(storage, _path(artifacts)) as home:
        spec = read_spec(table.get_study(home.database, name).spec)
        asked = msgspec.structs.replace(
            spec,
            budget=spec.budget if budget is None else budget,
            early_end=spec.early_end if early_end is None else early_end,
            transfer=spec.transfer if transfer is None else transfer,
        )
        if asked != spec:
            spec = asked
            table.replace_spec(home.database, name, spec.to_json())
        with (
            _context_here(home, spec, devices) as (context, places),
            pages.redrawn(home, name),
            announced(home, context, progress) as listener,
            StudyLoop(home, spec, context, places, listener) as loop,
        ):
            return loop.run()


def confirm_study(
    name: str,
    options: ConfirmOptions = ConfirmOptions(),  # noqa: B008 - frozen
    *,
    storage: str = DEFAULT_STORAGE,
    artifacts: str | Path | None = None,
    devices: Sequence[str] | None = None,
    progress: Progress = Progress(),  # noqa: B008 - stateless
) -> Confirmed:
    """Decide whether the best candidates of a study are faster than the default, in this environment.

    Rebuilds and restarts finalists and default, times them interleaved with fresh samples; an interrupted confirmation
    with the same options goes on. On several `devices` pairs are taken at once, both sides of each on one device.
    Raises: StudyError if the study has not been run here; as `run_study` for devices.
    """
    with open_home(storage, _path(artifacts)) as home:
        spec = read_spec(table.get_study(home.database, name).spec)
        if not spec.objective.is_timed:
            raise StudyError(
                f"study {name!r} is about {spec.objective.value}: nothing is timed, so there is nothing to confirm",
                hint=f"python -m tuner study best {name}",
            )
        # Pairs are of fresh processes, so that none is kept; and a context that was just opened has nothing to confirm.
        with find_places(spec, ask.describe(home, spec), devices, keep=False) as (here, places):
            context = resume(home, spec, here.environment, _selected(here, spec))
            view = None if context is None else view_of(home, spec, context)
            if context is None or view is None or view.summary.baseline is None or view.summary.standard is None:
                raise StudyError(
                    f"study {name!r} has nothing to confirm in this environment",
                    hint=f"python -m tuner study run {name}",
                )
            chosen = choose(view.trials, view.summary, view.noise, spec, options.finalists)
            with pages.redrawn(home, name), announced(home, context, progress) as listener:
                confirmation = Confirmation(home, spec, context, places, listener)
                return confirmation.run(view.summary.baseline, chosen, options)


def minimize_study(
    name: str,
    options: ConfirmOptions = ConfirmOptions(),  # noqa: B008 - frozen
    *,
    storage: str = DEFAULT_STORAGE,
    artifacts: str | Path | None = None,
    devices: Sequence[str] | None = None,
    progress: Progress = Progress(),  # noqa: B008 - stateless
) -> Confirmed:
    """Confirm, then drop the winner's changes that do not contribute, one ablation at a time.

    Raises: as `confirm_study`.
    """
    start = confirm_study(name, options, storage=storage, artifacts=artifacts, devices=devices, progress=progress)
    with open_home(storage, _path(artifacts)) as home:
        spec = read_spec(table.get_study(home.database, name).spec)
        with (
            _context_here(home, spec, devices) as (context, places),
            pages.redrawn(home, name),
            announced(home, context, progress) as listener,
            StudyLoop(home, spec, context, places, listener) as loop,
        ):
            loop.load()
            confirmation = Confirmation(home, spec, context, places, listener)
            return minimize(loop, confirmation, spec, start, options)


def retarget_study(
    name: str,
    limits: Sequence[Limit],
    *,
    storage: str = DEFAULT_STORAGE,
    artifacts: str | Path | None = None,
) -> StudyView:
    """Replace the limits of a study, and judge anew what it has measured; nothing is built.

    A context for the new limits opens in the environment of the latest one. What was measured goes over with its
    samples; what was over the old limits and is within the new ones was never timed: `run_study` measures it first.
    Raises: UsageError if something else than limits would have to change, or the default itself breaks them.
    """
    with open_home(storage, _path(artifacts)) as home:
        spec = read_spec(table.get_study(home.database, name).spec)
        changed = retargeted(home, spec, tuple(limits))
        table.replace_spec(home.database, name, changed.to_json())
        context = reopen(home, changed, spec)
        if context is not None:
            with StudyLoop(home, changed, context, _fresh(changed), Progress()) as loop:
                loop.load()
        pages.redraw(home, name)
    return show_study(name, storage=storage)


def list_studies(*, storage: str = DEFAULT_STORAGE) -> list[StudyView]:
    """Every study of a database, oldest first."""
    with open_home(storage) as home:
        names = [record.name for record in table.list_studies(home.database)]
    return [show_study(name, storage=storage) for name in names]


def show_study(name: str, *, storage: str = DEFAULT_STORAGE) -> StudyView:
    """A study with its contexts and trials. Raises: NotFoundError."""
    with open_home(storage) as home:
        record = table.get_study(home.database, name)
        spec = read_spec(record.spec)
        views = [view_of(home, spec, context) for context in contexts(home, name)]
        return StudyView(spec, record.created_at.isoformat(timespec="seconds"), record.model.name, tuple(views))


def best_of(name: str, *, storage: str = DEFAULT_STORAGE, artifacts: str | Path | None = None) -> Best:
    """What the search found so far; not a confirmed result. Raises: NotFoundError."""
    study = show_study(name, storage=storage)
    view = study.latest
    if view is None:
        raise NotFoundError(f"study {name!r} has not been run", hint=f"python -m tuner study run {name}")
    confirmed = None if view.verdict is None else view.verdict["winner"]
    trial = next((one for one in view.trials if one.uid == confirmed), view.summary.best)
    with open_home(storage, _path(artifacts)) as home:
        engine = None if trial is None else engines.path_of(home, trial)
    return Best(name, view.limits, view.summary, trial, engine, view.verdict)


def environments(backend: str | None = None) -> list[EnvironmentView]:
    """Every registered backend (or one) as it stands on this machine."""
    views = []
    for name in [backend] if backend else available():
        try:
            found = describe(name)
            views.append(
                EnvironmentView(
                    name,
                    found.environment,
                    cannot_run=found.cannot_run,
                    options=found.options,
                    devices=found.devices,
                )
            )
        except BackendUnavailableError as error:
            if backend:
                raise
            views.append(EnvironmentView(name, None, str(error), error.hint))
    return views


def runnable_here(backend: str | None = None, *, storage: str = DEFAULT_STORAGE) -> list[Runnable]:
    """The studies of a database (of one backend) and what `run_study` would do with each here; none without one."""
    try:
        with open_home(storage) as home:
            found = runnable(home, describe)
    except StorageError:
        return []  # no database yet, or one of another version: this is about the machine
    return [one for one in found if backend in (None, one.backend)]


def check_backend(
    name: str,
    options: Mapping[str, str] | None = None,
    *,
    plan: CheckPlan | None = None,
    listener: Listener | None = None,
) -> Report:
    """Check on this machine what a backend promises, with tiny models of its own; takes a minute or several.

    Each check runs in a child process with a deadline, so that a crash or hang of the library is a failed check.
    `options`: of the backend, as `StudyOptions.backend_options`. Raises: BackendUnavailableError if there is no such
    backend or its library or device is missing, InputError for a bad option.
    """
    return self_check(name, options, plan or CheckPlan(memory_bytes=memory_bytes()), listener)


def upgrade_database(storage: str = DEFAULT_STORAGE) -> tuple[str | None, str]:
    """Bring the schema to this version; returns the revision before and after."""
    database = open_engine(storage)
    try:
        before = migrate.revision(database)
        with migrate.creation_lock(database):
            migrate.upgrade(database)
        return before, migrate.head()
    finally:
        database.close()


def check_database(storage: str = DEFAULT_STORAGE, artifacts: str | Path | None = None) -> list[str]:
    """What is wrong with schema, file and artifacts, in words; empty when all is well."""
    with open_home(storage, _path(artifacts)) as home:
        troubles = migrate.differences(home.database) + migrate.integrity(home.database)
        for record in table.list_studies(home.database):
            troubles += _missing_artifacts(home, read_spec(record.spec))
        return troubles


def delete_study(name: str, *, storage: str = DEFAULT_STORAGE, artifacts: str | Path | None = None) -> None:
    """Delete a study, its Optuna studies, its engines, and what else no other study uses. Raises: NotFoundError."""
    with open_home(storage, _path(artifacts)) as home:
        spec = read_spec(table.get_study(home.database, name).spec)
        found = contexts(home, name)
        for context in found:
            engines.drop_all(home, context)
        # Ours last: killed in between, the study is still there and can be deleted again.
        projection.delete(home.url, [context.name for context in found])
        table.delete_study(home.database, name)
        others = [read_spec(record.spec) for record in table.list_studies(home.database)]
        engines.tidy(home)
        pages.forget_artifacts(home)
        _remove_unused(home.artifacts, spec, others)


def describe(backend: str, model: str | Path | None = None, options: Mapping[str, str] | None = None) -> Described:
    """What is here: the environment of `backend` and, for a model, its inputs, outputs and knobs.

    `options`: of the backend, as `StudyOptions.backend_options`.
    """
    path = None if model is None else str(require_file(Path(model)).resolve())
    with Subprocess(Limits(_DESCRIBE_DEADLINE_S, memory_bytes())) as isolation:
        return isolation.describe(DescribeRequest(backend, path, dict(options or {})))


def _fresh(spec: StudySpec) -> NewIsolation:
    return lambda: isolation_for(spec)


@contextmanager
def _context_here(
    home: Home, spec: StudySpec, devices: Sequence[str] | None
) -> Iterator[tuple[Context, tuple[Place, ...]]]:
    with find_places(spec, ask.describe(home, spec), devices) as (here, places):
        yield open_or_resume(home, spec, here.environment, _selected(here, spec)), places


def _selected(here: Described, spec: StudySpec) -> KnobSpace:
    assert here.knobs is not None, "a model was asked for"
    return select(here.knobs, spec.knobs, spec.objective)


def _remove_unused(artifacts: ArtifactFolder, gone: StudySpec, others: Sequence[StudySpec]) -> None:
    if gone.model_digest not in {other.model_digest for other in others}:
        artifacts.remove(MODELS, gone.model_digest)
    used = {digest for other in others for pair in other.pairs for digest in (pair.inputs, pair.reference)}
    for digest in {digest for pair in gone.pairs for digest in (pair.inputs, pair.reference)} - used:
        artifacts.remove(TENSORS, digest)


def _missing_artifacts(home: Home, spec: StudySpec) -> list[str]:
    troubles = []
    if not model_path(home, spec).exists():
        troubles.append(f"study {spec.name!r}: its model is not in {home.artifacts.root}")
    for digest in sorted({digest for pair in spec.pairs for digest in (pair.inputs, pair.reference)}):
        try:
            home.artifacts.verified(TENSORS, digest)
        except StorageError as error:
            troubles.append(f"study {spec.name!r}: {error}")
    return troubles


def _path(artifacts: str | Path | None) -> Path | None:
    return None if artifacts is None else Path(artifacts)
