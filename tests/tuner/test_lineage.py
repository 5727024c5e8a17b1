"""Lineage: another place opens a context that starts from what the others taught; other limits judge anew."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import optuna
import pytest

from objectives.accuracy import Limit
from objectives.knobs import KnobSpace
from objectives.landscape import Interaction, Landscape
from objectives.outcome import Measured
from objectives.requests import Judging
from storage.migrate import integrity
from storage.studies import get_study
from tests import landscapes
from tests.conftest import Cli
from tests.tuner.conftest import MakeStudy, Study, copy_study, make_study
from tuner import api, lineage
from tuner.api import best_of, check_database, confirm_study, retarget_study, run_study, show_study
from tuner.carried import Carried, read_carried
from tuner.errors import StudyError, UsageError
from tuner.home import open_home
from tuner.lineage import OTHER_DEVICE, OTHER_VERSION, SAME_PLACE
from tuner.places import Place
from tuner.progress import Progress
from tuner.spec import Budget
from tuner.views import ContextView

LOOSE, TIGHT = (Limit("rel_l2", 0.9),), (Limit("rel_l2", 1e-6),)


class Evaluations(Progress):
    """Counts what is really evaluated, and keeps where the run was."""

    def __init__(self) -> None:
        self.candidates: list[str] = []
        self.because = ""

    def on_start(self, context: Any, budget: Any, summary: Any) -> None:
        self.because = context.opened_because

    def on_propose(self, number: int, candidate: Any) -> None:
        self.candidates.append(str(candidate))


@pytest.fixture
def move(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes this machine another one: `move(version="2")`, `move(machine="riscv")`, `move(knobs=...)`."""

    def to(version: str = "1", machine: str = "", keep: Any = None) -> None:
        @contextmanager
        def moved(spec: Any, request: Any, words: Any, **_: Any) -> Any:
            with api._fresh(spec)() as isolation:
                here = isolation.describe(request)
            identity = {"machine": machine} if machine else dict(here.environment.identity)
            environment = msgspec.structs.replace(here.environment, backend_version=version, identity=identity)
            knobs = here.knobs if keep is None else keep(here.knobs)
            place = Place("", environment.device, api._fresh(spec))
            yield msgspec.structs.replace(here, environment=environment, knobs=knobs), (place,)

        monkeypatch.setattr(api, "find_places", moved)

    return to


def _contexts(study: Study) -> tuple[ContextView, ...]:
    return show_study(study.name, storage=study.url).contexts


def _carried(view: ContextView) -> Carried:
    found = read_carried(view.context.record)
    assert found is not None
    return found


# ---- another place


def test_another_version_opens_a_context_that_measures_the_best_again_first(finished: Study, move: Any) -> None:
    before = _contexts(finished)
    move(version="2")
    notes = Evaluations()
    run_study(finished.name, storage=finished.url, progress=notes)
    assert notes.because == "synthetic 1 became synthetic 2"
    first, second = _contexts(finished)
    assert first.trials == before[0].trials  # what was there is untouched
    assert second.context.record.parent_id == first.context.id
    carried = _carried(second)
    assert [(one.number, one.relation) for one in carried.parents] == [(1, OTHER_VERSION)]
    assert carried.changes == ()
    assert notes.candidates[0] == "default"
    assert notes.candidates[1] == str(carried.candidates[0].candidate) == "b=v1"
    assert [trial.source for trial in second.trials][:2] == ["baseline", "carried"]
    run_study(finished.name, storage=finished.url)
    assert [len(view.trials) for view in _contexts(finished)] == [6, 6]  # the same place again: resumed


def test_a_confirmation_elsewhere_opens_nothing(finished: Study, move: Any) -> None:
    # It would freeze what the context starts from, long before there is a run to make use of it.
    move(version="2")
    with pytest.raises(StudyError, match="nothing to confirm in this environment") as caught:
        confirm_study(finished.name, storage=finished.url)
    assert f"study run {finished.name}" in caught.value.hint
    assert len(_contexts(finished)) == 1


