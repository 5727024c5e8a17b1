"""What the tests of TensorRT-RTX share. They use the REAL library, which builds without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorrt_rtx", reason="tensorrt-rtx is not installed: pip install 'tensorrt-tuner[tensorrt-rtx]'")

from objectives.backends.base import BuildTerms
from objectives.backends.trt_build import BuildSettings
from objectives.backends.trt_rtx import TensorRtRtxBackend
from objectives.model import read_onnx
from objectives.outcome import EngineFile
from objectives.shapes import ShapeRange
from tests.objectives.backends.evaluation import trained

BACKEND = TensorRtRtxBackend()
LIBRARY: Any = TensorRtRtxBackend.library
FIXED = ShapeRange.fixed
NETWORKS = {
    "magika": ("magika", "models/standard_v3_3/model.onnx", {"bytes": ShapeRange((1, 2048), (8, 2048), (16, 2048))}),
    "classifier": (
        "rapidocr_onnxruntime",
        "models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        {"x": ShapeRange((1, 3, 48, 192), (4, 3, 48, 192), (6, 3, 48, 192))},
    ),
    "recogniser": (
        "rapidocr_onnxruntime",
        "models/ch_PP-OCRv4_rec_infer.onnx",
        {"x": ShapeRange((1, 3, 48, 160), (4, 3, 48, 320), (6, 3, 48, 640))},
    ),
    "detector": ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx", {"x": FIXED(1, 3, 320, 320)}),
}


def network(name: str) -> tuple[Path, dict[str, ShapeRange]]:
    """A trained network and shapes for it; skips where its package is not installed."""
    package, file, shapes = NETWORKS[name]
    return trained(package, file), shapes


def shapes_of(path: Path, size: int = 2) -> dict[str, ShapeRange]:
    """Every dynamic dimension of every input is `size`."""
    return {
        spec.name: FIXED(*(dim if isinstance(dim, int) else size for dim in spec.shape or ()))
        for spec in read_onnx(path).inputs
        if spec.is_dynamic
    }


def build(
    path: Path,
    folder: Path,
    shapes: dict[str, ShapeRange],
    settings: BuildSettings | None = None,
    on_step: Callable[[str], None] = lambda words: None,
    **values: str,
) -> EngineFile:
    """Build into a new folder inside `folder`."""
    target = folder / f"build-{len(list(folder.iterdir()))}"
    target.mkdir()
    backend = BACKEND if settings is None else TensorRtRtxBackend(settings)
    return backend.build(path, values, target, BuildTerms(shapes=shapes, on_step=on_step))
