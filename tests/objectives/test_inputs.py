"""Inputs: full shapes, seeded data of every type inside its range, hard pairs, and clear refusals."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectives.errors import WorkloadError
from objectives.inputs import Generation, Pair, generate, require_fit, resolve_shapes
from objectives.model import Dim, ModelSpec, TensorSpec
from objectives.tensors import Array, dtype_of

FLOATS = (
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
)
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "int4", "uint4")
NEED_RANGE = tuple(name for name in INTEGERS if name not in ("int8", "uint8"))
DENORMALS = ("float16", "bfloat16", "float32", "float64")


def model(*inputs: TensorSpec) -> ModelSpec:
    return ModelSpec("digest", "m", "onnx", inputs, (), ("m.onnx",), 1)


def tensor(name: str = "x", dtype: str = "float32", shape: tuple[Dim, ...] | None = (4,)) -> TensorSpec:
    return TensorSpec(name, dtype, shape)


def pairs(spec: TensorSpec, shape: tuple[int, ...] = (4,), **how: Any) -> dict[str, Array]:
    """The data of a model with one input, by label."""
    return {
        pair.label: pair.tensors[spec.name] for pair in generate(model(spec), {spec.name: shape}, Generation(**how))
    }


def doubles(array: Array) -> Array:
    return array.astype(np.float64)


class TestShapes:
    def test_what_the_model_fixes_needs_no_words(self) -> None:
        specs = model(tensor("x", shape=(2, 3)), tensor("s", shape=()))
        assert resolve_shapes(specs, {}) == {"x": (2, 3), "s": ()}
        assert resolve_shapes(specs, {"x": (2, 3)}) == {"x": (2, 3), "s": ()}

    def test_dynamic_dimensions_are_completed(self) -> None:
        specs = model(tensor("x", shape=("n", 3)), tensor("y", shape=None))
        assert resolve_shapes(specs, {"x": (7, 3), "y": (1, 2)}) == {"x": (7, 3), "y": (1, 2)}
        assert resolve_shapes(specs, {"x": (0, 3), "y": ()}) == {"x": (0, 3), "y": ()}

    @pytest.mark.parametrize(
        ("shape", "example"), [(("n", 3, "?"), "--shapes 'x:1x3x1'"), (None, "--shapes 'x:1'"), (("n",), "'x:1'")]
    )
    def test_a_dynamic_input_without_a_shape_is_refused_with_an_example(
        self, shape: tuple[Dim, ...] | None, example: str
    ) -> None:
        with pytest.raises(WorkloadError, match="'x' has dynamic shape") as error:
            resolve_shapes(model(tensor(shape=shape)), {})
        assert example in error.value.hint

    @pytest.mark.parametrize("given", [(7, 4), (7,), (7, 3, 1), (), (-1, 3)])
    def test_a_shape_that_does_not_fit_is_refused(self, given: tuple[int, ...]) -> None:
        with pytest.raises(WorkloadError, match="'x'"):
            resolve_shapes(model(tensor(shape=("n", 3))), {"x": given})

    def test_an_unknown_input_is_refused_with_the_known(self) -> None:
        with pytest.raises(WorkloadError, match="'z'") as error:
            resolve_shapes(model(tensor("x"), tensor("y")), {"z": (1,)})
        assert "x, y" in error.value.hint

    def test_one_name_has_one_size(self) -> None:
        specs = model(tensor("ids", shape=("batch", "seq")), tensor("mask", shape=("batch", "seq")))
        assert resolve_shapes(specs, {"ids": (2, 5), "mask": (2, 5)})["mask"] == (2, 5)
        with pytest.raises(WorkloadError, match="'seq' is 5 in 'ids' and 6 in 'mask'"):
            resolve_shapes(specs, {"ids": (2, 5), "mask": (2, 6)})

    def test_one_name_twice_in_one_input(self) -> None:
        with pytest.raises(WorkloadError, match="'n'"):
            resolve_shapes(model(tensor(shape=("n", "n"))), {"x": (2, 3)})

    def test_dimensions_without_a_name_are_not_shared(self) -> None:
        specs = model(tensor("a", shape=("?",)), tensor("b", shape=("?",)))
        assert resolve_shapes(specs, {"a": (1,), "b": (2,)}) == {"a": (1,), "b": (2,)}


class TestOrdinary:
    @pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 1), (2, 3)], ids=str)
    @pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bool", "complex64", "complex128"])
    def test_every_type_and_shape(self, dtype: str, shape: tuple[int, ...]) -> None:
        found = pairs(tensor(dtype=dtype, shape=shape), shape, ranges={"x": (0, 1)} if dtype in INTEGERS else {})
        assert list(found)[:5] == ["random-0", "random-1", "random-2", "zeros", "large"]
        for array in found.values():
            assert isinstance(array, np.ndarray)
            assert (array.dtype, array.shape) == (dtype_of(dtype), shape)

    @pytest.mark.parametrize("dtype", FLOATS)
    def test_floats_are_finite_and_differ(self, dtype: str) -> None:
        found = pairs(tensor(dtype=dtype), (50_000,))
        for label, array in found.items():
            assert np.isfinite(doubles(array)).all(), label
        assert len(np.unique(doubles(found["random-0"]))) > 20
        assert doubles(found["random-0"]).std() == pytest.approx(1.0, abs=0.1)  # a normalized feature

    def test_booleans_are_both(self) -> None:
        assert set(pairs(tensor(dtype="bool"), (100,))["random-0"].tolist()) == {True, False}

    @settings(deadline=None)
    @given(st.sampled_from(INTEGERS), st.data())
    def test_integers_stay_inside_their_range_and_reach_both_ends(self, dtype: str, data: st.DataObject) -> None:
        info = ml_dtypes.iinfo(dtype_of(dtype))
        low = data.draw(st.integers(int(info.min), int(info.max)))
        high = data.draw(st.integers(low, min(low + 3, int(info.max))))
        for array in pairs(tensor(dtype=dtype), (200,), ranges={"x": (low, high)}).values():
            values = {int(number) for number in array.tolist()}
            assert values <= set(range(low, high + 1))
        assert {
            int(n) for n in pairs(tensor(dtype=dtype), (200,), ranges={"x": (low, high)})["random-0"].tolist()
        } == set(range(low, high + 1))

    def test_a_range_with_fractions_is_kept_too(self) -> None:
        for array in pairs(tensor(dtype="int32"), (100,), ranges={"x": (0.5, 2.5)}).values():
            assert set(array.tolist()) <= {1, 2}

    @pytest.mark.parametrize(("dtype", "low", "high"), [("uint8", 0, 255), ("int8", -128, 127)])
    def test_bytes_have_a_sensible_range_of_their_own(self, dtype: str, low: int, high: int) -> None:
        array = pairs(tensor(dtype=dtype), (20_000,))["random-0"]
        assert (array.min(), array.max()) == (low, high)

    @pytest.mark.parametrize("dtype", DENORMALS)
    def test_floats_stay_inside_their_range(self, dtype: str) -> None:
        for array in pairs(tensor(dtype=dtype), (500,), ranges={"x": (-0.5, 2.0)}).values():
            assert doubles(array).min() >= -0.5
            assert doubles(array).max() <= 2.0

    @pytest.mark.parametrize("dtype", [*FLOATS, "int32", "bool", "complex64"])
    def test_the_seed_decides_everything(self, dtype: str) -> None:
        ranges = {"x": (0.0, 1000.0)} if dtype == "int32" else {}
        one, two, other = (pairs(tensor(dtype=dtype), (40,), seed=seed, ranges=ranges) for seed in (1, 1, 2))
        for label, array in one.items():
            assert array.tobytes() == two[label].tobytes()
        assert one["random-0"].tobytes() != other["random-0"].tobytes()
        assert one["random-0"].tobytes() != one["random-1"].tobytes()

    def test_the_count_does_not_change_what_comes_first(self) -> None:
        few, many = pairs(tensor(), (4,), count=1), pairs(tensor(), (4,), count=5)
        assert [label for label in many if label.startswith("random")] == [f"random-{i}" for i in range(5)]
        for label, array in few.items():
            assert array.tolist() == many[label].tolist()

    def test_inputs_of_one_pair_differ(self) -> None:
        specs = model(tensor("a"), tensor("b"))
        (first, *_) = generate(specs, {"a": (4,), "b": (4,)}, Generation())
        assert first.tensors["a"].tolist() != first.tensors["b"].tolist()
        assert first.required


class TestHard:
    def test_they_are_not_required_and_can_be_left_out(self) -> None:
        specs = model(tensor())
        assert [(p.label, p.required) for p in generate(specs, {"x": (4,)}, Generation(count=1))] == [
            ("random-0", True),
            ("zeros", False),
            ("large", False),
            ("denormal", False),
        ]
        assert [p.label for p in generate(specs, {"x": (4,)}, Generation(count=2, hard=False))] == [
            "random-0",
            "random-1",
        ]

    @pytest.mark.parametrize("dtype", DENORMALS)
    def test_denormals_are_denormal(self, dtype: str) -> None:
        values = np.abs(doubles(pairs(tensor(dtype=dtype), (20,))["denormal"]))
        smallest_normal = float(ml_dtypes.finfo(dtype_of(dtype)).smallest_normal)
        assert (values > 0).all()
        assert (values < smallest_normal).all()

    @pytest.mark.parametrize("dtype", ["int32", "bool", "uint8"])
    def test_there_are_none_without_floats(self, dtype: str) -> None:
        assert "denormal" not in pairs(tensor(dtype=dtype), ranges={"x": (0, 9)} if dtype == "int32" else {})

    def test_there_are_none_inside_a_range_of_the_users(self) -> None:
        assert "denormal" not in pairs(tensor(), ranges={"x": (1.0, 2.0)})
        both = model(tensor("a"), tensor("b"))
        found = generate(both, {"a": (9,), "b": (9,)}, Generation(ranges={"a": (1.0, 2.0)}))
        (denormal,) = [pair for pair in found if pair.label == "denormal"]
        assert (denormal.tensors["a"] >= 1).all()
        assert (np.abs(denormal.tensors["b"]) < 1e-38).all()

    @pytest.mark.parametrize("dtype", FLOATS)
    def test_zeros_and_large_values(self, dtype: str) -> None:
        found = pairs(tensor(dtype=dtype), (1000,))
        assert not doubles(found["zeros"]).any()
        assert np.abs(doubles(found["large"])).max() > 5 * np.abs(doubles(found["random-0"])).max()

    def test_booleans(self) -> None:
        found = pairs(tensor(dtype="bool"))
        assert (found["zeros"].tolist(), found["large"].tolist()) == ([False] * 4, [True] * 4)

    @pytest.mark.parametrize(("low", "high", "zero"), [(0, 9, 0), (-5, 5, 0), (3, 9, 3), (-9, -3, -3)])
    @pytest.mark.parametrize("dtype", ["int64", "float32"])
    def test_inside_a_range_they_are_its_ends_and_what_is_next_to_zero(
        self, dtype: str, low: int, high: int, zero: int
    ) -> None:
        found = pairs(tensor(dtype=dtype), (50,), ranges={"x": (low, high)})
        assert set(found["zeros"].tolist()) == {zero}
        assert set(found["large"].tolist()) <= {low, high}
        assert high in found["large"]

    def test_other_shapes_are_pairs_of_their_own(self) -> None:
        specs = model(tensor(shape=("n",)))
        edges = {"shortest": {"x": (1,)}, "longest": {"x": (8,)}, "same": {"x": (4,)}}
        found = {p.label: p for p in generate(specs, {"x": (4,)}, Generation(count=1), edges)}
        assert found["shortest"].tensors["x"].shape == (1,)
        assert found["longest"].tensors["x"].shape == (8,)
        assert not found["longest"].required
        assert "same" not in found


class TestRefusals:
    @pytest.mark.parametrize("dtype", NEED_RANGE)
    def test_integers_need_a_range(self, dtype: str) -> None:
        with pytest.raises(WorkloadError, match=dtype) as error:
            pairs(tensor("ids", dtype))
        assert "--range 'ids:low:high'" in error.value.hint

    def test_text_cannot_be_generated(self) -> None:
        with pytest.raises(WorkloadError, match="text") as error:
            pairs(tensor(dtype="string"))
        assert "--inputs" in error.value.hint

    def test_a_range_of_an_unknown_input(self) -> None:
        with pytest.raises(WorkloadError, match="'z'"):
            pairs(tensor(), ranges={"z": (0.0, 1.0)})

    @pytest.mark.parametrize(
        ("dtype", "low", "high"),
        [
            ("float32", 1.0, 0.0),
            ("float32", math.nan, 1.0),
            ("float32", 0.0, math.nan),
            ("float32", -math.inf, math.inf),
            ("float16", -1e6, 1e6),
            ("float32", 0.0, 1e39),
            ("int8", 0, 128),
            ("uint8", -1, 5),
            ("uint32", 0, 2**32),
            ("int64", 0, 2.0**64),
            ("int4", 0, 8),
            ("uint4", 0, 16),
            ("uint4", -1, 3),
        ],
    )
    def test_a_range_that_does_not_fit(self, dtype: str, low: float, high: float) -> None:
        with pytest.raises(WorkloadError, match="range") as error:
            pairs(tensor(dtype=dtype), ranges={"x": (low, high)})
        assert error.value.hint

    def test_the_largest_unsigned_range_fits(self) -> None:
        array = pairs(tensor(dtype="uint64"), (100,), ranges={"x": (0, 2**64 - 1)})["random-0"]
        assert int(array.max()) > 2**63


class TestUsersData:
    SPECS = model(tensor("x", "float32", ("n", 3)), tensor("t", "string", ("n",)), tensor("h", "bfloat16", ()))

    def data(self, **changes: Array | None) -> dict[str, Array]:
        fine = {
            "x": np.zeros((2, 3), np.float32),
            "t": np.array(["a", "b"]),
            "h": np.zeros((), ml_dtypes.bfloat16),
        }
        return {name: array for name, array in {**fine, **changes}.items() if array is not None}

    def test_data_that_fit(self) -> None:
        require_fit(self.SPECS, "pair", self.data())
        require_fit(self.SPECS, "pair", self.data(t=np.array(["a", "b"], object)))

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"x": None}, "lack 'x'"),
            ({"more": np.zeros(1)}, "have 'more'"),
            ({"x": np.zeros((2, 3))}, "'x' is float64, the model takes float32"),
            ({"x": np.zeros((2, 3), np.int32)}, "'x' is int32"),
            ({"t": np.zeros(2, np.float32)}, "'t' is float32, the model takes string"),
            ({"h": np.zeros((), np.float16)}, "'h' is float16, the model takes bfloat16"),
            ({"x": np.zeros((2, 4), np.float32)}, "'x' has shape nx3, not 2x4"),
            ({"x": np.zeros(3, np.float32)}, "'x' has shape nx3, not 3"),
            ({"h": np.zeros(1, ml_dtypes.bfloat16)}, "'h' has shape scalar"),
            ({"t": np.array(["a"])}, "'n' is 2 in 'x' and 1 in 't'"),
        ],
    )
    def test_data_that_do_not_fit(self, changes: dict[str, Array | None], words: str) -> None:
        with pytest.raises(WorkloadError, match=words) as error:
            require_fit(self.SPECS, "my pair", self.data(**changes))
        assert error.value.hint

    def test_the_refusal_names_the_pair(self) -> None:
        for changes in ({"x": None}, {"x": np.zeros((2, 4), np.float32)}, {"x": np.zeros((2, 3))}):
            with pytest.raises(WorkloadError, match="'my pair'"):
                require_fit(self.SPECS, "my pair", self.data(**changes))


def test_a_pair_is_required_unless_said_otherwise() -> None:
    assert Pair("a", {}).required
