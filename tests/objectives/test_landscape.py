"""Landscape: latency, loss and fault as the file says, and the optimum that follows from it."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import pytest

from objectives.errors import ModelError
from objectives.knobs import BASELINE, KnobKind
from objectives.landscape import Fault, Interaction, Landscape, SimulatedKnob, read_landscape

FLAG = SimulatedKnob("flag", ("off", "on"), "off", {"on": -0.5})
SIZE = SimulatedKnob("size", ("s", "m", "l"), "m", {"s": 0.2, "l": -0.1}, KnobKind.BUILDER, "how large")
LANDSCAPE = Landscape(
    (FLAG, SIZE),
    base_ms=2.0,
    interactions=(
        Interaction({"flag": "on", "size": "l"}, effect=1.0),
        Interaction({"flag": "on", "size": "s"}, loss=0.1, effect=-2.0),
        Interaction({"size": "s", "flag": "off"}, fault=Fault.HANG, effect=-9.0),
    ),
)


def test_effects_add_up_in_the_logarithm() -> None:
    assert LANDSCAPE.latency_ms({}) == 2.0
    assert LANDSCAPE.latency_ms({"flag": "on"}) == pytest.approx(2.0 * math.exp(-0.5))
    assert LANDSCAPE.latency_ms({"size": "l"}) == pytest.approx(2.0 * math.exp(-0.1))
    assert LANDSCAPE.latency_ms({"flag": "on", "size": "l"}) == pytest.approx(2.0 * math.exp(-0.6 + 1.0))


def test_losses_and_faults_hold_where_all_of_it_holds() -> None:
    assert LANDSCAPE.loss({"flag": "on", "size": "s"}) == 0.1
    assert LANDSCAPE.loss({"flag": "on", "size": "m"}) == 0.0
    assert LANDSCAPE.fault({"flag": "off", "size": "s"}) is Fault.HANG
    assert LANDSCAPE.fault({"flag": "on", "size": "s"}) is None


def test_the_space_is_what_a_backend_offers() -> None:
    space = LANDSCAPE.space()
    assert [(k.name, k.values, k.default, k.kind) for k in space.knobs] == [
        ("flag", ("off", "on"), "off", KnobKind.ROUTE),
        ("size", ("s", "m", "l"), "m", KnobKind.BUILDER),
    ]
    assert space.knobs[1].help == "how large"


@pytest.mark.parametrize(
    ("max_loss", "values"), [(0.2, {"flag": "on", "size": "s"}), (0.05, {"flag": "on", "size": "m"})]
)
def test_the_best_is_the_fastest_that_is_feasible(max_loss: float, values: dict[str, str]) -> None:
    candidate, latency_ms = LANDSCAPE.best(max_loss)
    assert candidate == LANDSCAPE.space().candidate(values)
    assert latency_ms == pytest.approx(LANDSCAPE.latency_ms(values))
    for flag, size in product(("off", "on"), "sml"):
        other = {"flag": flag, "size": size}
        if LANDSCAPE.fault(other) is None and LANDSCAPE.loss(other) <= max_loss:
            assert latency_ms <= LANDSCAPE.latency_ms(other)


def test_without_knobs_the_default_is_the_best() -> None:
    assert Landscape((), base_ms=3.0).best(0.0) == (BASELINE, 3.0)


def test_a_landscape_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "größe.json"
    assert LANDSCAPE.save(path) == path
    assert read_landscape(path) == LANDSCAPE


@pytest.mark.parametrize(
    "content",
    [b"", b"text", b"[]", b"{}", b'{"knobs": 3}', b"\xff\xfe\x00", b'{"knobs": [{"name": "\xff"}]}', b"\x08\x07\x12"],
)
def test_what_is_no_landscape_is_a_model_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ModelError, match="not a landscape") as error:
        read_landscape(tmp_path / "a.json")
    assert error.value.hint


def test_a_missing_file_is_a_model_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        read_landscape(tmp_path / "missing.json")