def test_an_interrupted_start_carries_the_same(finished: Study, move: Any, tmp_path: Path) -> None:
    move(version="2")
    whole, parts = copy_study(finished, tmp_path / "whole"), copy_study(finished, tmp_path / "parts")
    run_study(whole.name, storage=whole.url)
    for n_trials in (1, 2, 4, 6):
        run_study(parts.name, storage=parts.url, budget=Budget(n_trials))
    tried = [[str(trial.candidate) for trial in _contexts(one)[1].trials] for one in (whole, parts)]
    assert tried[0] == tried[1]


def test_the_nearest_context_is_the_parent(finished: Study, move: Any) -> None:
    budget = Budget(2)
    move(version="2")
    run_study(finished.name, storage=finished.url, budget=budget)
    move(version="2", machine="riscv")
    run_study(finished.name, storage=finished.url, budget=budget)
    move(version="3", machine="riscv")
    run_study(finished.name, storage=finished.url, budget=budget)
    first, second, third, fourth = _contexts(finished)
    assert [view.context.record.parent_id for view in (third, fourth)] == [second.context.id, third.context.id]
    assert _carried(third).parents[0].relation == OTHER_DEVICE
    assert _carried(fourth).parents[0].relation == OTHER_VERSION
    assert first.context.record.parent_id is None


def test_knobs_that_are_gone_are_reported(finished: Study, move: Any) -> None:
    move(version="2", keep=lambda space: KnobSpace(space.knobs[1:]))
    run_study(finished.name, storage=finished.url)
    carried = _carried(_contexts(finished)[1])
    assert [str(change) for change in carried.changes] == ["a: knob removed"]
    assert [one.candidate for one in carried.dropped] == ["a=v1"]
    assert "knob a (set to v1) is not there" in carried.dropped[0].reason


def test_transfer_can_be_switched_off(finished: Study, move: Any) -> None:
    move(version="2")
    run_study(finished.name, storage=finished.url, transfer=False)
    second = _contexts(finished)[1]
    carried = _carried(second)
    assert carried.switched_off
    assert carried.candidates == carried.effects == ()
    assert "carried" not in {trial.source for trial in second.trials}
    assert second.context.record.parent_id is not None  # it descends all the same


def test_auto_gets_effects_and_failure_rates(new_study: MakeStudy, move: Any) -> None:
    study = new_study(landscapes.wide(), search="auto", budget=Budget(16))
    run_study(study.name, storage=study.url)
    move(version="2")
    run_study(study.name, storage=study.url, budget=Budget(8))
    carried = _carried(_contexts(study)[1])
    effects = {(one.knob, one.value): one.figure for one in carried.effects}
    assert effects["d", "v1"] > 0.1
    assert 1 <= len(carried.candidates) <= 5


def test_the_optuna_study_says_where_it_comes_from(finished: Study, move: Any) -> None:
    move(version="2")
    run_study(finished.name, storage=finished.url)
    first, second = _contexts(finished)
    study = optuna.load_study(study_name=second.context.name, storage=finished.url)
    assert study.user_attrs["parent"] == "1"
    assert study.user_attrs["parent_optuna_study"] == first.context.name
    study._storage.remove_session()


def test_show_draws_the_lineage(finished: Study, move: Any, cli: Cli) -> None:
    assert "lineage" not in cli("study", "show", *finished.at).out
    move(version="2")
    ended = cli(*finished.search)
    assert "new context 2: synthetic 1 became synthetic 2" in ended.err
    assert "it starts from context 1 (this device, another version): " in ended.err
    shown = cli("study", "show", *finished.at).out
    assert "└─ context 2" in shown
    assert "opened because: synthetic 1 became synthetic 2" in shown
    assert "carried: b=v1 (among the best of context 1, trial #" in shown
    found = json.loads(cli("study", "show", *finished.at, "--json").out)["contexts"]
    assert [context["parent"] for context in found] == [None, 1]
    assert found[0]["carried"] is None
    assert found[1]["carried"]["candidates"][0]["changes"] == [["b", "v1"]]


