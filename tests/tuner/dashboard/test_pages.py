"""What stands on a page of Optuna Dashboard, read back as the dashboard reads it, after everything that changes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import RDBStorage

from objectives.accuracy import Limit
from objectives.landscape import Interaction
from storage.artifacts import ArtifactFolder
from tests import landscapes
from tests.conftest import Cli
from tests.tuner.conftest import MakeStudy, Study
from tuner.answers import ConfirmOptions
from tuner.api import confirm_study, delete_study, retarget_study, run_study
from tuner.dashboard import page, pages
from tuner.dashboard.page import OWN_WORDS, Page
from tuner.home import open_home
from tuner.shipping import promote_engine
from tuner.spec import Budget

dashboard = pytest.importorskip("optuna_dashboard", reason="pip install 'tensorrt-tuner[dashboard]'")
custom_plot_data = pytest.importorskip("optuna_dashboard._custom_plot_data")

NAME = "demo [1] synthetic 1"
SMALL = ConfirmOptions(finalists=1, builds=2)


class Shown:
    """The Optuna study of a context as the dashboard finds it in the database."""

    def __init__(self, url: str, name: str = NAME) -> None:
        self._storage = RDBStorage(url)
        self.study = optuna.load_study(study_name=name, storage=self._storage)
        self.note: str = dashboard.get_note(self.study)
        system = self._storage.get_study_system_attrs(self.study._study_id)
        self.note_version: int | None = system.get("dashboard:note_ver")
        self.figures: dict[str, Any] = {
            key: json.loads(value) for key, value in custom_plot_data.get_plotly_graph_objects(system).items()
        }
        listed = [json.loads(value) for key, value in system.items() if key.startswith("artifacts:")]
        self.artifacts = {one["filename"]: one["artifact_id"] for one in listed if one is not None}
        self.attributes: dict[str, Any] = self.study.user_attrs
        self._storage.remove_session()
        self._storage.engine.dispose()


def _draw(study: Study) -> int:
    with open_home(study.url) as home:
        return pages.draw_study(home, study.name)


def test_after_a_run_the_page_tells_what_was_seen_and_claims_nothing(finished: Study) -> None:
    shown = Shown(finished.url)
    assert shown.note.startswith("## Not confirmed yet")
    assert "6 trials" in shown.note
    assert "3 feasible, 1 rejected, 2 failed" in shown.note
    assert "`b=v1`" in shown.note
    assert "study confirm demo" in shown.note
    assert shown.attributes["verdict"] == "NOT CONFIRMED YET"
    assert (shown.attributes["feasible"], shown.attributes["rejected"], shown.attributes["failed"]) == (3, 1, 2)
    assert shown.attributes["speedup"] is None
    assert shown.attributes["best_in_search_speedup"] > 1


def test_after_a_confirmation_the_page_has_its_verdict(finished: Study) -> None:
    confirm_study(finished.name, SMALL, storage=finished.url)
    shown = Shown(finished.url)
    assert shown.note.startswith("## Faster: ")
    assert "interval" in shown.note.splitlines()[0]
    assert "engine export demo" in shown.note
    assert shown.attributes["verdict"] == "FASTER"
    assert shown.attributes["ci_low"] <= shown.attributes["speedup"] <= shown.attributes["ci_high"]
    assert any("confirmed" in name for name in shown.artifacts)


def test_after_a_retarget_both_pages_are_true(finished: Study) -> None:
    retarget_study(finished.name, [Limit("rel_l2", 1.0)], storage=finished.url)
    assert "`rel_l2` at most 0.01" in Shown(finished.url).note
    after = Shown(finished.url, "demo [2] synthetic 1")
    assert "`rel_l2` at most 1." in after.note
    assert "limits or data changed" in after.note


def test_after_a_promotion_the_page_lists_the_engine(finished: Study) -> None:
    trial = next(one.number for one in Shown(finished.url).study.trials if one.user_attrs["candidate"] == "a=v1")
    promote_engine(finished.name, trial, storage=finished.url)
    assert f"- trial {trial} (promoted)" in Shown(finished.url).note
    promote_engine(finished.name, trial, undo=True, storage=finished.url)
    assert "promoted" not in Shown(finished.url).note


def test_a_run_that_fails_says_so_on_its_page(new_study: MakeStudy, cli: Cli) -> None:
    study = new_study(landscapes.broken_default(loss=0.5), budget=Budget(3))
    assert cli(*study.search).code == 1
    shown = Shown(study.url)
    assert "None of 1 trial gave an engine within the limits" in shown.note
    assert "No trial is feasible" in shown.note
    assert "rel_l2 0.5 is over 0.01" in shown.note


def test_the_figures_are_there_titled_and_whole(finished: Study) -> None:
    figures = Shown(finished.url).figures
    assert set(figures) == {"tradeoff", "progress-trials", "effects", "outcomes", "intervals", "drift"}
    for name, figure in figures.items():
        assert figure["layout"]["title"]["text"], name
        assert figure["layout"]["height"] <= 450, name
    # Nothing was confirmed: a sentence stands in the place of the figure.
    assert figures["intervals"]["data"] == []
    assert "confirmed" in figures["intervals"]["layout"]["annotations"][0]["text"]
    assert figures["tradeoff"]["data"]


def test_each_trial_says_what_became_of_it(finished: Study) -> None:
    trials = {trial.user_attrs["candidate"]: trial for trial in Shown(finished.url).study.trials}
    best, wrong, broken = trials["b=v1"], trials["a=v1 b=v1"], trials["a=v2"]
    assert best.user_attrs["feasible"] is True
    assert best.user_attrs["speedup"] == pytest.approx(best.value / trials["default"].value, rel=0.05)
    assert best.user_attrs["loss rel_l2"] <= 0.01
    assert len(best.user_attrs["engine"]) == 12
    assert wrong.user_attrs["feasible"] is False
    assert wrong.user_attrs["loss rel_l2"] == pytest.approx(0.5)
    assert "is over 0.01" in wrong.user_attrs["reason"]
    assert (broken.user_attrs["outcome"], broken.user_attrs["stage"]) == ("build failed", "build")
    assert broken.user_attrs["reason"]


def test_manifests_are_artifacts_whose_files_are_there_and_go_with_the_study(finished: Study) -> None:
    shown = Shown(finished.url)
    assert {"engine-trial-0-default.json"} < set(shown.artifacts)
    for digest in shown.artifacts.values():
        content = json.loads((finished.artifacts / pages.ARTIFACTS / digest).read_bytes())
        assert content["study"] == finished.name
    folder = ArtifactFolder(finished.artifacts)
    assert folder.digests(pages.ARTIFACTS) == set(shown.artifacts.values())
    delete_study(finished.name, storage=finished.url)
    assert folder.digests(pages.ARTIFACTS) == set()


def test_what_is_drawn_is_not_drawn_again(finished: Study) -> None:
    assert _draw(finished) == 1  # the database has moved, and the commands of the note name it
    before = Shown(finished.url)
    assert f"--storage {finished.url}" in before.note
    assert _draw(finished) == 0
    with open_home(finished.url) as home:
        assert pages.draw_all(home, lambda name: None, again=True) == 1
    assert Shown(finished.url).note_version == before.note_version  # the same note is not written a second time


def test_what_a_person_has_written_below_stays(finished: Study) -> None:
    with_words = Shown(finished.url).note + "\n\nAsk Ann before shipping."
    opened = Page(finished.url, NAME)
    dashboard.save_note(opened._study, with_words)
    opened.close()
    run_study(finished.name, storage=finished.url, budget=Budget(1))
    confirm_study(finished.name, SMALL, storage=finished.url)
    note = Shown(finished.url).note
    assert note.startswith("## Faster")
    assert note.endswith("Ask Ann before shipping.")
    assert note.count(OWN_WORDS) == 1


def test_without_the_dashboard_studies_run_and_keep_their_attributes(
    created: Study, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setattr(page, "find_spec", lambda name: None)
    run_study(created.name, storage=created.url)
    shown = Shown(created.url)
    assert shown.attributes["verdict"] == "NOT CONFIRMED YET"
    assert (shown.note, shown.figures) == ("", {})
    ended = cli("dashboard", "--storage", created.url)
    assert (ended.code, "pip install 'tensorrt-tuner[dashboard]'" in ended.err) == (2, True)
    monkeypatch.undo()
    assert _draw(created) == 1  # what could not be written then is written now
    assert Shown(created.url).note.startswith("## Not confirmed yet")


def test_words_of_libraries_are_no_markup(new_study: MakeStudy) -> None:
    study = new_study(
        landscapes.small(interactions=(Interaction({"a": "v1"}, loss=0.5), Interaction({"b": "v1"}, loss=0.5))),
        budget=Budget(6),
    )
    run_study(study.name, storage=study.url)
    for line in Shown(study.url).note.splitlines():
        if "is over 0.01" in line:
            assert line.count("`") == 2


@pytest.mark.parametrize("path", ["note", "attributes"])
def test_a_busy_database_does_not_fail_a_run(
    created: Study, monkeypatch: pytest.MonkeyPatch, path: str, tmp_path: Path
) -> None:
    def busy(*_: Any) -> None:
        raise optuna.exceptions.StorageInternalError("database is locked")

    monkeypatch.setattr(Page, path, busy)
    assert run_study(created.name, storage=created.url).n_trials == 6
