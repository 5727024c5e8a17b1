"""`study clone`: a new study with the settings of another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tuner.cli.completion import studies
from tuner.cli.options import artifacts_option, clone_options, json_option, storage_option, to_judging, to_workload

if TYPE_CHECKING:
    from objectives.requests import Judging
    from tuner.clone import Cloned
    from tuner.spec import StudySpec, WorkloadOptions

# Flags, and the parts of WorkloadOptions and Judging that each sets.
_WORKLOAD = {
    "shapes": "shapes",
    "min_shapes": "min_shapes",
    "max_shapes": "max_shapes",
    "inputs": "inputs",
    "reference": "references",
    "ranges": "ranges",
    "pairs": "pairs",
    "no_hard_inputs": "hard",
    "seed": "seed",
}
_JUDGING = {"max_loss": "limits", "metrics": "functions", "atol": "tolerance", "rtol": "tolerance"}


@click.command()
@click.argument("name", shell_complete=studies)
@click.argument("new")
@click.option("--model", type=click.Path(path_type=Path), metavar="FILE", help="Another model.  [default: the same]")
@clone_options
@storage_option
@artifacts_option
@json_option
@click.pass_context
def clone(
    context: click.Context,
    /,
    name: str,
    new: str,
    model: Path | None,
    storage: str,
    artifacts: Path | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Create the study NEW with the settings of the study NAME, for another model or workload.

    What is not said stays as it is: the same model, the same inputs (another model computes its own references), the
    same limits. The confirmed winner of NAME and its best few are tried first; nothing that was measured comes along.

    \b
    Example:
      python -m tuner study clone ocr ocr-v2 --model det-v2.onnx
      python -m tuner study clone ocr ocr-batch8 --shapes x:8x3x640x640
    """
    from tuner.api import show_study
    from tuner.cli import render
    from tuner.clone import clone_study

    given = {flag for flag in flags if context.get_parameter_source(flag) is ParameterSource.COMMANDLINE}
    source = show_study(name, storage=storage).spec
    cloned = clone_study(
        name,
        new,
        model,
        workload=_workload(source, flags, given, same_model=model is None) if given & set(_WORKLOAD) else None,
        judging=_judging(source, flags, given) if given & set(_JUDGING) else None,
        storage=storage,
        artifacts=artifacts,
    )
    render.emit(_to_json(cloned) if as_json else _lines(cloned, storage))


def _workload(source: StudySpec, flags: dict[str, Any], given: set[str], same_model: bool) -> WorkloadOptions:
    """The study's workload with what was given changed; other shapes have other ends."""
    import msgspec

    from tuner.clone import workload_like
    from tuner.spec import WorkloadOptions

    said = to_workload(flags)
    base = WorkloadOptions(seed=source.seed) if "inputs" in given else workload_like(source, same_model=same_model)
    if "shapes" in given:
        base = msgspec.structs.replace(base, min_shapes={}, max_shapes={}, shapes={**base.shapes, **said.shapes})
    parts = {part: getattr(said, part) for flag, part in _WORKLOAD.items() if flag in given and part != "shapes"}
    return msgspec.structs.replace(base, **parts)


def _judging(source: StudySpec, flags: dict[str, Any], given: set[str]) -> Judging:
    import msgspec

    said = to_judging(flags)
    parts = {part: getattr(said, part) for flag, part in _JUDGING.items() if flag in given}
    if "tolerance" in parts:
        changes = {name: flags[name] for name in ("atol", "rtol") if name in given}
        parts["tolerance"] = msgspec.structs.replace(source.judging.tolerance, **changes)
    if "limits" in parts and "functions" not in parts:  # those without a limit would be of no use
        named = {limit.metric for limit in said.limits}
        parts["functions"] = tuple(one for one in source.judging.functions if one in named)
    return msgspec.structs.replace(source.judging, **parts)


def _lines(cloned: Cloned, storage: str) -> list[str]:
    from tuner.cli.render import created_lines

    *lines, after = created_lines(cloned.created, storage)
    first = "; ".join(map(str, cloned.first)) or "nothing: no candidate looked faster than the default"
    lines.append(f"  first   {first}")
    lines += [f"  not here: {', '.join(cloned.lost)}"] * bool(cloned.lost)
    return [*lines, after]


def _to_json(cloned: Cloned) -> dict[str, Any]:
    from tuner.cli.as_json import created_json

    first = [dict(one.changes) for one in cloned.first]
    return {**created_json(cloned.created), "first": first, "lost_changes": list(cloned.lost)}
