"""NVIDIA TensorRT, 8.6 to 11.x: the backend `tensorrt`.

Flow: the registry imports this file only when somebody asks for the backend -> trt.py does the work.
"""

from __future__ import annotations

import tensorrt

from objectives.backends.trt import TrtBackend


class TensorRtBackend(TrtBackend):
    """Builds for, and on, the GPU at hand; makes no builder without one."""

    name = "tensorrt"
    library = tensorrt
