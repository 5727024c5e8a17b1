"""Outcomes: derived figures of raw samples, and words for a failure."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectives.outcome import (
    Accuracy,
    EngineFile,
    Failed,
    FailureKind,
    Measured,
    Outcome,
    PairLoss,
    Rejected,
    Round,
    Samples,
    Stage,
    Trace,
)

latencies = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=9)


def samples(*rounds: list[float]) -> Samples:
    return Samples(tuple(Round(1, tuple(one)) for one in rounds), (9.0,), "steady", "host")


@settings(deadline=None)
@given(st.lists(latencies, min_size=1, max_size=4))
def test_figures_come_from_all_rounds_in_order(rounds: list[list[float]]) -> None:
    found, flat = samples(*rounds), sorted(x for one in rounds for x in one)
    assert found.all_ms == tuple(x for one in rounds for x in one)
    assert found.median_ms == pytest.approx((flat[(len(flat) - 1) // 2] + flat[len(flat) // 2]) / 2)
    assert found.throughput == pytest.approx(1000 / found.median_ms)
    assert (found.percentile_ms(0), found.percentile_ms(100)) == (flat[0], flat[-1])


def test_a_percentile_is_interpolated() -> None:
    found = samples([1.0, 2.0], [3.0, 4.0, 5.0])
    assert found.percentile_ms(50) == found.median_ms == 3.0
    assert found.percentile_ms(90) == pytest.approx(4.6)  # rank 0.9 * 4 = 3.6 from 0
    assert samples([4.0]).throughput == 250.0


def test_the_warm_up_does_not_count() -> None:
    assert 9.0 not in samples([1.0]).all_ms


def test_a_loss_that_is_no_number_is_infinite() -> None:
    loss = PairLoss("p", "y", {"l1": None, "l2": 0.5})
    assert loss.number("l1") == math.inf
    assert loss.number("l2") == 0.5
    with pytest.raises(KeyError):
        loss.number("cos")


def test_the_worst_of_nothing_is_none() -> None:
    assert Accuracy().worst("l1") is None
    assert Accuracy((PairLoss("p", "y", {"l1": 0.0}),)).worst("l1", "z") is None


def test_a_failure_in_words() -> None:
    failed = Failed(Trace(), Stage.CHECK, FailureKind.CRASHED, "was killed by SIGSEGV", 11)
    assert failed.reason == "crashed in check: was killed by SIGSEGV"


OUTCOMES = (
    Measured(
        Trace({"a": "1"}, {"a": "2"}, {"build": 0.5}, 2),
        Accuracy((PairLoss("größe", "y/:0", {"l1": None, "l2": 1e-300}, "worst"),)),
        Samples((Round(3, (1.0, 2.0)),), (3.0,), "cap", "cuda_event", ("unsteady",), {"steal_share": 0.5}),
        EngineFile("/e/ü", "d", 3, "onnx", {"w.bin": "digest"}),
    ),
    Measured(Trace(), Accuracy(), samples([1.0])),
    Rejected(Trace(), Accuracy(faults=("missing",)), "why"),
    Failed(Trace(attempts=2), Stage.OPEN, FailureKind.FALLBACK, "line one\nline two"),
)


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda one: type(one).__name__)
def test_an_outcome_survives_json_as_what_it_is(outcome: Outcome) -> None:
    again = msgspec.json.decode(msgspec.json.encode(outcome), type=Outcome)
    assert again == outcome
    assert type(again) is type(outcome)


def test_numbers_survive_to_the_last_bit() -> None:
    exact = samples(np.random.default_rng(0).lognormal(0, 5, 1000).tolist())
    assert msgspec.json.decode(msgspec.json.encode(exact), type=Samples) == exact


def test_an_outcome_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        OUTCOMES[3].trace.attempts = 1  # type: ignore[misc]
