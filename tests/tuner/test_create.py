"""Creating a study: what is stored, what is shared, and that nothing depends on the user's files afterwards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from objectives.accuracy import Limit
from objectives.digest import digest_of_file
from objectives.errors import MetricError
from objectives.requests import Judging
from storage.errors import AlreadyExistsError
from storage.studies import get_study
from tests import landscapes
from tests.conftest import Cli, MakeModel, start_tuner
from tests.tuner.conftest import Study
from tuner.api import create_study, delete_study, list_studies, run_study, show_study
from tuner.ask import MODELS, model_path
from tuner.context import contexts
from tuner.create import create
from tuner.home import open_home
from tuner.spec import Budget, StudyOptions, WorkloadOptions, read_spec
from tuner.workload import KIND as TENSORS

OPTIONS = StudyOptions(backend="synthetic", budget=Budget(3))


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_what_is_stored_is_what_was_asked_for(created: Study) -> None:
    with open_home(created.url) as home:
        spec = read_spec(get_study(home.database, created.name).spec)
        assert spec.name == created.name
        assert spec.shapes == {"x": (8,)}
        assert [pair.label for pair in spec.pairs] == ["random-0", "random-1", "random-2", "zeros", "large", "denormal"]
        assert model_path(home, spec).read_bytes() == (created.folder / "landscape.json").read_bytes()
        for digest in {digest for pair in spec.pairs for digest in (pair.inputs, pair.reference)}:
            assert digest_of_file(home.artifacts.verified(TENSORS, digest)) == digest
        (context,) = contexts(home, created.name)
        assert context.space.size == 6


def test_a_new_study_leaves_nothing_but_database_model_and_tensors(created: Study) -> None:
    assert {path.name for path in created.folder.iterdir()} == {"landscape.json", "tuner.db", "tuner.artifacts"}
    assert {path.name for path in created.artifacts.iterdir()} == {MODELS, TENSORS}


def test_a_study_runs_after_the_users_model_has_gone(created: Study) -> None:
    (created.folder / "landscape.json").unlink()
    summary = run_study(created.name, storage=created.url, budget=Budget(2))
    assert summary.n_trials == 2


def test_a_changed_model_file_does_not_change_the_study(created: Study) -> None:
    landscapes.broken_default(loss=9.0).save(created.folder / "landscape.json")
    assert run_study(created.name, storage=created.url, budget=Budget(1)).feasible == 1


def test_the_database_and_its_artifacts_can_move_together(created: Study, tmp_path: Path) -> None:
    moved = tmp_path / "moved ü"
    created.folder.rename(moved)
    assert run_study(created.name, storage=f"sqlite:///{moved / 'tuner.db'}", budget=Budget(2)).n_trials == 2


def test_studies_share_files_and_the_last_one_takes_them_along(created: Study) -> None:
    before = _files(created.artifacts)
    create_study("twin", created.folder / "landscape.json", OPTIONS, storage=created.url)
    assert _files(created.artifacts) == before
    delete_study("twin", storage=created.url)
    assert _files(created.artifacts) == before
    delete_study(created.name, storage=created.url)
    assert _files(created.artifacts) == set()


def test_a_deleted_study_takes_its_engines_along(finished: Study) -> None:
    assert any(name.startswith("engines") for name in _files(finished.artifacts))
    delete_study(finished.name, storage=finished.url)
    assert _files(finished.artifacts) == set()


def test_a_name_that_exists_is_refused_and_the_study_stays(created: Study, landscape: MakeModel) -> None:
    other = landscape(landscapes.wide())
    before = show_study(created.name, storage=created.url)
    with pytest.raises(AlreadyExistsError, match="'demo'") as caught:
        create(created.name, other, OPTIONS, created.url)
    assert "study run demo" in caught.value.hint
    assert show_study(created.name, storage=created.url) == before


def test_given_data_and_references_are_what_is_judged(landscape: MakeModel, home_url: str, tmp_path: Path) -> None:
    for name, value in (("small", 1.0), ("big", 50.0)):
        np.savez(tmp_path / f"{name}.npz", x=np.full(8, value, np.float32))
        np.savez(tmp_path / f"{name}-reference.npz", y=np.full(8, 2 * value + 1, np.float32))
    workload = WorkloadOptions(
        inputs=(str(tmp_path / "small.npz"), str(tmp_path / "big.npz")),
        references=(str(tmp_path / "small-reference.npz"), str(tmp_path / "big-reference.npz")),
    )
    options = StudyOptions(backend="synthetic", workload=workload, budget=Budget(1))
    created = create("given", landscape(), options, home_url)
    assert [pair.label for pair in created.spec.pairs] == ["small", "big"]
    assert run_study("given", storage=home_url).feasible == 1


def test_a_wrong_reference_shows_at_the_default(landscape: MakeModel, cli: Cli, home_url: str, tmp_path: Path) -> None:
    # The reference is the user's word: it is not replaced by what the model says.
    np.savez(tmp_path / "i.npz", x=np.ones(8, np.float32))
    np.savez(tmp_path / "r.npz", y=np.full(8, 3.3, np.float32))
    data = ("--inputs", tmp_path / "i.npz", "--reference", tmp_path / "r.npz")
    flags = ("--backend", "synthetic", "--storage", home_url)
    assert cli("study", "create", "off", "--model", landscape(), *data, *flags).code == 0
    ended = cli("study", "run", "off", "--storage", home_url)
    assert ended.code == 1
    assert "rel_l2" in ended.err


def test_the_seed_decides_the_data(landscape: MakeModel, home_url: str) -> None:
    def pairs(name: str, seed: int) -> list[str]:
        options = StudyOptions(backend="synthetic", workload=WorkloadOptions(seed=seed, hard=False))
        created = create(name, landscape(), options, home_url)
        return [pair.inputs for pair in created.spec.pairs]

    assert pairs("first", 1) == pairs("same", 1)
    assert set(pairs("other", 2)).isdisjoint(pairs("again", 1))


def test_studies_created_at_once_in_a_new_database_are_all_there(landscape: MakeModel, home_url: str) -> None:
    # The first study makes our tables and Optuna's: nobody may trip over somebody else's half of that.
    flags = ("--model", landscape(), "--backend", "synthetic", "--storage", home_url)
    names = [f"study-{index}" for index in range(4)]
    processes = [start_tuner("study", "create", name, *flags) for name in names]
    ends = [(process.communicate()[1], process.returncode) for process in processes]
    assert ends == [("", 0)] * len(names)
    assert sorted(study.spec.name for study in list_studies(storage=home_url)) == names


def judge_by_maximum(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> float:
    return float(np.max(np.abs(actual["y"] - expected["y"])))


def test_a_function_named_by_a_limit_alone_is_used(landscape: MakeModel, home_url: str) -> None:
    name = f"{__name__}:judge_by_maximum"
    options = StudyOptions(backend="synthetic", judging=Judging((Limit(name, 0.5),)), budget=Budget(2))
    created = create("own", landscape(), options, home_url)
    assert created.spec.judging.functions == (name,)
    run_study("own", storage=home_url)
    (context,) = show_study("own", storage=home_url).contexts
    assert name in {metric for loss in context.trials[0].outcome.accuracy.losses for metric in loss.losses}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("judging", "words"),
    [
        (Judging(functions=("package.module:f",)), "package.module:f"),
        (Judging(functions=("no_colon",)), "package.module:function"),
        (Judging((Limit("rel_l2", 0.1, "nothing"),)), "'nothing'"),
    ],
)
def test_judging_that_cannot_work_is_refused(
    landscape: MakeModel, home_url: str, tmp_path: Path, judging: Judging, words: str
) -> None:
    with pytest.raises(MetricError) as caught:
        create("bad", landscape(), StudyOptions(backend="synthetic", judging=judging), home_url)
    assert words in f"{caught.value} {caught.value.hint}"
    assert {path.name for path in tmp_path.iterdir()} == {"landscape.json"}
