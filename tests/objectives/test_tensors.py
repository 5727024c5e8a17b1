"""Tensors: every type, shape and name survives the file; equal tensors are equal bytes; damage is told."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from objectives.errors import WorkloadError
from objectives.tensors import Array, dtype_of, load_tensors, name_of, save_tensors

EXTENDED = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "int4", "uint4")
PLAIN = (
    *("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("bool", "complex64", "complex128"),
)
TYPES = (*PLAIN, *EXTENDED, "string")
SHAPES = ((), (0,), (1,), (5,), (2, 3), (2, 0, 3))


def sample(dtype: str, shape: tuple[int, ...]) -> Array:
    count = int(np.prod(shape))
    if dtype == "string":
        words = ["", "größe", "a b\n", "текст", "x" * 100]
        return np.array([words[i % 5] for i in range(count)], object).reshape(shape)
    return (np.arange(count) % 7).astype(dtype_of(dtype)).reshape(shape)


def same(one: Array, two: Array) -> bool:
    """Equal to the last bit, NaN included; text by text."""
    if one.dtype != two.dtype or one.shape != two.shape:
        return False
    if one.dtype == object:
        return bool(np.array_equal(one, two))
    return np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(two).tobytes()


def trip(tensors: dict[str, Array], folder: Path) -> dict[str, Array]:
    path = folder / "tensors ü"
    save_tensors(path, tensors)
    return load_tensors(path)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_and_shape_survives(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    array = sample(dtype, shape)
    assert same(trip({"x": array}, tmp_path)["x"], array)


@pytest.mark.parametrize("dtype", EXTENDED)
def test_every_bit_pattern_of_the_extended_types_survives(dtype: str, tmp_path: Path) -> None:
    size = dtype_of(dtype).itemsize
    bits = np.arange(16 if "int4" in dtype else 256**size, dtype=np.uint16 if size == 2 else np.uint8)
    array = bits.view(dtype_of(dtype))
    assert trip({"x": array}, tmp_path)["x"].tobytes() == bits.tobytes()


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(PLAIN).flatmap(lambda name: npst.arrays(name, npst.array_shapes(min_dims=0, min_side=0))))
def test_any_numbers_survive_bit_by_bit(tmp_path: Path, array: Array) -> None:
    assert same(trip({"x": array}, tmp_path)["x"], array)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(max_size=5), max_size=4))
def test_any_text_survives(tmp_path: Path, words: list[str]) -> None:
    assert trip({"x": np.array(words, object)}, tmp_path)["x"].tolist() == words


def test_text_that_ends_in_nul_survives(tmp_path: Path) -> None:
    assert trip({"x": np.array(["a\0", "\0"], object)}, tmp_path)["x"].tolist() == ["a\0", "\0"]


def test_bytes_are_read_as_utf8_text(tmp_path: Path) -> None:
    assert trip({"x": np.array(["größe".encode()])}, tmp_path)["x"].tolist() == ["größe"]


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(max_size=6), unique=True, max_size=5))
def test_any_names_survive_in_order(tmp_path: Path, names: list[str]) -> None:
    tensors = {name: np.array(index) for index, name in enumerate(names)}
    again = trip(tensors, tmp_path)
    assert list(again) == names
    assert [int(array) for array in again.values()] == list(range(len(names)))


def test_hard_names_survive(tmp_path: Path) -> None:
    names = ["in/put:0", "../up", "größe", "текст", "a b", "tensors.json", "0.npy", "", "file", "x" * 300]
    assert list(trip({name: np.zeros(1) for name in names}, tmp_path)) == names


def test_views_of_any_layout_survive(tmp_path: Path) -> None:
    base = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    views = {
        "t": base.T,
        "s": base[:, ::2, ::-1],
        "f": np.asfortranarray(base[0]),
        "b": np.broadcast_to(base[0, 0], (2, 4)),
    }
    views["bf"] = base.astype(ml_dtypes.bfloat16).T
    again = trip(views, tmp_path)
    for name, view in views.items():
        assert same(again[name], view), name


def test_every_onnx_type_with_a_numpy_type_survives(tmp_path: Path) -> None:
    for name in onnx.TensorProto.DataType.keys():  # noqa: SIM118 - a protobuf enum, not a dict
        try:
            dtype = dtype_of(name.lower())
        except TypeError:
            continue
        if dtype.kind == "O":
            continue
        array = np.array([0, 1, 1, 0]).astype(dtype)
        again = trip({"x": array}, tmp_path)["x"]
        assert again.dtype == dtype, name
        assert again.tolist() == array.tolist(), name


def test_the_same_tensors_are_the_same_bytes(tmp_path: Path) -> None:
    tensors = {"a": sample("string", (3,)), "b": sample("bfloat16", (2, 2)), "c": np.arange(6).reshape(2, 3)}
    save_tensors(tmp_path / "one", tensors)
    save_tensors(tmp_path / "two", {**tensors, "c": np.asfortranarray(tensors["c"])})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    with zipfile.ZipFile(tmp_path / "one") as archive:  # nor will the hour of writing make them others
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


@pytest.mark.parametrize(
    "other",
    [
        {"a": np.zeros(2, np.float32)},
        {"b": np.zeros(2)},
        {"a": np.zeros((2, 1))},
        {"a": np.array([0.0, -0.0])},
        {"a": np.zeros(2), "b": np.zeros(2)},
        {},
    ],
)
def test_other_tensors_are_other_bytes(other: dict[str, Array], tmp_path: Path) -> None:
    save_tensors(tmp_path / "one", {"a": np.zeros(2)})
    save_tensors(tmp_path / "two", other)
    assert (tmp_path / "one").read_bytes() != (tmp_path / "two").read_bytes()


def test_the_names_of_types_are_inverse() -> None:
    for name in TYPES:
        assert name_of(dtype_of(name)) == name
    assert {name_of(np.dtype(kind)) for kind in ("U3", "S3", "O")} == {"string"}


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "x"
    save_tensors(path, {"a": np.ones(1)})
    before = path.read_bytes()
    pickled = np.zeros(1, np.dtype([("any", object)]))
    with pytest.raises(ValueError, match="Object arrays"):
        save_tensors(path, {"a": np.ones(1), "b": pickled})
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


class TestDamage:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        save_tensors(tmp_path / "x", {"a": np.arange(20, dtype=np.float32), "b": sample("string", (3,))})
        return tmp_path / "x"

    def test_a_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(WorkloadError, match="missing"):
            load_tensors(tmp_path / "missing")

    def test_cut_off_anywhere(self, path: Path) -> None:
        data = path.read_bytes()
        for size in range(0, len(data), 7):
            path.write_bytes(data[:size])
            with pytest.raises(WorkloadError):
                load_tensors(path)

    def test_one_byte_off_anywhere(self, path: Path) -> None:
        data, whole = path.read_bytes(), load_tensors(path)
        others = set()
        for index in range(len(data)):
            path.write_bytes(data[:index] + bytes([data[index] ^ 0xFF]) + data[index + 1 :])
            try:
                again = load_tensors(path)
            except WorkloadError:
                continue
            except Exception as error:
                others.add(f"{type(error).__name__}: {error}")
                continue
            # A bit that says nothing (a date, a permission) may differ, the tensors may not.
            assert {name: array.tolist() for name, array in again.items()} == {
                name: array.tolist() for name, array in whole.items()
            }
        assert not others

    @pytest.mark.parametrize("head", [b"[]", b"{}", b'{"format": 1}', b'{"format": 1, "tensors": [{}]}', b"\xff"])
    def test_a_head_of_another_form(self, head: bytes, path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("tensors.json", head)
        with pytest.raises(WorkloadError):
            load_tensors(path)

    def test_a_newer_format(self, path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("tensors.json", '{"format": 2, "tensors": []}')
        with pytest.raises(WorkloadError, match="format 2"):
            load_tensors(path)

    def test_pickled_objects_are_not_read(self, path: Path) -> None:
        buffer = io.BytesIO()
        np.save(buffer, np.array([{}], object), allow_pickle=True)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("tensors.json", '{"format": 1, "tensors": [{"name": "a", "dtype": "string"}]}')
            archive.writestr("0.npy", buffer.getvalue())
        with pytest.raises(WorkloadError):
            load_tensors(path)
