"""Metrics: against straightforward formulas in plain Python, for every type, and what no formula may let through."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from objectives.metrics import DEFAULT_METRIC, METRICS, Tolerance, measure_output
from objectives.tensors import Array

STANDARD = Tolerance()
EXACT = Tolerance(0.0, 0.0)
numbers = st.floats(-1e6, 1e6, allow_subnormal=False)
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Array, Array]:
    shape = draw(npst.array_shapes(min_dims=1, max_dims=3, max_side=4))
    return draw(npst.arrays(np.float64, shape, elements=numbers)), draw(
        npst.arrays(np.float64, shape, elements=numbers)
    )


def losses(actual: Array, expected: Array, tolerance: Tolerance = STANDARD) -> dict[str, float | None]:
    return measure_output(actual, expected, tolerance)[0]


def loss(metric: str, actual: object, expected: object, tolerance: Tolerance = STANDARD) -> float | None:
    return losses(np.array(actual, np.float64), np.array(expected, np.float64), tolerance)[metric]


class TestFormulas:
    """l0 to cos as trtexec documents them; N elements, a of the engine, r the reference."""

    @settings(deadline=None)
    @given(pairs(), st.floats(0, 1), st.floats(0, 1))
    def test_l0(self, pair: tuple[Array, Array], atol: float, rtol: float) -> None:
        a, r = pair
        off = sum(abs(x - y) > atol + rtol * abs(y) for x, y in zip(a.flat, r.flat, strict=True))
        assert losses(a, r, Tolerance(atol, rtol))["l0"] == off / a.size

    @settings(deadline=None)
    @given(pairs())
    def test_l1_l2_linf(self, pair: tuple[Array, Array]) -> None:
        a, r = pair
        distances = [abs(x - y) for x, y in zip(a.flat, r.flat, strict=True)]
        found = losses(a, r)
        assert found["l1"] == pytest.approx(math.fsum(distances) / a.size, rel=1e-12)
        assert found["l2"] == pytest.approx(math.fsum(d * d for d in distances) / a.size, rel=1e-12)
        assert found["linf"] == max(distances)

    @settings(deadline=None)
    @given(pairs())
    def test_cos(self, pair: tuple[Array, Array]) -> None:
        a, r = pair
        norms = math.hypot(*a.flat) * math.hypot(*r.flat)
        assume(norms > 1e-6)
        expected = 1 - math.fsum(x * y for x, y in zip(a.flat, r.flat, strict=True)) / norms
        found = losses(a, r)["cos"]
        assert found == pytest.approx(max(expected, 0.0), abs=1e-12)
        assert found is not None
        assert 0 <= found <= 2 + 1e-12

    @settings(deadline=None)
    @given(pairs())
    def test_rel_l2(self, pair: tuple[Array, Array]) -> None:
        a, r = pair
        size = math.hypot(*r.flat)
        assume(size > 1e-3 * math.sqrt(r.size))  # above the floor of atol per element
        difference = math.hypot(*(x - y for x, y in zip(a.flat, r.flat, strict=True)))
        assert losses(a, r)["rel_l2"] == pytest.approx(difference / size, rel=1e-9, abs=1e-300)

    @settings(deadline=None)
    @given(pairs())
    def test_top1(self, pair: tuple[Array, Array]) -> None:
        a, r = pair
        found = losses(a, r)
        if a.shape[-1] == 1:
            assert found["top1"] == found["l0"]
            return
        rows = list(zip(a.reshape(-1, a.shape[-1]).tolist(), r.reshape(-1, a.shape[-1]).tolist(), strict=True))
        wrong = sum(right[row.index(max(row))] != max(right) for row, right in rows)
        assert found["top1"] == pytest.approx(wrong / len(rows))

    def test_the_numbers_of_a_small_example(self) -> None:
        # By hand: differences 0.5, 0, -1; |r| = 3; a.r = 1*1.5 + 2*2 + 2*1 = 7.5; |a|^2 = 7.25.
        found = losses(np.array([1.5, 2.0, 1.0]), np.array([1.0, 2.0, 2.0]), Tolerance(0.5, 0.0))
        assert found == {
            "l0": pytest.approx(1 / 3),
            "l1": pytest.approx(0.5),
            "l2": pytest.approx(1.25 / 3),
            "linf": pytest.approx(1.0),
            "cos": pytest.approx(1 - 7.5 / (math.sqrt(7.25) * 3)),
            "rel_l2": pytest.approx(math.sqrt(1.25) / 3),
            "top1": 0.0,  # index 1 is chosen, and the reference has its largest there too (a tie with index 2)
        }

    def test_every_metric_is_described_and_measured(self) -> None:
        assert list(losses(np.ones(2), np.ones(2))) == list(METRICS)
        assert DEFAULT_METRIC in METRICS
        assert all(METRICS.values())

    @settings(deadline=None)
    @given(pairs())
    def test_no_loss_is_negative(self, pair: tuple[Array, Array]) -> None:
        assert all(value is not None and value >= 0 for value in losses(*pair).values())

    @settings(deadline=None)
    @given(pairs())
    def test_perfect_is_exactly_zero(self, pair: tuple[Array, Array]) -> None:
        # A limit of 0 asks for the same bits: the rule is loss > limit, and rounding must not break it.
        found, worst = measure_output(pair[0], pair[0].copy(), EXACT)
        assert found == dict.fromkeys(METRICS, 0.0)
        assert worst == ""

    def test_the_tolerance_of_l0_is_inclusive(self) -> None:
        assert loss("l0", [1.5], [1.0], Tolerance(0.5, 0.0)) == 0.0
        assert loss("l0", [1.5], [1.0], Tolerance(0.0, 0.5)) == 0.0
        assert loss("l0", [math.nextafter(1.5, 2)], [1.0], Tolerance(0.5, 0.0)) == 1.0

    def test_the_default_tolerance_is_trtexecs(self) -> None:
        assert (STANDARD.atol, STANDARD.rtol) == (1e-5, 1e-5)

    def test_l0_is_relative_to_the_reference(self) -> None:
        tolerance = Tolerance(0.0, 0.5)
        assert loss("l0", [1.0], [2.0], tolerance) == 0.0
        assert loss("l0", [2.0], [1.0], tolerance) == 1.0

    @pytest.mark.parametrize(("scale", "factor"), [(1e-320, 1.5), (1e-200, 3.0), (1e150, 2.0), (1e300, 1.0)])
    def test_cos_and_rel_l2_hold_at_any_size(self, scale: float, factor: float) -> None:
        r = np.array([3.0, 4.0]) * scale
        found = losses(np.array([4.0, -3.0]) * scale * factor, r, EXACT)
        assert found["cos"] == pytest.approx(1.0, abs=1e-3)
        assert losses(r, r, EXACT)["cos"] == pytest.approx(0.0, abs=1e-12)
        assert found["rel_l2"] == pytest.approx(math.sqrt(1 + factor**2), rel=1e-2)


class TestZeroReference:
    def test_rel_l2_has_a_floor_of_atol_per_element(self) -> None:
        for count in (1, 4, 100):
            assert loss("rel_l2", [1e-7] * count, [0.0] * count, Tolerance(1e-5, 0.0)) == pytest.approx(1e-2)

    def test_the_floor_does_not_touch_references_above_it(self) -> None:
        assert loss("rel_l2", [1.1e-4], [1e-4], Tolerance(1e-5, 0.0)) == pytest.approx(0.1)

    def test_without_a_floor_any_difference_is_beyond_every_limit(self) -> None:
        found = losses(np.array([1e-30]), np.array([0.0]), EXACT)
        assert found["rel_l2"] is not None, "None means that an output is not finite"
        assert found["rel_l2"] > 1e300
        assert loss("rel_l2", [0.0], [0.0], EXACT) == 0.0

    def test_cos_of_zero_vectors(self) -> None:
        assert loss("cos", [0.0, 0.0], [0.0, 0.0]) == 0.0
        assert loss("cos", [0.0, 1.0], [0.0, 0.0]) == 1.0
        assert loss("cos", [0.0, 0.0], [0.0, 1.0]) == 1.0

    def test_signs_of_zero_are_equal(self) -> None:
        assert losses(np.array([-0.0, 0.0]), np.array([0.0, -0.0]), EXACT) == dict.fromkeys(METRICS, 0.0)


class TestNotFinite:
    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16", "float8_e5m2"])
    @pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
    def test_what_the_reference_has_not_voids_every_loss(self, dtype: str, odd: float) -> None:
        kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
        fine, bad = np.array([1.0, 2.0, 3.0]).astype(kind), np.array([1.0, odd, 3.0]).astype(kind)
        for actual, expected in ((bad, fine), (fine, bad)):
            found, worst = measure_output(actual, expected, Tolerance(math.inf, math.inf))
            assert found == dict.fromkeys(METRICS, None)
            assert "[1]" in worst

    @pytest.mark.parametrize(
        ("one", "two"), [(math.nan, math.inf), (math.inf, -math.inf), (-math.inf, math.nan)], ids=str
    )
    def test_other_kinds_of_it_are_not_equal(self, one: float, two: float) -> None:
        assert losses(np.array([one, 1.0]), np.array([two, 1.0])) == dict.fromkeys(METRICS, None)

    def test_the_same_at_another_place_is_not_equal(self) -> None:
        assert losses(np.array([math.inf, 1.0]), np.array([1.0, math.inf])) == dict.fromkeys(METRICS, None)

    def test_infinities_at_the_same_place_are_equal_and_the_rest_is_measured(self) -> None:
        a, r = np.array([math.inf, 2.0, -math.inf, 1.0]), np.array([math.inf, 1.0, -math.inf, 1.0])
        found = losses(a, r)
        assert found["linf"] == 1.0
        assert found["l1"] == 0.5
        assert found["top1"] == 0.0
        assert measure_output(a, r, STANDARD)[1].startswith("worst element [1]")

    @pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 2)], ids=str)
    def test_the_same_at_the_same_place_is_perfect(self, odd: float, shape: tuple[int, ...]) -> None:
        array = np.zeros(shape)
        array.reshape(-1)[0] = odd
        assert losses(array, array.copy()) == dict.fromkeys(METRICS, 0.0)
        assert losses(np.full(shape, odd), np.full(shape, odd)) == dict.fromkeys(METRICS, 0.0)

    @settings(deadline=None)
    @given(pairs(), st.data())
    def test_one_of_them_anywhere_voids_every_loss(self, pair: tuple[Array, Array], data: st.DataObject) -> None:
        a, r = pair
        a.reshape(-1)[data.draw(st.integers(0, a.size - 1))] = data.draw(st.sampled_from([math.nan, math.inf]))
        assert losses(a, r) == dict.fromkeys(METRICS, None)

    def test_complex_parts_count(self) -> None:
        fine, bad = np.array([1 + 1j, 2]), np.array([1 + 1j, complex(2, math.nan)])
        found, worst = measure_output(bad, fine, STANDARD)
        assert found == dict.fromkeys(METRICS, None)
        assert "[1]" in worst

    def test_huge_finite_numbers_are_finite(self) -> None:
        # A mask of -1e300 with a rounding in it: nothing here is infinite, and relatively nothing is wrong.
        found, worst = measure_output(np.array([-1e300 * (1 + 1e-12), 1.0]), np.array([-1e300, 1.0]), STANDARD)
        assert None not in found.values()
        assert found["rel_l2"] == pytest.approx(1e-12, rel=1e-3)
        assert "[0]" in worst

    def test_the_largest_difference_of_all_warns_nobody(self) -> None:
        found, worst = measure_output(np.array([1.7e308, 0.0]), np.array([-1.7e308, 0.0]), STANDARD)
        assert found["l0"] == 0.5
        assert "[0]" in worst


class TestTypes:
    @pytest.mark.parametrize("dtype", [*INTEGERS, "float16", "float32", "float64", "bfloat16", "int4", "float8_e4m3fn"])
    def test_every_type_is_measured(self, dtype: str) -> None:
        kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
        a, r = np.array([1, 4, 3]).astype(kind), np.array([1, 2, 3]).astype(kind)
        found, worst = measure_output(a, r, STANDARD)
        assert (found["linf"], found["l0"], found["top1"]) == (2.0, pytest.approx(1 / 3), 1.0)
        assert worst == "worst element [1]: 4 against 2" or worst == "worst element [1]: 4.0 against 2.0"

    def test_booleans_are_zero_and_one(self) -> None:
        found = losses(np.array([True, False, True, True]), np.array([True, True, True, True]))
        assert (found["linf"], found["l1"], found["l0"]) == (1.0, 0.25, 0.25)

    @pytest.mark.parametrize("dtype", ["int64", "uint64"])
    def test_integers_beyond_2_to_the_53_are_exact(self, dtype: str) -> None:
        for base in (2**53, 2**62, 2**63 - 2 if dtype == "int64" else 2**64 - 2):
            a, r = np.array([base + 1, 5], dtype), np.array([base, 5], dtype)
            found, worst = measure_output(a, r, EXACT)
            assert (found["linf"], found["l1"], found["l0"]) == (1.0, 0.5, 0.5)
            assert worst == f"worst element [0]: {base + 1} against {base}"
            assert losses(a, a.copy(), EXACT) == dict.fromkeys(METRICS, 0.0)

    @settings(deadline=None)
    @given(st.sampled_from(INTEGERS), st.data())
    def test_the_largest_difference_of_integers(self, dtype: str, data: st.DataObject) -> None:
        info = np.iinfo(dtype)
        whole = st.lists(st.integers(int(info.min), int(info.max)), min_size=3, max_size=3)
        a, r = data.draw(whole), data.draw(whole)
        found = losses(np.array(a, dtype), np.array(r, dtype), EXACT)
        assert found["linf"] == float(max(abs(x - y) for x, y in zip(a, r, strict=True)))
        mean = Fraction(sum(abs(x - y) for x, y in zip(a, r, strict=True)), 3)
        assert found["l1"] == pytest.approx(float(mean), rel=1e-15)
        assert found["top1"] == float(r[a.index(max(a))] != max(r))

    def test_complex_numbers_are_their_parts(self) -> None:
        a, r = np.array([[1 + 2j, 3 - 1j]], np.complex64), np.array([[1 + 2j, 3 + 1j]], np.complex64)
        found, worst = measure_output(a, r, STANDARD)
        assert (found["linf"], found["l1"]) == (2.0, 0.5)  # four parts, one of them off by 2
        assert found["rel_l2"] == pytest.approx(2 / math.sqrt(15))
        assert worst == "worst element [0, 1]: (3-1j) against (3+1j)"

    @pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 2)], ids=str)
    def test_equal_complex_numbers_are_perfect(self, shape: tuple[int, ...]) -> None:
        array = np.full(shape, 1 + 2j)
        assert losses(array, array.copy()) == dict.fromkeys(METRICS, 0.0)

    @pytest.mark.parametrize("kind", ["U", "O"])
    def test_text_is_the_share_of_unequal_elements(self, kind: str) -> None:
        a, r = np.array([["a", "b"], ["größe", ""]], kind), np.array([["a", "B"], ["größe", ""]], object)
        found, worst = measure_output(a, r, Tolerance(9, 9))
        assert found == dict.fromkeys(METRICS, 0.25)
        assert worst == "worst element [0, 1]: b against B"
        assert measure_output(r, r.copy(), EXACT) == (dict.fromkeys(METRICS, 0.0), "")

    @pytest.mark.parametrize("dtype", ["float32", "int64", "O", "complex64"])
    @pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)], ids=str)
    def test_nothing_is_perfect(self, dtype: str, shape: tuple[int, ...]) -> None:
        empty = np.empty(shape, dtype)
        assert measure_output(empty, empty, EXACT) == (dict.fromkeys(METRICS, 0.0), "")

    def test_scalars(self) -> None:
        found, worst = measure_output(np.float32(1.5)[()].reshape(()), np.array(1.0, np.float32), STANDARD)
        assert (found["linf"], found["top1"]) == (0.5, found["l0"])
        assert worst == "worst element []: 1.5 against 1.0"

    @pytest.mark.parametrize("view", [lambda x: x.T, lambda x: x[::-1], np.asfortranarray])
    def test_the_layout_in_memory_does_not_count(self, view: object) -> None:
        a, r = np.arange(12.0).reshape(3, 4), np.arange(12.0).reshape(3, 4) * 1.5 - 1
        assert callable(view)
        plain = measure_output(np.ascontiguousarray(view(a)), np.ascontiguousarray(view(r)), STANDARD)
        assert measure_output(view(a), view(r), STANDARD) == plain


class TestTop1:
    def test_a_tie_in_the_reference_has_more_than_one_right_answer(self) -> None:
        assert loss("top1", [0, 1, 0], [0, 2, 2]) == 0.0
        assert loss("top1", [0, 0, 1], [0, 2, 2]) == 0.0
        assert loss("top1", [1, 0, 0], [0, 2, 2]) == 1.0

    def test_rows_run_along_the_last_axis(self) -> None:
        r = np.eye(3)[None].repeat(2, axis=0)
        a = r.copy()
        a[0, 0] = [0, 1, 0]
        assert losses(a, r)["top1"] == pytest.approx(1 / 6)

    def test_rows_of_one_element_fall_back_to_l0(self) -> None:
        assert loss("top1", [[1.0], [2.0]], [[1.0], [3.0]]) == 0.5


@settings(deadline=None)
@given(pairs())
def test_the_worst_element_is_the_furthest(pair: tuple[Array, Array]) -> None:
    a, r = pair
    worst = measure_output(a, r, STANDARD)[1]
    distances = np.abs(a - r)
    if not distances.any():
        assert worst == ""
        return
    where = [int(i) for i in np.unravel_index(int(np.argmax(distances)), a.shape)]
    assert worst == f"worst element {where}: {a[tuple(where)]} against {r[tuple(where)]}"
