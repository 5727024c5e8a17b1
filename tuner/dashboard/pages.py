"""Pages: every context of a study, or of a database, brought up to date for Optuna Dashboard.

Flow: the end of a run, a confirmation, a retarget, a promotion; the start of `dashboard` -> HERE -> page.py.
What is shown is drawn from our tables each time, so that it can be missed or repeated without harm.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress

import msgspec
from optuna.exceptions import OptunaError

from objectives.digest import digest_of
from storage.confirmations import confirmations_of
from storage.database import shown as without_password
from storage.engines import engines_of
from storage.errors import NotFoundError, StorageError
from storage.studies import get_study, list_studies
from storage.trials import finished_uids
from tuner import __version__
from tuner.context import Context, contexts, draw
from tuner.dashboard import attributes, drawn
from tuner.dashboard.note import note
from tuner.dashboard.page import Page, is_installed, listed_artifacts
from tuner.home import Home
from tuner.report.facts import ContextFacts, StudyFacts
from tuner.report.gather import gather
from tuner.spec import StudySpec, read_spec

ARTIFACTS = "optuna"  # kind of artifact, and folder of an Optuna artifact store: one file for each digest


def redraw(home: Home, name: str) -> None:
    """Bring the pages of a study up to date after something has happened to it.

    A picture must not fail what it is of: a database that is busy or gone is passed over, and the next look at the
    dashboard, or the next run, draws again.
    """
    with suppress(OptunaError, StorageError, KeyError):
        draw_study(home, name)


@contextmanager
def redrawn(home: Home, name: str) -> Iterator[None]:
    """At the end, however it ends, the pages of a study are brought up to date as by `redraw`."""
    try:
        yield
    finally:
        redraw(home, name)


def draw_all(home: Home, progress: Callable[[str], None], *, again: bool = False) -> int:
    """Bring every page of the database up to date; returns how many had to be drawn. Arguments as `draw_study`.

    Raises: storage errors, OptunaError.
    """
    names = [record.name for record in list_studies(home.database)]
    return sum(draw_study(home, name, progress, again=again) for name in names)


def draw_as_far_as_possible(home: Home, progress: Callable[[str], None]) -> list[str]:
    """As `draw_all`, for a database that may perhaps only be read: what could not be drawn, in words."""
    try:
        draw_all(home, progress)
    except (OptunaError, StorageError) as error:
        return [f"notes and figures are shown as they were: {str(error).splitlines()[0]}"]
    return []


def require_studies(home: Home) -> None:
    """Raises: NotFoundError if there is nothing to show."""
    if not list_studies(home.database):
        raise NotFoundError(
            f"there is no study in {without_password(home.url)}",
            hint="python -m tuner study create NAME --model m.onnx",
        )


def draw_study(
    home: Home, name: str, progress: Callable[[str], None] = lambda name: None, *, again: bool = False
) -> int:
    """Bring the pages of a study up to date; returns how many had to be drawn.

    `progress`: called with its name before. `again`: also those that look as they should.

    Raises: NotFoundError, storage errors, OptunaError.
    """
    spec = read_spec(get_study(home.database, name).spec)
    found = [(context, _state(home, spec, context)) for context in contexts(home, name)]
    for context, _ in found:
        draw(home, spec, context)  # a kill may have come before its Optuna study was made
    stale = [(context, state) for context, state in found if again or not _shows(home, spec, context, state)]
    if not stale:
        return 0
    progress(name)
    facts = gather(home, name)
    by_number = {one.number: one for one in facts.contexts}
    for context, state in stale:
        _draw(home, facts, by_number[context.record.number], context, state)
    forget_artifacts(home)
    return len(stale)


def forget_artifacts(home: Home) -> None:
    """Remove the files of artifacts that no study lists any more."""
    for digest in home.artifacts.digests(ARTIFACTS) - listed_artifacts(home.url):
        home.artifacts.remove(ARTIFACTS, digest)


def _draw(home: Home, study: StudyFacts, facts: ContextFacts, context: Context, state: str) -> None:
    manifests = _manifests(home, facts, context)
    with closing(Page(home.url, context.name)) as page:
        page.attributes(attributes.of_study(facts, without_password(home.url)))
        page.artifacts({digest: name for digest, (name, _) in manifests.items()})
        for digest, (_, content) in manifests.items():
            _put(home, digest, content)
        if is_installed():
            page.note(note(study, facts))
            for name, figure in drawn.figures(facts):
                page.figure(name, figure)
            page.mark(state)


def _shows(home: Home, spec: StudySpec, context: Context, state: str) -> bool:
    """Whether the page of a context shows `state`."""
    with closing(Page(home.url, context.name)) as page:
        return page.is_of(state)


def _state(home: Home, spec: StudySpec, context: Context) -> str:
    """Identity of all that a page shows, cheap to ask for."""
    confirmations = [(one.id, one.state) for one in confirmations_of(home.database, context.id)]
    kept = [(one.trial_uid, one.digest, dict(one.manifest)) for one in engines_of(home.database, context.id)]
    told: Sequence[object] = [
        __version__,
        home.url,
        spec,
        confirmations,
        kept,
        finished_uids(home.database, context.id),
    ]
    return digest_of(told)


def _manifests(home: Home, facts: ContextFacts, context: Context) -> dict[str, tuple[str, bytes]]:
    """Digest, name and content of the manifest of every kept engine."""
    kept = {one.digest: one for one in facts.engines}
    found = {}
    for record in engines_of(home.database, context.id):
        if record.digest in kept:
            one = kept[record.digest]
            content = msgspec.json.format(msgspec.json.encode(dict(record.manifest)), indent=2)
            name = f"engine-trial-{one.trial}-{'-'.join(one.reasons) or 'kept'}.json"
            found[hashlib.sha256(content).hexdigest()] = (name, content)
    return found


def _put(home: Home, digest: str, content: bytes) -> None:
    with home.artifacts.scratch() as folder:
        (folder / digest).write_bytes(content)
        home.artifacts.put(ARTIFACTS, digest, folder / digest)
