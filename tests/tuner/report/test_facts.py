"""What a report says of studies that end in every way: never more than was shown."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from msgspec.structs import replace

from tests.tuner.report.conftest import Kept, Told
from tests.tuner.report.stories import KINDS
from tuner.errors import UsageError
from tuner.objective import Objective
from tuner.report.advice import reproduction, shipping
from tuner.report.cautions import cautions
from tuner.report.facts import Answer, ContextFacts, Outcome
from tuner.report.figures.machine import drift
from tuner.report.gather import studies_facts, study_facts
from tuner.report.headline import headline

ANSWERS = {
    "untried": Answer.NOTHING,
    "unconfirmed": Answer.UNCONFIRMED,
    "faster": Answer.FASTER,
    "not faster": Answer.NOT_FASTER,
    "undecided": Answer.UNDECIDED,
    "no candidate": Answer.NO_BETTER,
    "broken": Answer.NO_CANDIDATE,
    "size": Answer.NO_BETTER,
    "retargeted": Answer.UNCONFIRMED,
    "program": Answer.UNCONFIRMED,
    "devices": Answer.UNCONFIRMED,
}


def shown(told: Told, kind: str) -> ContextFacts:
    context = told(kind).context
    assert context is not None
    return context


def test_every_kind_of_end_has_its_answer() -> None:
    assert set(ANSWERS) == set(KINDS)


@pytest.mark.parametrize("kind", ANSWERS)
def test_the_answer_is_what_was_shown(told: Told, kind: str) -> None:
    head = shown(told, kind).headline
    assert head.answer is ANSWERS[kind]
    claims_speed = head.sentence.startswith("Faster")
    assert claims_speed == (kind == "faster")
    assert head.sentence.endswith(".")
    assert head.basis.endswith(".")


def test_the_smallest_engine_is_told_without_a_word_of_speed(told: Told) -> None:
    context = shown(told, "size")
    assert context.default is not None
    best = replace(context.default, number=3, changes={"a": "v1"}, candidate="a=v1", value=2.0, ratio=1.25)
    head = headline(Objective.ENGINE_SIZE, context.default, best, None, 6)
    assert head.answer is Answer.OBSERVED
    assert head.sentence == "The smallest feasible engine has 2.00\u00a0MB: 20\u00a0% smaller than the default's."
    assert "how fast it runs was not measured" in head.basis


def test_the_numbers_of_the_verdict_are_those_of_the_confirmation(told: Told) -> None:
    context = shown(told, "faster")
    decided = context.confirmation
    assert decided is not None
    (winner,) = [one for one in decided.finalists if one.is_winner]
    head = context.headline
    assert (head.trial, head.speedup, head.low, head.high) == (winner.trial, winner.speedup, winner.low, winner.high)
    assert head.low is not None
    assert head.low > 1 + decided.min_gain
    assert winner.n_pairs == len(winner.pairs)
    assert all(len(pair.rounds) >= 2 for pair in winner.pairs)
    geometric = math.exp(sum(math.log(pair.ratio) for pair in winner.pairs) / len(winner.pairs))
    assert geometric == pytest.approx(winner.speedup, rel=0.05)


def test_an_earlier_confirmation_that_said_otherwise_is_not_kept_quiet(told: Told) -> None:
    study, context = told("faster"), shown(told, "faster")
    (last,) = context.confirmations
    assert not any("earlier" in line for line in cautions(study, context))
    same = replace(context, confirmations=(replace(last, n_pairs=1), last))
    assert not any("earlier" in line for line in cautions(study, same))
    other = replace(context, confirmations=(replace(last, verdict="undecided"), replace(last, n_pairs=1), last))
    (line,) = [line for line in cautions(study, other) if "earlier" in line]
    assert line.startswith("In this context 1 earlier confirmation said UNDECIDED:")


def test_what_ships_is_the_confirmed_engine_or_the_default(told: Told) -> None:
    winner = shipping(told("faster"), shown(told, "faster")).engine
    assert winner is not None
    assert winner.trial == shown(told, "faster").headline.trial
    assert "confirmed" in winner.reasons
    for kind in ("unconfirmed", "not faster", "undecided"):
        engine = shipping(told(kind), shown(told, kind)).engine
        assert engine is not None
        assert engine.changes == {}, kind
    assert shipping(told("broken"), shown(told, "broken")).engine is None


def test_outcomes_are_counted_as_the_study_counts_them(told: Told) -> None:
    context = shown(told, "unconfirmed")
    assert [context.count(one) for one in Outcome] == [3, 1, 2]
    assert sorted((one.kind, one.n_trials) for one in context.failures) == [("build failed", 2), ("inaccurate", 1)]
    (failed,) = [one for one in context.failures if one.outcome is Outcome.FAILED]
    assert failed.common == "a=v2"
    assert failed.words


def test_losses_stand_beside_their_limits(told: Told) -> None:
    context = shown(told, "unconfirmed")
    (limit,) = context.limits
    for trial in context.trials:
        known = [one for one in trial.losses if one is not None]
        if trial.outcome is Outcome.REJECTED:
            assert known[0] > limit.limit
        if trial.outcome is Outcome.FEASIBLE:
            assert known[0] <= limit.limit


def test_other_limits_are_another_context_and_the_report_is_about_the_latest(told: Told) -> None:
    study = told("retargeted")
    assert [one.number for one in study.contexts] == [1, 2]
    assert study.shown == 2
    assert study.contexts[1].parent == 1
    assert study.contexts[1].count(Outcome.FEASIBLE) >= study.contexts[0].count(Outcome.FEASIBLE)


def test_an_older_context_is_told_to_be_one(study_of: Kept) -> None:
    study = study_of("retargeted")
    found = study_facts(study.name, context=1, storage=study.url)
    assert found.shown == 1
    assert found.context is not None
    assert "gone on in context 2" in " ".join(cautions(found, found.context))
    assert any("--context 1" in one.text for one in reproduction(found, found.context))


@pytest.mark.parametrize(("names", "context"), [((), None), (("demo", "demo"), None), (("demo", "other"), 1)])
def test_names_that_make_no_sense_are_refused(names: tuple[str, ...], context: int | None) -> None:
    with pytest.raises(UsageError) as caught:
        studies_facts(names, context=context, storage="sqlite:///nowhere.db")
    assert caught.value.hint


def test_times_of_trials_add_up(told: Told) -> None:
    context = shown(told, "faster")
    assert all(a.at_s <= b.at_s for a, b in pairwise(context.trials))
    assert context.trials[-1].at_s == pytest.approx(sum(one.spent_s for one in context.trials))


def test_shares_of_knobs_are_shares(told: Told) -> None:
    context = shown(told, "faster")
    assert context.unexplained is not None
    assert sum(one.share for one in context.importance) + context.unexplained == pytest.approx(1)
    assert all(one.low <= one.gain <= one.high for one in context.effects)
    assert context.pairings


def test_the_machine_is_told_of_with_noise_and_drift(told: Told) -> None:
    found = shown(told, "faster").machine
    assert found.run_sd is not None
    assert {one.purpose for one in found.controls} == {"noise", "drift"}
    assert len(found.drift) == len(found.drift_s) >= 2
    assert found.devices == ()


def test_each_device_is_told_of_with_its_own_level_and_controls(told: Told) -> None:
    context = shown(told, "devices")
    found = context.machine
    levels = {one.device: one.level for one in found.devices}
    assert set(levels) == {one.device for one in context.trials}
    assert levels.pop(found.home) == 0
    assert list(levels.values()) == pytest.approx([math.log(1.2)], abs=0.02)
    assert sum(one.n_trials for one in found.devices) == len(context.trials)
    assert {one.device for one in found.controls} == {one.device for one in found.devices}
    drawn = drift(context)
    assert drawn is not None
    points = [one for one in drawn.data if one.mode == "markers"]
    assert len(points) == 2
    assert max(abs(y) for one in points for y in one.y) < 5, "each against its own median, not against the other's"
