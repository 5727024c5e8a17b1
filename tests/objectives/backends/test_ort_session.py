"""Inputs and outputs of an ONNX Runtime session: every type, shape, layout and name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from objectives.tensors import name_of
from tests import onnx_models
from tests.objectives.backends.evaluation import BACKEND, evaluate


@pytest.mark.parametrize("dims", [("n",), (), ("n", 2)], ids=["vector", "scalar", "matrix"])
@pytest.mark.parametrize("dtype", onnx_models.DTYPES)
def test_every_type_goes_through_run_and_timing(tmp_path: Path, dtype: str, dims: onnx_models.Dims) -> None:
    path = onnx_models.identity(tmp_path, dtype, dims)
    given = onnx_models.sample(dtype, tuple(3 if dim == "n" else dim for dim in dims))
    with BACKEND.open(BACKEND.build(path, {}, tmp_path), {}) as session:
        found = session.run({"x": given})["y"]
        session.bind({"x": given})
        assert session.measure(2) > 0
    assert name_of(found.dtype) == dtype == BACKEND.describe(path).inputs[0].dtype
    assert found.shape == given.shape
    assert np.array_equal(found, given)
    assert np.array_equal(BACKEND.reference(path, {"x": given})["y"], given)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "string"])
def test_empty_arrays(tmp_path: Path, dtype: str) -> None:
    path = onnx_models.identity(tmp_path, dtype)
    found = BACKEND.reference(path, {"x": onnx_models.sample(dtype, (0,))})["y"]
    assert found.shape == (0,)
    assert name_of(found.dtype) == dtype


@pytest.mark.parametrize(
    "prepare",
    [lambda x: x[::2], lambda x: x.astype(">f4"), lambda x: np.broadcast_to(x[:1], (5,))],
    ids=["strided", "big-endian", "broadcast"],
)
def test_arrays_in_any_layout(tmp_path: Path, prepare: Any) -> None:
    path = onnx_models.identity(tmp_path, "float32")
    given = prepare(np.arange(8, dtype=np.float32) + 1)
    assert np.array_equal(BACKEND.reference(path, {"x": given})["y"], given)


def test_fixed_width_text_is_a_string_input(tmp_path: Path) -> None:
    path = onnx_models.identity(tmp_path, "string")
    found = BACKEND.reference(path, {"x": np.array(["größe", "b"])})["y"]
    assert found.dtype == object
    assert list(found) == ["größe", "b"]


def test_odd_names_several_types_and_data_dependent_shapes(tmp_path: Path) -> None:
    path, inputs = onnx_models.mixed(tmp_path), onnx_models.mixed_inputs()
    found, _ = evaluate(path, inputs, tmp_path)
    assert np.array_equal(found["größe/out:0"], inputs["in/put:0"] * 0.5)
    assert list(found["text out"]) == list(inputs["текст"])
    assert found["where"].tolist() == [[1, 3]]


def test_string_inputs_are_timed_with_their_conversion(tmp_path: Path) -> None:
    for dtype, expected in (("string", "converted each time"), ("int8", "resident")):
        path = onnx_models.identity(tmp_path, dtype)
        with BACKEND.open(BACKEND.build(path, {}, tmp_path), {}) as session:
            session.bind({"x": onnx_models.sample(dtype, (3,))})
            assert session.measure(1) > 0
            assert session.effective["inputs"] == expected


@pytest.mark.parametrize("flip", [False, True])
def test_control_flow(tmp_path: Path, flip: bool) -> None:
    path = onnx_models.control_flow(tmp_path)
    inputs = {
        "x": np.eye(16, dtype=np.float32)[:2],
        "steps": np.array(3, np.int64),
        "flip": np.array(flip),
    }
    found, _ = evaluate(path, inputs, tmp_path)
    expected = BACKEND.reference(path, inputs)["y"]
    assert np.allclose(found["y"], expected, atol=1e-6)
    assert np.abs(expected).max() > 0
