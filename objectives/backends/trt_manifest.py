"""What a plan file is: a small JSON file beside it, written by the build and asked by whoever opens it.

Flow: trt_build.py writes it HERE -> open reads it HERE: knobs as built, the route as asked, as read back and as the
library said it used, profile, and the model's own types of inputs and outputs, which a plan does not hold (TensorRT
has no float64).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from objectives.errors import CandidateError
from objectives.outcome import FailureKind

FORMAT = 1
SUFFIX = ".json"


class Route(msgspec.Struct, frozen=True):
    """A build route in three states; `used` is None where the library did not say."""

    asked: str
    read_back: str
    used: str | None


class Manifest(msgspec.Struct, frozen=True):
    """How a plan was made. `outputs` are in the model's order, with the model's types."""

    backend: str
    version: str
    target: str  # the compute capability that was built for, "SM89", or the GPU's name
    values: Mapping[str, str]  # every knob that acts in the build
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    profile: Mapping[str, list[list[int]]]
    route: Route
    tuner_version: str
    timing_cache: tuple[str, str] | None  # digests before and after
    warnings: tuple[str, ...]
    format: int = FORMAT

    def write(self, plan: Path) -> str:
        """Write it beside `plan`. Returns the file's name."""
        path = plan.with_name(plan.name + SUFFIX)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")
        return path.name


def read_manifest(plan: Path) -> Manifest:
    """The manifest of `plan`. Raises: CandidateError if there is none: then the plan is none of ours."""
    path = plan.with_name(plan.name + SUFFIX)
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError) as error:
        words = f"the plan was not built by this backend: {path.name}: {error}"
        raise CandidateError(FailureKind.BUILD_FAILED, words) from error
    if found.format != FORMAT:
        words = f"{path.name} has format {found.format}, this version reads {FORMAT}"
        raise CandidateError(FailureKind.BUILD_FAILED, words)
    return found
