"""Confirmation on simulated engines whose truth is known: verdicts, the winner, its file, and going on after a kill."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from objectives.isolation import InProcess, Isolation
from objectives.knobs import Candidate
from objectives.landscape import Interaction, Landscape
from objectives.outcome import Accuracy, Built, Failed, FailureKind, Rejected, Stage, Trace
from objectives.requests import BuildRequest, Opened, OpenRequest
from storage import confirmations as table
from storage.engines import engines_of
from storage.studies import get_study
from tests import landscapes
from tuner import api
from tuner.answers import Confirmed, ConfirmOptions
from tuner.confirm import Confirmation
from tuner.context import contexts
from tuner.errors import StudyError, UsageError
from tuner.finalists import Finalist, choose
from tuner.home import open_home
from tuner.ledger import Trial
from tuner.loop import StudyLoop
from tuner.minimize import minimize, without_one
from tuner.progress import Progress
from tuner.spec import Budget, StudyOptions, read_spec
from tuner.stats import Level, Noise, VerdictKind

QUIET = {"repeatable": False, "noise": 0.003, "load_noise": 0.002}


class Study:
    """A study on a simulated landscape, with every evaluation in this process."""

    def __init__(self, folder: Path, landscape: Landscape) -> None:
        self.url = f"sqlite:///{folder / 'tuner.db'}"
        model = landscape.save(folder / "landscape.json")
        options = StudyOptions(backend="synthetic", budget=Budget(n_trials=1), noise_sessions=0, control_every=0)
        api.create_study("s", model, options, storage=self.url)
        self.fresh: Callable[[], Isolation] = InProcess
        self.progress = Progress()

    def confirm(
        self, candidates: Sequence[dict[str, str]], options: ConfirmOptions | None = None, shorten: bool = False
    ) -> Confirmed:
        """Confirm these candidates against the default, and minimize the winner if asked to."""
        options = options or ConfirmOptions()
        with open_home(self.url) as home:
            spec = read_spec(get_study(home.database, "s").spec)
            context = contexts(home, "s")[0]
            confirmation = Confirmation(home, spec, context, self.fresh, self.progress)
            with StudyLoop(home, spec, context, InProcess, self.progress) as loop:
                loop.run()
                chosen = [loop.evaluate(context.space.candidate(values), "test") for values in candidates]
                baseline = loop.summary.baseline
                assert baseline is not None
                answer = confirmation.run(baseline, chosen, options)
                return minimize(loop, confirmation, spec, answer, options) if shorten else answer

    def stored(self) -> list[Any]:
        with open_home(self.url) as home:
            context = contexts(home, "s")[0]
            found = table.confirmations_of(home.database, context.id)
            return [
                (one, table.pairs_of(home.database, one.id), table.verdicts_of(home.database, one.id)) for one in found
            ]


@pytest.fixture
def study(tmp_path: Path) -> Callable[..., Study]:
    return lambda landscape: Study(tmp_path, landscape)


def test_a_true_gain_is_confirmed_and_its_interval_holds_the_truth(study: Callable[..., Study]) -> None:
    lab = study(landscapes.small(**QUIET))
    answer = lab.confirm([{"a": "v1", "b": "v1"}, {"a": "v2"}])
    assert answer.kind is VerdictKind.FASTER
    assert answer.winner is not None
    assert answer.winner.candidate == Candidate((("a", "v1"), ("b", "v1")))
    truth = math.exp(0.6)
    verdict = answer.verdict
    assert verdict is not None
    assert verdict.ci_low < truth < verdict.ci_high
    assert verdict.ci_high / verdict.ci_low < 1.05
    assert [v.kind for _, v in answer.verdicts if v] == [VerdictKind.FASTER, VerdictKind.NOT_FASTER]


def test_what_is_decided_is_stored_with_its_raw_rounds(study: Callable[..., Study]) -> None:
    lab = study(landscapes.small(**QUIET))
    answer = lab.confirm([{"b": "v1"}])
    ((record, pairs, verdicts),) = lab.stored()
    assert record.state == "done"
    assert record.result["verdict"] == "faster"
    assert len(pairs) == answer.n_pairs
    assert all(len(pair.rounds) == 8 for pair in pairs)
    sides = [one["side"] for one in pairs[0].rounds]
    assert sides == ["baseline", "candidate", "candidate", "baseline"] * 2
    assert [one["side"] for one in pairs[1].rounds][:2] == ["candidate", "baseline"]
    assert [one.verdict for one in verdicts] == ["faster"]
    shown = api.show_study("s", storage=lab.url).contexts[0].verdict
    assert shown is not None
    assert shown["speedup"] == pytest.approx(answer.verdict.speedup if answer.verdict else 0)


def test_the_winning_build_itself_is_kept_and_says_that_it_is_confirmed(study: Callable[..., Study]) -> None:
    lab = study(landscapes.small(**QUIET, build_noise=0.002))
    answer = lab.confirm([{"b": "v1"}])
    assert answer.winner is not None
    assert answer.figures is not None
    shipped = answer.winner.builds[answer.figures.shipped_build]
    found = api.best_of("s", storage=lab.url)
    assert found.engine is not None
    assert found.trial is not None
    assert found.trial.engine_digest == shipped.digest == found.engine.parent.name
    with open_home(lab.url) as home:
        kept = {one.digest: one.manifest for one in engines_of(home.database, contexts(home, "s")[0].id)}
        assert kept[shipped.digest]["confirmed"] is True
        assert kept[shipped.digest]["confirmation"]["verdict"] == "faster"
        builds = home.artifacts.root / "confirm"
        assert list(builds.iterdir()) == []


def test_a_candidate_that_is_the_default_by_another_name_is_not_faster(study: Callable[..., Study]) -> None:
    inert = Landscape(knobs=(landscapes.knob("a", 0.0),), repeatable=False, noise=0.002)
    answer = study(inert).confirm([{"a": "v1"}])
    assert answer.kind is not VerdictKind.FASTER
    assert answer.winner is None
    assert answer.verdict is not None
    assert answer.verdict.ci_low < 1.0 < answer.verdict.ci_high


def test_a_real_gain_below_what_matters_is_not_enough(study: Callable[..., Study]) -> None:
    slightly = Landscape(knobs=(landscapes.knob("a", -0.03),), **QUIET)
    answer = study(slightly).confirm([{"a": "v1"}], ConfirmOptions(min_gain=0.1))
    assert answer.kind is VerdictKind.NOT_FASTER
    assert answer.verdict is not None
    assert answer.verdict.ci_low > 1.0


def test_of_equal_winners_the_simpler_one_wins(study: Callable[..., Study]) -> None:
    knobs = (landscapes.knob("a", -0.2), landscapes.knob("b", 0.0), landscapes.knob("c", 0.0))
    answer = study(Landscape(knobs=knobs, **QUIET)).confirm([{"a": "v1", "b": "v1", "c": "v1"}, {"a": "v1"}])
    assert answer.winner is not None
    assert answer.winner.candidate == Candidate((("a", "v1"),))


def test_minimize_drops_what_does_not_contribute_and_keeps_what_does(study: Callable[..., Study]) -> None:
    knobs = (landscapes.knob("a", -0.2), landscapes.knob("b", 0.0), landscapes.knob("c", -0.1))
    lab = study(Landscape(knobs=knobs, **QUIET))
    answer = lab.confirm([{"a": "v1", "b": "v1", "c": "v1"}], shorten=True)
    assert answer.winner is not None
    assert answer.winner.candidate == Candidate((("a", "v1"), ("c", "v1")))
    assert [record.purpose for record, _, _ in lab.stored()] == ["confirm", "minimize", "minimize"]
    shown = api.show_study("s", storage=lab.url).contexts[0]
    assert {t.source for t in shown.trials} == {"baseline", "test", "ablation"}
    found = api.best_of("s", storage=lab.url)
    assert found.trial is not None
    assert found.trial.candidate == answer.winner.candidate


def test_without_one() -> None:
    three = Candidate((("a", "1"), ("b", "2"), ("c", "3")))
    assert [str(one) for one in without_one(three)] == ["b=2 c=3", "a=1 c=3", "a=1 b=2"]


class _StopAt(Progress):
    """Pulls the plug when pair number `last` is recorded."""

    def __init__(self, last: int) -> None:
        self.pairs = 0
        self._last = last

    def on_pair(self, finalist: Finalist, index: int, log_ratio: float) -> None:
        self.pairs += 1
        if self.pairs == self._last:
            raise KeyboardInterrupt


def test_an_interrupted_confirmation_goes_on_with_the_next_pair(study: Callable[..., Study]) -> None:
    lab = study(landscapes.small(**QUIET))
    lab.progress = _StopAt(5)
    with pytest.raises(KeyboardInterrupt):
        lab.confirm([{"b": "v1"}])
    ((before, pairs_before, _),) = lab.stored()
    assert before.state == "running"
    assert len(pairs_before) == 5
    lab.progress = counting = _StopAt(10_000)
    answer = lab.confirm([{"b": "v1"}])
    ((after, pairs_after, _),) = lab.stored()
    assert after.id == before.id
    assert after.finalists == before.finalists
    assert pairs_after[:5] == pairs_before
    assert [pair.pair_index for pair in pairs_after] == list(range(len(pairs_after)))
    assert counting.pairs == len(pairs_after) - 5
    assert answer.kind is VerdictKind.FASTER


def test_another_question_is_another_confirmation(study: Callable[..., Study]) -> None:
    lab = study(landscapes.small(**QUIET))
    lab.progress = _StopAt(5)
    with pytest.raises(KeyboardInterrupt):
        lab.confirm([{"b": "v1"}])
    lab.progress = Progress()
    lab.confirm([{"b": "v1"}], ConfirmOptions(min_gain=0.2))
    assert [record.state for record, _, _ in lab.stored()] == ["running", "done"]


def test_a_time_budget_that_is_too_small_is_said_to_be(study: Callable[..., Study]) -> None:
    answer = study(landscapes.small(**QUIET)).confirm([{"b": "v1"}], ConfirmOptions(timeout_s=1e-9))
    assert answer.kind is VerdictKind.UNDECIDED
    assert "budget" in answer.reason
    assert answer.verdict is not None
    assert answer.verdict.ci_high == math.inf


class _Broken(InProcess):
    """Goes wrong with candidates that set knob `a`, in the way that the class attributes say."""

    build_goes_wrong = False
    open_goes_wrong = False
    only_default = False

    def _is_meant(self, values: dict[str, str]) -> bool:
        return (values["a"] == "v0") if self.only_default else (values["a"] != "v0")

    def build(self, request: BuildRequest, on_stage: Any = lambda stage, detail: None) -> Built | Rejected | Failed:
        if self.build_goes_wrong and self._is_meant(request.values):
            return Rejected(Trace(), Accuracy(), "output 'y' is off by 7")
        return super().build(request, on_stage)

    def open(self, request: OpenRequest) -> Opened | Failed:
        if self.open_goes_wrong and self._is_meant(request.values):
            return Failed(Trace(), Stage.OPEN, FailureKind.CRASHED, "was killed by SIGSEGV")
        return super().open(request)


@pytest.mark.parametrize("how", ["build", "open"])
def test_a_finalist_that_does_not_hold_is_dropped_with_its_reason(study: Callable[..., Study], how: str) -> None:
    lab = study(landscapes.small(**QUIET))
    lab.fresh = type("Broken", (_Broken,), {f"{how}_goes_wrong": True})
    answer = lab.confirm([{"a": "v1"}, {"b": "v1"}])
    dropped = answer.verdicts[0]
    assert dropped[1] is None
    assert ("off by 7" if how == "build" else "SIGSEGV") in dropped[0].dropped
    assert answer.winner is not None
    assert answer.winner.candidate == Candidate((("b", "v1"),))
    ((_, _, verdicts),) = lab.stored()
    assert [one.verdict for one in verdicts] == ["dropped", "faster"]


@pytest.mark.parametrize("how", ["build", "open"])
def test_a_default_that_does_not_hold_stops_the_confirmation(study: Callable[..., Study], how: str) -> None:
    lab = study(landscapes.small(**QUIET))
    lab.fresh = type("Broken", (_Broken,), {f"{how}_goes_wrong": True, "only_default": True})
    with pytest.raises(StudyError, match="default") as caught:
        lab.confirm([{"a": "v1"}])
    assert caught.value.exit_code == 1
    assert caught.value.hint


def test_nothing_to_confirm_is_a_normal_answer(study: Callable[..., Study]) -> None:
    answer = study(landscapes.small()).confirm([])
    assert answer.kind is VerdictKind.NOT_FASTER
    assert answer.n_pairs == 0
    assert answer.verdict is None
    assert "no candidate looked faster" in answer.reason


def test_where_rebuilds_are_the_same_bytes_two_builds_are_enough(study: Callable[..., Study]) -> None:
    lab = study(landscapes.small(repeatable=True))
    lab.confirm([{"b": "v1"}])
    ((record, _, _),) = lab.stored()
    assert [len(one["builds"]) for one in record.finalists] == [2, 2]


@pytest.mark.parametrize(
    "wrong", [{"min_gain": -0.1}, {"min_gain": 1.0}, {"finalists": 0}, {"builds": 1}, {"builds": 3}, {"timeout_s": 0.0}]
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        ConfirmOptions(**wrong)


def _trial(trials: Sequence[Trial], **values: str) -> Trial:
    return next(trial for trial in trials if dict(trial.candidate.changes) == values)


def test_finalists_are_feasible_promising_and_distinct(tmp_path: Path) -> None:
    knobs = (landscapes.knob("a", -0.2), landscapes.knob("b", -0.001), landscapes.knob("c", 0.3))
    wrong = (Interaction({"a": "v1", "b": "v1"}, loss=0.5),)
    lab = Study(tmp_path, Landscape(knobs=knobs, interactions=wrong, repeatable=True, noise=1e-4))
    api.run_study("s", storage=lab.url, budget=Budget(n_trials=8))
    view = api.show_study("s", storage=lab.url).contexts[0]
    assert view.summary.n_trials == 8
    spec = api.show_study("s", storage=lab.url).spec
    chosen = choose(view.trials, view.summary, None, spec, 3)
    assert chosen == [_trial(view.trials, a="v1")]  # a+b is wrong, c is slower, and what is left is one knob away


def test_options_survive_their_json_form() -> None:
    options = ConfirmOptions(min_gain=0.005, finalists=5)
    assert msgspec.convert(msgspec.to_builtins(options), ConfirmOptions) == options


def test_large_noise_does_not_talk_a_gain_away(tmp_path: Path) -> None:
    knobs = (landscapes.knob("a", -0.2, 0.5, 0.6), landscapes.knob("b", 0.4, 0.5), landscapes.knob("c", 0.3))
    lab = Study(tmp_path, Landscape(knobs=knobs, repeatable=True, noise=1e-4))
    api.run_study("s", storage=lab.url, budget=Budget(n_trials=24))
    view = api.show_study("s", storage=lab.url).contexts[0]
    noisy = Noise(Level(0.3, 20), Level(0.3, 3), Level(0.0, 1))
    chosen = choose(view.trials, view.summary, noisy, api.show_study("s", storage=lab.url).spec, 3)
    assert chosen == [_trial(view.trials, a="v1")]