def test_env_says_what_runs_here(finished: Study, cli: Cli, tmp_path: Path) -> None:
    out = cli("env", "--backend", "synthetic", "--storage", finished.url).out
    assert "goes on with context 1" in out
    found = json.loads(cli("env", "--backend", "synthetic", "--storage", finished.url, "--json").out)
    assert found[-1] == {
        "studies": [{"study": "demo", "backend": "synthetic", "can_run": True, "how": "goes on with context 1"}]
    }
    nothing = cli("env", "--backend", "synthetic", "--storage", f"sqlite:///{tmp_path / 'none.db'}")
    assert nothing.code == 0
    assert "goes on" not in nothing.out
    assert not (tmp_path / "none.db").exists()


# ---- other limits


def _retarget(study: Study, limits: tuple[Limit, ...]) -> ContextView:
    found = retarget_study(study.name, limits, storage=study.url).latest
    assert found is not None
    return found


def test_looser_limits_keep_what_was_measured_and_measure_what_was_over(finished: Study) -> None:
    (old,) = _contexts(finished)
    new = _retarget(finished, LOOSE)
    assert len(new.trials) == 5
    assert {trial.source for trial in new.trials} == {"adopted"}
    by_candidate = {trial.candidate: trial for trial in old.trials}
    for trial in new.trials:
        assert trial.outcome == by_candidate[trial.candidate].outcome  # samples and all
        assert trial.finished_at == by_candidate[trial.candidate].finished_at
    assert [str(one.candidate) for one in _carried(new).candidates] == ["a=v1 b=v1"]
    assert _carried(new).parents[0].relation == SAME_PLACE
    notes = Evaluations()
    run_study(finished.name, storage=finished.url, progress=notes)
    assert notes.candidates == ["a=v1 b=v1"]  # one build: what was never timed
    first, second = _contexts(finished)
    assert first.summary.best == old.summary.best  # judged by its own limits, as before
    assert str(second.summary.best.candidate) == "a=v1 b=v1"  # type: ignore[union-attr]
    assert check_database(finished.url) == []


def test_tighter_limits_need_no_build_and_find_the_same_best_as_a_fresh_search(
    new_study: MakeStudy, tmp_path: Path
) -> None:
    world = landscapes.small(interactions=(Interaction({"b": "v1"}, loss=5e-3), Interaction({"a": "v1"}, loss=2e-3)))
    study = new_study(world, budget=Budget(6))
    run_study(study.name, storage=study.url)
    assert str(best_of(study.name, storage=study.url).trial.candidate) == "a=v1 b=v1"  # type: ignore[union-attr]
    for limit in (6e-3, 3e-3, 1e-3):
        limits = (Limit("rel_l2", limit),)
        _retarget(study, limits)
        notes = Evaluations()
        run_study(study.name, storage=study.url, progress=notes)
        assert notes.candidates == []
        expected, _ = world.best(max_loss=limit)
        found = best_of(study.name, storage=study.url).trial
        assert found is not None
        assert found.candidate == expected
    views = _contexts(study)
    assert [len(view.trials) for view in views] == [6] * 4
    fresh = _fresh_copy(tmp_path, world)
    assert fresh == str(found.candidate)


def _fresh_copy(folder: Path, world: Landscape) -> str:
    (folder / "fresh").mkdir()
    study = make_study(folder / "fresh", world, budget=Budget(6), judging=Judging((Limit("rel_l2", 1e-3),)))
    run_study(study.name, storage=study.url)
    return str(best_of(study.name, storage=study.url).trial.candidate)  # type: ignore[union-attr]


