"""Specifications: checked when made, the same after a trip through JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from objectives.accuracy import Limit
from objectives.metrics import Tolerance
from objectives.requests import Judging
from objectives.timing import TimingPlan
from tuner.errors import UsageError
from tuner.spec import Budget, PairSpec, StudyOptions, StudySpec, WorkloadOptions, read_spec, require_name

SPEC = StudySpec(
    name="größe",
    model_digest="a" * 64,
    model_file="net.onnx",
    pairs=(PairSpec("random-0", "b" * 64, "c" * 64), PairSpec("zeros", "d" * 64, "e" * 64)),
    backend="synthetic",
    knobs=("runtime", "-threads"),
    judging=Judging((Limit("rel_l2", 1e-3), Limit("top1", 0.0, "logits")), Tolerance(1e-3, 1e-4), ("a.b:c",)),
    budget=Budget(30, 12.5),
    timing=TimingPlan(budget_ms=500.0),
    search="random",
    seed=7,
    trial_timeout_s=30.0,
    memory_bytes=1 << 30,
    shapes={"x": (1, 3, 224, 224), "scalar": ()},
)


def _change(**changes: Any) -> StudySpec:
    return msgspec.structs.replace(SPEC, **changes)


def test_a_specification_survives_json() -> None:
    assert read_spec(json.loads(json.dumps(SPEC.to_json()))) == SPEC
    assert read_spec(json.loads(json.dumps(_change(memory_bytes=None, budget=Budget(None, 3.0)).to_json()))) == _change(
        memory_bytes=None, budget=Budget(None, 3.0)
    )


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_a_format_of_another_version_is_refused(version: object) -> None:
    with pytest.raises(UsageError, match=str(version)) as caught:
        read_spec({**SPEC.to_json(), "format": version})
    assert "upgrade" in caught.value.hint


def test_judging_is_identified_by_limits_and_data_alone() -> None:
    same = [_change(budget=Budget(99)), _change(name="x"), _change(seed=1), _change(timing=TimingPlan()), SPEC]
    assert {spec.judging_digest for spec in same} == {SPEC.judging_digest}
    others = [
        _change(judging=Judging((Limit("rel_l2", 2e-3),))),
        _change(judging=msgspec.structs.replace(SPEC.judging, tolerance=Tolerance(1e-3, 1e-5))),
        _change(judging=msgspec.structs.replace(SPEC.judging, functions=())),
        _change(pairs=SPEC.pairs[:1]),
        _change(pairs=SPEC.pairs[::-1]),  # another pair would be timed
        _change(pairs=(PairSpec("random-0", "b" * 64, "f" * 64), SPEC.pairs[1])),
    ]
    assert len({spec.judging_digest for spec in [*others, SPEC]}) == len(others) + 1


@pytest.mark.parametrize(
    ("make", "flag"),
    [
        (lambda: Budget(0), "--n-trials"),
        (lambda: Budget(-3), "--n-trials"),
        (lambda: Budget(5, 0.0), "--timeout"),
        (lambda: Budget(5, -1.0), "--timeout"),
        (lambda: Budget(5, math.nan), "--timeout"),
        (lambda: Budget(5, math.inf), "--timeout"),
        (lambda: Budget(None, None), "end"),
        (lambda: WorkloadOptions(pairs=0), "--pairs"),
        (lambda: WorkloadOptions(references=("r.npz",)), "--inputs"),
        (lambda: WorkloadOptions(inputs=("i.npz",), ranges={"x": (0, 1)}), "--range"),
        (lambda: StudyOptions(search="gradient"), "gradient"),
        (lambda: StudyOptions(trial_timeout_s=0.0), "--trial-timeout"),
        (lambda: StudyOptions(trial_timeout_s=-1.0), "--trial-timeout"),
        (lambda: StudyOptions(trial_timeout_s=math.nan), "--trial-timeout"),
        (lambda: StudyOptions(trial_timeout_s=math.inf), "--trial-timeout"),  # every process is bounded
        (lambda: StudyOptions(memory_bytes=1000), "--memory-limit"),
    ],
)
def test_a_value_without_sense_is_refused_by_name(make: Callable[[], object], flag: str) -> None:
    with pytest.raises(UsageError) as caught:
        make()
    assert flag in f"{caught.value} {caught.value.hint}"
    assert caught.value.exit_code == 2


def test_the_smallest_sensible_values_are_taken() -> None:
    assert Budget(1).n_trials == 1
    assert Budget(None, 0.001).timeout_s == 0.001
    assert StudyOptions(memory_bytes=64 << 20, trial_timeout_s=0.1, search="random").search == "random"


@pytest.mark.parametrize("name", ["a", "ocr v2", "größe/量", "-x", "a" * 150])
def test_names_that_are_fine(name: str) -> None:
    assert require_name(name) == name


@pytest.mark.parametrize("name", ["", " ", " a", "a ", "a\nb", "a\tb", "\x00", "a" * 151])
def test_names_that_are_not(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        require_name(name)
    assert repr(name) in str(caught.value)
    assert "150" in caught.value.hint
