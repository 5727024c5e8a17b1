"""ONNX Runtime's errors in our words: the one place that knows how the library complains.

Flow: build, open, run -> a library exception -> HERE -> CandidateError with a FailureKind, the library's
words kept.
`CLASSES` names every public exception class of the library; a test compares it with the installed version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from onnxruntime.capi import onnxruntime_pybind11_state as library

from objectives.errors import CandidateError
from objectives.outcome import FailureKind

# None: the class alone does not say; what was being done decides.
CLASSES: Mapping[str, FailureKind | None] = {
    "DeviceReset": FailureKind.RUN_FAILED,
    "EPFail": None,
    "EngineError": None,
    "Fail": None,
    "InvalidArgument": None,
    "InvalidGraph": FailureKind.BUILD_FAILED,
    "InvalidProtobuf": FailureKind.BUILD_FAILED,
    "ModelLoadCanceled": FailureKind.BUILD_FAILED,
    "ModelLoaded": None,
    "ModelRequiresCompilation": FailureKind.UNSUPPORTED,
    "NoModel": None,
    "NoSuchFile": FailureKind.BUILD_FAILED,
    "NotFound": None,
    "NotImplemented": FailureKind.UNSUPPORTED,
    "RuntimeException": None,
}
# The library has no class for lack of memory: the arena says the first, malloc's callers the others, CUDA's
# libraries the last two.
_OUT_OF_MEMORY = ("Failed to allocate memory", "bad_alloc", "std::length_error", "out of memory", "STATUS_ALLOC_FAILED")
_UNSUPPORTED = ("Could not find an implementation", "NOT_IMPLEMENTED", "cannot use the graph capture feature")


def exception_classes() -> tuple[type[Exception], ...]:
    """The exception classes of the installed library that `CLASSES` names; older versions lack some."""
    return tuple(getattr(library, name) for name in CLASSES if hasattr(library, name))


# Bindings and argument checks raise the builtin classes instead of the library's own.
_LIBRARY_ERRORS: tuple[type[Exception], ...] = (*exception_classes(), RuntimeError, ValueError, TypeError)


@contextmanager
def translate_errors(otherwise: FailureKind) -> Iterator[None]:
    """Turn what the library raises inside into CandidateError, of kind `otherwise` where the error names
    none.

    Raises: CandidateError.
    """
    try:
        yield
    except MemoryError as error:
        raise CandidateError(FailureKind.OUT_OF_MEMORY, str(error) or "out of host memory") from error
    except _LIBRARY_ERRORS as error:
        raise CandidateError(_kind(error, otherwise), str(error).strip() or type(error).__name__) from error


def _kind(error: Exception, otherwise: FailureKind) -> FailureKind:
    words = str(error)
    if any(phrase in words for phrase in _OUT_OF_MEMORY):
        return FailureKind.OUT_OF_MEMORY
    if any(phrase in words for phrase in _UNSUPPORTED):
        return FailureKind.UNSUPPORTED
    return CLASSES.get(type(error).__name__) or otherwise
