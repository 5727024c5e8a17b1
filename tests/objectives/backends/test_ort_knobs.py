"""Knobs of ONNX Runtime: found from the installation, with the library's real defaults."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from objectives.backends import ort_knobs, ort_settings
from objectives.backends.ort_knobs import all_knobs, knob_space
from objectives.backends.ort_settings import Setting, library_has
from objectives.knobs import KnobKind
from objectives.outcome import Stage
from tests import onnx_models
from tests.objectives.backends.evaluation import BACKEND

EXPECTED = {
    "precision": KnobKind.PRECISION,
    "graph_optimization_level": KnobKind.BUILDER,
    "gelu_approximation": KnobKind.BUILDER,
    "intra_op_threads": KnobKind.RUNTIME,
    "inter_op": KnobKind.RUNTIME,
    "intra_op_spinning": KnobKind.RUNTIME,
    "dynamic_block_base": KnobKind.RUNTIME,
    "cpu_mem_arena": KnobKind.RUNTIME,
    "mem_pattern": KnobKind.RUNTIME,
    "prepacking": KnobKind.RUNTIME,
}


@pytest.fixture(autouse=True)
def forget() -> None:
    """What was found is cached; each test looks anew."""
    ort_knobs._all_knobs.cache_clear()
    library_has.cache_clear()


def test_what_every_supported_version_offers() -> None:
    kinds = {knob.name: knob.kind for knob in knob_space().knobs}
    assert {name: kinds.get(name) for name in EXPECTED} == EXPECTED
    assert all(knob.help and len(knob.values) > 1 for knob in knob_space().knobs)


def test_defaults_set_nothing() -> None:
    for one in all_knobs():
        assert one.knob.default not in one.settings
    values = {knob.name: knob.default for knob in knob_space().knobs}
    assert ort_knobs.settings(values, Stage.BUILD) == ort_knobs.settings(values, Stage.OPEN) == {}


def test_every_other_value_sets_something_else_than_the_default() -> None:
    for one in all_knobs():
        if one.knob.name == "precision":
            continue  # acts on the model, not on options
        for value in one.knob.values:
            if value == one.knob.default:
                continue
            options, fresh = onnxruntime.SessionOptions(), onnxruntime.SessionOptions()
            for setting in one.settings[value]:
                setting.apply(options)
                assert setting.read(options) == setting.value
                if "." not in setting.target:
                    assert setting.read(fresh) != setting.value, f"{one.knob.name}={value} is the default"


def test_levels_are_the_members_of_the_enum() -> None:
    level = next(knob for knob in knob_space().knobs if knob.name == "graph_optimization_level")
    members = onnxruntime.GraphOptimizationLevel.__members__
    assert {f"ORT_{value.upper()}" for value in level.values} == set(members)
    assert f"ORT_{level.default.upper()}" == onnxruntime.SessionOptions().graph_optimization_level.name


@pytest.mark.parametrize(
    ("cores", "threads", "pools"),
    [
        (1, ("auto", "1"), ("sequential", "parallel-2")),
        (2, ("auto", "1", "2"), ("sequential", "parallel-2")),
        (6, ("auto", "1", "2", "4", "6"), ("sequential", "parallel-2", "parallel-4", "parallel-6")),
        (8, ("auto", "1", "2", "4", "8"), ("sequential", "parallel-2", "parallel-4", "parallel-8")),
    ],
)
def test_thread_counts_fit_the_usable_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int, threads: tuple[str, ...], pools: tuple[str, ...]
) -> None:
    monkeypatch.setattr(ort_knobs, "usable_cores", lambda: cores)
    found = {knob.name: knob.values for knob in knob_space().knobs}
    assert found["intra_op_threads"] == threads
    assert found["inter_op"] == pools


def test_a_key_is_looked_for_as_a_whole() -> None:
    assert library_has("session.intra_op.allow_spinning")
    assert not library_has("session.intra_op.allow_spin")
    assert not library_has("on.intra_op.allow_spinning")
    assert not library_has("session.no_such_key")


def test_what_the_library_lacks_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"session.dynamic_block_base", "session.intra_op.spin_duration_us"}
    monkeypatch.setattr(ort_settings, "_contains", lambda path, needle: needle.strip(b"\0").decode() not in missing)
    found = {knob.name: knob for knob in knob_space().knobs}
    assert "dynamic_block_base" not in found
    assert "100us" not in found["intra_op_spinning"].values
    assert "off" in found["intra_op_spinning"].values


def test_an_attribute_that_is_missing_is_not_offered() -> None:
    assert Setting("enable_mem_pattern", True).is_offered
    assert not Setting("enable_telepathy", True).is_offered


def test_some_knobs_need_an_operator(tmp_path: Path) -> None:
    plain = onnx_models.mlp(tmp_path)
    assert "qdq_cleanup" not in {knob.name for knob in BACKEND.knobs(plain, BACKEND.describe(plain)).knobs}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ]
    weights = (onnx_models.constant("scale", 0.1), onnx_models.constant("zero", 0, np.uint8))
    ends = [onnx_models.value("x", "float32", ("n",))], [onnx_models.value("y", "float32", ("n",))]
    quantized = onnx_models.write(tmp_path / "qdq.onnx", nodes, *ends, weights)
    assert "qdq_cleanup" in {knob.name for knob in BACKEND.knobs(quantized, BACKEND.describe(quantized)).knobs}
    engine = BACKEND.build(quantized, {"qdq_cleanup": "on"}, tmp_path)
    assert "QuantizeLinear" not in {node.op_type for node in onnx.load(engine.path).graph.node}
