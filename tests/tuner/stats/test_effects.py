"""Effects of knobs: the few that matter are found among many, with their size; nothing is found where nothing is."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.stats import effects, top_knobs


def _trials(count: int, knobs: int, seed: int, noise: float = 0.01) -> tuple[list[dict[str, str]], list[float]]:
    random = np.random.default_rng(seed)
    changes = [
        {f"k{j}": str(random.choice(["a", "b"])) for j in range(knobs) if random.random() < 0.4} for _ in range(count)
    ]
    gains = [0.5 * (one.get("k3") == "a") - 0.2 * (one.get("k5") == "b") + random.normal() * noise for one in changes]
    return changes, gains


@pytest.mark.parametrize("seed", range(5))
def test_the_few_that_matter_come_first_with_their_size(seed: int) -> None:
    found = effects(*_trials(40, 12, seed))
    assert [(one.knob, one.value) for one in found[:2]] == [("k3", "a"), ("k5", "b")]
    assert found[0].gain == pytest.approx(0.5, abs=0.03)
    assert found[1].gain == pytest.approx(-0.2, abs=0.03)
    assert all(abs(one.gain) < 0.03 for one in found[2:])
    assert top_knobs(found, 2) == ["k3", "k5"]


def test_more_knobs_than_trials() -> None:
    found = effects(*_trials(50, 100, 1))
    assert [one.knob for one in found[:2]] == ["k3", "k5"]


def test_a_thousand_trials_cost_no_larger_matrix_than_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    sides = set()
    invert = np.linalg.inv

    def noting(matrix: np.ndarray) -> np.ndarray:
        sides.add(len(matrix))
        return invert(matrix)

    monkeypatch.setattr(np.linalg, "inv", noting)
    found = effects(*_trials(1000, 12, 1))
    assert [one.knob for one in found[:2]] == ["k3", "k5"]
    assert sides == {24}  # two values of each knob


def test_one_knob_is_named_once() -> None:
    changes = [{"a": "1"}, {"a": "2"}, {"b": "1"}, {}] * 3
    found = effects(changes, [0.5, 0.4, 0.01, 0.0] * 3)
    assert top_knobs(found, 5) == ["a", "b"]


def test_nothing_to_see() -> None:
    assert effects([], []) == []
    assert effects([{}, {}], [0.0, 0.0]) == []
    assert [one.gain for one in effects([{"a": "1"}, {}], [0.0, 0.0])] == [0.0]
