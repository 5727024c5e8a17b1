"""Whole studies through the command `trtexec`, a FAKE one: options reach it, engines are kept, a winner is confirmed.

What the real program does is for a machine that has it, see docs/verification.md.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests import onnx_models
from tests.conftest import Cli
from tests.objectives.backends import fake_trtexec
from tests.objectives.backends.fake_trtexec import V11
from tuner.api import show_study
from tuner.shipping import list_engines

COPY = "route:copy_ppg"


def test_a_study_with_its_confirmation(tmp_path: Path, home_url: str, cli: Cli) -> None:
    log = tmp_path / "calls"
    program = fake_trtexec.install(tmp_path / "bin", log=str(log), digits=V11)
    model = onnx_models.identity(tmp_path, "float32", (4, 8))
    at = ("--storage", home_url)
    options = ("--backend-option", f"program={program}", "--backend-option", "device=1", "--noise-sessions", "0")
    create = ("study", "create", "s", "--model", model, "--backend", "trtexec", *options, "--knobs", "route:*", *at)
    ended = cli(*create, "--n-trials", "5", "--timing-budget", "100ms", "--pairs", "1", "--no-hard-inputs")
    assert ended.code == 0, ended.err
    ended = cli("study", "run", "s", "--finalists", "1", "--builds", "2", "--confirm-timeout", "20s", *at)
    assert ended.code == 0, ended.err
    (view,) = show_study("s", storage=home_url).contexts
    assert len(view.trials) == 5
    assert view.verdict is not None
    calls = fake_trtexec.calls(log)
    assert all("--device=1" in call for call in calls if any(one.startswith("--onnx") for one in call))
    routes = [one for call in calls for one in call if one.startswith("--setBuildRoute=")]
    assert routes
    default = list_engines("s", storage=home_url)[0]
    assert default.record.format == "tensorrt-plan"
    assert cli("engine", "verify", "s", "--run", *at).code == 0
    out = tmp_path / "out"
    ended = cli("engine", "export", "s", "--trial", "0", "-o", out, "--json", *at)
    assert json.loads(ended.out)["rebuild"].startswith("trtexec --onnx=")


def test_without_the_program_it_says_what_to_do(tmp_path: Path, home_url: str, cli: Cli) -> None:
    model = onnx_models.identity(tmp_path, "float32", (4, 8))
    create = ("study", "create", "s", "--model", model, "--backend", "trtexec", "--storage", home_url)
    ended = cli(*create, "--backend-option", f"program={tmp_path / 'nowhere'}")
    assert ended.code == 2
    assert "there is no program" in ended.err
    assert cli(*create, "--backend-option", "device=first").code == 2
