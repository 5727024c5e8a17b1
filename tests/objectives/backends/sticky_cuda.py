"""ONNX Runtime on a real GPU with candidates that break the GPU's context, for the tests of what happens then.

Registered by `install` through an entry point in a folder, so that a child process finds it. Its knob `deed` says what
a session does before an inference. Kernels are PTX text, which the driver compiles by itself.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cuda.bindings import driver, runtime

from objectives.backends.base import NO_TERMS, BuildTerms, Session, Values
from objectives.backends.ort_cuda import OnnxRuntimeCudaBackend
from objectives.conditions import Watch
from objectives.errors import CandidateError
from objectives.knobs import Knob, KnobKind, KnobSpace
from objectives.model import ModelSpec
from objectives.outcome import EngineFile, FailureKind
from objectives.tensors import Array, Tensors

NAME = "onnxruntime-cuda-sticky"
_GROUP = "tuner.backends"
_HEAD = ".version 7.0\n.target sm_70\n.address_size 64\n"
_WRITE = """.visible .entry deed() {
  .reg .u64 %address;
  .reg .u32 %value;
  mov.u64 %address, 8;
  mov.u32 %value, 1;
  st.global.u32 [%address], %value;
  ret;
}
"""
# The load keeps the compiler from removing a loop that does nothing.
_LOOP = """.visible .entry deed() {
  .reg .u32 %value;
  .shared .align 4 .u32 word;
again:
  ld.volatile.shared.u32 %value, [word];
  bra.uni again;
}
"""
_KILL_AFTER_S = 0.5  # in the middle of waiting for a kernel that never ends


def install(folder: Path) -> None:
    """Make `folder` a place from which Python sees the backend as installed."""
    info = folder / "tuner_sticky-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tuner-sticky\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{_GROUP}]\n{NAME} = {__name__}:StickyCudaBackend\n")


def illegal_access() -> None:
    """Write to an address that is nobody's: from then on every call of this process fails."""
    _launch(_WRITE)


def endless_kernel() -> None:
    """Wait in CUDA for a kernel that does not end."""
    _launch(_LOOP)


def killed_in_a_call() -> None:
    """Be killed from outside while CUDA waits for the GPU."""
    _be_sent("KILL")
    _launch(_LOOP)


def ended_in_a_call() -> None:
    """As `killed_in_a_call`, by a signal that nobody takes for the kernel's memory guard."""
    _be_sent("TERM")
    _launch(_LOOP)


def _be_sent(name: str) -> None:
    """From another process: a thread of this one might wait for the interpreter while CUDA has it."""
    subprocess.Popen(["sh", "-c", f"sleep {_KILL_AFTER_S}; kill -{name} {os.getpid()}"])


def bad_copy() -> None:
    """Copy to an address that is nobody's: refused, and the context stays."""
    kind = runtime.cudaMemcpyKind.cudaMemcpyHostToDevice
    word = bytearray(8)
    _require(runtime.cudaMemcpy(8, _address(word), len(word), kind))


DEEDS: Mapping[str, Callable[[], None]] = {
    "illegal-access": illegal_access,
    "endless-kernel": endless_kernel,
    "killed-in-a-call": killed_in_a_call,
    "ended-in-a-call": ended_in_a_call,
    "bad-copy": bad_copy,
}
_DEED = Knob("deed", ("none", *DEEDS), "none", KnobKind.RUNTIME, "What a session does to the GPU.")


class StickyCudaBackend(OnnxRuntimeCudaBackend):
    name = NAME

    def knobs(self, path: Path, model: ModelSpec) -> KnobSpace:
        return KnobSpace((*super().knobs(path, model).knobs, _DEED))

    def build(self, path: Path, values: Values, workdir: Path, terms: BuildTerms = NO_TERMS) -> EngineFile:
        return super().build(path, _without(values), workdir, terms)

    def open(self, engine: EngineFile, values: Values) -> Session:
        return _StickySession(super().open(engine, _without(values)), values.get(_DEED.name, _DEED.default))


class _StickySession(Session):
    clock = "cuda_event"

    def __init__(self, inner: Session, deed: str) -> None:
        self._inner = inner
        self._deed = deed

    @property
    def effective(self) -> Values:
        return {**self._inner.effective, _DEED.name: self._deed}

    def watch(self) -> Watch:
        return self._inner.watch()

    def run(self, inputs: Tensors) -> dict[str, Array]:
        if self._deed in DEEDS:
            DEEDS[self._deed]()
        return self._inner.run(inputs)

    def bind(self, inputs: Tensors) -> None:
        self._inner.bind(inputs)

    def _execute(self, repeats: int) -> None:
        self._inner._execute(repeats)

    def measure(self, repeats: int) -> float:
        return self._inner.measure(repeats)

    def close(self) -> None:
        self._inner.close()


def _without(values: Values) -> dict[str, str]:
    return {name: value for name, value in values.items() if name != _DEED.name}


def _launch(kernel: str) -> None:
    """Compile, launch and wait, in the context that the session uses."""
    _require(runtime.cudaFree(0))  # makes the device's context the current one of this thread
    module = _require(driver.cuModuleLoadData((_HEAD + kernel).encode() + b"\0"))
    function = _require(driver.cuModuleGetFunction(module, b"deed"))
    _require(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
    _require(runtime.cudaDeviceSynchronize())


def _require(answer: tuple[Any, ...]) -> Any:
    code, *values = answer
    if int(code) != 0:
        raise CandidateError(FailureKind.RUN_FAILED, f"CUDA says {code!r}")
    return values[0] if values else None


def _address(buffer: bytearray) -> int:
    return ctypes.addressof((ctypes.c_char * len(buffer)).from_buffer(buffer))
