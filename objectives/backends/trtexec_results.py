"""What trtexec leaves behind: exported files first, its log for the rest.

Flow: trtexec_process.py ends -> HERE -> times, outputs, the log's figures and complaints. Pure: text in, values out.
Tolerant where versions differ: a line that is not known says nothing, a figure that is missing is None.
Source: samples/common/sampleReporting.cpp and sampleInference.cpp of 8.6 to 11.4.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from objectives.backends.trt_log import Log
from objectives.errors import CandidateError
from objectives.outcome import FailureKind
from objectives.tensors import Array, dtype_of

_LINE = re.compile(r"\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] \[([A-Z])\] (?:\[TRT\] )?(.*)")
_SEVERITIES = {"F": "INTERNAL_ERROR", "E": "ERROR", "W": "WARNING", "I": "INFO", "V": "VERBOSE"}
_BANNER = re.compile(r"&&&& (RUNNING|PASSED|FAILED|WAIVED) \S+ \[TensorRT v(\d+)\](?: \[b(\d+)\])?")
_VERSION = re.compile(r"TensorRT[ _]version: v?(\d+(?:\.\d+)+)", re.IGNORECASE)
_THROUGHPUT = re.compile(r"Throughput: ([-+.\deE]+) qps")
_SECTIONS = ("Latency", "Enqueue Time", "H2D Latency", "GPU Compute Time", "D2H Latency")
_FIGURE = re.compile(r"(\w+(?:\([\d.]+%\))?) = ([-+.\deE]+) ms")
_ROUTE = re.compile(r"Using (?:tuning )?build route: (.*)", re.IGNORECASE)
_ACCURACY = re.compile(r"Accuracy loss for tensor (.+) \((\w+)\): (\S+)(.*)")
_QUALITY = {
    "throughput may be bound by enqueue time": "enqueue_bound",
    "throughput may be bound by host-to-device": "transfer_bound",
    "throughput may be bound by device-to-host": "transfer_bound",
    "gpu compute time is unstable": "gpu_unstable",
    "multiple inference streams are used": "several_streams",
    "cuda graph capture failed": "graph_not_captured",
}
_OUTPUT = re.compile(
    r'\{\s*"name"\s*:\s*"(?P<name>.*?)"\s*,\s*"dimensions"\s*:\s*"(?P<dims>[^"]*)"\s*,'
    r'\s*"values"\s*:\s*\[(?P<values>[^\]]*)\]\s*\}',
    re.DOTALL,
)


class AccuracyLine(msgspec.Struct, frozen=True):
    """What trtexec itself says of one output's loss."""

    tensor: str
    algorithm: str
    loss: float
    is_over: bool


class Report(msgspec.Struct, frozen=True):
    """What the log of one run says. `figures_ms`: by section and statistic, such as `Latency` and `percentile(99%)`."""

    version: str = ""  # "11.1.0"
    build: str = ""  # "106"
    verdict: str = ""  # PASSED, FAILED, WAIVED; empty if the run did not come to its end
    route: str | None = None
    throughput_qps: float | None = None
    figures_ms: Mapping[str, Mapping[str, float]] = {}
    accuracy: tuple[AccuracyLine, ...] = ()
    quality: tuple[str, ...] = ()


def read_log(text: str) -> Log:
    """The messages of a log by severity; lines without a prefix are left out."""
    log = Log()
    for match in _LINE.finditer(text):
        log.add(_SEVERITIES.get(match[1], "INFO"), match[2])
    return log


def read_report(text: str) -> Report:
    """Everything that a log says in the documented forms."""
    banners = list(_BANNER.finditer(text))
    ends = [one[1] for one in banners if one[1] != "RUNNING"]
    said = _VERSION.search(text)
    version = decode_version(banners[0][2]) if banners else (said[1] if said else "")
    qps = _THROUGHPUT.search(text)
    # The library's own line and trtexec's both name it, trtexec's first.
    route = _ROUTE.search(text)
    lower = text.lower()
    return Report(
        version=version,
        build=(banners[0][3] or "") if banners else "",
        verdict=ends[-1] if ends else "",
        route=None if route is None else route[1].strip().strip("'\""),
        throughput_qps=None if qps is None else _number(qps[1]),
        figures_ms=dict(_figures(text)),
        accuracy=tuple(_accuracy(text)),
        quality=tuple(dict.fromkeys(flag for words, flag in _QUALITY.items() if words in lower)),
    )


