"""Cloning: the settings of a study for another model or workload, its best candidates first, and nothing measured."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from objectives.accuracy import Limit
from objectives.errors import WorkloadError
from objectives.isolation import InProcess
from objectives.knobs import Candidate
from objectives.requests import Judging
from storage.errors import AlreadyExistsError, NotFoundError
from storage.studies import get_study
from tests import landscapes, onnx_models
from tests.conftest import Cli, MakeModel
from tests.tuner.conftest import Study
from tests.tuner.released import NAME, QUIET, Released
from tuner import api, clone_study
from tuner.clone import MOST_CANDIDATES, workload_like
from tuner.context import contexts
from tuner.errors import UsageError
from tuner.home import open_home
from tuner.loop import StudyLoop
from tuner.progress import Progress
from tuner.spec import Budget, StudyOptions, StudySpec, WorkloadOptions, read_spec


def spec_of(name: str, url: str) -> StudySpec:
    with open_home(url) as home:
        return read_spec(get_study(home.database, name).spec)


def test_the_same_study_again(tmp_path: Path) -> None:
    study = Released(tmp_path, landscapes.small(**QUIET))
    (tmp_path / "landscape.json").unlink()  # the study has its own
    cloned = clone_study(NAME, "new", storage=study.url)
    source, new = spec_of(NAME, study.url), spec_of("new", study.url)
    assert new == msgspec.structs.replace(source, name="new", initial=new.initial)
    assert cloned.created.spec == new
    assert cloned.lost == ()
    assert cloned.first[0].changes == (("a", "v1"), ("b", "v1"))  # the confirmed winner
    assert 2 <= len(cloned.first) <= MOST_CANDIDATES
    assert all(not one.is_baseline for one in cloned.first)
    view = api.show_study("new", storage=study.url).contexts[-1]
    assert (view.trials, view.unfinished, view.noise, view.verdict) == ((), (), None, None)
    with open_home(study.url) as home, StudyLoop(home, new, contexts(home, "new")[-1], InProcess, Progress()) as loop:
        loop.run()
        tried = [loop.trial(uid) for uid in loop._trials]
    proposed = [(trial.source, trial.candidate) for trial in sorted(tried, key=lambda one: one.number)]
    assert proposed[0] == ("baseline", Candidate())
    assert proposed[1 : len(cloned.first) + 1] == [("initial", one) for one in cloned.first]


def test_another_model_on_the_same_data(finished: Study, landscape: MakeModel) -> None:
    other = landscape(
        landscapes.small(base_ms=3.0, knobs=(landscapes.knob("a", -0.2, 0.3), landscapes.knob("c", -0.4)))
    )
    cloned = clone_study(finished.name, "new", other, storage=finished.url)
    source, new = spec_of(finished.name, finished.url), spec_of("new", finished.url)
    assert new.model_digest != source.model_digest
    assert new.pairs == source.pairs  # this model's answers are the same, so their files are
    assert (new.shapes, new.calibration, new.judging) == (source.shapes, source.calibration, source.judging)
    assert cloned.lost == ("b=v1",)
    assert [str(one) for one in cloned.first] == ["a=v1"]
    assert api.run_study("new", storage=finished.url, budget=Budget(2)).n_trials == 2


def test_other_limits_and_another_workload(finished: Study) -> None:
    limits = Judging((Limit("linf", 0.5),))
    clone_study(finished.name, "limits", judging=limits, storage=finished.url)
    source, new = spec_of(finished.name, finished.url), spec_of("limits", finished.url)
    assert new.judging == limits
    assert new.pairs == source.pairs
    clone_study(finished.name, "data", workload=WorkloadOptions(pairs=1, hard=False, seed=7), storage=finished.url)
    new = spec_of("data", finished.url)
    assert [pair.label for pair in new.pairs] == ["random-0"]
    assert new.seed == 7
    assert new.pairs[0].inputs != source.pairs[0].inputs


def test_a_study_that_was_not_run_has_nothing_to_begin_with(created: Study) -> None:
    cloned = clone_study(created.name, "new", storage=created.url)
    assert cloned.first == ()
    assert spec_of("new", created.url).initial == ()


def test_what_is_refused(finished: Study, landscape: MakeModel) -> None:
    before = len(api.list_studies(storage=finished.url))
    with pytest.raises(NotFoundError):
        clone_study("nobody", "new", storage=finished.url)
    with pytest.raises(AlreadyExistsError):
        clone_study(finished.name, finished.name, storage=finished.url)
    with pytest.raises(UsageError, match="cannot name"):
        clone_study(finished.name, " x", storage=finished.url)
    assert len(api.list_studies(storage=finished.url)) == before


def test_shapes_of_a_real_model(tmp_path: Path, home_url: str, cli: Cli) -> None:
    model = onnx_models.mlp(tmp_path)
    options = StudyOptions(
        workload=WorkloadOptions(shapes={"x": (4, 64)}, max_shapes={"x": (6, 64)}, pairs=2),
        budget=Budget(2),
        knobs=("runtime",),
    )
    api.create_study("mlp", model, options, storage=home_url)
    source = spec_of("mlp", home_url)
    same = clone_study("mlp", "same", storage=home_url).created.spec
    assert msgspec.structs.replace(same, name="mlp") == source
    ended = cli("study", "clone", "mlp", "batch8", "--shapes", "x:8x64", "--storage", home_url, "--json")
    assert ended.code == 0, ended.err
    new = spec_of("batch8", home_url)
    assert new.shapes == {"x": (8, 64)}
    assert new.ranges["x"].max == (16, 64)  # twice the new shape: the old largest one is of another workload
    assert sum(pair.label.startswith("random-") for pair in new.pairs) == 2
    assert new.knobs == source.knobs
    wider = onnx_models.mlp(tmp_path, width=32, name="wide.onnx")
    with pytest.raises(WorkloadError, match="random-0"):
        clone_study("mlp", "wide", wider, storage=home_url)
    ended = cli("study", "clone", "mlp", "wide", "--model", wider, "--shapes", "x:4x32", "--storage", home_url)
    assert ended.code == 0, ended.err
    assert "first   nothing" in ended.out
    data = tmp_path / "own.npz"
    np.savez(data, x=np.ones((4, 64), np.float32))
    ended = cli("study", "clone", "mlp", "own", "--inputs", data, "--storage", home_url)
    assert ended.code == 0, ended.err
    assert len(spec_of("own", home_url).pairs) == 1
    ended = cli("study", "clone", "own", "more", "--pairs", "4", "--storage", home_url)
    assert ended.code == 2
    assert "data of its own" in ended.err
    assert clone_study("own", "again", storage=home_url).created.spec.pairs == spec_of("own", home_url).pairs


def test_command(finished: Study, cli: Cli) -> None:
    ended = cli("study", "clone", finished.name, "new", "--storage", finished.url)
    assert ended.code == 0, ended.err
    assert "first   b=v1; a=v1" in ended.out
    ended = cli("study", "clone", finished.name, "l", "--max-loss", "linf=0.5", "--storage", finished.url, "--json")
    assert json.loads(ended.out)["study"]["judging"]["limits"] == [{"metric": "linf", "limit": 0.5, "output": None}]
    ended = cli("study", "clone", finished.name, "t", "--atol", "0.1", "--storage", finished.url)
    assert ended.code == 0, ended.err
    source, new = spec_of(finished.name, finished.url), spec_of("t", finished.url)
    assert new.judging.limits == source.judging.limits
    assert (new.judging.tolerance.atol, new.judging.tolerance.rtol) == (0.1, source.judging.tolerance.rtol)
    ended = cli("study", "clone", finished.name, "new", "--storage", finished.url)
    assert ended.code == 2


def test_a_workload_like_that_of_a_study(finished: Study) -> None:
    spec = spec_of(finished.name, finished.url)
    assert workload_like(spec) == WorkloadOptions()
    own = msgspec.structs.replace(spec, pairs=(msgspec.structs.replace(spec.pairs[0], label="mine"),))
    with pytest.raises(UsageError, match="data of its own"):
        workload_like(own)
