"""TensorRT's complaints in our words: the one place that knows how the library words things.

Flow: a captured log, after a step gave nothing -> HERE -> CandidateError with a FailureKind, the library's words kept.
The Python bindings throw most results away and report failures as None or False; only the log says why.
"""

from __future__ import annotations

from objectives.backends.trt_log import Log
from objectives.errors import CandidateError
from objectives.outcome import FailureKind

_WORDS_CHARS = 1500
_OUT_OF_MEMORY = (
    "outofmemory",
    "out of memory",
    "memory allocation failed",
    "cudaerrormemoryallocation",
    "insufficient memory",
)
_UNSUPPORTED = (
    "unsupported",
    "not supported",
    "does not support",
    "failed to convert onnx date type",  # sic
    "plugin not found",
    "no importer registered",
)
_CANCELED = "buildcanceled"
# Without a driver the library complains once per stream that it cannot make, and builds all the same (RTX).
_NO_DRIVER = ("cudaerror 35", "cuda driver version is insufficient")
# RTX 1.7 holds these texts; enterprise versions may word them otherwise, hence single words.
_ROUTE_REFUSED = ("build route", "buildroute", "allbuildroutes")
_ROUTE_USED = "using build route:"


def failure(log: Log, otherwise: FailureKind, what: str) -> CandidateError:
    """The error to raise when `what` gave nothing: the library's own words, and the kind that they tell."""
    words = _words(log)
    return CandidateError(_kind(words, otherwise), f"{what}: {words or 'the library gave no reason'}")


def was_canceled(log: Log) -> bool:
    """Whether a build ended because its progress monitor said so."""
    return any(_CANCELED in text.lower() for text in log.errors)


def route_refusal(log: Log) -> str:
    """What the library said against a build route, empty if nothing."""
    about = [text for text in (*log.errors, *log.warnings) if any(word in text.lower() for word in _ROUTE_REFUSED)]
    return "; ".join(text for text in about if _ROUTE_USED not in text.lower())


def route_used(log: Log) -> str | None:
    """The build route that the library says it used; None if it says nothing."""
    for message in log.messages:
        _, found, route = _split(message.text, _ROUTE_USED)
        if found:
            return route.strip().strip("'\"")
    return None


def _split(text: str, words: str) -> tuple[str, str, str]:
    at = text.lower().find(words)
    return (text, "", "") if at < 0 else (text[:at], words, text[at + len(words) :])


def _words(log: Log) -> str:
    telling = [text for text in log.errors if not any(word in text.lower() for word in _NO_DRIVER)]
    return "; ".join(telling or log.errors)[:_WORDS_CHARS]


def _kind(words: str, otherwise: FailureKind) -> FailureKind:
    lower = words.lower()
    if any(phrase in lower for phrase in _OUT_OF_MEMORY):
        return FailureKind.OUT_OF_MEMORY
    if any(phrase in lower for phrase in _UNSUPPORTED):
        return FailureKind.UNSUPPORTED
    return otherwise
