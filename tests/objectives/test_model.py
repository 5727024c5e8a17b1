"""Model: what an ONNX file says about its interface; anything unusable is a ModelError with a remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from objectives.errors import ModelError
from objectives.model import ModelSpec, TensorSpec, read_onnx, require_file
from objectives.tensors import dtype_of

Dims = tuple[int | str | None, ...] | None


def value(name: str, dims: Dims = ("n", 3), kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, dims)


def weight(name: str = "w", shape: tuple[int, ...] = (4, 3)) -> Any:
    return numpy_helper.from_array(np.ones(shape, np.float32), name)


def proto(inputs: list[Any], outputs: list[Any], weights: list[Any] | None = None, **extra: Any) -> Any:
    nodes = [helper.make_node("Identity", [inputs[0].name if inputs else "w"], [outputs[0].name])] if outputs else []
    graph = helper.make_graph(nodes, "graph", inputs, outputs, weights or [], **extra)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def save(path: Path, model: Any) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


def described(path: Path, *arguments: Any, **extra: Any) -> ModelSpec:
    return read_onnx(save(path, proto(*arguments, **extra)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "modèle ü.onnx"


@pytest.fixture
def external(path: Path) -> Path:
    """A model with its weights in `weights.bin`."""
    model = proto([value("x")], [value("y")], [weight()])
    onnx.save(model, str(path), save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


class TestInterface:
    def test_names_types_and_shapes(self, path: Path) -> None:
        spec = described(
            path,
            [value("in/put:0", ("batch size", 3, None)), value("größe", (), TensorProto.INT64)],
            [value("a b", (1,), TensorProto.BOOL), value("текст", None, TensorProto.STRING)],
        )
        assert spec.inputs == (
            TensorSpec("in/put:0", "float32", ("batch size", 3, "?")),
            TensorSpec("größe", "int64", ()),
        )
        assert spec.outputs == (TensorSpec("a b", "bool", (1,)), TensorSpec("текст", "string", None))
        assert (spec.name, spec.format, spec.files) == ("modèle ü", "onnx", ("modèle ü.onnx",))
        assert spec.size_bytes == path.stat().st_size
        assert spec.input("größe") is spec.inputs[1]
        with pytest.raises(KeyError):
            spec.input("y")

    def test_an_initializer_that_is_listed_as_input_is_none(self, path: Path) -> None:
        spec = described(path, [value("x"), value("w", (4, 3))], [value("y")], [weight()])
        assert [one.name for one in spec.inputs] == ["x"]

    def test_a_sparse_initializer_that_is_listed_as_input_is_none(self, path: Path) -> None:
        sparse = helper.make_sparse_tensor(
            numpy_helper.from_array(np.ones(1, np.float32), "w"), numpy_helper.from_array(np.zeros(1, np.int64)), [4]
        )
        spec = described(path, [value("x"), value("w", (4,))], [value("y")], sparse_initializer=[sparse])
        assert [one.name for one in spec.inputs] == ["x"]

    def test_a_model_without_inputs(self, path: Path) -> None:
        assert described(path, [], [value("y", (4, 3))], [weight()]).inputs == ()

    @pytest.mark.parametrize("size", [-1, -7])
    def test_a_negative_size_is_a_dynamic_dimension(self, size: int, path: Path) -> None:
        # Some exporters write -1 where the size is not known; runtimes read it so.
        (spec,) = described(path, [value("x", (size, 3))], [value("y")]).inputs
        assert spec.shape == ("?", 3)
        assert spec.is_dynamic

    @pytest.mark.parametrize("name", sorted(onnx.TensorProto.DataType.keys()))
    def test_every_element_type_is_known_or_refused(self, name: str, path: Path) -> None:
        save(path, proto([value("x", kind=TensorProto.DataType.Value(name))], [value("y")]))
        try:
            (spec,) = read_onnx(path).inputs
        except ModelError as error:
            refusal = str(error)
        else:
            refusal = ""
        if refusal:
            assert "'x'" in refusal
            return
        # ONNX writes "float8e4m3fn" where numpy's registered name is "float8_e4m3fn".
        registered = {"float": "float32", "double": "float64", "string": "object"}.get(name.lower(), name.lower())
        assert str(dtype_of(spec.dtype)).replace("_", "") == registered

    def test_an_element_type_of_the_future_is_refused(self, path: Path) -> None:
        model = proto([value("x")], [value("y")])
        model.graph.input[0].type.tensor_type.elem_type = 9999
        with pytest.raises(ModelError):
            read_onnx(save(path, model))

    @pytest.mark.parametrize("kind", ["sequence", "optional", "untyped"])
    def test_values_that_are_no_tensors_are_refused(self, kind: str, path: Path) -> None:
        inner = helper.make_tensor_type_proto(TensorProto.FLOAT, [1])
        make = {"sequence": helper.make_sequence_type_proto, "optional": helper.make_optional_type_proto}
        one = helper.make_value_info("x", make[kind](inner)) if kind in make else onnx.ValueInfoProto(name="x")
        with pytest.raises(ModelError, match=f"'x' is of kind {kind}") as error:
            described(path, [one], [value("y")])
        assert error.value.hint

    @pytest.mark.parametrize(
        ("shape", "text", "dynamic"),
        [((), "scalar", False), ((1, 3), "1x3", False), ((1, "n", "?"), "1xnx?", True), (None, "unknown rank", True)],
    )
    def test_a_shape_reads_as_a_user_writes_it(self, shape: Dims, text: str, dynamic: bool) -> None:
        spec = TensorSpec("x", "float32", shape)  # type: ignore[arg-type]
        assert (spec.describe_shape(), spec.is_dynamic) == (text, dynamic)


class TestIdentity:
    def test_the_name_of_the_file_does_not_count(self, path: Path, tmp_path: Path) -> None:
        one = described(path, [value("x")], [value("y")])
        two = read_onnx(path.rename(tmp_path / "other.onnx"))
        assert one.digest == two.digest
        assert one.name != two.name

    def test_the_content_counts(self, path: Path) -> None:
        assert described(path, [value("x")], [value("y")]).digest != described(path, [value("x")], [value("z")]).digest

    def test_the_content_of_external_weights_counts(self, external: Path) -> None:
        before = read_onnx(external)
        weights = external.parent / "weights.bin"
        assert before.files == (external.name, "weights.bin")
        assert before.size_bytes == external.stat().st_size + weights.stat().st_size
        weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
        assert read_onnx(external).digest != before.digest


class TestExternalWeights:
    def test_a_missing_file(self, external: Path) -> None:
        (external.parent / "weights.bin").unlink()
        with pytest.raises(ModelError, match=r"'weights.bin' is missing") as error:
            read_onnx(external)
        assert str(external.parent) in error.value.hint

    @pytest.mark.parametrize("location", ["../outside.bin", "/outside.bin", "sub/../../outside.bin"])
    def test_a_file_outside_the_folder(self, location: str, external: Path) -> None:
        (external.parent.parent / "outside.bin").write_bytes(bytes(48))
        with pytest.raises(ModelError, match="lies outside"):
            read_onnx(relocated(external, location))

    @pytest.mark.parametrize("location", ["", ".", "no\0thing", "x" * 5000])
    def test_a_location_that_no_file_can_have(self, location: str, external: Path) -> None:
        with pytest.raises(ModelError):
            read_onnx(relocated(external, location))

    def test_files_in_folders_below(self, external: Path) -> None:
        (external.parent / "sub").mkdir()
        (external.parent / "weights.bin").rename(external.parent / "sub" / "größe.bin")
        assert read_onnx(relocated(external, "sub/größe.bin")).files[1:] == ("sub/größe.bin",)

    def test_weights_inside_subgraphs_and_attributes(self, path: Path, external: Path) -> None:
        tensor = onnx.load(str(external), load_external_data=False).graph.initializer[0]
        body = helper.make_graph([helper.make_node("Identity", ["w"], ["b"])], "body", [], [value("b")], [tensor])
        constant = onnx.TensorProto.FromString(tensor.SerializeToString())
        constant.external_data[0].value = "constant.bin"
        (path.parent / "constant.bin").write_bytes(bytes(48))
        nodes = [
            helper.make_node("If", ["flag"], ["y"], then_branch=body, else_branch=body),
            helper.make_node("Constant", [], ["c"], value=constant),
        ]
        graph = helper.make_graph(nodes, "graph", [value("flag", (), TensorProto.BOOL)], [value("y")])
        save(path, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
        assert read_onnx(path).files == (path.name, "constant.bin", "weights.bin")


class TestUnreadable:
    @pytest.mark.parametrize(
        "content",
        [b"", b"\0", b"\n" * 100, "not a model, größe\n".encode(), b"PK\x03\x04" + bytes(100), b"\xff" * 1000],
        ids=["empty", "zero", "blank", "text", "zip", "noise"],
    )
    def test_files_that_are_no_models(self, content: bytes, path: Path) -> None:
        path.write_bytes(content)
        with pytest.raises(ModelError) as error:
            read_onnx(path)
        assert error.value.hint

    @pytest.mark.parametrize("suffix", [".onnx", ".json", ".textproto", ".onnxtxt", ".bin", ""])
    def test_whatever_the_file_is_called(self, suffix: str, path: Path) -> None:
        path.with_suffix(suffix).write_bytes(b"not a model")
        with pytest.raises(ModelError):
            read_onnx(path.with_suffix(suffix))

    @pytest.mark.parametrize("suffix", [".bin", "", ".json", ".onnxtxt"])
    def test_a_model_is_a_model_whatever_its_file_is_called(self, suffix: str, path: Path) -> None:
        save(path.with_suffix(suffix), proto([value("x")], [value("y")]))
        assert read_onnx(path.with_suffix(suffix)).outputs

    def test_cut_off_anywhere(self, path: Path) -> None:
        data = proto([value("x"), value("w")], [value("y")], [weight()]).SerializeToString()
        for size in range(len(data)):
            path.write_bytes(data[:size])
            with pytest.raises(ModelError):
                read_onnx(path)

    @pytest.mark.parametrize("change", [lambda byte: byte ^ 0xFF, lambda byte: byte ^ 1, lambda _: 0x7F])
    def test_one_byte_off_anywhere_is_a_model_or_an_error(self, change: Callable[[int], int], external: Path) -> None:
        data = external.read_bytes()
        others = set()
        for index in range(len(data)):
            external.write_bytes(data[:index] + bytes([change(data[index])]) + data[index + 1 :])
            try:
                read_onnx(external)
            except ModelError:
                continue
            except Exception as error:
                others.add(f"{type(error).__name__}: {error}")
        assert not others

    @pytest.mark.parametrize("missing", ["outputs", "opset"])
    def test_a_message_that_lacks_what_every_model_has(self, missing: str, path: Path) -> None:
        model = proto([value("x")], [] if missing == "outputs" else [value("y")])
        if missing == "opset":
            del model.opset_import[:]
        with pytest.raises(ModelError, match="not an ONNX model"):
            read_onnx(save(path, model))

    def test_no_file_and_no_folder(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match="does not exist") as error:
            require_file(tmp_path / "missing.onnx")
        assert "--model" in error.value.hint
        with pytest.raises(ModelError, match="is not a file"):
            read_onnx(tmp_path)
        assert require_file(Path(__file__)) == Path(__file__)


def relocated(path: Path, location: str) -> Path:
    model = onnx.load(str(path), load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = location
    return save(path, model)
