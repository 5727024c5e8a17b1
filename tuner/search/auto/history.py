"""History: what the search has seen, as values and as arrays.

Flow: outcomes -> Seen, one per trial -> HERE, rows of numbers -> the models. An Encoding knows the knob space; nothing
else in this package knows names of knobs or values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from objectives.knobs import Candidate, KnobSpace

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]  # (n, knobs): the index of each knob's value


@dataclass(frozen=True, slots=True)
class Seen:
    """One finished trial. What was not measured is None or left out, never a made-up number.

    `log_throughput` may be relative to anything, the same for all trials. `variance` is that of its measurement error
    (squared log units; None: unknown). `log_losses`: log of loss over limit by constraint, above 0 is infeasible.
    `number`: the trial's; what is seen is taken in that order, whatever order it is heard in.
    """

    candidate: Candidate
    log_throughput: float | None = None
    variance: float | None = None
    failed: str | None = None  # the kind of failure
    log_losses: Mapping[str, float] = field(default_factory=dict)
    cost_s: float | None = None
    number: int | None = None

    @property
    def is_feasible(self) -> bool:
        """Measured, and within all limits."""
        return self.failed is None and self.log_throughput is not None and not self.is_rejected

    @property
    def is_rejected(self) -> bool:
        """Over at least one limit."""
        return any(loss > 0 for loss in self.log_losses.values())


class Encoding:
    """A knob space as integers: one slot per knob with at least two values, one column per value of such a knob."""

    def __init__(self, space: KnobSpace) -> None:
        self.space = space
        self.knobs = [knob for knob in space.knobs if len(knob.values) > 1]
        self.sizes = np.array([len(knob.values) for knob in self.knobs], dtype=np.int64)
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.int64)
        self.knob_of = np.repeat(np.arange(len(self.knobs)), self.sizes)  # by column
        self.value_of = np.arange(self.width) - self.starts[self.knob_of] if self.knobs else np.zeros(0, np.int64)
        self.default = np.array([knob.values.index(knob.default) for knob in self.knobs], dtype=np.int64)
        self.is_default = np.zeros(self.width, dtype=bool)
        self.is_default[self.starts + self.default] = True
        self._slot = {knob.name: slot for slot, knob in enumerate(self.knobs)}
        self._code = [{value: code for code, value in enumerate(knob.values)} for knob in self.knobs]

    @property
    def width(self) -> int:
        """Number of columns: values of all knobs together."""
        return int(self.sizes.sum())

    def codes(self, candidates: Iterable[Candidate]) -> Codes:
        """One row of value indices per candidate."""
        rows = []
        for candidate in candidates:
            row = self.default.copy()
            for name, value in candidate.changes:
                slot = self._slot[name]
                row[slot] = self._code[slot][value]
            rows.append(row)
        return np.array(rows, dtype=np.int64).reshape(len(rows), len(self.knobs))

    def candidate(self, row: Codes) -> Candidate:
        """The canonical candidate of one row."""
        changed = np.flatnonzero(row != self.default)
        return Candidate(tuple((self.knobs[slot].name, self.knobs[slot].values[row[slot]]) for slot in changed))

    def columns(self, codes: Codes) -> Codes:
        """The column that each knob's value has: same shape as `codes`."""
        return codes + self.starts

    def one_hot(self, codes: Codes) -> Floats:
        """(n, width): 1 where a row has that value."""
        hot = np.zeros((len(codes), self.width))
        np.put_along_axis(hot, self.columns(codes), 1.0, axis=1)
        return hot

    def column(self, knob: str, value: str) -> int | None:
        """The column of a knob's value, None if the space does not have it."""
        slot = self._slot.get(knob)
        code = None if slot is None else self._code[slot].get(value)
        return None if slot is None or code is None else int(self.starts[slot]) + code
