"""`trtexec`: import and export of the tuning caches of NVIDIA's trtexec."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli.options import artifacts_option, json_option, storage_option, study_argument
from tuner.errors import UsageError

if TYPE_CHECKING:
    from objectives.knobs import Candidate, KnobSpace
    from tuner.spec import StudySpec
    from tuner.trtexec import Export, Replay, WarmStart


@click.group()
def trtexec() -> None:
    """Exchange build routes with NVIDIA's trtexec.

    \b
    Example:
      python -m tuner trtexec import ocr --cache best_config.json
      python -m tuner trtexec export ocr -o routes.json
    """


@trtexec.command("import")
@study_argument
@click.option(
    "--cache",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What trtexec wrote for --tuningCacheFile.",
)
@click.option(
    "--first", type=click.IntRange(min=1), default=10, show_default=True, metavar="N", help="At most so many."
)
@storage_option
@artifacts_option
@json_option
def import_(name: str, cache: Path, first: int, storage: str, artifacts: Path | None, as_json: bool) -> None:
    """Let the study NAME try first what a sweep of trtexec found fast.

    Times of a cache come from another program, often another machine: they order what is tried, and decide nothing.
    Routes with knobs or values that the study does not have are left out and named.

    \b
    Example:
      python -m tuner trtexec import ocr --cache best_config.json --first 5
    """
    from tuner.api import show_study
    from tuner.cli import render
    from tuner.trtexec import import_cache

    _require_routes(show_study(name, storage=storage).spec)

    def space_of(study: str, url: str) -> KnobSpace:
        return _space(study, url, artifacts)

    report = import_cache(name, cache, storage, space_of=space_of, store=_store, first=first)
    render.emit(_import_json(report) if as_json else _import_lines(report))


@trtexec.command("export")
@study_argument
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="The cache file to write.")
@storage_option
@artifacts_option
@json_option
def export(name: str, output: Path | None, storage: str, artifacts: Path | None, as_json: bool) -> None:
    """Write the trials of the study NAME as a tuning cache of trtexec, and say how to replay the best.

    Taken are the build routes of the study's latest context. Without -o only the command is printed.

    \b
    Example:
      python -m tuner trtexec export ocr -o routes.json
    """
    from tuner.api import best_of, show_study
    from tuner.cli import render
    from tuner.trtexec import cache_of, replay_command
    from tuner.trtexec_cache import write_cache

    study = show_study(name, storage=storage)
    _require_routes(study.spec)
    best = best_of(name, storage=storage, artifacts=artifacts)
    view = study.latest
    assert view is not None, "it has a best trial or none, but a context"
    environment, space = view.context.record.environment, view.context.space
    routes = str(environment.details.get("build_routes", "none"))
    routes = "" if routes.startswith("none") else routes  # then it is the reason why there are none
    made = cache_of(view.trials, space, study.spec.judging, tuner_version=routes, model=study.spec.model_file)
    if output is not None:
        write_cache(output, made.cache)
    replay = None
    if best.trial is not None:
        replay = replay_command(
            best.trial.candidate,
            space,
            backend=environment.backend,
            version=environment.backend_version,
            model=study.spec.model_file,
            shapes=study.spec.ranges,
        )
    render.emit(_export_json(made, replay, output) if as_json else _export_lines(made, replay, output))


def _space(name: str, storage: str, artifacts: Path | None) -> KnobSpace:
    """The knobs of a study: of its latest context, or what this machine offers for it if it has none."""
    from storage.studies import get_study
    from tuner.api import describe, show_study
    from tuner.ask import model_path
    from tuner.home import open_home
    from tuner.selection import select
    from tuner.spec import read_spec

    found = show_study(name, storage=storage).contexts
    if found:
        return found[-1].context.space
    with open_home(storage, artifacts) as home:
        spec = read_spec(get_study(home.database, name).spec)
        described = describe(spec.backend, model_path(home, spec))
    assert described.knobs is not None, "a model was given"
    return select(described.knobs, spec.knobs, spec.objective)


def _require_routes(spec: StudySpec) -> None:
    if spec.measures_itself:
        raise UsageError(
            f"study {spec.name!r} is of a program of your own: it has no build routes for trtexec",
            hint=f"`python -m tuner engine export {spec.name} -o DIR` writes how to run it",
        )


def _store(name: str, storage: str, candidates: Sequence[Candidate]) -> None:
    """Keep what is to be tried first in the study's specification."""
    import msgspec

    from storage.studies import get_study, replace_spec
    from tuner.home import open_home
    from tuner.spec import read_spec

    with open_home(storage) as home:
        spec = read_spec(get_study(home.database, name).spec)
        changed = msgspec.structs.replace(spec, initial=tuple(one.changes for one in candidates))
        replace_spec(home.database, name, changed.to_json())


def _import_lines(report: WarmStart) -> list[str]:
    from tuner.cli.render import table

    rows = [(str(one.candidate), f"{one.gpu_time_ms:.4g} ms", str(one.rows)) for one in report.proposed]
    default = "not measured" if report.default_ms is None else f"{report.default_ms:.4g} ms"
    lines = [f"tried first, {len(rows)} candidate(s); the cache's own time of the default: {default}"]
    lines += table(("candidate", "time in cache", "rows"), rows)
    lines += [f"left out: iter {one.iter} {one.build_route or 'default'}: {one.reason}" for one in report.dropped]
    return lines + [f"note: {note}" for note in report.notes]


def _import_json(report: WarmStart) -> dict[str, Any]:
    import msgspec

    found: dict[str, Any] = msgspec.to_builtins(report)
    return found


def _export_lines(made: Export, replay: Replay | None, output: Path | None) -> list[str]:
    lines = [] if output is None else [f"wrote {len(made.cache.rows)} row(s) to {output}"]
    lines += [f"left out: trial {number}: {reason}" for number, reason in made.left_out] if output else []
    if replay is None:
        return [*lines, "no feasible trial yet: there is nothing to replay"]
    notes = [f"note: {note}" for note in replay.notes]
    return [*lines, "the best so far, built and timed by trtexec:", f"  {replay.command}", *notes]


def _export_json(made: Export, replay: Replay | None, output: Path | None) -> dict[str, Any]:
    return {
        "output": None if output is None else str(output),
        "rows": len(made.cache.rows),
        "left_out": [{"number": number, "reason": reason} for number, reason in made.left_out],
        "replay": None if replay is None else {"command": replay.command, "notes": list(replay.notes)},
    }
