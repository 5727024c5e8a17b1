"""Writing: a report as a page, as Markdown or as JSON, to a file or as text.

Flow: `report`, notebooks, scripts -> HERE -> gather.py, then page.py, markdown.py or as_json.py. plotly is imported for
a page alone.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from enum import StrEnum
from importlib import import_module
from pathlib import Path

from tuner.errors import UsageError
from tuner.home import DEFAULT_STORAGE
from tuner.report.advice import plain_name
from tuner.report.facts import StudyFacts
from tuner.report.gather import studies_facts


class Form(StrEnum):
    """What a report is written as."""

    HTML = "html"
    MARKDOWN = "md"
    JSON = "json"


_SUFFIXES = {".html": Form.HTML, ".htm": Form.HTML, ".md": Form.MARKDOWN, ".markdown": Form.MARKDOWN,
             ".json": Form.JSON}  # fmt: skip


_WRITERS = {
    Form.HTML: ("tuner.report.page", "report_html"),
    Form.MARKDOWN: ("tuner.report.markdown", "markdown"),
    Form.JSON: ("tuner.report.as_json", "json_text"),
}


def report_text(
    names: str | Sequence[str],
    form: Form | str = Form.HTML,
    *,
    context: int | None = None,
    storage: str = DEFAULT_STORAGE,
    artifacts: str | Path | None = None,
) -> str:
    """The report of a study, or the comparison of several, as text.

    `form`: "html" (one page that needs nothing else), "md" or "json". `context`: the number of the one to be about, by
    default the latest; only with a single study. Nothing is run or changed.
    Raises: NotFoundError, UsageError for a form or context that there is not, storage errors.
    """
    return render(studies_facts(_names(names), context=context, storage=storage, artifacts=artifacts), to_form(form))


def write_report(
    names: str | Sequence[str],
    file: str | Path | None = None,
    form: Form | str | None = None,
    *,
    context: int | None = None,
    storage: str = DEFAULT_STORAGE,
    artifacts: str | Path | None = None,
) -> Path:
    """Write what `report_text` gives to a file, and return its path; one that is there is replaced at once.

    `file`: by default the study's name, or `comparison`, in this folder. `form`: by default what the file's name says,
    else a page. Raises: as `report_text`, and UsageError if the file cannot be written.
    """
    chosen = form_of(file, form)
    target = Path(file) if file is not None else default_file(_names(names), chosen)
    require_writable(target)
    text = report_text(names, chosen, context=context, storage=storage, artifacts=artifacts)
    replace_file(target, text)
    return target


def render(studies: Sequence[StudyFacts], form: Form) -> str:
    """The text of a report in a form."""
    # Loaded by name: a page needs plotly, which is a second to import; text does without.
    module, verb = _WRITERS[form]
    return str(getattr(import_module(module), verb)(studies))


def to_form(form: Form | str) -> Form:
    """Raises: UsageError."""
    try:
        return Form(form)
    except ValueError:
        known = ", ".join(one.value for one in Form)
        raise UsageError(f"a report has no form {form!r}", hint=f"there are: {known}") from None


def form_of(file: str | Path | None, form: Form | str | None) -> Form:
    """The form that is asked for, else the one that the file's name says, else a page. Raises: UsageError."""
    if form is not None:
        return to_form(form)
    return Form.HTML if file is None else _SUFFIXES.get(Path(file).suffix.lower(), Form.HTML)


def default_file(names: Sequence[str], form: Form) -> Path:
    """`ocr.html`; `comparison.html` for several."""
    return Path(f"{plain_name(names[0]) if len(names) == 1 else 'comparison'}.{form.value}")


def require_writable(target: Path) -> None:
    """Raises: UsageError for a folder, or a folder that is not there."""
    if target.is_dir():
        raise UsageError(f"{target} is a folder", hint="name a file: -o report.html")
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {target.parent}", hint="make it first, or name another file")


def replace_file(target: Path, text: str) -> None:
    """All or nothing: whoever reads the file meanwhile has the old one, or the new one. Raises: UsageError."""
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as scratch:
            whole = Path(scratch) / target.name
            whole.write_text(text, encoding="utf-8")
            os.replace(whole, target)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}", hint="name another file with -o") from error


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
