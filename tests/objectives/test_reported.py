"""Reported: how many rounds are taken from an engine that measures itself, and what its losses become."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from objectives.accuracy import ALL_OUTPUTS, Limit, violations
from objectives.backends.base import Report, Reporter, Values
from objectives.errors import CandidateError
from objectives.outcome import FailureKind
from objectives.reported import ReportTimer, accuracy_of, require_losses
from objectives.timing import TimingPlan

STEADY = [1.0 + k / 1e5 for k in range(12)]
ROUGH = [1.0, 1.5, 2.0, 1.2, 1.9, 1.1, 1.7, 1.3, 1.6]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Scripted(Reporter):
    """Says what it is given, again and again; each report takes `seconds`."""

    def __init__(self, reports: Sequence[Report], stays_open: bool = False, seconds: float = 0.1) -> None:
        self.reports, self.asked, self.clock_s, self.seconds = reports, 0, Clock(), seconds
        self._stays_open = stays_open

    @property
    def effective(self) -> Values:
        return {}

    @property
    def stays_open(self) -> bool:
        return self._stays_open

    def report(self) -> Report:
        self.asked += 1
        self.clock_s.now += self.seconds
        return self.reports[(self.asked - 1) % len(self.reports)]


def timer(reporter: Scripted, incumbent: Sequence[float] = (), **plan: float) -> ReportTimer:
    return ReportTimer(reporter, TimingPlan(**plan), incumbent, reporter.clock_s)  # type: ignore[arg-type]


def test_steady_samples_end_after_the_fewest_rounds() -> None:
    found = timer(Scripted([Report(tuple(STEADY))]))
    found.run()
    samples = found.samples()
    assert len(samples.rounds) == 3
    assert samples.all_ms == tuple(STEADY * 3)
    assert (samples.clock, samples.flags, samples.warmup_reason) == ("program", (), "program")


def test_a_costly_start_is_paid_once() -> None:
    found = timer(Scripted([Report(tuple(ROUGH))], seconds=5.0))
    found.run()
    assert len(found.rounds) == 1
    assert found.samples().flags == ("imprecise",)


def test_the_start_of_what_stays_open_is_no_timing() -> None:
    reporter = Scripted([Report(tuple(ROUGH))], stays_open=True, seconds=0.9)
    found = timer(reporter)
    found.run()
    assert len(found.rounds) == 4  # the first is free, then 0.9 s each until 2 s are spent


def test_warming_up_starts_only_what_stays_open() -> None:
    started, not_started = Scripted([Report((1.0,))], stays_open=True), Scripted([Report((1.0,))])
    for reporter in (started, not_started):
        timer(reporter).warm_up()
    assert (started.asked, not_started.asked) == (1, 0)


def test_a_hopeless_candidate_ends_after_a_round() -> None:
    found = timer(Scripted([Report((9.0, 9.1, 9.05))]), incumbent=STEADY)
    found.run()
    assert len(found.rounds) == 1
    assert found.samples().flags == ("stopped_early",)


def test_a_single_sample_is_few() -> None:
    found = timer(Scripted([Report((1.0,))], seconds=3.0))
    found.run()
    assert found.samples().flags == ("few_samples", "imprecise")


def test_there_is_a_most_of_rounds() -> None:
    found = timer(Scripted([Report(tuple(ROUGH))], seconds=0.0), max_rounds=5)
    found.run()
    assert len(found.rounds) == 5


def test_the_worst_loss_of_all_rounds_counts() -> None:
    found = timer(Scripted([Report((1.0,), {"a": 0.1, "b": 0.5}), Report((1.0,), {"a": 0.3}), Report((1.0,))]))
    found.run()
    assert found.losses == {"a": 0.3, "b": 0.5}


def test_a_loss_that_is_not_finite_stays_so() -> None:
    found = timer(Scripted([Report((1.0,), {"a": None}), Report((1.0,), {"a": 0.3})]))
    found.run()
    assert found.losses == {"a": None}


class TestAccuracy:
    def test_losses_have_no_output(self) -> None:
        (loss,) = accuracy_of({"a": 0.5}).losses
        assert (loss.output, loss.losses) == (ALL_OUTPUTS, {"a": 0.5})

    def test_over_a_limit_is_a_violation(self) -> None:
        assert violations(accuracy_of({"a": 0.5}), (Limit("a", 0.5),)) == ()
        (words,) = violations(accuracy_of({"a": 0.5}), (Limit("a", 0.4),))
        assert words == "as the program reports: a 0.5 is over 0.4"

    @pytest.mark.parametrize("limits", [(), (Limit("b", 1.0),)])
    def test_what_is_not_finite_is_one_whatever_the_limits(self, limits: tuple[Limit, ...]) -> None:
        assert "a that is not finite" in violations(accuracy_of({"a": None, "b": 0.1}), limits)[0]

    def test_no_losses_are_no_violation(self) -> None:
        assert violations(accuracy_of({}), ()) == ()

    def test_a_limit_on_nothing_is_a_failure(self) -> None:
        require_losses({"a": 1.0}, (Limit("a", 0.1),))
        with pytest.raises(CandidateError, match=r"no loss b.*it reports: a") as error:
            require_losses({"a": 1.0}, (Limit("b", 0.1),))
        assert error.value.kind == FailureKind.RUN_FAILED
