"""Workload: the data a study is judged and timed on, from options to tensor files named by content.

Flow: create.py knows the model -> gather inputs HERE, have the child compute the references -> PairSpecs of the study.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from objectives.dataset import read_pairs, require_references
from objectives.digest import digest_of_file
from objectives.inputs import Generation, Pair, generate, require_fit, resolve_shapes
from objectives.isolation import Isolation
from objectives.model import ModelSpec
from objectives.requests import Judging, PairFiles, ReferenceRequest
from objectives.shapes import ShapeRange
from objectives.tensors import save_tensors
from storage.artifacts import ArtifactFolder
from tuner.spec import PairSpec, WorkloadOptions

KIND = "tensors"  # of artifact
_EDGE_FACTOR = 2  # the longest shape tried without --max-shapes: twice the timing shape in dynamic dimensions


@dataclass(frozen=True, slots=True)
class Draft:
    """A workload in a scratch folder: nothing of it is in the study's home yet."""

    files: tuple[PairFiles, ...]
    shapes: Mapping[str, tuple[int, ...]]
    ranges: Mapping[str, ShapeRange]
    dropped: tuple[tuple[str, str], ...] = field(default=())
    typical: tuple[str, ...] = ()  # labels of the pairs that are ordinary data
    asked: tuple[Mapping[str, tuple[int, ...]], ...] = ()  # shapes that engines have to work with, data or not

    @property
    def calibration(self) -> tuple[str, ...]:
        """Digests of the inputs of ordinary pairs: hard ones would widen every range of numbers."""
        return tuple(digest_of_file(Path(one.inputs)) for one in self.files if one.label in self.typical)

    def store(self, artifacts: ArtifactFolder) -> tuple[PairSpec, ...]:
        """Move the tensors into the home, named by content."""
        return tuple(
            PairSpec(one.label, _put(artifacts, Path(one.inputs)), _put(artifacts, Path(one.reference)))
            for one in self.files
        )


Gather = Callable[[ModelSpec, WorkloadOptions, Path], tuple[list[Pair], Draft]]  # as `draft` does it


@dataclass(frozen=True, slots=True)
class ReferenceTask:
    """Who computes references from which file, and the metric functions to try on them."""

    backend: str
    model: Path
    judging: Judging
    options: Mapping[str, str] = field(default_factory=dict)  # of the backend


def draft(model: ModelSpec, options: WorkloadOptions, scratch: Path) -> tuple[list[Pair], Draft]:
    """Gather the input pairs and write them to `scratch`, with user-given references where there are some.

    Raises: WorkloadError for data, shapes or ranges that do not fit the model.
    """
    pairs, shapes = _from_files(model, options) if options.inputs else _generated(model, options)
    files = tuple(
        PairFiles(pair.label, str(scratch / f"inputs-{i}"), str(scratch / f"reference-{i}"))
        for i, pair in enumerate(pairs)
    )
    references = read_pairs(options.references, model.outputs, {}) if options.references else []
    if references:
        require_references(model, [pair.label for pair in pairs], [tensors for _, tensors in references])
    for index, (pair, file) in enumerate(zip(pairs, files, strict=True)):
        save_tensors(Path(file.inputs), pair.tensors)
        if references:
            save_tensors(Path(file.reference), references[index][1])
    typical = tuple(pair.label for pair in pairs if pair.required)
    asked = tuple(
        resolve_shapes(model, {**shapes, **given}) for given in (options.min_shapes, options.max_shapes) if given
    )
    return pairs, Draft(files, shapes, _ranges(model, shapes, pairs, asked), typical=typical, asked=asked)


def compute_references(
    isolation: Isolation, task: ReferenceTask, model: ModelSpec, pairs: Sequence[Pair], start: Draft
) -> Draft:
    """Have the untouched model compute what references are missing; hard pairs that it refuses are dropped.

    Raises: ModelError or WorkloadError if the model does not run on the ordinary data.
    """
    required = tuple(pair.required for pair in pairs)
    request = ReferenceRequest(task.backend, str(task.model), start.files, required, task.judging, dict(task.options))
    done = isolation.reference(request)
    gone = {label for label, _ in done.dropped}
    kept = [pair for pair in pairs if pair.label not in gone]
    files = tuple(file for file in start.files if file.label not in gone)
    ranges = _ranges(model, start.shapes, kept, start.asked)
    return Draft(files, start.shapes, ranges, done.dropped, start.typical, start.asked)


def _from_files(model: ModelSpec, options: WorkloadOptions) -> tuple[list[Pair], dict[str, tuple[int, ...]]]:
    pairs = [Pair(label, data) for label, data in read_pairs(options.inputs, model.inputs, options.shapes)]
    for pair in pairs:
        require_fit(model, pair.label, pair.tensors)
    return pairs, {name: array.shape for name, array in pairs[0].tensors.items()}


def _generated(model: ModelSpec, options: WorkloadOptions) -> tuple[list[Pair], dict[str, tuple[int, ...]]]:
    shapes = resolve_shapes(model, options.shapes)
    how = Generation(options.seed, options.pairs, options.hard, options.ranges)
    return generate(model, shapes, how, _edges(model, shapes, options)), shapes


def _edges(
    model: ModelSpec, shapes: Mapping[str, tuple[int, ...]], options: WorkloadOptions
) -> dict[str, dict[str, tuple[int, ...]]]:
    """Shortest and longest shapes: what the user says, else 1 and twice the timing shape where a size is dynamic."""
    given = {"shortest": options.min_shapes, "longest": options.max_shapes}
    proposed = {
        "shortest": _scale(model, shapes, lambda _: 1),
        "longest": _scale(model, shapes, lambda size: size * _EDGE_FACTOR),
    }
    return {label: resolve_shapes(model, {**proposed[label], **given[label]}) for label in given}


def _scale(
    model: ModelSpec, shapes: Mapping[str, tuple[int, ...]], change: Callable[[int], int]
) -> dict[str, tuple[int, ...]]:
    return {
        spec.name: tuple(
            dim if isinstance(dim, int) else change(size)
            for dim, size in zip(spec.shape or shapes[spec.name], shapes[spec.name], strict=True)
        )
        for spec in model.inputs
    }


def _ranges(
    model: ModelSpec,
    timed: Mapping[str, tuple[int, ...]],
    pairs: Sequence[Pair],
    asked: Sequence[Mapping[str, tuple[int, ...]]],
) -> dict[str, ShapeRange]:
    """For each dynamic input the smallest and largest shape that any pair has or the user names, by dimension."""
    found = {}
    for spec in (spec for spec in model.inputs if spec.is_dynamic):
        every = [pair.tensors[spec.name].shape for pair in pairs] + [one[spec.name] for one in asked]
        shapes = list(zip(*every, strict=True))
        low, high = tuple(map(min, shapes)), tuple(map(max, shapes))
        found[spec.name] = ShapeRange(low, tuple(timed[spec.name]), high)
    return found


def _put(artifacts: ArtifactFolder, path: Path) -> str:
    digest = digest_of_file(path)
    artifacts.put(KIND, digest, path)
    return digest
