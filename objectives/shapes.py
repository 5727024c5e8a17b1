"""Shape ranges: between which shapes an engine has to work, and for which it is made.

Flow: the pairs of a workload -> HERE -> a build that needs to know (TensorRT's optimization profile).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from objectives.errors import WorkloadError


class ShapeRange(msgspec.Struct, frozen=True):
    """Smallest, most typical and largest shape of one input; for an input that holds a shape: its values."""

    min: tuple[int, ...]
    opt: tuple[int, ...]
    max: tuple[int, ...]

    def __post_init__(self) -> None:
        ordered = all(a <= b <= c for a, b, c in zip(self.min, self.opt, self.max, strict=False))
        if not len(self.min) == len(self.opt) == len(self.max) or not ordered:
            raise WorkloadError(
                f"shapes {self.min}, {self.opt}, {self.max} are no minimum, optimum and maximum of one another",
                hint="give three shapes of equal rank, each dimension in growing order",
            )

    @classmethod
    def fixed(cls, *dims: int) -> ShapeRange:
        """One shape and no other."""
        return cls(dims, dims, dims)


Shapes = Mapping[str, ShapeRange]  # by input; an input that is not named has a fixed shape
NO_SHAPES: Shapes = MappingProxyType({})
