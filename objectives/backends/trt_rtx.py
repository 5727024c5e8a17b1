"""NVIDIA TensorRT for RTX: the backend `tensorrt-rtx`. It builds without a GPU, for a compute capability by name.

Flow: the registry imports this file only when somebody asks for the backend -> trt.py does the work.
"""

from __future__ import annotations

from collections.abc import Mapping

import tensorrt_rtx

from objectives.backends import cuda_runtime, trt_options
from objectives.backends.keep import KEEP
from objectives.backends.trt import TrtBackend
from objectives.errors import InputError


class TensorRtRtxBackend(TrtBackend):
    """Builds for the GPU at hand if the library supports it, else for `BuildSettings.compute_capability`."""

    name = "tensorrt-rtx"
    library = tensorrt_rtx
    options = (
        trt_options.WORKSPACE,
        trt_options.BUILD_TIMEOUT,
        trt_options.CAPABILITY,
        KEEP,
    )  # no timing cache, no routes
    # Taken, read back, and without effect: kernels are chosen on the user's machine, so there are no tactics to time.
    # Measured with 1.7.1: the plans of four trained networks stay the same byte for byte under every value of these.
    inert = frozenset(
        {"builder_optimization_level", "max_num_tactics", "avg_timing_iterations", "tiling", "tactic_sources"}
    )

    def configure(self, options: Mapping[str, str]) -> None:
        super().configure(options)
        if self.settings.compute_capability not in self._supported():
            raise InputError(
                f"{self.library.__name__} does not build for {self.settings.compute_capability!r}",
                hint=f"choose one of: {', '.join(self._supported())}",
            )

    def cannot_run(self) -> str:
        if reason := super().cannot_run():
            return reason
        gpu = cuda_runtime.gpu()
        if gpu is None or gpu.sm in self._supported():
            return ""
        return (
            f"engines cannot be run here: TensorRT for RTX {self.library.__version__} does not support {gpu.name}"
            f" (compute capability {gpu.capability}); it supports {', '.join(self._supported())}"
        )

    def _target(self) -> str:
        gpu = cuda_runtime.gpu()
        return gpu.sm if gpu is not None and gpu.sm in self._supported() else self.settings.compute_capability

    def _supported(self) -> tuple[str, ...]:
        return tuple(name for name in self.library.ComputeCapability.__members__ if name.startswith("SM"))
