"""Data files of users: every form of source, names and types kept, and nothing that could run code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from objectives.dataset import read_pairs, require_references
from objectives.errors import WorkloadError
from objectives.model import Dim, ModelSpec, TensorSpec
from objectives.tensors import Array

SPECS = (
    TensorSpec("x", "float32", (2, 3)),
    TensorSpec("in/put:0", "int64", ("n",)),
    TensorSpec("h", "bfloat16", (2,)),
    TensorSpec("flag", "bool", ()),
    TensorSpec("t", "string", (1,)),
)
X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Code:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return Path.touch.__get__(self.path), ()  # type: ignore[return-value]


def read(*sources: object, **shapes: tuple[int, ...]) -> list[tuple[str, dict[str, Array]]]:
    return read_pairs([str(source) for source in sources], SPECS, shapes)


def refused(*sources: object, match: str | None = None, **shapes: tuple[int, ...]) -> WorkloadError:
    with pytest.raises(WorkloadError, match=match) as error:
        read(*sources, **shapes)
    return error.value


class TestArchives:
    def test_a_file_is_a_pair_named_as_the_file(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "größe.npz", **{"x": X, "in/put:0": np.arange(3), "t": np.array(["wört"])})
        ((label, tensors),) = read(tmp_path / "größe.npz")
        assert label == "größe"
        assert tensors["x"].tolist() == X.tolist()
        assert tensors["x"].dtype == np.float32
        assert tensors["in/put:0"].tolist() == [0, 1, 2]
        assert tensors["t"].tolist() == ["wört"]

    def test_compressed_files_are_read(self, tmp_path: Path) -> None:
        np.savez_compressed(tmp_path / "a.npz", x=X)
        assert read(tmp_path / "a.npz")[0][1]["x"].tolist() == X.tolist()

    def test_sources_keep_their_order(self, tmp_path: Path) -> None:
        for name in "ba":
            np.savez(tmp_path / f"{name}.npz", x=X)
        assert [label for label, _ in read(tmp_path / "b.npz", tmp_path / "a.npz")] == ["b", "a"]

    def test_a_folder_of_archives_is_many_pairs_by_name(self, tmp_path: Path) -> None:
        for index in (2, 0, 1):
            np.savez(tmp_path / f"pair-{index}.npz", x=X + index)
        found = read(tmp_path)
        assert [label for label, _ in found] == ["pair-0", "pair-1", "pair-2"]
        assert [float(tensors["x"][0, 0]) for _, tensors in found] == [0, 1, 2]

    def test_labels_that_clash_are_numbered(self, tmp_path: Path) -> None:
        for folder in ("a", "b"):
            (tmp_path / folder).mkdir()
            np.savez(tmp_path / folder / "same.npz", x=X)
        assert [label for label, _ in read(tmp_path / "a", tmp_path / "b")] == ["same-0", "same-1"]

    def test_labels_are_unique_even_then(self, tmp_path: Path) -> None:
        for path in ("a/same.npz", "b/same.npz", "c/same-1.npz"):
            (tmp_path / path).parent.mkdir()
            np.savez(tmp_path / path, x=X)
        labels = [label for label, _ in read(*(tmp_path / folder for folder in "abc"))]
        assert len(set(labels)) == 3, labels

    @pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
    def test_pickled_objects_are_refused_and_not_run(self, save: Any, tmp_path: Path) -> None:
        save(tmp_path / "a.npz", x=np.array([Code(tmp_path / "ran")], object))
        assert "str_" in refused(tmp_path / "a.npz", match="cannot read").hint
        assert not (tmp_path / "ran").exists()

    def test_a_pickle_by_that_name_is_refused_and_not_run(self, tmp_path: Path) -> None:
        np.array([Code(tmp_path / "ran")], object).dump(tmp_path / "a.npz")
        refused(tmp_path / "a.npz", match="cannot read")
        assert not (tmp_path / "ran").exists()

    @pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04" + bytes(50)])
    def test_files_that_are_none(self, content: bytes, tmp_path: Path) -> None:
        (tmp_path / "a.npz").write_bytes(content)
        refused(tmp_path / "a.npz", match="cannot read")

    def test_an_array_file_by_that_name_is_refused(self, tmp_path: Path) -> None:
        with (tmp_path / "a.npz").open("wb") as stream:
            np.save(stream, X)
        refused(tmp_path / "a.npz", match=r"not an \.npz archive")

    def test_a_missing_file(self, tmp_path: Path) -> None:
        refused(tmp_path / "missing.npz", match="does not exist")

    @pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
    def test_one_byte_off_anywhere_is_told(self, save: Any, tmp_path: Path) -> None:
        path = tmp_path / "a.npz"
        save(path, x=X)
        data, others = path.read_bytes(), set()
        for index in range(len(data)):
            path.write_bytes(data[:index] + bytes([data[index] ^ 0xFF]) + data[index + 1 :])
            try:
                read(path)
            except WorkloadError:
                continue
            except Exception as error:
                others.add(f"{type(error).__name__}: {error}")
        assert not others

    def test_cut_off_anywhere(self, tmp_path: Path) -> None:
        path = tmp_path / "a.npz"
        np.savez_compressed(path, x=X)
        data = path.read_bytes()
        for size in range(0, len(data), 5):
            path.write_bytes(data[:size])
            refused(path)


class TestFolders:
    def test_files_are_named_as_their_tensors(self, tmp_path: Path) -> None:
        folder = tmp_path / "my pair"
        folder.mkdir()
        for name in ("x", "in%2Fput%3A0", "gr%C3%B6%C3%9Fe", "größer", "a b", "50%25"):
            np.save(folder / f"{name}.npy", X)
        ((label, tensors),) = read(folder)
        assert label == "my pair"
        assert set(tensors) == {"x", "in/put:0", "größe", "größer", "a b", "50%"}

    def test_two_kinds_in_one_folder_are_refused(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", X)
        np.savez(tmp_path / "a.npz", x=X)
        assert refused(tmp_path, match=r"\.npz and \.npy").hint

    def test_an_empty_folder_is_refused(self, tmp_path: Path) -> None:
        refused(tmp_path, match="neither")

    def test_pickled_objects_are_refused(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.array([Code(tmp_path / "ran")], object), allow_pickle=True)
        refused(tmp_path, match="cannot read")
        assert not (tmp_path / "ran").exists()

    def test_an_archive_by_an_arrays_name_is_refused(self, tmp_path: Path) -> None:
        with (tmp_path / "x.npy").open("wb") as stream:
            np.savez(stream, x=X)
        refused(tmp_path)


class TestRaw:
    def test_shapes_come_from_the_model_or_from_the_user(self, tmp_path: Path) -> None:
        (tmp_path / "x.bin").write_bytes(X.tobytes())
        (tmp_path / "ids.bin").write_bytes(np.arange(4).tobytes())
        (tmp_path / "flag.bin").write_bytes(b"\1")
        source = f"x:{tmp_path}/x.bin,in/put:0:{tmp_path}/ids.bin,flag:{tmp_path}/flag.bin"
        ((label, tensors),) = read_pairs([source], SPECS, {"in/put:0": (2, 2)})
        assert label == "x"
        assert tensors["x"].tolist() == X.tolist()
        assert tensors["in/put:0"].tolist() == [[0, 1], [2, 3]]
        assert tensors["flag"].tolist() is True
        assert tensors["flag"].shape == ()

    def test_types_that_numpy_has_not(self, tmp_path: Path) -> None:
        array = np.array([1.5, -2.0], ml_dtypes.bfloat16)
        (tmp_path / "h.bin").write_bytes(array.tobytes())
        found = read(f"h:{tmp_path}/h.bin")[0][1]["h"]
        assert found.dtype == array.dtype
        assert found.tolist() == array.tolist()

    def test_arrays_can_be_written_to(self, tmp_path: Path) -> None:
        (tmp_path / "x.bin").write_bytes(X.tobytes())
        read(f"x:{tmp_path}/x.bin")[0][1]["x"][0, 0] = 5

    @pytest.mark.parametrize("size", [0, 23, 25, 48])
    def test_a_file_of_another_size(self, size: int, tmp_path: Path) -> None:
        (tmp_path / "x.bin").write_bytes(bytes(size))
        refused(f"x:{tmp_path}/x.bin", match=rf"has {size} bytes.*takes 24")

    def test_a_dynamic_shape_must_be_said(self, tmp_path: Path) -> None:
        (tmp_path / "ids.bin").write_bytes(bytes(8))
        assert "--shapes" in refused(f"in/put:0:{tmp_path}/ids.bin", match="need a shape").hint

    def test_text_has_no_raw_form(self, tmp_path: Path) -> None:
        (tmp_path / "t.bin").write_bytes(b"abc")
        refused(f"t:{tmp_path}/t.bin", match="text")

    def test_a_missing_file(self, tmp_path: Path) -> None:
        refused(f"x:{tmp_path}/missing.bin", match="No such file")

    def test_a_name_that_is_no_tensor(self, tmp_path: Path) -> None:
        assert "in/put:0" in refused(f"z:{tmp_path}/x.bin", match="no tensor").hint

    @pytest.mark.parametrize("source", ["a.bin,x:b.bin", "x:a.bin,b.bin", ",x:a.bin", "x:a.bin,", ":", ":a.bin"])
    def test_a_list_with_a_part_that_names_nothing(self, source: str) -> None:
        refused(source)


@pytest.mark.parametrize("source", ["data.txt", "nowhere", "größe"])
def test_a_source_of_no_known_form(source: str) -> None:
    assert ".npz" in refused(source, match="cannot read data").hint


class TestReferences:
    MODEL = ModelSpec(
        "d",
        "m",
        "onnx",
        (),
        (TensorSpec("y", "float32", ("n", 2)), TensorSpec("t", "string", None)),
        ("m.onnx",),
        1,
    )

    def good(self, **changes: Array) -> dict[str, Array]:
        return {"y": np.zeros((3, 2), np.float32), "t": np.array(["a"]), **changes}

    def test_one_for_each_pair(self) -> None:
        require_references(self.MODEL, ["a", "b"], [self.good(), self.good()])
        require_references(self.MODEL, [], [])
        with pytest.raises(WorkloadError, match=r"1 reference set\(s\) for 2 input pair") as error:
            require_references(self.MODEL, ["a", "b"], [self.good()])
        assert "--reference" in error.value.hint

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"z": np.zeros(1)}, "names 'z', no output"),
            ({"y": np.zeros((3, 2))}, "'y' is float64, the model gives float32"),
            ({"t": np.zeros(1)}, "'t' is float64, the model gives string"),
            ({"y": np.zeros((3, 4), np.float32)}, r"'y' has shape \[3, 4\], the model gives nx2"),
            ({"y": np.zeros(2, np.float32)}, r"'y' has shape \[2\]"),
        ],
    )
    def test_what_does_not_fit_is_refused_with_pair_and_output(self, changes: dict[str, Array], words: str) -> None:
        with pytest.raises(WorkloadError, match=words) as error:
            require_references(self.MODEL, ["a", "my pair"], [self.good(), self.good(**changes)])
        assert "'my pair'" in str(error.value)
        assert error.value.hint

    def test_an_output_without_reference_would_pass_unchecked(self) -> None:
        with pytest.raises(WorkloadError, match="lacks output 't'"):
            require_references(self.MODEL, ["a"], [{"y": np.zeros((3, 2), np.float32)}])

    @pytest.mark.parametrize("shape", [(2,), ("n",), None])
    def test_any_size_fits_a_dynamic_output(self, shape: tuple[Dim, ...] | None) -> None:
        spec = ModelSpec("d", "m", "onnx", (), (TensorSpec("y", "float32", shape),), ("m.onnx",), 1)
        require_references(spec, ["a"], [{"y": np.zeros(2, np.float32)}])
