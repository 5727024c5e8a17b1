"""What a user may set for TensorRT beside the knobs: words of `--backend-option` to values.

Flow: `Backend.configure` -> HERE -> BuildSettings (trt.py) or TrtexecSettings (trtexec.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from objectives.backends.base import Option
from objectives.backends.trt_routes import Ladders
from objectives.errors import InputError
from objectives.quantities import duration_s, size_bytes

WORKSPACE = Option("workspace", "SIZE", "Most scratch memory of a kernel: 4G. Knobs do not raise it above this.")
BUILD_TIMEOUT = Option("build-timeout", "TIME", "A build that takes longer is stopped and counts as timed out: 10m.")
TIMING_CACHE = Option(
    "timing-cache",
    "off|baseline",
    "baseline: builds of the search start from the timings that the default's build took, which saves time and hides "
    "their noise; a confirmation builds without. [default: off]",
)
LADDER = Option("ladder:KNOB", "A,B,C", "Values to try of the open-ended build-route knob KNOB.")
CAPABILITY = Option("compute-capability", "SMxx", "What to build for where there is no supported GPU. [default: SM89]")
PROGRAM = Option("program", "PATH", "The trtexec to run, or a script that runs it in its container. [default: trtexec]")
DEVICE = Option("device", "N", "CUDA device of trtexec. [default: the first]")


def limit_s(options: Mapping[str, str], default: float | None) -> float | None:
    """Seconds that a build may take. Raises: InputError."""
    if BUILD_TIMEOUT.name not in options:
        return default
    seconds = duration_s(options[BUILD_TIMEOUT.name])
    if seconds <= 0:
        raise InputError("build-timeout must be more than nothing", hint="write 10m")
    return seconds


def workspace_bytes(options: Mapping[str, str]) -> int | None:
    """Bytes of scratch memory; None: the library's own limit. Raises: InputError."""
    return size_bytes(options[WORKSPACE.name]) if WORKSPACE.name in options else None


def keeps_timings(options: Mapping[str, str]) -> bool:
    """Whether builds leave their timings for later ones. Raises: InputError."""
    value = options.get(TIMING_CACHE.name, "off")
    if value not in ("off", "baseline"):
        raise InputError(f"timing-cache={value}: no such way", hint="write timing-cache=off or timing-cache=baseline")
    return value == "baseline"


def ladders(options: Mapping[str, str]) -> Ladders:
    """Values of open-ended integers by knob. Raises: InputError."""
    found = {}
    for name, text in options.items():
        if LADDER.covers(name):
            found[name.partition(":")[2]] = _integers(name, text)
    return found


def device(options: Mapping[str, str]) -> int | None:
    """Number of a CUDA device; None: the program's choice. Raises: InputError."""
    return _integers(DEVICE.name, options[DEVICE.name])[0] if DEVICE.name in options else None


def _integers(name: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{name}={text}: whole numbers are needed", hint=f"write {name}=1,2,4") from None
