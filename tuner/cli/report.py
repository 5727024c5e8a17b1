"""`report`: what a study found, as a page to send to a colleague, as Markdown, or as JSON."""

from __future__ import annotations

from pathlib import Path

import click

from tuner.cli.completion import studies
from tuner.cli.options import artifacts_option, storage_option

_STDOUT = "-"
_MB = 1e6


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=studies)
@click.option(
    "-o", "--output", metavar="FILE", help="Where to; - is stdout.  [default: NAME.html here; md and json to stdout]"
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", "md", "json"]),
    help="A page, Markdown without figures, or facts for programs.  [default: as FILE is called, else html]",
)
@click.option("--context", type=int, metavar="N", help="Be about this context of the study.  [default: the latest]")
@storage_option
@artifacts_option
def report(
    names: tuple[str, ...], output: str | None, form: str | None, context: int | None, storage: str,
    artifacts: Path | None,
) -> None:  # fmt: skip
    """Report what the study NAME found; several NAMEs are compared.

    The page is one file with everything in it: it opens without a network and loads nothing. It has the verdict with
    its interval, what to ship, accuracy against throughput, the search, which knobs matter, what went wrong, noise,
    every pair of the confirmation, other versions and hardware, and how to make it all again. It claims no more than
    the confirmation did. Nothing is run for it.

    \b
    Example:
      python -m tuner report ocr -o ocr.html
      python -m tuner report ocr --format md >> notes.md
      python -m tuner report ocr detector -o compared.html
    """
    from tuner.report import writing
    from tuner.report.gather import studies_facts

    chosen = writing.form_of(None if output == _STDOUT else output, form)
    to_stdout = output == _STDOUT or (output is None and chosen is not writing.Form.HTML)
    target = Path(output) if output else writing.default_file(names, chosen)
    if not to_stdout:
        writing.require_writable(target)
    studies = studies_facts(names, context=context, storage=storage, artifacts=artifacts)
    text = writing.render(studies, chosen)
    if to_stdout:
        click.echo(text, nl=False)
        return
    writing.replace_file(target, text)
    click.echo(f"wrote {target} ({len(text.encode()) / _MB:.1f} MB)")
    for one in studies:
        told = "not opened in any environment yet" if one.context is None else one.context.headline.sentence
        click.echo(f"  {one.name}: {told}")
