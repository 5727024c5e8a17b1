"""What the TensorRT tests share: backends over the fake library, identity models, the recorded list of build routes."""

from __future__ import annotations

from pathlib import Path

from objectives.backends.trt import TrtBackend
from objectives.backends.trt_build import BuildSettings
from tests import onnx_models
from tests.objectives.backends.fake_tensorrt import FakeTensorRT

ASSETS = Path(__file__).parent / "assets"
ROUTES = (ASSETS / "build_routes.json").read_text()


def backend(library: FakeTensorRT, settings: BuildSettings | None = None) -> TrtBackend:
    """A backend for `library`, as a subclass would name it."""

    class Fake(TrtBackend):
        name = "fake-tensorrt"

    Fake.library = library
    return Fake(settings)


def identity(folder: Path, dtype: str = "float32", shape: tuple[int | str, ...] = (2, 3)) -> Path:
    return onnx_models.identity(folder, dtype, shape)


def two(folder: Path) -> Path:
    """Two inputs, copied to two outputs that stand in the other order."""
    helper = onnx_models.helper
    nodes = [helper.make_node("Identity", ["a"], ["of a"]), helper.make_node("Identity", ["b"], ["of b"])]
    inputs = [onnx_models.value("a", "float32", (2,)), onnx_models.value("b", "int64", (3,))]
    outputs = [onnx_models.value("of b", "int64", (3,)), onnx_models.value("of a", "float32", (2,))]
    return onnx_models.write(folder / "two.onnx", nodes, inputs, outputs)
