"""Clone: a new study with the settings of another, for another model or workload; it begins with the other's best.

Flow: `study clone` -> settings and data of the source HERE -> create.py, with every check -> what is to be tried first.
Nothing that was measured comes along: it was measured of something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from objectives.inputs import Pair, require_fit
from objectives.knobs import Candidate, KnobSpace
from objectives.model import ModelSpec
from objectives.requests import Judging, PairFiles
from objectives.tensors import load_tensors
from storage.artifacts import ArtifactFolder
from storage.studies import get_study, replace_spec
from tuner.ask import model_path
from tuner.context import contexts
from tuner.create import Created, create
from tuner.errors import UsageError
from tuner.home import DEFAULT_STORAGE, Home, open_home
from tuner.migration import translate_partly
from tuner.results import is_feasible
from tuner.spec import StudyOptions, StudySpec, WorkloadOptions, read_spec
from tuner.views import ContextView, view_of
from tuner.workload import KIND as TENSORS
from tuner.workload import Draft, Gather

MOST_CANDIDATES = 5  # to be tried first: more would take the search's place
_GENERATED = ("random-", "zeros", "large", "denormal", "shortest", "longest")  # labels of pairs that were generated


@dataclass(frozen=True, slots=True)
class Cloned:
    """A new study: as `create` tells of it, what it tries first, and changes that do not exist in its knob space."""

    created: Created
    first: tuple[Candidate, ...]
    lost: tuple[str, ...]


def clone_study(
    name: str,
    new: str,
    model: str | Path | None = None,
    *,
    workload: WorkloadOptions | None = None,
    judging: Judging | None = None,
    storage: str = DEFAULT_STORAGE,
    artifacts: str | Path | None = None,
) -> Cloned:
    """Create the study `new` with the settings of the study `name`.

    Without `model` of the same model; without `workload` on the same inputs (another model computes references of its
    own); without `judging` with the same limits. The confirmed winner and the best that the search saw are tried first.
    Raises: as `create_study`; WorkloadError if another model does not take the same inputs.
    """
    folder = None if artifacts is None else Path(artifacts)
    with open_home(storage, folder) as home:
        source = read_spec(get_study(home.database, name).spec)
        promising = _promising(home, source)
        path = model_path(home, source) if model is None else Path(model)
        options = _options(source, workload, judging)
        if workload is None and not source.measures_itself:
            created = create(new, path, options, storage, folder, gather=_same_data(home.artifacts, source))
        else:
            created = create(new, path, options, storage, folder)
        first, lost = _translated(*promising, contexts(home, new)[-1].space)
        spec = msgspec.structs.replace(created.spec, initial=tuple(one.changes for one in first))
        replace_spec(home.database, new, spec.to_json())
    return Cloned(replace(created, spec=spec), first, lost)


def workload_like(spec: StudySpec, *, same_model: bool = True) -> WorkloadOptions:
    """Options that generate data as those of a study were, to change some of them; shapes are of its model.

    Raises: UsageError if the study has data of its own, which no option generates.
    """
    if spec.measures_itself:
        raise UsageError(
            f"study {spec.name!r} is of a program, which brings its own data", hint="leave those flags out"
        )
    if not all(pair.label.startswith(_GENERATED) for pair in spec.pairs):
        raise UsageError(
            f"study {spec.name!r} has data of its own", hint="give those of the new workload: --inputs, --reference"
        )
    ordinary = sum(pair.label.startswith(_GENERATED[0]) for pair in spec.pairs)
    hard = ordinary < len(spec.pairs)
    ranges = spec.ranges if same_model else {}
    return WorkloadOptions(
        shapes={name: one.opt for name, one in ranges.items()},
        min_shapes={name: one.min for name, one in ranges.items()},
        max_shapes={name: one.max for name, one in ranges.items()},
        pairs=max(1, ordinary),
        hard=hard,
        seed=spec.seed,
    )


def _options(source: StudySpec, workload: WorkloadOptions | None, judging: Judging | None) -> StudyOptions:
    """The source's settings, as they would be given to `create`."""
    return StudyOptions(
        backend=source.backend,
        backend_options=source.backend_options,
        knobs=source.knobs,
        workload=workload or WorkloadOptions(seed=source.seed),
        judging=judging or source.judging,
        budget=source.budget,
        objective=source.objective,
        build_only=source.build_only,
        timing=source.timing,
        search=source.search,
        early_end=source.early_end,
        keep_engines=source.keep_engines,
        control_every=source.control_every,
        noise_sessions=source.noise_sessions,
        trial_timeout_s=source.trial_timeout_s,
        memory_bytes=source.memory_bytes,
    )


def _same_data(artifacts: ArtifactFolder, source: StudySpec) -> Gather:
    """Gathers the inputs that a study has; its references too, if the model is the same."""

    def gather(model: ModelSpec, options: WorkloadOptions, scratch: Path) -> tuple[list[Pair], Draft]:
        pairs, files = [], []
        for index, one in enumerate(source.pairs):
            inputs = artifacts.verified(TENSORS, one.inputs)
            tensors = load_tensors(inputs)
            require_fit(model, one.label, tensors)
            # What is not typical was made to be hard: a model may refuse it.
            required = not source.calibration or one.inputs in source.calibration
            pairs.append(Pair(one.label, tensors, required))
            reference = scratch / f"reference-{index}"
            if model.digest == source.model_digest:
                reference = artifacts.verified(TENSORS, one.reference)
            files.append(PairFiles(one.label, str(inputs), str(reference)))
        shapes = {name: tensor.shape for name, tensor in pairs[0].tensors.items()}
        smallest = {**shapes, **{name: one.min for name, one in source.ranges.items()}}
        largest = {**shapes, **{name: one.max for name, one in source.ranges.items()}}
        typical = tuple(pair.label for pair in pairs if pair.required)
        return pairs, Draft(tuple(files), shapes, {}, typical=typical, asked=(smallest, largest))

    return gather


def _promising(home: Home, source: StudySpec) -> tuple[list[Candidate], KnobSpace]:
    """The confirmed winner and the best few feasible candidates that looked faster, best first, and their space."""
    views = [view_of(home, source, one) for one in contexts(home, source.name)]
    view = next((one for one in reversed(views) if one.summary.standard is not None), None)
    return ([], KnobSpace(())) if view is None else (_ranked(view, source)[:MOST_CANDIDATES], view.context.space)


def _ranked(view: ContextView, source: StudySpec) -> list[Candidate]:
    winner = None if view.verdict is None else view.verdict["winner"]
    found = []
    for trial in view.trials:
        ratio = view.summary.ratio(trial) if is_feasible(trial, source.judging.limits) else None
        if ratio is not None and ratio > 1.0 and not trial.candidate.is_baseline:
            found.append((trial.uid == winner, ratio, trial.candidate))
    return [candidate for _, _, candidate in sorted(found, key=lambda one: one[:2], reverse=True)]


def _translated(
    candidates: Sequence[Candidate], old: KnobSpace, space: KnobSpace
) -> tuple[tuple[Candidate, ...], tuple[str, ...]]:
    """The candidates by the names of the new space, each once, without the default; and the changes left out."""
    found: dict[str, Candidate] = {}
    left_out: dict[str, None] = {}
    for candidate in candidates:
        translated, lost = translate_partly(candidate, old, space)
        left_out |= dict.fromkeys(lost)
        if not translated.is_baseline:
            found.setdefault(translated.digest, translated)
    return tuple(found.values()), tuple(left_out)
