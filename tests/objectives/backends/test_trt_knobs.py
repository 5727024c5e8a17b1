"""Builder and run-time knobs: each value is applied to a configuration of the REAL TensorRT-RTX and read back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from objectives.backends import trt
from objectives.backends.trt_build import new_builder
from objectives.backends.trt_knobs import builder_knobs, runtime_knobs, settings_of
from objectives.backends.trt_log import capture
from objectives.backends.trt_manifest import read_manifest
from objectives.backends.trt_precision import Choice
from objectives.backends.trt_settings import Attribute, TrtKnob, apply, require, takes
from objectives.errors import CandidateError
from objectives.knobs import KnobKind
from objectives.outcome import FailureKind
from tests.objectives.backends.fake_tensorrt import FakeTensorRT
from tests.objectives.backends.rtx import BACKEND, FIXED, LIBRARY, NETWORKS, build, network

BUILDER = new_builder(LIBRARY)


def all_knobs() -> tuple[TrtKnob, ...]:
    """What the library takes, also what it then ignores."""
    with capture(LIBRARY):
        return builder_knobs(LIBRARY, BUILDER.create_builder_config)


def every_value() -> Iterator[Any]:
    for one in all_knobs():
        for value, settings in one.settings.items():
            yield pytest.param(one.knob.name, settings, id=f"{one.knob.name}={value}")


@pytest.mark.parametrize(("name", "settings"), list(every_value()))
def test_every_value_is_read_back(name: str, settings: Any) -> None:
    config = BUILDER.create_builder_config()
    assert [setting.read(config) for setting in settings] != [setting.value for setting in settings]
    apply(config, settings)
    require(config, name, settings)


def test_what_is_offered() -> None:
    knobs = {one.knob.name: one.knob for one in all_knobs()}
    assert knobs["builder_optimization_level"].values == ("0", "1", "2", "3", "4", "5")
    assert knobs["builder_optimization_level"].default == "3"
    assert knobs["max_aux_streams"].values == ("auto", "0", "1", "2", "4", "8")
    assert knobs["max_num_tactics"].default == "auto"
    assert knobs["tiling"].values == ("none", "fast", "moderate", "full", "full-l2-8MiB", "full-l2-32MiB")
    assert knobs["tf32"].default == "on"
    assert knobs["sparse_weights"].default == "off"
    sources = knobs["tactic_sources"].values
    assert sources == ("default", "without-edge-mask-convolutions", "without-jit-convolutions")
    assert knobs["workspace"].values == ("all", "64MiB", "256MiB", "1024MiB")
    assert all(knob.kind == KnobKind.BUILDER and knob.help for knob in knobs.values())


def test_what_the_library_does_not_take_is_not_offered() -> None:
    # It keeps the property, and says "unsupported" whatever is assigned.
    assert hasattr(BUILDER.create_builder_config(), "hardware_compatibility_level")
    assert "hardware_compatibility" not in {one.knob.name for one in all_knobs()}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_what_is_called_inert_changes_no_byte(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, ranges = network(name)
    # Only builds for one shape are reproducible: with a range, the plans of two of these networks differ every time.
    shapes = {key: FIXED(*one.opt) for key, one in ranges.items()}
    baseline = build(path, tmp_path, shapes).digest
    assert build(path, tmp_path, shapes).digest == baseline
    assert build(path, tmp_path, shapes, None, tf32="off").digest != baseline
    knobs = tuple(one for one in all_knobs() if one.knob.name in BACKEND.inert)
    assert {one.knob.name for one in knobs} == BACKEND.inert
    for one in knobs:
        extreme = list(one.settings.values())[-1]
        monkeypatch.setattr(trt, "choose", lambda library, model, *_, group=extreme: Choice(model, True, group))
        assert build(path, tmp_path, shapes).digest == baseline, one.knob.name


def test_knobs_at_their_default_set_nothing() -> None:
    knobs = all_knobs()
    assert settings_of(knobs, {}) == {}
    assert settings_of(knobs, {one.knob.name: one.knob.default for one in knobs}) == {}
    assert list(settings_of(knobs, {"tf32": "off"})) == ["tf32"]


def test_a_setting_that_does_not_take() -> None:
    config = BUILDER.create_builder_config()
    with capture(LIBRARY) as log:
        assert not takes(config, [Attribute("max_num_tactics", 0)])  # refused with a warning, observed
        assert not takes(config, [Attribute("max_aux_streams", "many")])
    assert log.messages
    with pytest.raises(CandidateError, match="tactics: asked for 7, the builder configuration holds -1") as caught:
        require(config, "tactics", [Attribute("max_num_tactics", 7)])
    assert caught.value.kind == FailureKind.FALLBACK


def test_run_time_knobs_follow_the_library_and_the_gpu() -> None:
    real = {knob.name: knob.values for knob in runtime_knobs(LIBRARY)}
    assert real["cuda_graph"] == ("off", "capture", "library")
    assert real["dynamic_shapes_specialization"] == ("lazy", "eager", "none")
    assert "l2_persistence" not in real
    fake = {knob.name: knob.values for knob in runtime_knobs(FakeTensorRT(), 1 << 20)}
    assert fake["cuda_graph"] == ("off", "capture")
    assert fake["l2_persistence"] == ("none", "half", "all")
    assert "dynamic_shapes_specialization" not in fake


def test_a_builder_option_reaches_the_plan(tmp_path: Path) -> None:
    path, ranges = network("magika")
    shapes = {key: FIXED(*one.min) for key, one in ranges.items()}
    engine = build(path, tmp_path, shapes, None, workspace="64MiB")
    assert read_manifest(Path(engine.path)).values["workspace"] == "64MiB"
    assert engine.digest != build(path, tmp_path, shapes).digest
