"""Write docs/api.md from the docstrings, signatures and fields of the public Python API.

python docs/make_api.py            # write it
python docs/make_api.py --check    # exit code 1 if it is out of date
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import sys
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

import tuner

PAGE = Path(__file__).with_name("api.md")
# Every name of `tuner.__all__` stands in one of these.
GROUPS = {
    "Studies": ("create_study", "clone_study", "retarget_study", "list_studies", "show_study", "delete_study"),
    "Running and confirming": ("run_study", "confirm_study", "minimize_study", "best_of"),
    "Options": (
        *("StudyOptions", "WorkloadOptions", "Judging", "Limit", "Budget", "TimingPlan", "Objective"),
        *("ConfirmOptions", "Progress"),
    ),
    "Engines": (
        *("list_engines", "export_engine", "promote_engine", "prune_engines", "verify_engines", "verify_folder"),
    ),
    "Checking": ("check_study", "CheckOptions", "CheckResult", "check_backend", "describe"),
    "Reports": ("write_report", "report_text", "study_facts"),
    "Moving": ("export_study", "import_study"),
}
# What functions give back, by the module that it lives in.
RESULTS = {
    "tuner.create": ("Created",),
    "tuner.results": ("Summary",),
    "tuner.ledger": ("Trial",),
    "tuner.answers": ("Confirmed",),
    "tuner.stats": ("Verdict",),
    "tuner.views": ("StudyView", "ContextView", "Best"),
    "objectives.outcome": ("Measured", "Rejected", "Failed", "Samples", "Accuracy"),
}
HEAD = """# Python API

<!-- Written by docs/make_api.py from the code; change the docstrings there. -->

`import tuner` stays light: each name is loaded when it is first used. `storage` is the database's URL, `artifacts` the
folder of large files, beside the database unless given. Bad input raises an error whose `exit_code` is 2 and whose
`hint` says what to do; nothing is changed then.
"""


def page() -> str:
    """The whole page. Raises: SystemExit if a public name stands in no group or in two."""
    listed = [name for names in GROUPS.values() for name in names]
    if sorted(listed) != sorted(tuner.__all__):
        wrong = set(listed) ^ set(tuner.__all__) or {name for name in listed if listed.count(name) > 1}
        sys.exit(f"docs/make_api.py: in no group, in two, or not public: {', '.join(sorted(wrong))}")
    parts = [HEAD]
    for title, names in GROUPS.items():
        parts += [f"## {title}\n", *(_entry(f"tuner.{name}", getattr(tuner, name)) for name in names)]
    parts.append("## What functions give back\n")
    for module, found in RESULTS.items():
        parts += [_entry(f"{module}.{name}", getattr(import_module(module), name)) for name in found]
    return "\n".join(parts).rstrip() + "\n"


def _entry(name: str, value: Any) -> str:
    text = inspect.getdoc(value) or sys.exit(f"docs/make_api.py: {name} has no docstring")
    if inspect.isclass(value):
        rows = list(_members(value))
        table = ["", "| name | type | default |", "|---|---|---|", *rows] if rows else []
        methods = [f"- `{_call(key, method)}`: {_first(method)}" for key, method in _methods(value)]
        return "\n".join([f"### {name}\n", text, *table, *(["", *methods] if methods else []), ""])
    return "\n".join([f"### {name}\n", "```text", _call(value.__name__, value), "```\n", text, ""])


def _call(name: str, function: Any) -> str:
    """The signature as one line, or a line for each argument where that is too long."""
    signature = inspect.signature(function)
    arguments = []
    is_keyword = False
    for one in signature.parameters.values():
        if one.kind is one.KEYWORD_ONLY and not is_keyword:
            arguments.append("*")
            is_keyword = True
        kind = "" if one.annotation is one.empty else f": {one.annotation}"
        default = "" if one.default is one.empty else f" = {_short(one.default)}"
        arguments.append(f"{one.name}{kind}{default}")
    result = "" if signature.return_annotation is signature.empty else f" -> {signature.return_annotation}"
    line = f"{name}({', '.join(arguments)}){result}"
    inner = "".join(f"    {argument},\n" for argument in arguments)
    return line if len(line) <= 110 else f"{name}(\n{inner}){result}"


def _members(value: type) -> Iterator[str]:
    """Rows of a table: fields with type and default; of an enumeration its values."""
    if issubclass(value, Enum):
        yield from (f"| `{one.name}` | `{one.value!r}` | |" for one in value)
        return
    kinds = {name: kind for base in reversed(value.__mro__) for name, kind in inspect.get_annotations(base).items()}
    if issubclass(value, msgspec.Struct):
        for field in msgspec.structs.fields(value):
            default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
            yield _row(field.name, kinds[field.name], None if default is msgspec.NODEFAULT else _short(default))
    elif dataclasses.is_dataclass(value):
        for one in dataclasses.fields(value):
            yield _row(one.name, kinds[one.name], None if one.default is dataclasses.MISSING else _short(one.default))


def _row(name: str, kind: object, default: str | None) -> str:
    said = "" if default is None else f"`{default}`"
    escaped = str(kind).replace("|", "\\|")
    return f"| `{name}` | `{escaped}` | {said} |"


def _methods(value: type) -> Iterator[tuple[str, Any]]:
    for name, member in vars(value).items():
        if not name.startswith("_") and inspect.isfunction(member) and inspect.getdoc(member):
            yield name, member


def _first(function: Any) -> str:
    return " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())


def _short(value: object) -> str:
    """A default as a reader would write it: a value of a class of ours as a call of it."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, tuple) and value and not isinstance(value[0], str | int | float):
        return "(" + ", ".join(str(one) for one in value) + ")"
    return repr(value) if type(value).__module__ == "builtins" else f"{type(value).__name__}()"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if the page is out of date")
    text = page()
    if not parser.parse_args().check:
        PAGE.write_text(text)
        return 0
    if PAGE.exists() and PAGE.read_text() == text:
        return 0
    print("docs/api.md is out of date: run python docs/make_api.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
