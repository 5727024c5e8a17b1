"""Knobs, knob spaces and candidates: what can be turned, and one way of turning it.

Flow: a backend offers a KnobSpace -> the user selects from it -> the search proposes a Candidate -> build and open
read its values. Values are strings here and everywhere: a knob is categorical, and its values are known by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import reduce

import msgspec

from objectives.digest import digest_of
from objectives.errors import KnobError


class KnobKind(StrEnum):
    """Where a knob acts."""

    ROUTE = "route"  # compiler decision inside the build (TensorRT build routes)
    BUILDER = "builder"  # public option of the build or graph optimizer
    PRECISION = "precision"  # number formats, as a flag or as a variant of the model
    RUNTIME = "runtime"  # how a finished engine is run: threads, memory, graph capture
    DEPLOYMENT = "deployment"  # how many and where: replicas, streams


class Knob(msgspec.Struct, frozen=True):
    """One categorical parameter: `values` in the backend's own order, `default` among them."""

    name: str
    values: tuple[str, ...]
    default: str
    kind: KnobKind
    help: str

    def __post_init__(self) -> None:
        if not self.name or self.name != self.name.strip():
            raise KnobError(f"a knob needs a name without surrounding blanks, not {self.name!r}")
        if self.default not in self.values:
            raise KnobError(f"knob {self.name!r}: default {self.default!r} is not among its values {self.values}")
        if len(set(self.values)) != len(self.values):
            raise KnobError(f"knob {self.name!r} lists a value twice: {self.values}")


class Candidate(msgspec.Struct, frozen=True):
    """One value per knob in canonical form: only the values that differ from the default, in knob order."""

    changes: tuple[tuple[str, str], ...] = ()

    @property
    def digest(self) -> str:
        """Identity of the candidate within its knob space."""
        return digest_of(self.changes)

    @property
    def is_baseline(self) -> bool:
        return not self.changes

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.changes) or "default"


BASELINE = Candidate()


class KnobSpace(msgspec.Struct, frozen=True):
    """The ordered knobs that an environment offers for a model, or a selection of them."""

    knobs: tuple[Knob, ...]

    def __post_init__(self) -> None:
        names = [knob.name for knob in self.knobs]
        if twice := {name for name in names if names.count(name) > 1}:
            raise KnobError(f"the knob space names {', '.join(sorted(twice))} twice")

    @property
    def digest(self) -> str:
        """Identity of the space: names, values, defaults and kinds in order; help texts do not count."""
        return digest_of([(k.name, k.values, k.default, k.kind) for k in self.knobs])

    @property
    def size(self) -> int:
        """Number of candidates."""
        return reduce(lambda product, knob: product * len(knob.values), self.knobs, 1)

    def candidate(self, assignment: Mapping[str, str]) -> Candidate:
        """The canonical candidate that sets `assignment` and leaves every other knob at its default.

        Raises: KnobError for a knob or value that the space does not have.
        """
        known = {knob.name: knob for knob in self.knobs}
        for name, value in assignment.items():
            if name not in known:
                raise KnobError(
                    f"unknown knob {name!r}", hint=f"this space has: {', '.join(known) or 'no knobs at all'}"
                )
            if value not in known[name].values:
                raise KnobError(
                    f"knob {name!r} has no value {value!r}", hint=f"it takes: {', '.join(known[name].values)}"
                )
        return Candidate(
            tuple(
                (knob.name, assignment[knob.name])
                for knob in self.knobs
                if assignment.get(knob.name, knob.default) != knob.default
            )
        )

    def values(self, candidate: Candidate) -> dict[str, str]:
        """Every knob with the value it has in `candidate`, in knob order.

        Raises: KnobError if the candidate does not belong to this space.
        """
        changes = dict(candidate.changes)
        self.candidate(changes)
        return {knob.name: changes.get(knob.name, knob.default) for knob in self.knobs}

    def select(self, patterns: Iterable[str]) -> KnobSpace:
        """The knobs that the patterns choose, in the space's order.

        A pattern is a kind (`runtime`), a name, or a name with wildcards (`route:*`); with `-` or `!` in front it takes
        knobs away again. Patterns act in order; when the first takes away, all knobs are the start.
        Raises: KnobError for a pattern that matches nothing, and for a selection that leaves nothing.
        """
        wanted = [pattern.strip() for pattern in patterns if pattern.strip()]
        if not wanted:
            return self
        chosen = {knob.name for knob in self.knobs} if wanted[0][0] in "-!" else set[str]()
        for pattern in wanted:
            matched = {knob.name for knob in self.knobs if _matches(knob, pattern.lstrip("-!"))}
            if not matched:
                raise KnobError(
                    f"no knob matches {pattern!r}",
                    hint="names here: " + (", ".join(knob.name for knob in self.knobs) or "none"),
                )
            chosen = chosen - matched if pattern[0] in "-!" else chosen | matched
        if not chosen:
            raise KnobError("the knob selection leaves no knob to tune", hint="select at least one knob")
        return KnobSpace(tuple(knob for knob in self.knobs if knob.name in chosen))


def _matches(knob: Knob, pattern: str) -> bool:
    return pattern in (knob.kind, knob.name) or fnmatchcase(knob.name, pattern)
