"""`check`: is the engine that a study ships still loadable, right and fast here?"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import NoReturn

import click

from tuner.cli import parse
from tuner.cli.options import artifacts_option, json_option, storage_option, study_argument

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@study_argument
@click.option(
    "--max-regression",
    default="2%",
    show_default=True,
    metavar="SHARE",
    help="Forbid an engine that is slower than recorded or than the default by more than this beyond doubt, and a "
    "default that is slower than recorded by more than this and noise.",
)
@click.option("--require-faster", is_flag=True, help="Forbid whatever is not faster than the default beyond doubt.")
@click.option("--pairs", type=int, default=24, show_default=True, metavar="N", help="Most process pairs to time.")
@click.option("--timeout", metavar="TIME", help="Take no more pairs after this time: 90s, 15m.")
@click.option("--junit", type=_FILE, metavar="FILE", help="Write JUnit XML: a test case per question.")
@click.option("--markdown", type=_FILE, metavar="FILE", help="Write a summary for a pull request.")
@storage_option
@artifacts_option
@json_option
def check(
    name: str,
    max_regression: str,
    require_faster: bool,
    pairs: int,
    timeout: str | None,
    junit: Path | None,
    markdown: Path | None,
    storage: str,
    artifacts: Path | None,
    as_json: bool,
) -> None:
    """Check the engine that the study NAME ships (confirmed, else promoted, else best) in this environment.

    Does it load, are its outputs within the limits, is it as fast as recorded compared with the default, and is the
    default as fast as it was on this device? After a change of version or machine, candidate and default are built
    again here. Exit code 1 if the gate forbids it; the study itself is not changed.

    \b
    Example:
      python -m tuner check ocr --max-regression 2% --junit check.xml --markdown check.md
      python -m tuner check ocr --require-faster --timeout 10m
    """
    from tuner import check_report
    from tuner.check_answers import CheckOptions
    from tuner.checking import check_study
    from tuner.cli import render
    from tuner.cli.progress import make_progress

    signal.signal(signal.SIGTERM, _interrupt)
    limit_s = None if timeout is None else parse.duration_s(timeout)
    options = CheckOptions(parse.share(max_regression), require_faster, pairs, timeout_s=limit_s)
    for file in (junit, markdown):
        _require_writable(file)
    with make_progress(quiet=as_json) as progress:
        result = check_study(name, options, storage=storage, artifacts=artifacts, progress=progress)
    if junit is not None:
        junit.write_text(check_report.junit(result), encoding="utf-8")
    if markdown is not None:
        markdown.write_text(check_report.markdown(result), encoding="utf-8")
    render.emit(check_report.to_json(result) if as_json else check_report.lines(result))
    if not result.passed:
        raise click.exceptions.Exit(1)


def _require_writable(file: Path | None) -> None:
    """What is wrong with these names is said before the check, not after it. Raises: UsageError."""
    import os

    from tuner.errors import UsageError

    if file is None:
        return
    folder = file.resolve().parent
    if not folder.is_dir() or not os.access(file if file.exists() else folder, os.W_OK):
        raise UsageError(f"{file} cannot be written", hint="name a file in a folder that exists")


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt
