"""Values to lines: the pure functions of rendering."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from objectives.accuracy import Limit
from objectives.knobs import BASELINE, Candidate
from objectives.outcome import (
    Accuracy,
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
from tuner.cli import render
from tuner.ledger import Trial
from tuner.objective import Objective
from tuner.results import Summary, summarize
from tuner.spec import Budget

START = datetime(2030, 1, 1, tzinfo=UTC)
ACCURACY = Accuracy(
    (PairLoss("zeros", "y", {"rel_l2": 0.004, "top1": 0.0}), PairLoss("large", "y", {"rel_l2": 0.00123}))
)


def _measured(latency_ms: float, flags: tuple[str, ...] = (), accuracy: Accuracy = ACCURACY) -> Measured:
    return Measured(Trace(), accuracy, Samples((Round(1, (latency_ms,) * 3),), (), "steady", "host", flags))


def _trial(number: int, outcome: Outcome, candidate: Candidate = BASELINE, starts: int = 1) -> Trial:
    throughput = outcome.samples.throughput if isinstance(outcome, Measured) else None
    end = START + timedelta(seconds=2)
    return Trial(number, f"uid-{number}", candidate, "tpe", outcome, START, end, 2.0, starts, throughput)


def _failed(kind: FailureKind = FailureKind.CRASHED, detail: str = "was killed by SIGSEGV") -> Failed:
    return Failed(Trace(), Stage.CHECK, kind, detail, 11)


FAST = Candidate((("a", "1"), ("b", "x")))


@pytest.mark.parametrize(
    ("throughput", "text"),
    [
        (None, "-"),
        (0.001234567, "0.001235/s"),
        (12.345, "12.35/s"),
        (999.4, "999.4/s"),
        (1823.4, "1,823/s"),
        (9999.4, "9,999/s"),
        (9999.7, "10,000/s"),
        (10000.0, "10,000/s"),
        (1234567.8, "1,234,568/s"),
    ],
)
def test_speed_has_four_figures_and_never_an_exponent(throughput: float | None, text: str) -> None:
    assert (Objective.THROUGHPUT.words(1e3 / throughput) if throughput else "-") == text


def test_ratios() -> None:
    assert [render.ratio(value) for value in (None, 1.0, 1.8236)] == ["-", "1.000x", "1.824x"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.0 s"),
        (12.34, "12.3 s"),
        (59.94, "59.9 s"),
        (60.0, "1 min 0 s"),
        (90.4, "1 min 30 s"),
        (3599.9, "1 h 0 min"),
        (3600.0, "1 h 0 min"),
        (7384.0, "2 h 3 min"),
        (100 * 3600.0, "100 h 0 min"),
    ],
)
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert render.span(seconds) == text


def test_tables_are_aligned_and_have_no_blanks_at_the_end() -> None:
    lines = render.table(["a", "long head", "last"], [["1", "x", "a long last cell"], ["22222", "y", ""]])
    assert lines == ["a      long head  last", "1      x          a long last cell", "22222  y"]
    assert render.table(["only"], []) == ["only"]


def test_counts_name_the_kinds_most_frequent_first() -> None:
    summary = Summary(9, 3, 2, Counter({"timed_out": 1, "build_failed": 3}), None, None, 0.0)
    assert render.counts(summary) == "3 feasible, 2 rejected, 4 failed (3 build failed, 1 timed out)"
    assert render.counts(summarize([], [])) == "0 feasible, 0 rejected, 0 failed"


def test_losses_name_the_worst_pair_of_each_limit() -> None:
    limits = [Limit("rel_l2", 0.01), Limit("top1", 0.0), Limit("linf", 1.0)]
    assert render.losses(ACCURACY, limits) == [
        "rel_l2 0.004 <= 0.01 (pair 'zeros')",
        "top1 0 <= 0 (pair 'zeros')",
    ]


@pytest.mark.parametrize(
    ("outcome", "starts", "status", "says"),
    [
        (_measured(0.5), 1, "ok", []),
        (_measured(0.5, ("unsteady", "imprecise")), 3, "ok", ["[unsteady, imprecise]", "[started 3 times]"]),
        (_failed(), 1, "crashed", ["SIGSEGV", "check"]),
        (_failed(FailureKind.OUT_OF_MEMORY, "went over"), 2, "out of memory", ["went over", "[started 2 times]"]),
        (Rejected(Trace(), ACCURACY, "output 'y': rel_l2 is over"), 1, "inaccurate", ["rel_l2 is over"]),
        (Rejected(Trace(), Accuracy(faults=("shape",)), "shape [7]"), 1, "wrong output", ["shape [7]"]),
    ],
)
def test_a_trials_line(outcome: Outcome, starts: int, status: str, says: list[str]) -> None:
    base = _trial(0, _measured(1.0))
    number, shown, throughput, relative, text = render.trial_line(
        _trial(12, outcome, FAST, starts), summarize([base], [])
    )
    assert (number, shown) == ("12", status)
    assert text.startswith("a=1 b=x")
    assert [word for word in says if word not in text] == []
    if not isinstance(outcome, Measured):
        assert (throughput, relative) == ("-", "-")
    else:
        assert throughput == "2,000/s"


def test_a_trials_line_leaves_out_the_librarys_log() -> None:
    line = render.trial_line(_trial(1, _failed(detail="was killed; last output: " + "x" * 500)), summarize([], []))
    assert "xxx" not in line[-1]


@pytest.mark.parametrize(
    ("budget", "words"),
    [(Budget(50), "50 trials"), (Budget(None, 90.0), "1 min 30 s"), (Budget(50, 7200.0), "50 trials or 2 h 0 min")],
)
def test_budgets_in_words(budget: Budget, words: str) -> None:
    assert render.budget_words(budget) == words


def test_lines_are_printed_as_lines_and_all_else_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    render.emit(["größe", "second"])
    assert capsys.readouterr().out == "größe\nsecond\n"
    content: dict[str, Any] = {"größe": [1, None, True]}
    render.emit(content)
    printed = capsys.readouterr().out
    assert json.loads(printed) == content
    assert "größe" in printed
    render.emit([{"a": 1}])
    assert json.loads(capsys.readouterr().out) == [{"a": 1}]


def test_a_trials_line_is_one_line_however_much_a_program_said() -> None:
    said = "Traceback\n  File x\n" + "y z\n" * 500 + "ValueError: what went wrong"
    text = render.trial_line(_trial(1, _failed(detail=said)), summarize([], []))[-1]
    assert "\n" not in text
    assert len(text) < 600
    assert "Traceback File x" in text
    assert text.endswith("ValueError: what went wrong")
