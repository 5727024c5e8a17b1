"""Accuracy: outputs against references, losses against limits. What is not judged, or not finite, never passes."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectives.accuracy import ALL_OUTPUTS, DEFAULT_LIMITS, Limit, compare, excess, merge, require_known, violations
from objectives.errors import MetricError
from objectives.metrics import METRICS, Tolerance
from objectives.outcome import Accuracy, PairLoss
from objectives.tensors import Tensors

TOLERANCE = Tolerance()
CUSTOM = "package.module:function"
FINE = {"y": np.array([1.0, 2.0]), "z": np.array([3], np.int64)}


def judged(actual: Tensors, expected: Tensors = FINE, label: str = "pair") -> Accuracy:
    return compare(label, actual, expected, TOLERANCE)


def changed(**outputs: object) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    return {**FINE, **{name: np.asarray(array) for name, array in outputs.items()}}


def loss(value: float | None, pair: str = "p", output: str = "y", metric: str = "l1") -> PairLoss:
    others = dict.fromkeys(METRICS, None if value is None else 0.0)
    return PairLoss(pair, output, {**others, metric: value}, "worst element [0]: 1 against 2")


class TestCompare:
    def test_perfect_outputs(self) -> None:
        accuracy = judged({name: array.copy() for name, array in FINE.items()})
        assert accuracy.faults == ()
        assert [(one.pair, one.output) for one in accuracy.losses] == [("pair", "y"), ("pair", "z")]
        assert not violations(accuracy, [Limit(metric, 0.0) for metric in METRICS])

    @pytest.mark.parametrize(
        ("actual", "words"),
        [
            ({"z": FINE["z"]}, "output 'y', pair 'pair': missing"),
            (changed(y=[1.0]), "output 'y', pair 'pair': shape [1], the reference has [2]"),
            (changed(y=[[1.0, 2.0]]), "output 'y', pair 'pair': shape [1, 2], the reference has [2]"),
            (changed(y=np.float32([1, 2])), "output 'y', pair 'pair': type float32, the reference has float64"),
            (changed(z=np.int32([3])), "output 'z', pair 'pair': type int32, the reference has int64"),
            (changed(z=["3"]), "output 'z', pair 'pair': type string, the reference has int64"),
        ],
    )
    def test_a_wrong_form_is_a_fault_under_every_limit(self, actual: Tensors, words: str) -> None:
        accuracy = judged(actual)
        assert accuracy.faults == (words,)
        for limits in ((), DEFAULT_LIMITS, (Limit("l1", 1e9, "z"),), (Limit(CUSTOM, 1e9),)):
            assert violations(accuracy, limits)[0] == words
            assert 0 < excess(accuracy, limits) < math.inf

    def test_every_fault_is_told(self) -> None:
        assert len(judged({}).faults) == 2

    def test_outputs_without_reference_are_not_judged(self) -> None:
        assert not violations(judged(changed(more=[math.nan])), DEFAULT_LIMITS)

    def test_text_of_any_kind_is_one_type(self) -> None:
        accuracy = judged({"t": np.array(["a", "b"], object)}, {"t": np.array(["a", "b"])})
        assert not violations(accuracy, DEFAULT_LIMITS)

    def test_merging_keeps_the_order_of_pairs(self) -> None:
        merged = merge([judged(FINE, label="a"), judged({}, label="b"), judged(FINE, label="c")])
        assert [one.pair for one in merged.losses] == ["a", "a", "c", "c"]
        assert [fault.split("pair ")[1] for fault in merged.faults] == ["'b': missing", "'b': missing"]
        assert merge([]) == Accuracy()


class TestNotFinite:
    @pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize("metric", [*METRICS, CUSTOM])
    def test_it_is_a_violation_under_every_metric(self, metric: str, odd: float) -> None:
        # The function forgives everything: it must not even be asked.
        accuracy = compare("hard", changed(y=[1.0, odd]), FINE, TOLERANCE, {CUSTOM: lambda a, r: 0.0})
        (first, *_) = violations(accuracy, [Limit(metric, 1e12)])
        assert "output 'y', pair 'hard'" in first
        assert "not finite" in first
        assert "worst element [1]" in first
        assert excess(accuracy, [Limit(metric, 1e12)]) > 0

    def test_also_where_the_limit_is_about_another_output(self) -> None:
        assert violations(judged(changed(y=[math.nan, 2.0])), [Limit("l1", 1e9, "z")])

    def test_also_without_any_limit(self) -> None:
        assert violations(judged(changed(y=[math.nan, 2.0])), [])

    def test_it_is_said_once_for_each_output_and_pair(self) -> None:
        accuracy = judged(changed(y=[math.nan, 2.0]))
        assert len(violations(accuracy, [Limit(metric, 1.0) for metric in METRICS])) == 1

    def test_what_the_reference_has_too_passes(self) -> None:
        reference = {"y": np.array([math.inf, -math.inf, math.nan, 1.0])}
        accuracy = judged({"y": reference["y"].copy()}, reference)
        assert not violations(accuracy, [Limit(metric, 0.0) for metric in METRICS])
        assert excess(accuracy, DEFAULT_LIMITS) <= 0


class TestCustom:
    def test_a_function_judges_all_outputs_of_a_pair(self) -> None:
        seen = []

        def function(actual: Tensors, expected: Tensors) -> float:
            seen.append((set(actual), set(expected)))
            return 0.25

        accuracy = compare("p", FINE, FINE, TOLERANCE, {CUSTOM: function})
        assert seen == [({"y", "z"}, {"y", "z"})]
        assert accuracy.losses[-1] == PairLoss("p", ALL_OUTPUTS, {CUSTOM: 0.25})
        assert not violations(accuracy, [Limit(CUSTOM, 0.25)])
        assert violations(accuracy, [Limit(CUSTOM, 0.2)]) == (
            "the outputs, pair 'p': package.module:function 0.25 is over 0.2",
        )

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_a_function_that_gives_no_number_is_a_violation(self, value: float) -> None:
        accuracy = compare("p", FINE, FINE, TOLERANCE, {CUSTOM: lambda a, r: value})
        (words,) = violations(accuracy, [Limit(CUSTOM, 1e12)])
        assert "package.module:function not finite is over" in words
        assert excess(accuracy, [Limit(CUSTOM, 1e12)]) > 0

    @pytest.mark.parametrize("value", [0.5, np.float32(0.5), np.array(0.5), 1])
    def test_any_kind_of_number_is_taken(self, value: float) -> None:
        accuracy = compare("p", FINE, FINE, TOLERANCE, {CUSTOM: lambda a, r: value})
        assert accuracy.losses[-1].losses == {CUSTOM: float(value)}


class TestLimits:
    @pytest.mark.parametrize("metric", list(METRICS))
    def test_equality_passes_and_the_next_number_does_not(self, metric: str) -> None:
        for limit in (1e-3, 0.1, 1.0, 5e-324):
            at, beyond = (Accuracy((loss(v, metric=metric),)) for v in (limit, math.nextafter(limit, math.inf)))
            assert not violations(at, [Limit(metric, limit)])
            assert excess(at, [Limit(metric, limit)]) <= 0
            assert violations(beyond, [Limit(metric, limit)])
            assert excess(beyond, [Limit(metric, limit)]) > 0

    def test_a_limit_of_zero(self) -> None:
        assert not violations(Accuracy((loss(0.0),)), [Limit("l1", 0.0)])
        assert violations(Accuracy((loss(5e-324),)), [Limit("l1", 0.0)])

    def test_the_worst_pair_counts(self) -> None:
        accuracy = Accuracy((loss(0.1, "a"), loss(0.4, "b"), loss(0.2, "c")))
        assert accuracy.worst("l1") == accuracy.losses[1]
        assert violations(accuracy, [Limit("l1", 0.3)]) == (
            "output 'y', pair 'b': l1 0.4 is over 0.3; worst element [0]: 1 against 2",
        )
        assert not violations(accuracy, [Limit("l1", 0.4)])

    def test_a_loss_that_is_not_finite_is_the_worst(self) -> None:
        accuracy = Accuracy((loss(1e300, "a"), loss(None, "b")))
        assert accuracy.worst("l1") == accuracy.losses[1]

    def test_a_limit_of_one_output(self) -> None:
        accuracy = Accuracy((loss(0.5, output="y"), loss(0.1, output="z")))
        assert not violations(accuracy, [Limit("l1", 0.2, "z")])
        assert violations(accuracy, [Limit("l1", 0.2, "y")])
        assert violations(accuracy, [Limit("l1", 0.2)])
        assert [w.split(",")[0] for w in violations(accuracy, [Limit("l1", 0.05, "z"), Limit("l1", 0.2, "y")])] == [
            "output 'z'",
            "output 'y'",
        ]

    def test_a_limit_on_what_was_not_measured_is_refused(self) -> None:
        for limit in (Limit("l1", 1.0, "no output"), Limit(CUSTOM, 1.0)):
            with pytest.raises(MetricError):
                violations(judged(FINE), [limit])

    def test_losses_are_raw(self) -> None:
        accuracy = judged(changed(y=[1.5, 2.0]))
        again = msgspec.json.decode(msgspec.json.encode(accuracy), type=Accuracy)
        assert again == accuracy
        assert violations(again, [Limit("linf", 0.4)])
        assert not violations(again, [Limit("linf", 0.5)])

    @pytest.mark.parametrize("value", [math.nan, math.inf, -1e-9])
    def test_a_limit_is_a_number_of_at_least_zero(self, value: float) -> None:
        with pytest.raises(MetricError, match="at least 0") as error:
            Limit("l1", value)
        assert error.value.hint

    @pytest.mark.parametrize("metric", ["L1", "mse", "module.function"])
    def test_an_unknown_metric_is_refused_with_the_known(self, metric: str) -> None:
        with pytest.raises(MetricError, match="unknown metric") as error:
            require_known([Limit("l1", 1.0), Limit(metric, 1.0)])
        assert all(known in error.value.hint for known in METRICS)
        assert "METRIC:OUTPUT" not in error.value.hint

    def test_what_looks_like_a_function_of_ones_own_is_told_how_it_was_read(self) -> None:
        with pytest.raises(MetricError, match="unknown metric 'metrics'") as error:
            require_known([Limit("metrics", 0.01, "loss")])
        assert "metrics:loss was read as METRIC:OUTPUT" in error.value.hint

    @pytest.mark.parametrize("metric", ["", " l1"])
    def test_a_limit_names_a_metric(self, metric: str) -> None:
        with pytest.raises(MetricError, match="no name of a metric"):
            Limit(metric, 1.0)

    def test_functions_and_built_in_metrics_are_known(self) -> None:
        require_known([Limit("top1", 1.0), Limit("package.module:function", 1.0)])

    def test_a_limit_reads_as_a_rule(self) -> None:
        assert str(Limit("l1", 1e-3)) == "l1 <= 0.001"
        assert str(Limit("top1", 0.01, "logits")) == "top1:logits <= 0.01"


numbers = st.floats(0, 1e9) | st.just(0.0)
amounts = st.none() | numbers
pair_losses = st.builds(
    lambda pair, output, l1, l2: PairLoss(
        pair, output, {"l1": l1, "l2": l2} if l1 is not None else dict.fromkeys(("l1", "l2"))
    ),
    st.sampled_from("ab"),
    st.sampled_from(["y", "z"]),
    amounts,
    numbers,
)
accuracies = st.builds(
    lambda losses, faults: Accuracy(
        (PairLoss("a", "y", {"l1": 0.0, "l2": 0.0}), PairLoss("a", "z", {"l1": 0.0, "l2": 0.0}), *losses), tuple(faults)
    ),
    st.lists(pair_losses, max_size=4),
    st.lists(st.just("a fault"), max_size=1),
)
limits = st.lists(
    st.builds(Limit, st.sampled_from(["l1", "l2"]), numbers, st.none() | st.sampled_from(["y", "z"])), max_size=3
)


class TestExcess:
    @settings(deadline=None, max_examples=300)
    @given(accuracies, limits)
    def test_it_is_above_zero_exactly_when_something_is_violated(self, accuracy: Accuracy, rules: list[Limit]) -> None:
        value = excess(accuracy, rules)
        assert math.isfinite(value)
        assert (value > 0) == bool(violations(accuracy, rules))

    @settings(deadline=None, max_examples=200)
    @given(accuracies, limits)
    def test_a_violation_is_what_the_rule_says(self, accuracy: Accuracy, rules: list[Limit]) -> None:
        odd = any(None in one.losses.values() for one in accuracy.losses) or bool(accuracy.faults)
        over = any(
            value is not None and value > rule.limit
            for rule in rules
            for one in accuracy.losses
            if rule.output in (None, one.output)
            for value in [one.losses[rule.metric]]
        )
        assert bool(violations(accuracy, rules)) == (odd or over)

    @pytest.mark.parametrize(("value", "expected"), [(0.0, -1.0), (0.05, -0.5), (0.1, 0.0), (0.2, 1.0), (0.4, 3.0)])
    def test_it_is_measured_in_limits(self, value: float, expected: float) -> None:
        assert excess(Accuracy((loss(value),)), [Limit("l1", 0.1)]) == pytest.approx(expected)

    def test_just_beyond_a_limit_is_a_little(self) -> None:
        # A jump to the cap would tell the search that a near miss is as bad as a NaN.
        for limit in np.random.default_rng(0).uniform(1e-6, 1.0, 200):
            beyond = Accuracy((loss(math.nextafter(limit, math.inf)),))
            assert 0 < excess(beyond, [Limit("l1", float(limit))]) < 1e-9

    def test_the_worst_limit_counts(self) -> None:
        accuracy = Accuracy((PairLoss("p", "y", {"l1": 0.1, "l2": 0.3}),))
        assert excess(accuracy, [Limit("l1", 0.1), Limit("l2", 0.1)]) == pytest.approx(2.0)

    def test_what_is_not_finite_is_worse_than_what_is(self) -> None:
        one = excess(Accuracy((loss(None),)), [Limit("l1", 0.1)])
        assert math.isfinite(one)
        assert one >= 1e6
        assert one >= excess(Accuracy((loss(1e300),)), [Limit("l1", 0.1)])