def test_going_back_goes_on_with_the_old_context_and_what_was_found_since(finished: Study) -> None:
    original = (Limit("rel_l2", 0.01),)
    _retarget(finished, LOOSE)
    run_study(finished.name, storage=finished.url)
    back = _retarget(finished, original)
    assert back.context.record.number == 1
    assert len(back.trials) == 6
    assert best_of(finished.name, storage=finished.url).limits == original


def test_a_retarget_that_is_killed_is_finished_by_the_next_run(
    finished: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lineage, "adopt", killed)
        with pytest.raises(KeyboardInterrupt):
            _retarget(finished, LOOSE)
    assert len(_contexts(finished)[1].trials) == 0
    notes = Evaluations()
    run_study(finished.name, storage=finished.url, progress=notes)
    assert notes.candidates == ["a=v1 b=v1"]
    assert len(_contexts(finished)[1].trials) == 6


def test_optuna_hears_of_the_copies(finished: Study) -> None:
    new = _retarget(finished, LOOSE)
    study = optuna.load_study(study_name=new.context.name, storage=finished.url)
    assert len(study.get_trials(deepcopy=False)) == 5
    study._storage.remove_session()


def test_engines_of_default_and_best_stay_with_the_copies(finished: Study) -> None:
    new = _retarget(finished, LOOSE)
    assert new.summary.baseline is not None
    assert new.summary.baseline.engine_digest is not None
    found = best_of(finished.name, storage=finished.url)
    assert found.engine is not None
    assert found.engine.exists()
    with open_home(finished.url) as home:
        assert integrity(home.database) == []


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ((Limit("rel_l2", 0.01),), "has these limits already"),
        ((), "no limits were given"),
        ((Limit("my.metrics:loss", 0.1),), "knows no metric"),
        ((Limit("rel_l2", 0.1, "nowhere"),), "no loss for the limit"),
    ],
)
def test_what_cannot_be_judged_changes_nothing(finished: Study, limits: tuple[Limit, ...], words: str) -> None:
    before = _specification(finished)
    with pytest.raises(UsageError, match=words):
        retarget_study(finished.name, limits, storage=finished.url)
    assert _specification(finished) == before
    assert len(_contexts(finished)) == 1


def _specification(study: Study) -> Any:
    with open_home(study.url) as home:
        return get_study(home.database, study.name).spec


def test_limits_that_the_default_breaks_are_refused(new_study: MakeStudy) -> None:
    study = new_study(landscapes.small(interactions=(Interaction({}, loss=1e-3),)), budget=Budget(2))
    run_study(study.name, storage=study.url)
    with pytest.raises(UsageError, match="the default itself breaks"):
        retarget_study(study.name, TIGHT, storage=study.url)


def test_a_study_without_trials_just_gets_other_limits(created: Study) -> None:
    retarget_study(created.name, LOOSE, storage=created.url)
    run_study(created.name, storage=created.url)
    assert best_of(created.name, storage=created.url).summary.feasible == 4


def test_retarget_from_the_command_line(finished: Study, cli: Cli) -> None:
    ended = cli("study", "retarget", *finished.at, "--max-loss", "rel_l2=0.9")
    assert ended.code == 0, ended.err
    assert "now has the limits rel_l2 <= 0.9" in ended.out
    assert (
        "takes over the measurements of context 1 (this environment), judged anew; 1 to be measured again" in ended.out
    )
    for flag in ("--inputs", "--metric", "--shapes"):
        refused = cli("study", "retarget", *finished.at, "--max-loss", "0.5", flag, "x")
        assert refused.code == 2
        assert f"{flag} cannot change" in refused.err
        assert "study create" in refused.err


def test_measured_trials_keep_every_sample(finished: Study) -> None:
    def samples(view: ContextView) -> dict[str, Any]:
        return {str(one.candidate): one.outcome.samples for one in view.trials if isinstance(one.outcome, Measured)}

    (old,) = _contexts(finished)
    new = _retarget(finished, LOOSE)
    assert samples(new) == samples(old)
    assert max(len(one.rounds) for one in samples(new).values()) > 1