def decode_version(digits: str) -> str:
    """The version in a banner: 8601 is 8.6.1, 101600 is 10.16.0, 110100 is 11.1.0."""
    number = int(digits)
    if number < 10_000:  # up to 9.x one digit each, but two for the patch
        return f"{number // 1000}.{number // 100 % 10}.{number % 100}"
    return f"{number // 10_000}.{number // 100 % 100}.{number % 100}"


def read_routes_text(text: str) -> str:
    """The JSON object that `--helpBuildRoute` prints among banners and log lines; empty if there is none."""
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else ""


def read_times(text: str) -> tuple[float, ...]:
    """Compute times of all timed inferences, milliseconds, in order (`--exportTimes`).

    Raises: CandidateError if the file holds no usable time.
    """
    try:
        rows = json.loads(text)
    except ValueError as error:
        raise CandidateError(FailureKind.RUN_FAILED, f"the exported times are not JSON: {error}") from error
    found = tuple(_compute_ms(row) for row in rows if isinstance(row, dict)) if isinstance(rows, list) else ()
    usable = tuple(one for one in found if one is not None)
    if not usable or len(usable) < len(found):
        raise CandidateError(
            FailureKind.RUN_FAILED, f"{len(found) - len(usable)} of {len(found)} exported times cannot be used"
        )
    return usable


def read_outputs(text: str, types: Mapping[str, str]) -> dict[str, Array]:
    """Output tensors from `--exportOutput`, in the order and with the types of `types`.

    Numbers are printed with six significant digits (read from the source), so a float output is right to 5e-6 of
    itself; NaN and infinity are printed as no JSON knows them. Raises: CandidateError for a missing or odd output.
    """
    found = {match["name"]: match for match in _OUTPUT.finditer(text)}
    outputs: dict[str, Array] = {}
    for name, kind in types.items():
        if name not in found:
            words = f"output {name!r} is not among the exported ones: {', '.join(found) or 'none'}"
            raise CandidateError(FailureKind.RUN_FAILED, words)
        try:
            outputs[name] = _array(found[name]["dims"], found[name]["values"], dtype_of(kind))
        except (ValueError, OverflowError) as error:
            raise CandidateError(FailureKind.RUN_FAILED, f"exported output {name!r}: {error}") from error
    return outputs


def count_layers(text: str) -> int | None:
    """How many layers an exported layer description has; None if it is not understood."""
    try:
        layers = json.loads(text)["Layers"]
    except (ValueError, KeyError, TypeError):
        return None
    return len(layers) if isinstance(layers, list) else None


def _array(dims: str, values: str, dtype: np.dtype[Any]) -> Array:
    shape = tuple(int(dim) for dim in dims.split("x")) if dims.strip() else ()
    tokens = [token.strip() for token in values.split(",") if token.strip()]
    words = {"true": 1, "false": 0}
    if dtype.kind in "iu":
        # Through float, 64-bit integers would lose digits.
        numbers = np.array([words.get(token, token) for token in tokens], object)
        array = np.array([int(one) for one in numbers], dtype)
    else:
        array = np.array([words[token] if token in words else float(token) for token in tokens], np.float64)
        array = array.astype(dtype)
    return array.reshape(shape)


def _compute_ms(row: Mapping[str, Any]) -> float | None:
    value = row.get("computeMs")
    if value is None and "startComputeMs" in row and "endComputeMs" in row:
        value = row["endComputeMs"] - row["startComputeMs"]
    good = isinstance(value, int | float) and math.isfinite(value) and value > 0
    return float(value) if good else None  # type: ignore[arg-type]  # a good one is a number


def _figures(text: str) -> Iterator[tuple[str, dict[str, float]]]:
    for name in _SECTIONS:
        match = re.search(rf"\] {name}: (min = .*)", text)
        if match is not None:
            pairs = ((one[1], _number(one[2])) for one in _FIGURE.finditer(match[1]))
            yield name, {key: value for key, value in pairs if value is not None}


def _accuracy(text: str) -> Iterator[AccuracyLine]:
    for match in _ACCURACY.finditer(text):
        loss = _number(match[3])
        yield AccuracyLine(match[1], match[2], math.nan if loss is None else loss, "FAIL" in match[4])


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
