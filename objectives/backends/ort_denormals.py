"""Denormals on the calling thread: flush to zero while a session runs, and not a moment longer.

Flow: ort.py (is the knob offered?) and ort_session.py (every run) -> HERE.
ONNX Runtime's option `session.set_denormal_as_zero` sets the calling thread's mode once per process, from
the first session ever made, and never again; the worker threads of each later session do follow it. Taken as
it is, the first candidate of a process would decide for all others, and for our own numpy code too (measured
with 1.32: one session with the option and numpy's 1e-40 * 0.5 is zero until the process ends). So the
calling thread is set here, by the C library's floating-point environment, for exactly as long as the session
works.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

# glibc's fenv_t, in 32-bit words: which word holds the control register, and its flush bits.
# x86-64: 28 bytes of x87 state, then MXCSR (FTZ bit 15, DAZ bit 6). AArch64: FPCR first (FZ bit 24).
_LAYOUTS = {"x86_64": (7, 0x8040), "aarch64": (0, 1 << 24)}
_WORDS = 16  # room for either layout


class FloatMode:
    """The calling thread's floating-point mode."""

    def __init__(self, library: ctypes.CDLL, word: int, bits: int) -> None:
        self._library, self._word, self._bits = library, word, bits

    @property
    def flushes(self) -> bool:
        """Whether denormals are zero on this thread now."""
        return bool(self._read()[self._word] & self._bits)

    @contextmanager
    def during(self, flush: bool) -> Iterator[None]:
        """Flush denormals inside, or do not; afterwards this thread is as it was."""
        before = self._read()
        inside = type(before).from_buffer_copy(before)
        inside[self._word] = before[self._word] | self._bits if flush else before[self._word] & ~self._bits
        self._library.fesetenv(inside)
        try:
            yield
        finally:
            self._library.fesetenv(before)

    def _read(self) -> ctypes.Array[ctypes.c_uint32]:
        words = (ctypes.c_uint32 * _WORDS)()
        self._library.fegetenv(words)
        return words


@lru_cache(maxsize=1)
def float_mode() -> FloatMode | None:
    """The way to this thread's mode; None where platform or C library offers none that we know."""
    layout = _LAYOUTS.get(platform.machine())
    if platform.system() != "Linux" or layout is None:
        return None
    library = ctypes.CDLL(None)
    if not hasattr(library, "fegetenv") or not hasattr(library, "fesetenv"):
        return None
    mode = FloatMode(library, *layout)
    with mode.during(flush=True):
        works = mode.flushes
    return mode if works else None


@contextmanager
def denormals(flush: bool) -> Iterator[None]:
    """Flush or keep denormals inside, whatever was before; does nothing where `float_mode` is None."""
    mode = float_mode()
    if mode is None:
        yield
        return
    with mode.during(flush):
        yield
