"""Every command on a small finished study: plain lines and JSON, help, where errors go, and interruption."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import optuna
import pytest

import tuner
from objectives.digest import digest_of_file
from objectives.landscape import Fault, Interaction
from tests import landscapes
from tests.conftest import Cli, start_tuner
from tests.tuner.conftest import SHOWCASE, MakeStudy, Study
from tests.tuner.test_loop import trials_of
from tuner.cli.app import app
from tuner.spec import Budget

BEST = {"b": "v1"}  # of SHOWCASE: what is faster still breaks the limit or cannot be built


def _commands(command: click.Command = app, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from _commands(child, (*words, name))


def _json(cli: Cli, *words: object) -> Any:
    ended = cli(*words, "--json")
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def test_what_these_tests_expect_is_true_of_the_landscape() -> None:
    best, _ = SHOWCASE.best(max_loss=0.01)
    assert dict(best.changes) == BEST


# ---- help


@pytest.mark.parametrize("words", list(_commands()), ids=lambda words: " ".join(words) or "tuner")
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_every_command_helps_with_an_example(words: tuple[str, ...], flag: str, cli: Cli) -> None:
    ended = cli(*words, flag)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("Usage: python -m tuner")
    assert "Example:" in ended.out
    assert re.search(rf"^ +python -m tuner {' '.join(words)}", ended.out, re.MULTILINE)


def test_the_commands_of_the_design_are_there() -> None:
    wanted = {("study", name) for name in ("create", "list", "show", "run", "best", "delete")}
    assert wanted | {("knobs",), ("env",), ("demo",), ("db", "upgrade"), ("db", "check")} <= set(_commands())


def test_the_version_is_said(cli: Cli) -> None:
    ended = cli("--version")
    assert ended.code == 0
    assert tuner.__version__ in ended.out


def test_without_words_the_help_is_shown(cli: Cli) -> None:
    ended = cli()
    assert ended.code == 2
    assert "Usage: python -m tuner" in ended.out + ended.err


# ---- create


def test_create_says_what_it_made_and_what_comes_next(cli: Cli, tmp_path: Path, home_url: str) -> None:
    model = SHOWCASE.save(tmp_path / "net.json")
    words = ("study", "create", "new", "--model", model, "--backend", "synthetic", "--storage", home_url)
    ended = cli(*words, "--n-trials", "5", "--timeout", "90s", "--max-loss", "rel_l2=0.02")
    assert (ended.code, ended.err) == (0, "")
    for words_said in ("'new'", "net", "6 pairs", "rel_l2 <= 0.02", "2 knobs, 6 candidates", "5 trials or 1 min 30 s"):
        assert words_said in ended.out
    assert "next: python -m tuner study run new" in ended.out


def test_create_as_json(cli: Cli, tmp_path: Path, home_url: str) -> None:
    model = SHOWCASE.save(tmp_path / "net.json")
    words = ("study", "create", "new", "--model", model, "--backend", "synthetic", "--storage", home_url)
    found = _json(cli, *words, "--knobs", "a", "--seed", "7", "--search", "random")
    assert found["study"]["name"] == "new"
    assert found["study"]["model_digest"]
    assert (found["study"]["seed"], found["study"]["search"]) == (7, "random")
    assert (found["n_knobs"], found["n_candidates"]) == (1, 3)


# ---- run


def test_run_tells_each_trial_on_stderr_and_the_result_on_stdout(created: Study, cli: Cli) -> None:
    ended = cli(*created.search)
    assert ended.code == 0
    progress = [line for line in ended.err.splitlines() if line.startswith("[")]
    assert [line.split("]")[0] for line in progress] == [f"[{n}/6" for n in range(1, 7)]
    assert "default" in progress[0]
    assert sum("build failed" in line for line in progress) == 2
    assert "done: " in ended.err
    assert "3 feasible, 1 rejected, 2 failed (2 build failed)" in ended.out
    assert "b=v1" in ended.out
    assert "\x1b" not in ended.out + ended.err  # no colours or cursor movements in a pipe


def test_run_as_json_says_nothing_else(created: Study, cli: Cli) -> None:
    ended = cli(*created.search, "--json")
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(ended.out)
    assert (found["n_trials"], found["feasible"], found["rejected"], found["failed"]) == (6, 3, 1, {"build_failed": 2})
    assert found["best"]["candidate"] == BEST


# ---- list, show, best


def test_list(finished: Study, cli: Cli) -> None:
    ended = cli("study", "list", "--storage", finished.url)
    assert (ended.code, ended.err) == (0, "")
    head, row = ended.out.splitlines()
    assert head.split()[:4] == ["study", "model", "backend", "trials"]
    assert row.split()[:4] == ["demo", "landscape", "synthetic", "6/6"]
    (found,) = _json(cli, "study", "list", "--storage", finished.url)
    assert found["study"]["name"] == "demo"
    assert found["contexts"][0]["summary"]["n_trials"] == 6
    assert "trials" not in found["contexts"][0]


def test_list_of_nothing_says_how_to_begin(finished: Study, cli: Cli) -> None:
    cli("study", "delete", *finished.at, "--yes")
    ended = cli("study", "list", "--storage", finished.url)
    assert ended.code == 0
    assert "study create" in ended.out
    assert _json(cli, "study", "list", "--storage", finished.url) == []


def test_show(finished: Study, cli: Cli) -> None:
    ended = cli("study", "show", *finished.at)
    assert (ended.code, ended.err) == (0, "")
    rows = [line.split() for line in ended.out.splitlines() if re.match(r"  \d", line) and "knobs" not in line]
    rows = [row for row in rows if row[1] != "trials:"]
    assert [row[0] for row in rows] == [str(number) for number in range(6)]
    assert "rel_l2 <= 0.01" in ended.out
    assert ended.out.count("no implementation found for node 7") == 2
    assert ended.out.count("rel_l2 0.5 is over 0.01") == 1
    assert "not confirmed" in ended.out


def test_show_as_json_has_raw_samples_and_losses(finished: Study, cli: Cli) -> None:
    (context,) = _json(cli, "study", "show", *finished.at)["contexts"]
    trials = {json.dumps(trial["candidate"]): trial for trial in context["trials"]}
    assert len(trials) == 6
    good = trials[json.dumps(BEST)]
    assert good["status"] == "ok"
    assert sum(len(one["samples_ms"]) for one in good["outcome"]["samples"]["rounds"]) >= 7
    assert {loss["pair"] for loss in good["outcome"]["accuracy"]["losses"]} >= {"random-0", "zeros", "large"}
    off = trials[json.dumps({"a": "v1", "b": "v1"})]
    assert off["status"] == "inaccurate"
    assert max(loss["losses"]["rel_l2"] for loss in off["outcome"]["accuracy"]["losses"]) == pytest.approx(
        0.5, rel=1e-3
    )
    assert context["unfinished"] == []
    assert context["environment"]["backend"] == "synthetic"


def test_best_names_the_engine_file_and_claims_nothing(finished: Study, cli: Cli) -> None:
    ended = cli("study", "best", *finished.at)
    assert (ended.code, ended.err) == (0, "")
    assert "b=v1" in ended.out
    assert "not confirmed" in ended.out
    (path,) = re.findall(r"engine (\S.*)", ended.out)
    found = _json(cli, "study", "best", *finished.at)
    assert found["engine_path"] == path
    assert found["verdict"] is None
    assert found["best_trial"]["candidate"] == BEST
    assert digest_of_file(Path(path)) == found["best_trial"]["engine"]
    latency = 1e3 / found["best_trial"]["throughput"]
    assert latency == pytest.approx(SHOWCASE.best(0.01)[1], rel=0.01)


def test_best_before_any_trial_says_what_to_do(created: Study, cli: Cli) -> None:
    ended = cli("study", "best", *created.at)
    assert ended.code == 0
    assert "study run demo" in ended.out
    assert _json(cli, "study", "best", *created.at)["best"] is None


def test_a_study_in_which_nothing_is_faster_says_so(new_study: MakeStudy, cli: Cli) -> None:
    # The only other candidates fail: the default stays, and no gain is made up.
    fail = tuple(Interaction({"a": value}, fault=Fault.BUILD_FAILED) for value in ("v1", "v2"))
    content = landscapes.small(knobs=landscapes.small().knobs[:1], interactions=fail)
    study = new_study(content, budget=Budget(5))
    assert cli(*study.search).code == 0
    found = _json(cli, "study", "best", *study.at)
    assert found["best"]["candidate"] == {}
    assert found["speedup_observed"] == pytest.approx(1.0)


# ---- delete


def test_delete_asks_first(finished: Study, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: "n")
    ended = cli("study", "delete", *finished.at)
    assert ended.code != 0
    assert len(trials_of(finished)) == 6
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: "y")
    assert cli("study", "delete", *finished.at).code == 0
    assert cli("study", "show", *finished.at).code == 2


def test_delete_with_yes(finished: Study, cli: Cli) -> None:
    ended = cli("study", "delete", *finished.at, "--yes")
    assert (ended.code, ended.err) == (0, "")
    assert "6 trial(s)" in ended.out
    assert [path for path in finished.artifacts.rglob("*") if path.is_file()] == []
    storage = optuna.storages.RDBStorage(finished.url)
    assert storage.get_all_studies() == []
    storage.engine.dispose()


# ---- knobs, env, db


def test_knobs(cli: Cli, tmp_path: Path) -> None:
    model = SHOWCASE.save(tmp_path / "net.json")
    words = ("knobs", "--model", model, "--backend", "synthetic")
    ended = cli(*words)
    assert (ended.code, ended.err) == (0, "")
    assert "2 knobs, 6 candidates" in ended.out
    assert "v0 v1 v2" in ended.out
    found = _json(cli, *words, "--knobs=-b")
    assert [(knob["name"], knob["default"], knob["values"]) for knob in found["knobs"]] == [
        ("a", "v0", ["v0", "v1", "v2"])
    ]
    assert all(knob["help"] for knob in found["knobs"])


def test_env(cli: Cli) -> None:
    ended = cli("env", "--backend", "synthetic")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("synthetic 1: usable")
    (found,) = _json(cli, "env", "--backend", "synthetic")
    assert found["usable"] is True
    assert found["environment"]["digest"][:12] in ended.out


def test_env_lists_what_cannot_be_used_with_the_reason(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.api.available", lambda: ("synthetic", "not-installed"))
    ended = cli("env")
    assert ended.code == 0
    assert "not-installed: not usable here" in ended.out
    assert [one["usable"] for one in _json(cli, "env")] == [True, False]


def test_db_check_and_upgrade(finished: Study, cli: Cli) -> None:
    at = ("--storage", finished.url)
    ended = cli("db", "check", *at)
    assert (ended.code, ended.out, ended.err) == (0, "all is well\n", "")
    ended = cli("db", "upgrade", *at)
    assert ended.code == 0
    assert "nothing to do" in ended.out


def test_db_upgrade_makes_the_tables(cli: Cli, home_url: str) -> None:
    ended = cli("db", "upgrade", "--storage", home_url)
    assert ended.code == 0
    assert "none -> " in ended.out
    assert cli("db", "check", "--storage", home_url).code == 0


@pytest.mark.parametrize("damage", ["tensor", "model"])
def test_db_check_finds_damaged_artifacts(finished: Study, cli: Cli, damage: str) -> None:
    if damage == "tensor":
        next((finished.artifacts / "tensors").iterdir()).write_bytes(b"damaged")
    else:
        next((finished.artifacts / "models").rglob("*.json")).unlink()
    ended = cli("db", "check", "--storage", finished.url)
    assert ended.code == 1
    assert "'demo'" in ended.out
    assert "all is well" not in ended.out


# ---- settings and streams


def test_the_environment_names_database_and_artifacts(
    finished: Study, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("study", "show", "demo").code == 2
    monkeypatch.setenv("TUNER_STORAGE", finished.url)
    assert cli("study", "show", "demo").code == 0
    moved = finished.artifacts.rename(tmp_path / "elsewhere")
    monkeypatch.setenv("TUNER_ARTIFACTS", str(moved))
    assert _json(cli, "study", "best", "demo")["engine_path"].startswith(str(moved))


def test_errors_go_to_stderr_of_a_real_process(tuner_process: Cli, tmp_path: Path) -> None:
    ended = tuner_process("study", "show", "nothing", "--storage", f"sqlite:///{tmp_path}/tuner.db")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: ")
    assert "hint: " in ended.err


def test_a_reader_that_goes_away_is_no_disaster(finished: Study) -> None:
    with start_tuner("study", "show", *finished.at, "--json") as process:
        assert process.stdout is not None
        process.stdout.close()
        _, err = process.communicate()
    assert process.returncode in (0, 1)
    assert err == ""


# ---- interruption


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_interrupted_run_ends_with_130_and_goes_on_later(
    new_study: MakeStudy, cli: Cli, number: signal.Signals
) -> None:
    study = new_study(landscapes.wide(build_s=0.05), budget=Budget(40))
    process: subprocess.Popen[str]
    with start_tuner(*study.search) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if "] #2" in line:
                process.send_signal(number)
                break
        out, err = process.communicate()
    assert process.returncode == 130, "".join(said) + err
    assert out == ""
    assert "interrupted" in err
    assert "study run" in err
    assert "Traceback" not in err
    before = trials_of(study)
    assert 3 <= len(before) < 40
    assert {path.name for path in study.artifacts.iterdir()} == {"models", "tensors", "engines", "optuna"}
    assert cli(*study.search).code == 0
    assert trials_of(study)[: len(before)] == before
    assert [trial.number for trial in trials_of(study)] == list(range(40))
