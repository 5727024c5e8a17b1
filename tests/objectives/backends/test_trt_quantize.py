"""int8 and fp8: a FAKE ModelOpt with the real arguments makes genuine Q/DQ models, the REAL TensorRT-RTX builds them.

With ModelOpt installed, the last tests use the real one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto

from objectives.backends import trt_quantize
from objectives.backends.base import BuildTerms
from objectives.backends.trt_manifest import read_manifest
from objectives.backends.trt_precision import Choice, choose, precision_knob
from objectives.backends.trt_quantize import RECIPES, Recipe, write_quantized
from objectives.errors import CandidateError, WorkloadError
from objectives.model import read_onnx
from objectives.outcome import FailureKind
from objectives.tensors import Tensors, save_tensors
from tests import onnx_models
from tests.objectives.backends import modelopt
from tests.objectives.backends.fake_tensorrt import FakeTensorRT
from tests.objectives.backends.rtx import LIBRARY, TensorRtRtxBackend, network, shapes_of

INT8 = Recipe("int8")
KINDS = {"int8": TensorProto.INT8, "fp8": TensorProto.FLOAT8E4M3FN}
real = pytest.mark.skipif(
    not trt_quantize.version(), reason="ModelOpt is not installed: pip install 'tensorrt-tuner[modelopt]'"
)


@pytest.fixture
def fake(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    modelopt.install(tmp_path_factory.mktemp("site"), monkeypatch)


def images(count: int = 2) -> list[Tensors]:
    random = np.random.default_rng(0)
    return [{"image": random.normal(size=(2 + index, 3, 16, 16)).astype(np.float32)} for index in range(count)]


def files(folder: Path, feeds: list[Tensors]) -> tuple[Path, ...]:
    paths = tuple(folder / f"typical-{index}.tensors" for index in range(len(feeds)))
    for path, feed in zip(paths, feeds, strict=True):
        save_tensors(path, feed)
    return paths


def quantized(model: Path, recipe: Recipe, calibration: tuple[Path, ...], folder: Path) -> Path:
    """Converted in a new folder inside `folder`."""
    target = folder / f"variant-{len(list(folder.iterdir()))}"
    target.mkdir()
    return write_quantized(model, recipe, calibration, target)


def refusal(model: Path, recipe: Recipe, calibration: tuple[Path, ...], folder: Path) -> tuple[FailureKind, str]:
    with pytest.raises(CandidateError) as caught:
        quantized(model, recipe, calibration, folder)
    return caught.value.kind, str(caught.value)


# ---- the fake ModelOpt


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("precision", RECIPES)
def test_a_quantized_model_builds(precision: str, tmp_path: Path) -> None:
    path = onnx_models.conv(tmp_path)
    workdir = tmp_path / "work"
    workdir.mkdir()
    terms = BuildTerms(shapes=shapes_of(path), calibration=files(tmp_path, images(1)))
    engine = TensorRtRtxBackend().build(path, {"precision": precision}, workdir, terms)
    assert engine.digest
    assert read_manifest(Path(engine.path)).values["precision"] == precision
    assert {file.name for file in workdir.iterdir()} == {"engine.plan", *engine.sidecars}


@pytest.mark.usefixtures("fake")
def test_the_model_is_left_alone_and_keeps_its_interface(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    path = onnx_models.conv(folder)
    before = path.read_bytes()
    for mode, kind in KINDS.items():
        target = quantized(path, Recipe(mode), files(tmp_path, images(1)), tmp_path)
        model = onnx.load(str(target))
        assert kind in {tensor.data_type for tensor in model.graph.initializer}
        assert [one.dtype for one in read_onnx(target).inputs] == ["float32"]
        assert list(folder.iterdir()) == [path]
        assert path.read_bytes() == before


@pytest.mark.usefixtures("fake")
def test_int8_is_calibrated_with_the_inputs_given_and_nearly_exact(tmp_path: Path) -> None:
    path, feeds = onnx_models.conv(tmp_path), images()
    wide = [{"image": feed["image"] * np.float32(100)} for feed in feeds]
    narrow_model, wide_model = (quantized(path, INT8, files(tmp_path, one), tmp_path) for one in (feeds, wide))
    losses = []
    for model in (narrow_model, wide_model):
        expected, found = (
            ort.InferenceSession(str(one), providers=["CPUExecutionProvider"]).run(None, feeds[0])[0]
            for one in (path, model)
        )
        losses.append(float(np.linalg.norm(found - expected) / np.linalg.norm(expected)))
    assert losses[0] < 0.05
    assert losses[1] > 4 * losses[0]


@pytest.mark.usefixtures("fake")
def test_the_same_conversion_gives_the_same_bytes(tmp_path: Path) -> None:
    path, calibration = onnx_models.conv(tmp_path), files(tmp_path, images())
    first, second = (quantized(path, INT8, calibration, tmp_path).read_bytes() for _ in range(2))
    assert first == second


@pytest.mark.usefixtures("fake")
def test_external_weights_come_along(tmp_path: Path) -> None:
    path = onnx_models.external(tmp_path)
    size = read_onnx(path).inputs[0].shape
    assert size is not None
    feed = {"x": np.ones([dim if isinstance(dim, int) else 2 for dim in size], np.float32)}
    assert quantized(path, INT8, files(tmp_path, [feed]), tmp_path).stat().st_size > 1000


@pytest.mark.usefixtures("fake")
def test_dimensions_without_a_name_get_one(tmp_path: Path) -> None:
    model = onnx.load(str(onnx_models.conv(tmp_path)))
    model.graph.input[0].type.tensor_type.shape.dim[0].Clear()
    path = tmp_path / "nameless.onnx"
    onnx.save(model, str(path))
    target = quantized(path, INT8, files(tmp_path, images()), tmp_path)
    assert onnx.load(str(target)).graph.input[0].type.tensor_type.shape.dim[0].dim_param == "image:0"


@pytest.mark.usefixtures("fake")
def test_what_cannot_be_quantized_says_why(tmp_path: Path) -> None:
    path, calibration = onnx_models.conv(tmp_path), files(tmp_path, images())
    kind, words = refusal(path, INT8, (), tmp_path)
    assert (kind, "no typical inputs" in words) == (FailureKind.UNSUPPORTED, True)
    done = quantized(path, INT8, calibration, tmp_path)
    assert refusal(done, INT8, calibration, tmp_path) == (
        FailureKind.UNSUPPORTED,
        "int8: the model is quantized already",
    )
    identity = onnx_models.identity(tmp_path, "float32", (2,))
    kind, words = refusal(identity, INT8, files(tmp_path, [{"x": np.ones(2, np.float32)}]), tmp_path)
    assert (kind, "found nothing to quantize" in words) == (FailureKind.FALLBACK, True)


@pytest.mark.usefixtures("fake")
def test_failures_carry_the_converters_words(tmp_path: Path) -> None:
    # The calibration lacks the input: that is what the reader says.
    path = onnx_models.conv(tmp_path)
    kind, words = refusal(path, INT8, files(tmp_path, [{"other": np.ones(2, np.float32)}]), tmp_path)
    assert (kind, words) == (FailureKind.BUILD_FAILED, "the model cannot be converted to int8: KeyError: 'image'")
    with pytest.raises(WorkloadError, match="cannot read the tensors"):
        write_quantized(path, INT8, (tmp_path / "missing",), tmp_path)


@pytest.mark.usefixtures("fake")
def test_a_converter_that_crashes_is_a_failed_candidate(tmp_path: Path) -> None:
    path = onnx_models.mlp(tmp_path)
    feed = {"x": np.ones((2, 64), np.float32)}
    kind, words = refusal(path, Recipe("fp8"), files(tmp_path, [feed]), tmp_path)
    assert (kind, "was killed by SIGABRT" in words) == (FailureKind.BUILD_FAILED, True)


@pytest.mark.usefixtures("fake")
def test_a_version_that_would_take_random_numbers_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MODELOPT_VERSION", "0.43.0")
    kind, words = refusal(onnx_models.conv(tmp_path), INT8, files(tmp_path, images()), tmp_path)
    assert (kind, "takes no calibration_data_reader" in words) == (FailureKind.BUILD_FAILED, True)


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("version", ["0.44.0", "0.47.0"])
def test_versions_that_have_every_argument(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MODELOPT_VERSION", version)
    assert quantized(onnx_models.conv(tmp_path), INT8, files(tmp_path, images()), tmp_path).exists()


# ---- what is offered, and what it means for each version


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    ("version", "values"),
    [
        ("8.6.1", ("as-given", "fp16", "int8", "int8-fp16")),
        ("10.9.0", ("as-given", "fp16", "bf16", *RECIPES, "strongly-typed")),
        ("11.1.0", ("as-given", "fp16", "fp16-mixed", "bf16", "bf16-mixed", *RECIPES)),
    ],
)
def test_what_each_version_offers(version: str, values: tuple[str, ...]) -> None:
    assert precision_knob(FakeTensorRT(version)).values == values


@pytest.mark.usefixtures("fake")
def test_it_is_offered_and_named_only_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert TensorRtRtxBackend().environment().identity["modelopt"] == trt_quantize.version()
    assert precision_knob(LIBRARY).values[-4:] == tuple(RECIPES)
    modelopt.remove(monkeypatch)
    assert "modelopt" not in TensorRtRtxBackend().environment().identity
    assert precision_knob(LIBRARY).values == ("as-given", "fp16", "fp16-mixed", "bf16", "bf16-mixed")


@pytest.mark.usefixtures("fake")
def test_weakly_typed_networks_get_flags_for_int8_and_strong_types_for_fp8(tmp_path: Path) -> None:
    path, calibration = onnx_models.conv(tmp_path), files(tmp_path, images(1))

    def chosen(version: str, precision: str) -> Choice:
        folder = tmp_path / f"{version}-{precision}"
        folder.mkdir()
        return choose(FakeTensorRT(version), path, precision, folder, calibration)

    for version, precision, strong, flags in (
        ("8.6.1", "int8", False, ["INT8"]),
        ("10.9.0", "int8-fp16", False, ["INT8", "FP16"]),
        ("10.9.0", "fp8-fp16", True, []),
        ("11.1.0", "int8", True, []),
    ):
        choice = chosen(version, precision)
        assert (choice.strongly_typed, [flag.flag.name for flag in choice.flags]) == (strong, flags)
        assert choice.model.name == "quantized.onnx"


# ---- the real ModelOpt


@real
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("precision", RECIPES)
@pytest.mark.parametrize("name", ["classifier", "magika", "recogniser"])
def test_modelopt_converts_trained_networks(name: str, precision: str, tmp_path: Path) -> None:
    path, shapes = network(name)
    spec = read_onnx(path).inputs[0]
    random = np.random.default_rng(0)
    feeds: list[Tensors] = []
    for shape in (shapes[spec.name].opt, shapes[spec.name].max):
        feed = random.integers(0, 256, shape) if spec.dtype == "int32" else random.uniform(-1, 1, shape)
        feeds.append({spec.name: feed.astype(spec.dtype)})
    calibration = files(tmp_path, feeds)
    workdir = tmp_path / "work"
    workdir.mkdir()
    engine = TensorRtRtxBackend().build(
        path, {"precision": precision}, workdir, BuildTerms(shapes=shapes, calibration=calibration)
    )
    assert engine.size_bytes


@real
@pytest.mark.parametrize("mode", KINDS)
def test_modelopt_gives_the_same_bytes(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, shapes = network("magika")
    feed = np.random.default_rng(0).integers(0, 256, shapes["bytes"].opt).astype(np.int32)
    calibration, found = files(tmp_path, [{"bytes": feed}]), set()
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        found.add(quantized(path, Recipe(mode), calibration, tmp_path).read_bytes())
    assert len(found) == 1
