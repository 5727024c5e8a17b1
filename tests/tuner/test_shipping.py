"""Engines as files: which are kept and why, verified, promoted, pruned, exported, and built again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from objectives.digest import digest_of_file
from objectives.errors import EngineFileError
from storage.errors import NotFoundError
from tests.conftest import Cli
from tests.tuner.conftest import SHOWCASE, Study, make_study
from tuner.answers import ConfirmOptions
from tuner.api import confirm_study, run_study, show_study
from tuner.engines import KIND
from tuner.errors import StudyError, UsageError
from tuner.export import export_engine, verify_folder
from tuner.kept import KeptEngine
from tuner.shipping import list_engines, promote_engine, prune_engines, verify_engines
from tuner.spec import Budget


def _kept(study: Study) -> dict[int, KeptEngine]:
    return {one.trial.number: one for one in list_engines(study.name, storage=study.url)}


def _feasible(study: Study) -> list[int]:
    view = show_study(study.name, storage=study.url).contexts[-1]
    return [trial.number for trial in view.trials if trial.status == "ok"]


def test_default_and_best_are_kept(finished: Study) -> None:
    kept = _kept(finished)
    assert sorted(reason for one in kept.values() for reason in one.reasons) == ["best", "default"]
    assert all(one.path.is_file() for one in kept.values())
    assert {entry.name for entry in (finished.artifacts / KIND).iterdir()} == {
        one.record.digest for one in kept.values()
    }


def test_all_are_kept_if_asked_for_and_can_be_pruned_later(tmp_path: Path) -> None:
    study = make_study(tmp_path, SHOWCASE, budget=Budget(6), keep_engines="all")
    run_study(study.name, storage=study.url)
    feasible = _feasible(study)
    assert len(feasible) > 2
    assert sorted(_kept(study)) == feasible
    count, size = prune_engines(study.name, storage=study.url)
    assert count == len(feasible) - 2
    assert size > 0
    assert len(_kept(study)) == 2
    assert prune_engines(study.name, storage=study.url) == (0, 0)


def test_a_promoted_engine_stays(finished: Study) -> None:
    other = next(number for number in _feasible(finished) if number not in _kept(finished))
    promoted = promote_engine(finished.name, other, storage=finished.url)
    assert promoted.reasons == ("promoted",)
    assert promoted.record.manifest["rebuilt"]
    assert promoted.path.is_file()
    run_study(finished.name, storage=finished.url, budget=Budget(7))
    assert prune_engines(finished.name, storage=finished.url) == (0, 0)
    assert other in _kept(finished)
    assert promote_engine(finished.name, other, undo=True, storage=finished.url).reasons == ()
    assert prune_engines(finished.name, storage=finished.url)[0] == 1
    assert not promoted.path.exists()
    best = next(number for number, one in _kept(finished).items() if "best" in one.reasons)
    kept = promote_engine(finished.name, best, storage=finished.url)
    assert set(kept.reasons) == {"best", "promoted"}
    assert "rebuilt" not in kept.record.manifest  # the file that was timed is the one that is kept


def test_what_cannot_be_promoted(finished: Study) -> None:
    view = show_study(finished.name, storage=finished.url).contexts[-1]
    failed = next(trial.number for trial in view.trials if trial.status == "build failed")
    with pytest.raises(StudyError, match="cannot be built again"):
        promote_engine(finished.name, failed, storage=finished.url)
    for wrong in (99, -1):
        with pytest.raises(NotFoundError, match="no finished trial"):
            promote_engine(finished.name, wrong, storage=finished.url)
    with pytest.raises(NotFoundError, match="keeps no engine"):
        promote_engine(finished.name, failed, undo=True, storage=finished.url)


def test_verifying(finished: Study, cli: Cli) -> None:
    assert [one.trouble for one in verify_engines(finished.name, storage=finished.url)] == ["", ""]
    found = verify_engines(finished.name, run=True, storage=finished.url)
    assert [(one.trouble, one.checked) for one in found] == [("", True), ("", True)]
    damaged = _kept(finished)[0].path
    damaged.write_bytes(damaged.read_bytes() + b" ")
    for run in (False, True):
        bad, good = verify_engines(finished.name, run=run, storage=finished.url)
        assert "not what was built" in bad.trouble
        assert not good.trouble
    ended = cli("engine", "verify", *finished.at)
    assert ended.code == 1
    assert "#0" in ended.out
    assert "FAILED" in ended.out
    damaged.unlink()
    assert "is gone" in verify_engines(finished.name, 0, storage=finished.url)[0].trouble
    with pytest.raises(EngineFileError):
        export_engine(finished.name, finished.folder / "out", 0, storage=finished.url)
    assert not (finished.folder / "out").exists()


def test_an_export_says_what_it_is(finished: Study, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out ü"
    exported = export_engine(finished.name, out, storage=finished.url)
    assert exported.reasons == ("best",)
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["engine"]["digest"] == digest_of_file(exported.engine)
    assert manifest["trial"] == exported.trial
    chosen = next(one for one in _kept(finished).values() if one.trial.number == exported.trial)
    assert manifest["candidate"] == dict(chosen.trial.candidate.changes) != {}
    assert {**manifest["values"], **manifest["candidate"]} == manifest["values"]
    assert manifest["samples_ms"]
    assert manifest["timing"]["median_ms"] > 0
    assert manifest["losses"]["losses"]
    assert manifest["environment"]["identity"]
    assert set(manifest["shapes"]["timed"]) == {"x"}
    assert verify_folder(out, finished.url) == []
    assert verify_folder(out) == []
    with pytest.raises(UsageError, match="no empty folder"):
        export_engine(finished.name, out, storage=finished.url)


def test_an_exported_engine_that_nobody_knows(finished: Study, tmp_path: Path, cli: Cli) -> None:
    out = tmp_path / "out"
    exported = export_engine(finished.name, out, 0, storage=finished.url)
    exported.engine.write_bytes(exported.engine.read_bytes() + b" ")
    assert len(verify_folder(out, finished.url)) == 1
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["engine"]["digest"] = digest_of_file(exported.engine)  # a forged manifest fits its file
    (out / "manifest.json").write_text(json.dumps(manifest))
    assert verify_folder(out) == []
    assert "no study of" in verify_folder(out, finished.url)[0]
    assert cli("engine", "verify", "--folder", out, "--storage", finished.url).code == 1
    for content in ("{", "{}", '{"engine": 1}'):
        (out / "manifest.json").write_text(content)
        with pytest.raises(UsageError, match="no exported engine"):
            verify_folder(out)


def test_the_confirmed_engine_is_the_one_to_ship(finished: Study, tmp_path: Path) -> None:
    confirmed = confirm_study(finished.name, ConfirmOptions(finalists=1, builds=2), storage=finished.url)
    assert confirmed.winner is not None
    exported = export_engine(finished.name, tmp_path / "out", storage=finished.url)
    assert "confirmed" in exported.reasons
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["confirmation"]["verdict"] == manifest["verdict"]["verdict"] == "faster"


def test_commands(finished: Study, cli: Cli, tmp_path: Path) -> None:
    listed = cli("engine", "list", *finished.at)
    assert "default" in listed.out
    assert "best" in listed.out
    assert len(json.loads(cli("engine", "list", *finished.at, "--json").out)) == 2
    assert json.loads(cli("engine", "verify", *finished.at, "--json").out)[0]["trouble"] == ""
    assert cli("engine", "verify", *finished.at, "--run").code == 0
    ended = cli("engine", "export", *finished.at, "-o", tmp_path / "out", "--json")
    assert json.loads(ended.out)["rebuild"] == ""
    assert cli("engine", "verify", "--folder", tmp_path / "out", "--storage", finished.url).code == 0
    promoted = cli("engine", "promote", finished.name, "0", "--storage", finished.url)
    assert "promoted" in promoted.out
    assert "removed 0" in cli("engine", "prune", *finished.at).out
    for words in (
        ("verify",),
        ("verify", finished.name, "--folder", "x"),
        ("verify", "--folder", tmp_path / "nowhere"),
        ("export", finished.name, "-o", tmp_path / "out"),
        ("promote", finished.name, "99"),
        ("list", "unknown"),
    ):
        ended = cli("engine", *words, "--storage", finished.url)
        assert ended.code == 2, words
        assert "hint" in ended.err
