"""Whole studies over the REAL TensorRT for RTX, which builds without a GPU: from the command line to a kept plan.

What running an engine would add waits for a GPU, see docs/verification.md.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from objectives.outcome import Built, Failed, FailureKind
from tests import onnx_models
from tests.conftest import Cli
from tests.objectives.backends.rtx import BACKEND, network
from tuner.api import create_study, run_study, show_study
from tuner.context import contexts
from tuner.export import verify_folder
from tuner.home import open_home
from tuner.objective import Objective
from tuner.shipping import list_engines
from tuner.spec import Budget, StudyOptions, WorkloadOptions

pytestmark = pytest.mark.skipif(not BACKEND.cannot_run(), reason="this machine can run engines: studies time them")
BUILD_ONLY = ("--backend", "tensorrt-rtx", "--build-only", "--objective", "engine-size", "--no-hard-inputs")


def test_what_cannot_be_timed_is_refused_before_it_starts(home_url: str, tmp_path: Path, cli: Cli) -> None:
    model = onnx_models.conv(tmp_path)
    create = ("study", "create", "s", "--model", model, "--backend", "tensorrt-rtx", "--storage", home_url)
    for objective in ("throughput", "engine-size"):
        ended = cli(*create, "--objective", objective)
        assert ended.code == 2
        assert "build engines here but not time them" in ended.err
        assert "--build-only" in ended.err
    assert cli(*create, "--build-only").code == 2
    assert list(tmp_path.glob("*.db")) == []


def test_a_trained_network_becomes_small_plans_with_manifests(home_url: str, tmp_path: Path, cli: Cli) -> None:
    path, _ = network("recogniser")
    at = ("--storage", home_url)
    shapes = ("--shapes", "x:1x3x48x320", "--min-shapes", "x:1x3x48x160", "--max-shapes", "x:2x3x48x640")
    options = ("--backend-option", "build-timeout=5m", "--backend-option", "compute-capability=SM86", "--n-trials", "6")
    knobs = ("--knobs", "precision,tf32,sparse_weights,cuda_graph")
    assert cli("study", "create", "ocr", "--model", path, *BUILD_ONLY, *shapes, *options, *knobs, *at).code == 0
    ended = cli("study", "run", "ocr", *at)
    assert ended.code == 0, ended.err
    assert "outputs not checked" in ended.out
    with open_home(home_url) as home:
        space = contexts(home, "ocr")[0].space
    assert [knob.name for knob in space.knobs] == ["precision", "tf32", "sparse_weights"]  # no knob of a run
    (view,) = show_study("ocr", storage=home_url).contexts
    assert view.context.record.environment.identity["target"] == "SM86"
    assert len(view.trials) == 6
    assert all(isinstance(trial.outcome, Built) for trial in view.trials)
    assert view.summary.speedup is not None
    assert view.summary.speedup > 1.5  # sixteen bits instead of thirty-two
    default, best = list_engines("ocr", storage=home_url)
    plan = json.loads(best.path.with_name("engine.plan.json").read_text())
    assert plan["values"]["precision"] == dict(best.trial.candidate.changes)["precision"]
    assert plan["profile"]["x"] == [[1, 3, 48, 160], [1, 3, 48, 320], [2, 3, 48, 640]]  # data for it or not
    assert default.record.size_bytes > best.record.size_bytes
    out = tmp_path / "out"
    ended = cli("engine", "export", "ocr", "-o", out, "--json", *at)
    assert "--onnx=ch_PP-OCRv4_rec_infer.onnx" in json.loads(ended.out)["rebuild"]
    assert verify_folder(out, home_url) == []
    ended = cli("engine", "verify", "ocr", "--run", *at)
    assert ended.code == 1
    assert "cannot be run here" in ended.err
    assert cli("engine", "verify", "ocr", *at).code == 0


def test_failures_and_deadlines_are_outcomes(home_url: str) -> None:
    path, _ = network("detector")
    limits = {"slow": {"build-timeout": "10ms"}, "small": {"workspace": "1K"}}
    for name, options in limits.items():
        create_study(
            name,
            path,
            StudyOptions(
                backend="tensorrt-rtx",
                backend_options=options,
                build_only=True,
                objective=Objective.BUILD_TIME,
                knobs=("precision",),
                budget=Budget(1),
                workload=WorkloadOptions(shapes={"x": (1, 3, 320, 320)}, hard=False, pairs=1),
            ),
            storage=home_url,
        )
        with pytest.raises(Exception, match="the default cannot be measured"):
            run_study(name, storage=home_url)
    slow, small = (show_study(name, storage=home_url).contexts[0].trials[0].outcome for name in limits)
    assert isinstance(slow, Failed)
    assert slow.kind is FailureKind.TIMED_OUT
    assert "the build was stopped after 0.01 s" in slow.detail
    assert isinstance(small, Failed)
    assert small.kind is not FailureKind.CRASHED


def test_a_bad_option_is_refused_before_anything_is_made(home_url: str, tmp_path: Path, cli: Cli) -> None:
    create = ("study", "create", "s", "--model", onnx_models.conv(tmp_path), *BUILD_ONLY, "--storage", home_url)
    for option in ("compute-capability=SM1", "timing-cache=baseline", "nonsense=1", "nonsense"):
        ended = cli(*create, "--backend-option", option)
        assert ended.code == 2, option
        assert "hint" in ended.err
    assert list(tmp_path.glob("*.db")) == []
