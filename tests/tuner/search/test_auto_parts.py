"""The parts of the auto search against what they stand for: gradients, updates, group tests, designs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from objectives.knobs import BASELINE
from tests.tuner.search.worlds import failure, measured, space
from tuner.search.auto.acquisition import log_improvement
from tuner.search.auto.belief import believe, fit_all, quantities
from tuner.search.auto.config import AutoConfig, Prior
from tuner.search.auto.culprits import Culprits
from tuner.search.auto.fit import Parts, fit, gradient_of, log_posterior_of
from tuner.search.auto.history import Encoding
from tuner.search.auto.kernel import Hyper, Kernel
from tuner.search.auto.model import Model
from tuner.search.auto.offset import Offset, offset_of
from tuner.search.auto.screening import design, multiplicity
from tuner.search.auto.teaching import teach

OF = space(2, 3, 4, 2, 3, 4, 2)
E = Encoding(OF)


def hyper(rng: np.random.Generator) -> Hyper:
    return Hyper(np.exp(rng.normal(size=len(E.knobs))), 0.2, 0.1, 0.3, 0.8, 0.1)


def pairs_of(rng: np.random.Generator) -> np.ndarray:
    """Symmetric, and nothing between two values of one knob."""
    raw = rng.normal(0, 0.1, (E.width, E.width)) * (E.knob_of[:, None] != E.knob_of)
    return raw + raw.T


def changed(row: np.ndarray, column: int) -> np.ndarray:
    other = row.copy()
    other[E.knob_of[column]] = E.value_of[column]
    return other


def test_candidates_survive_the_encoding() -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, E.sizes, (50, len(E.knobs)))
    assert (E.codes(map(E.candidate, rows)) == rows).all()
    assert E.candidate(E.default) == BASELINE
    assert E.column("k1", "2") == 4
    assert E.column("k1", "9") is E.column("gone", "0") is None


def test_the_kernel_is_what_its_text_says() -> None:
    rng = np.random.default_rng(1)
    h = hyper(rng)
    rows = rng.integers(0, E.sizes, (6, len(E.knobs)))
    kernel = Kernel(E, h)
    value = kernel.of(kernel.forms(E.one_hot(rows), E.one_hot(rows)))
    c = h.bounded
    for a in range(6):
        for b in range(6):
            z = [((x == y) - 1 / v) / (1 - 1 / v) for x, y, v in zip(rows[a], rows[b], E.sizes, strict=True)]
            n = range(len(z))
            pairs = sum(c[i] * c[j] * z[i] * z[j] for i in n for j in n if i < j)
            away = sum(c[i] for i in n if rows[a][i] != rows[b][i])
            expected = 1 + h.additive * h.relevance @ z + h.pair * pairs + h.residual * math.exp(-h.reach * away)
            assert value[a, b] == pytest.approx(expected)
    assert value.diagonal() == pytest.approx(kernel.diagonal)


def test_the_gradient_of_the_posterior_is_right() -> None:
    rng = np.random.default_rng(2)
    rows = rng.integers(0, E.sizes, (20, len(E.knobs)))
    data = (E, E.one_hot(rows), rng.normal(size=20), np.full(20, 0.1), Parts())
    p = rng.normal(size=len(E.knobs) + 5) - 1
    steps = np.eye(len(p)) * 1e-5
    numeric = [(log_posterior_of(*data, p + s) - log_posterior_of(*data, p - s)) / 2e-5 for s in steps]
    assert gradient_of(*data, p) == pytest.approx(np.array(numeric), abs=1e-6)


def test_relevance_finds_the_knob_that_matters() -> None:
    rng = np.random.default_rng(3)
    rows = rng.integers(0, E.sizes, (40, len(E.knobs)))
    y = 1.0 * (rows[:, 4] == 2) + rng.normal(0, 0.05, 40)
    found = fit(E, E.one_hot(rows), (y - y.mean()) / y.std(), np.zeros(40), Parts(noise=0.1))
    assert np.argmax(found.relevance) == 4
    assert found.relevance[4] > 5 * np.delete(found.relevance, 4).max()


def test_a_model_predicts_what_it_saw_and_all_changes_at_once() -> None:
    rng = np.random.default_rng(4)
    rows = rng.integers(0, E.sizes, (30, len(E.knobs)))
    y = 0.3 * rows[:, 2] - 0.2 * rows[:, 4] * rows[:, 1]
    h = Hyper(np.ones(len(E.knobs)), 0.3, 0.2, 0.3, 0.5, 1e-4)
    alone = Offset(E, rng.normal(0, 0.1, E.width))
    with_pairs = Offset(E, rng.normal(0, 0.1, E.width), pairs_of(rng))
    for offset in (None, alone, with_pairs):
        model = Model(E, rows, y, np.zeros(30), h, offset)
        mean, deviation = model.at(rows)
        assert mean == pytest.approx(y, abs=0.05)
        assert (deviation < 0.1).all()
        around = np.array(model.around(rows[0]))
        one_by_one = np.array(model.at(np.array([changed(rows[0], column) for column in range(E.width)])))
        assert around == pytest.approx(one_by_one)
        draw = model.draw(np.random.default_rng(8))
        one_by_one = draw.at(np.array([changed(rows[0], column) for column in range(E.width)]))
        assert np.array(draw.around(rows[0])) == pytest.approx(one_by_one)


def test_an_offset_is_what_its_prior_foretells() -> None:
    rng = np.random.default_rng(9)
    knobs = [knob for knob in OF.knobs if len(knob.values) > 1]
    effects = {(knob.name, value): float(rng.normal()) for knob in knobs for value in knob.values[1:]}
    pairs = {
        (one, other): float(rng.normal())
        for one, other in itertools.combinations(effects, 2)
        if one[0] != other[0] and rng.random() < 0.5
    }
    prior = Prior(effects, pairs=pairs)
    offset = offset_of(E, prior)
    assert offset is not None
    rows = rng.integers(0, E.sizes, (20, len(E.knobs)))
    foretold = [prior.foretells(E.candidate(row)) for row in rows]
    assert offset.at(E.one_hot(rows)) == pytest.approx(np.array(foretold))
    assert offset_of(E, Prior()) is None


def test_teaching_finds_values_and_pairs_and_leaves_out_what_was_never_tried() -> None:
    rng = np.random.default_rng(10)
    rows = rng.integers(0, E.sizes, (60, len(E.knobs)))
    rows[:, 3] = 0
    gains = 0.10 * (rows[:, 0] == 1) - 0.06 * (rows[:, 4] == 2) + 0.08 * (rows[:, 0] == 1) * (rows[:, 6] == 1)
    found = teach(OF, [(E.candidate(row), float(gain)) for row, gain in zip(rows, gains, strict=True)])
    names = [knob.name for knob in E.knobs]
    values = [knob.values for knob in E.knobs]
    first, fifth, seventh = (names[0], values[0][1]), (names[4], values[4][2]), (names[6], values[6][1])
    assert found.effects[first] == pytest.approx(0.10, abs=0.02)
    assert found.effects[fifth] == pytest.approx(-0.06, abs=0.02)
    assert found.pairs[first, seventh] == pytest.approx(0.08, abs=0.03)
    assert (first, seventh) == max(found.pairs, key=lambda pair: found.pairs[pair])
    assert not any(knob == names[3] for knob, _ in found.effects)


def test_what_fails_only_in_company_is_learnt_defaults_in_it_or_not() -> None:
    # Group tests know values that are not the default, and pairs of them; this failure is of a default and two others.
    rng = np.random.default_rng(8)
    rows = np.unique(rng.integers(0, E.sizes, (240, len(E.knobs))), axis=0)
    rng.shuffle(rows)
    fails = (rows[:, 0] == E.default[0]) & ((rows[:, 3] != E.default[3]) | (rows[:, 1] == 1))
    known, unknown = slice(0, 60), slice(60, None)
    of = [E.candidate(row) for row in rows[known]]
    seen = [failure(one) if f else measured(one, 0.0) for one, f in zip(of, fails[known], strict=True)]
    right = {}
    for config in (AutoConfig(), AutoConfig(failures=False)):
        found = quantities(E, seen, config)
        belief = believe(E, seen, rows[:0], found, fit_all(E, found, config, None), config, None)
        assert belief is not None
        chance = np.exp(belief.promise.log_feasible(rows[unknown]))
        good, bad = chance[~fails[unknown]], chance[fails[unknown]]
        right[config.failures] = np.mean(good[:, None] > bad)  # of pairs of one of each
    assert right[True] > 0.95
    assert right[False] < 0.9


def test_improvement_is_right_near_and_finite_far_away() -> None:
    rng = np.random.default_rng(5)
    sample = rng.normal(0.5, 0.7, 400_000)
    found = log_improvement(np.array([0.5]), np.array([0.7]), 1.0)[0]
    assert math.exp(found) == pytest.approx(np.maximum(sample - 1.0, 0).mean(), rel=0.02)
    far = log_improvement(np.array([-1.0, -10.0, -100.0]), np.full(3, 0.1), 0.0)
    assert np.isfinite(far).all()
    assert (np.diff(far) < 0).all()
    # Both formulas say the same where one gives way to the other.
    near = log_improvement(np.array([-5.999, -6.001]), np.ones(2), 0.0)
    assert near[0] == pytest.approx(near[1], abs=0.1)


def test_a_culprit_is_what_stands_in_every_failure_and_in_no_success() -> None:
    rng = np.random.default_rng(6)
    rows = rng.integers(0, E.sizes, (40, len(E.knobs)))
    fails = rows[:, 2] == 3
    culprits = Culprits(E, rows[~fails], rows[fails])
    column = E.column("k2", "3")
    assert column is not None
    assert culprits.single[column] > 0.95
    assert np.delete(culprits.single, column).max() < 0.05
    assert culprits.log_runs(rows[fails]).max() < -3
    assert culprits.log_runs(rows[~fails]).min() > -0.2


def test_a_pair_of_culprits_is_found_when_each_alone_runs() -> None:
    rng = np.random.default_rng(7)
    rows = rng.integers(0, E.sizes, (80, len(E.knobs)))
    fails = (rows[:, 0] == 1) & (rows[:, 3] == 1)
    culprits = Culprits(E, rows[~fails], rows[fails])
    left, right = E.column("k0", "1"), E.column("k3", "1")
    assert culprits.pair[left, right] > 0.9
    assert culprits.single.max() < 0.05
    for row in rows[:5]:
        one_by_one = culprits.log_runs(np.array([changed(row, column) for column in range(E.width)]))
        assert culprits.log_runs_around(row) == pytest.approx(one_by_one)


def test_rates_from_elsewhere_count_until_the_value_runs() -> None:
    rates = np.full(E.width, np.nan)
    column = E.column("k1", "2")
    rates[column] = 0.5
    none = np.zeros((0, len(E.knobs)), dtype=np.int64)
    assert Culprits(E, none, none, rates).single[column] == pytest.approx(0.5)
    ran = E.codes([OF.candidate({"k1": "2"})])
    assert Culprits(E, ran, none, rates).single[column] == 0


def test_a_round_of_the_screen_flips_every_knob_once_and_values_take_turns() -> None:
    wide = Encoding(space(*[4] * 40))
    nothing = np.zeros(wide.width)
    rounds = [[design(wide, 0.25, 4 * turn + place, 9, nothing) for place in range(1, 5)] for turn in range(3)]
    for rows in rounds:
        assert (np.array(rows) != 0).sum(axis=0).tolist() == [1] * 40
    assert all(len(set(values)) == 3 for values in zip(*[np.array(rows).max(axis=0) for rows in rounds], strict=True))


def test_the_screen_leaves_out_what_is_known_to_fail() -> None:
    wide = Encoding(space(*[3] * 20))
    banned = np.zeros(wide.width)
    banned[wide.column("k3", "1")] = banned[wide.column("k3", "2")] = banned[wide.column("k5", "1")] = 1
    rows = np.array([design(wide, 0.25, number, 0, banned) for number in range(1, 17)])
    assert set(rows[:, 3]) == {0}
    assert set(rows[:, 5]) == {0, 2}


def test_feasible_is_measured_and_within_every_limit() -> None:
    assert measured(BASELINE, 0.0).is_feasible
    assert measured(BASELINE, 0.0, 0.0).is_feasible
    assert not measured(BASELINE, 0.0, 0.1).is_feasible
    assert not failure(BASELINE).is_feasible


def test_a_change_of_kernel_values_is_an_update() -> None:
    rng = np.random.default_rng(8)
    rows = rng.integers(0, E.sizes, (6, len(E.knobs)))
    kernel, hot = Kernel(E, hyper(rng)), E.one_hot(rows)
    one_by_one = [changed(rows[0], column) for column in range(E.width)]
    expected = kernel.of(kernel.forms(E.one_hot(np.array(one_by_one)), hot))
    assert kernel.around(rows[0], hot) == pytest.approx(expected)


def test_drawn_functions_have_the_posteriors_mean_and_spread() -> None:
    rng = np.random.default_rng(9)
    rows = rng.integers(0, E.sizes, (12, len(E.knobs)))
    model = Model(E, rows, rng.normal(size=12), np.full(12, 0.01), hyper(rng))
    asked = rng.integers(0, E.sizes, (4, len(E.knobs)))
    drawn = np.array([model.draw(rng).at(asked) for _ in range(1500)])
    mean, deviation = model.at(asked)
    assert drawn.mean(axis=0) == pytest.approx(mean, abs=4 * deviation.max() / np.sqrt(1500))
    assert drawn.std(axis=0) == pytest.approx(deviation, rel=0.1)
    one = model.draw(rng)
    one_by_one = [one.at(changed(rows[0], column)[None])[0] for column in range(E.width)]
    assert one.around(rows[0]) == pytest.approx(np.array(one_by_one))


def test_multiplicity_counts_shared_combinations_of_three() -> None:
    rng = np.random.default_rng(10)
    rows, shown = rng.integers(0, E.sizes, (5, len(E.knobs))), rng.integers(0, E.sizes, (9, len(E.knobs)))
    triples = [(a, b, c) for c in range(len(E.knobs)) for b in range(c) for a in range(b)]
    for row, value in zip(rows, multiplicity(E, rows, shown), strict=True):
        shared = sum((row[list(triple)] == other[list(triple)]).all() for other in shown for triple in triples)
        assert value == pytest.approx(shared / len(triples))
    # With fewer than three knobs, what is shared is the whole candidate.
    few = Encoding(space(2, 3))
    assert multiplicity(few, np.array([[0, 1], [1, 1]]), np.array([[0, 1], [0, 1]])).tolist() == [2, 0]
