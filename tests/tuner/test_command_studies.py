"""Whole studies of programs through the command line: from the description to an engine folder that runs by itself."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conftest import Cli, start_tuner
from tests.processes import wait_for_end
from tests.programs import ACT, KNOBS, describe
from tuner.api import show_study
from tuner.spec import read_spec

SMALL = ("--noise-sessions", "0", "--control-every", "0", "--search", "random")
LIMIT = ("--max-loss", "error=0.01")
WINNER = {"level": "2", "fast": "on", "mode": "turbo"}


class World(NamedTuple):
    """A finished and confirmed study of all 18 candidates, its description, and where it lies."""

    url: str
    model: Path
    out: str

    @property
    def at(self) -> tuple[str, str]:
        return "--storage", self.url


@pytest.fixture(scope="module", params=[False, True], ids=["a start each", "rounds"])
def _world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    from tests.conftest import SETTINGS

    folder = tmp_path_factory.mktemp("world")
    model, url = describe(folder / "program", rounds=request.param), f"sqlite:///{folder / 'tuner.db'}"
    create = ("study", "create", "s", "--model", model, "--backend", "command", *LIMIT, *SMALL, "--n-trials", "18")
    run = ("study", "run", "s", "--finalists", "1", "--builds", "2")
    out = ""
    with pytest.MonkeyPatch.context() as patch:
        for name in SETTINGS:
            patch.delenv(name, raising=False)
        for command in (create, run):
            process = start_tuner(*command, "--storage", url, cwd=folder)
            out, err = process.communicate()
            assert process.returncode == 0, err
    return World(url, model, out)


@pytest.fixture
def world(_world: World, tmp_path: Path) -> World:
    """One that a test may change."""
    shutil.copytree(Path(_world.url.removeprefix("sqlite:///")).parent, tmp_path / "home")
    return _world._replace(url=f"sqlite:///{tmp_path / 'home' / 'tuner.db'}")


def made(cli: Cli, model: Path, url: str, *words: str, name: str = "s") -> Any:
    return cli("study", "create", name, "--model", model, "--backend", "command", "--storage", url, *SMALL, *words)


@pytest.mark.slow
class TestStudy:
    def test_the_winner_is_faster_beyond_doubt(self, world: World) -> None:
        (view,) = show_study("s", storage=world.url).contexts
        assert len(view.trials) == 18
        assert view.summary.rejected == 6  # MODE=wild
        assert view.summary.n_failed == 0
        assert view.verdict is not None
        assert view.verdict["verdict"] == "faster"
        assert view.verdict["speedup"] == pytest.approx(4.0 / (2.0 * 0.9 * 0.8), rel=0.01)
        assert "FASTER" in world.out

    def test_it_is_shown_and_listed(self, world: World, cli: Cli) -> None:
        shown = cli("study", "show", "s", *world.at).out
        assert "limits: error <= 0.01; pairs: its own" in shown
        assert "as the program reports: error 0.5 is over 0.01" in shown
        assert "goes on with context 1" in cli("env", "--backend", "command", *world.at).out
        best = json.loads(cli("study", "best", "s", "--json", *world.at).out)
        assert dict(best["best"]["candidate"]) == WINNER

    def test_the_exported_folder_runs_by_itself(self, world: World, cli: Cli, tmp_path: Path) -> None:
        assert cli("engine", "verify", "s", "--run", *world.at).code == 0
        out = tmp_path / "out put"
        ended = cli("engine", "export", "s", "-o", out, *world.at)
        assert ended.code == 0, ended.err
        ran = subprocess.run(
            ["sh", out / "command.sh"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
        )
        answer = json.loads(ran.stdout.splitlines()[-1])
        assert answer["samples_ms"][0] == pytest.approx(2.0 * 0.9 * 0.8)
        assert json.loads((out / "manifest.json").read_text())["candidate"] == WINNER

    def test_a_check_finds_it_still_faster(self, world: World, cli: Cli) -> None:
        ended = cli("check", "s", *world.at)
        assert ended.code == 0, ended.out + ended.err
        assert "still faster" in ended.out

    def test_a_pruned_engine_is_built_again(self, world: World, cli: Cli) -> None:
        assert cli("engine", "promote", "s", "3", *world.at).code in (0, 1)  # 1: what was rejected cannot ship
        assert cli("engine", "promote", "s", "0", *world.at).code == 0

    def test_other_limits_judge_what_was_reported(self, world: World, cli: Cli) -> None:
        ended = cli("study", "retarget", "s", "--max-loss", "error=0.9", *world.at)
        assert ended.code == 0, ended.err
        ended = cli("study", "run", "s", "--no-confirm", *world.at)
        assert ended.code == 0, ended.err
        view = show_study("s", storage=world.url).contexts[-1]
        assert (view.summary.feasible, view.summary.rejected) == (18, 0)

    @pytest.mark.parametrize(
        ("limit", "words"),
        [("rel_l2=0.1", "reported no loss for the limit rel_l2 <= 0.1; it reported: error"), ("error=1e-6", "default")],
    )
    def test_limits_that_cannot_be_judged_change_nothing(self, world: World, cli: Cli, limit: str, words: str) -> None:
        ended = cli("study", "retarget", "s", "--max-loss", limit, *world.at)
        assert ended.code == 2
        assert words in ended.err

    def test_it_moves_as_one_file(self, world: World, cli: Cli, tmp_path: Path) -> None:
        assert cli("db", "export", "s", "-o", tmp_path / "s.study", *world.at).code == 0
        other = ("--storage", f"sqlite:///{tmp_path / 'other' / 'tuner.db'}")
        (tmp_path / "other").mkdir()
        ended = cli("db", "import", tmp_path / "s.study", *other)
        assert ended.code == 0, ended.err
        assert cli("study", "run", "s", "--no-confirm", *other).code == 0
        assert len(show_study("s", storage=other[1]).contexts) == 1
        assert cli("engine", "verify", "s", "--run", *other).code == 0
        assert cli("db", "check", *other).code == 0

    def test_a_clone_tries_the_winner_first(self, world: World, cli: Cli, tmp_path: Path) -> None:
        ended = cli("study", "clone", "s", "t", *world.at)
        assert ended.code == 0, ended.err
        assert "level=2 fast=on mode=turbo" in ended.out
        other = describe(tmp_path / "other", knobs=[*KNOBS[:2]])
        assert cli("study", "clone", "s", "u", "--model", other, *world.at).code == 0
        ended = cli("study", "clone", "s", "v", "--shapes", "x:1x3", *world.at)
        assert (ended.code, "brings its own data" in ended.err) == (2, True)

    def test_it_is_deleted_with_all_it_has(self, world: World, cli: Cli) -> None:
        assert cli("study", "delete", "s", "--yes", *world.at).code == 0
        artifacts = Path(world.url.removeprefix("sqlite:///")).parent / "tuner.artifacts"
        assert [path for path in artifacts.rglob("*") if path.is_file()] == []

    def test_it_has_no_routes(self, world: World, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "cache.json").write_text("{}")
        for command in (("export", "s"), ("import", "s", "--cache", tmp_path / "cache.json")):
            ended = cli("trtexec", *command, *world.at)
            assert (ended.code, "no build routes" in ended.err) == (2, True)


class TestCreation:
    def test_toml_files_are_programs(self, cli: Cli, tmp_path: Path, home_url: str) -> None:
        describe(tmp_path)
        (tmp_path / "tune.toml").write_text(
            f'program = ["{sys.executable}", "measure.py"]\n[[knobs]]\nname = "level"\nvalues = [1, 2]\ndefault = 1\n'
            'flag = "--level={value}"\n'
        )
        assert "--level={value}" in cli("knobs", "--model", tmp_path / "tune.toml").out
        ended = cli("study", "create", "s", "--model", tmp_path / "tune.toml", *LIMIT, "--storage", home_url)
        assert ended.code == 0, ended.err
        assert "has run once" in ended.out
        assert show_study("s", storage=home_url).spec.measures_itself

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ((), "reports no loss rel_l2, on which there is the limit rel_l2 <= 0.01; it reports: error"),
            (("--max-loss", "error=1e-9"), "the default itself breaks the limit error <= 1e-09"),
            (("--max-loss", "error:y=0.1"), "names an output, which a program does not have"),
            (("--max-loss", "none", "--max-loss", "error=1"), "goes with no other limit"),
            ((*LIMIT, "--metric", "a.b:c"), "a program reports its own losses"),
            ((*LIMIT, "--atol", "0.1"), "a program reports its own losses"),
            ((*LIMIT, "--shapes", "x:1x3"), "a program brings its own inputs: shapes cannot be set"),
            ((*LIMIT, "--pairs", "2", "--no-hard-inputs"), "a program brings its own inputs: pairs, hard"),
            ((*LIMIT, "--objective", "engine-size"), "a program is run and timed"),
            ((*LIMIT, "--knobs", "nothing"), "no knob matches 'nothing'"),
        ],
    )
    def test_what_makes_no_sense_is_refused(
        self, cli: Cli, tmp_path: Path, home_url: str, words: tuple[str, ...], said: str
    ) -> None:
        ended = made(cli, describe(tmp_path / "program"), home_url, *words)
        assert ended.code == 2
        assert said in ended.err
        assert not Path(home_url.removeprefix("sqlite:///")).exists()

    def test_no_limit_has_to_be_said(self, cli: Cli, tmp_path: Path, home_url: str) -> None:
        ended = made(cli, describe(tmp_path / "program"), home_url, "--max-loss", "none")
        assert ended.code == 0, ended.err
        assert "none: nothing is judged" in ended.out

    def test_a_program_that_fails_is_said_at_once(self, cli: Cli, tmp_path: Path, home_url: str) -> None:
        path = describe(tmp_path / "program", source="import sys; sys.exit('no licence found')")
        ended = made(cli, path, home_url)
        assert ended.code == 2
        assert "no licence found" in ended.err
        assert "docs/command.md" in ended.err

    def test_other_backends_keep_their_metrics(self, cli: Cli, tmp_path: Path, home_url: str) -> None:
        from tests import landscapes

        model = landscapes.small().save(tmp_path / "landscape.json")
        create = ("study", "create", "s", "--model", model, "--backend", "synthetic", "--storage", home_url)
        ended = cli(*create, "--max-loss", "error=0.1")
        assert (ended.code, "unknown metric 'error'" in ended.err) == (2, True)
        ended = cli(*create, "--max-loss", "none")
        assert (ended.code, "outputs are always judged" in ended.err) == (2, True)

    def test_there_is_no_self_check(self, cli: Cli) -> None:
        ended = cli("env", "--check", "command")
        assert (ended.code, "has no self-check" in ended.err) == (2, True)


def test_failures_are_results(cli: Cli, tmp_path: Path, home_url: str) -> None:
    acts = ["none", "exit", "segfault", "nojson", "nanloss", "refuse"]
    path = describe(tmp_path / "program", knobs=[{**ACT, "values": acts}])
    assert made(cli, path, home_url, *LIMIT, "--n-trials", "6").code == 0
    ended = cli("study", "run", "s", "--no-confirm", "--storage", home_url)
    assert ended.code == 0, ended.err
    (view,) = show_study("s", storage=home_url).contexts
    assert view.summary.feasible == 1
    assert view.summary.rejected == 1
    assert view.summary.failed == {"run_failed": 2, "crashed": 1, "unsupported": 1}


@pytest.mark.slow
def test_killed_in_the_middle_it_goes_on(cli: Cli, tmp_path: Path, home_url: str) -> None:
    """The tuner is killed while a program hangs: the program ends too, and the trial is repeated."""
    trace = tmp_path / "trace"
    source = (
        "import json, os, sys, time\n"
        "if sys.argv[-1] == '--level=2' and not os.path.exists(os.environ['DEMO_TRACE']):\n"
        "    open(os.environ['DEMO_TRACE'] + '.part', 'w').write(str(os.getpid()))\n"
        "    os.rename(os.environ['DEMO_TRACE'] + '.part', os.environ['DEMO_TRACE'])\n"
        "    time.sleep(1e6)\n"
        "print(json.dumps({'samples_ms': [1.0, 1.1], 'losses': {'error': 0}}))\n"
    )
    environment = {**os.environ, "DEMO_TRACE": str(trace), "TUNER_PASS": "DEMO_TRACE"}
    path = describe(tmp_path / "program", source=source, knobs=[KNOBS[0]])
    assert made(cli, path, home_url, *LIMIT, "--n-trials", "3").code == 0
    run = ("study", "run", "s", "--no-confirm", "--storage", home_url)
    process = start_tuner(*run, env=environment)
    until = time.monotonic() + 60
    while not trace.exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    wait_for_end(int(trace.read_text()))
    process = start_tuner(*run, env=environment)
    _, err = process.communicate()
    assert process.returncode == 0, err
    (view,) = show_study("s", storage=home_url).contexts
    assert sorted(trial.number for trial in view.trials) == [0, 1, 2]
    assert sorted(trial.starts for trial in view.trials) == [1, 1, 2]


def test_a_changed_environment_is_another_context(
    cli: Cli, tmp_path: Path, home_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = describe(tmp_path / "program", knobs=list(KNOBS[:2]))
    assert made(cli, path, home_url, *LIMIT, "--n-trials", "2").code == 0
    run = ("study", "run", "s", "--no-confirm", "--storage", home_url)
    assert cli(*run).code == 0
    monkeypatch.setenv("DEMOFLAGS", "--fast")
    assert cli(*run).code == 0
    contexts = show_study("s", storage=home_url).contexts
    assert len(contexts) == 2
    assert "$DEMOFLAGS changed" in cli("study", "show", "s", "--storage", home_url).out


def test_stored_studies_without_pairs_are_read(world: World) -> None:
    spec = show_study("s", storage=world.url).spec
    assert read_spec(spec.to_json()).measures_itself


C_SOURCE = """
#include <stdio.h>
#include <time.h>
#define N 20000
static float a[N], b[N];
int main(void) {
    for (int i = 0; i < N; i++) { a[i] = i * 0.5f; b[i] = i * 0.25f; }
    printf("{\\"samples_ms\\": [");
    float sum = 0;
    for (int round = 0; round < 15; round++) {
        struct timespec s, e;
        clock_gettime(CLOCK_MONOTONIC, &s);
        for (int k = 0; k < 40; k++)
            for (int i = 0; i < N; i++) { a[i] = a[i] * 0.999f + b[i]; sum += a[i]; }
        clock_gettime(CLOCK_MONOTONIC, &e);
        printf("%s%.6f", round ? ", " : "", (e.tv_sec - s.tv_sec) * 1e3 + (e.tv_nsec - s.tv_nsec) * 1e-6);
    }
    printf("], \\"losses\\": {\\"sum\\": %g}}\\n", sum > 0 ? 0.0 : 1.0);
    return 0;
}
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_flags_of_a_real_compiler(cli: Cli, tmp_path: Path, home_url: str) -> None:
    """Optimization beats none by far, and -march=native alone does not: on any machine."""
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "loop.c").write_text(C_SOURCE)
    (folder / "run.sh").write_text('#!/bin/sh\ngcc $CFLAGS -o loop loop.c && exec ./loop "$@"\n')
    (folder / "tune.toml").write_text(
        'program = ["run.sh"]\nfiles = ["loop.c"]\nenvironment = ["sh", "-c", "echo {}"]\n'
        '[[knobs]]\nname = "level"\nvalues = ["-O0", "-O1", "-O2", "-O3"]\ndefault = "-O0"\n'
        'flag = "{value}"\njoin = "CFLAGS"\n'
        '[[knobs]]\nname = "fast"\nvalues = [false, true]\ndefault = false\n'
        'flags = { true = "-ffast-math" }\nomit = false\njoin = "CFLAGS"\n'
    )
    create = ("study", "create", "s", "--model", folder / "tune.toml", "--max-loss", "sum=0", "--n-trials", "6")
    ended = cli(*create, "--noise-sessions", "2", "--timing-budget", "300ms", "--storage", home_url)
    assert ended.code == 0, ended.err
    ended = cli("study", "run", "s", "--finalists", "1", "--builds", "2", "--storage", home_url)
    assert ended.code == 0, ended.err
    (view,) = show_study("s", storage=home_url).contexts
    assert view.summary.n_failed == 0
    assert view.verdict is not None
    assert view.verdict["verdict"] == "faster"
    assert view.verdict["speedup"] > 1.5
