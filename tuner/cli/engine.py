"""`engine`: list, verify, promote, prune and export the engine files that studies keep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli.completion import studies
from tuner.cli.options import artifacts_option, json_option, storage_option, study_argument

if TYPE_CHECKING:
    from tuner.export import Exported
    from tuner.kept import KeptEngine
    from tuner.shipping import Verified

_MB = 1e6


@click.group()
def engine() -> None:
    """Look after the engine files that studies keep.

    \b
    Example:
      python -m tuner engine list ocr
      python -m tuner engine export ocr -o ocr-engine
    """


@engine.command("list")
@study_argument
@storage_option
@artifacts_option
@json_option
def list_(name: str, storage: str, artifacts: Path | None, as_json: bool) -> None:
    """List the engines that are kept for the study NAME, and why.

    \b
    Example:
      python -m tuner engine list ocr
    """
    from tuner.cli import render
    from tuner.shipping import list_engines

    found = list_engines(name, storage=storage, artifacts=artifacts)
    render.emit([_to_json(one) for one in found] if as_json else _lines(name, found))


@engine.command()
@click.argument("name", required=False, shell_complete=studies)
@click.option("--trial", type=int, metavar="N", help="Only this trial's.")
@click.option("--run", is_flag=True, help="Also run each engine and compare its outputs with the references.")
@click.option(
    "--folder", type=click.Path(path_type=Path), metavar="DIR", help="An exported engine, instead of a study's."
)
@storage_option
@artifacts_option
@json_option
def verify(
    name: str | None,
    trial: int | None,
    run: bool,
    folder: Path | None,
    storage: str,
    artifacts: Path | None,
    as_json: bool,
) -> None:
    """Compare engine files with what was recorded of them. Exit code 1 if one differs.

    An engine is native code: load only files that pass.

    \b
    Example:
      python -m tuner engine verify ocr --run
      python -m tuner engine verify --folder ocr-engine
    """
    from tuner.cli import render
    from tuner.errors import UsageError
    from tuner.export import verify_folder
    from tuner.home import require_usable
    from tuner.shipping import verify_engines

    if (name is None) == (folder is None):
        raise UsageError("name a study or --folder", hint="python -m tuner engine verify NAME")
    if folder is not None:
        troubles = verify_folder(folder, storage)
        known = f"known to {storage}" if require_usable(storage) else "there is no database here to ask about it"
        content = {"folder": str(folder), "troubles": troubles}
        render.emit(content if as_json else troubles or [f"{folder}: as exported; {known}"])
        failed = bool(troubles)
    else:
        assert name is not None, "one of the two is given"
        found = verify_engines(name, trial, run=run, storage=storage, artifacts=artifacts)
        render.emit([_verified_json(one) for one in found] if as_json else [_verified_line(one) for one in found])
        failed = any(one.trouble for one in found)
    if failed:
        raise click.exceptions.Exit(1)


@engine.command()
@study_argument
@click.argument("trial", type=int)
@click.option("--undo", is_flag=True, help="No longer keep it for this reason.")
@storage_option
@artifacts_option
@json_option
def promote(name: str, trial: int, undo: bool, storage: str, artifacts: Path | None, as_json: bool) -> None:
    """Keep the engine of TRIAL of the study NAME, whatever the search finds later.

    One that is not kept any more is built and checked again: other bytes than those that were timed, as a rule.

    \b
    Example:
      python -m tuner engine promote ocr 3
    """
    from tuner.cli import render
    from tuner.shipping import promote_engine

    found = promote_engine(name, trial, undo=undo, storage=storage, artifacts=artifacts)
    render.emit(_to_json(found) if as_json else _lines(name, [found]))


@engine.command()
@study_argument
@storage_option
@artifacts_option
@json_option
def prune(name: str, storage: str, artifacts: Path | None, as_json: bool) -> None:
    """Remove the engines of the study NAME that are neither the default's, nor the best's, nor confirmed or promoted.

    \b
    Example:
      python -m tuner engine prune ocr
    """
    from tuner.cli import render
    from tuner.shipping import prune_engines

    count, size = prune_engines(name, storage=storage, artifacts=artifacts)
    render.emit({"removed": count, "bytes": size} if as_json else [f"removed {count} engine(s), {size / _MB:,.1f} MB"])


@engine.command()
@study_argument
@click.option("--trial", type=int, metavar="N", help="This trial's.  [default: the confirmed, promoted or best one]")
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), metavar="DIR", help="A new or empty folder."
)
@storage_option
@artifacts_option
@json_option
def export(name: str, trial: int | None, output: Path, storage: str, artifacts: Path | None, as_json: bool) -> None:
    """Write an engine of the study NAME into a folder: its files, its manifest, and the command that builds it again.

    \b
    Example:
      python -m tuner engine export ocr -o ocr-engine
      python -m tuner engine export ocr --trial 3 -o ocr-3
    """
    from tuner.cli import render
    from tuner.export import export_engine

    found = export_engine(name, output, trial, storage=storage, artifacts=artifacts)
    render.emit(_exported_json(found) if as_json else _exported_lines(found))


def _lines(name: str, found: list[KeptEngine]) -> list[str]:
    from tuner.cli.render import table

    if not found:
        return [f"study {name!r} keeps no engine: python -m tuner engine promote {name} TRIAL builds one"]
    rows = [
        [
            f"#{one.trial.number}",
            ", ".join(one.reasons) or "all are kept",
            one.record.format,
            f"{one.record.size_bytes / _MB:,.2f} MB",
            one.record.digest[:12],
            str(one.trial.candidate),
        ]
        for one in found
    ]
    return table(["trial", "kept because", "format", "size", "digest", "candidate"], rows)


def _to_json(one: KeptEngine) -> dict[str, Any]:
    return {
        "trial": one.trial.number,
        "reasons": list(one.reasons),
        "format": one.record.format,
        "size_bytes": one.record.size_bytes,
        "digest": one.record.digest,
        "path": str(one.path),
        "created_at": one.record.created_at.isoformat(),
        "manifest": dict(one.record.manifest),
    }


def _verified_line(one: Verified) -> str:
    good = "the bytes that were recorded" + ("; outputs within the limits" if one.checked else "")
    return f"#{one.trial.number} {one.digest[:12]}: {f'FAILED: {one.trouble}' if one.trouble else good}"


def _verified_json(one: Verified) -> dict[str, Any]:
    return {"trial": one.trial.number, "digest": one.digest, "trouble": one.trouble, "outputs_checked": one.checked}


def _exported_lines(found: Exported) -> list[str]:
    why = ", ".join(found.reasons) or "asked for"
    lines = [f"wrote trial #{found.trial} ({why}) to {found.folder}: {found.engine.name}, manifest.json"]
    if found.rebuild:
        lines += ["built again by", f"  {found.rebuild}"]
    return lines + [f"note: {note}" for note in found.notes]


def _exported_json(found: Exported) -> dict[str, Any]:
    return {
        "folder": str(found.folder),
        "engine": str(found.engine),
        "trial": found.trial,
        "reasons": list(found.reasons),
        "rebuild": found.rebuild,
        "notes": list(found.notes),
    }
