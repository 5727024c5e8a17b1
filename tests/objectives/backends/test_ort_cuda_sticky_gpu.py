"""Candidates that break a real GPU's context or die in a CUDA call: each is one outcome, and what follows is measured.

Skipped with the reason where there is no GPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from objectives.accuracy import Limit
from objectives.backends.ort_cuda import OnnxRuntimeCudaBackend
from objectives.isolation import Limits, Subprocess
from objectives.outcome import Failed, FailureKind, Measured, Outcome, Stage
from objectives.requests import DescribeRequest, EvaluateRequest, Judging, PairFiles, ReferenceRequest
from objectives.tensors import save_tensors
from objectives.timing import TimingPlan
from tests import onnx_models
from tuner.api import check_backend, create_study, environments, run_study, show_study
from tuner.progress import Progress
from tuner.spec import Budget, StudyOptions, WorkloadOptions

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("gpu")]
ROOT = Path(__file__).parents[3]
DEADLINE_S = 25.0  # of one evaluation: a start of the process with its libraries, and a hang
QUICK = TimingPlan(round_ms=5.0, min_samples=3, budget_ms=100.0, warmup_ms=50.0)
JUDGING = Judging(limits=(Limit("rel_l2", 0.01),))


@pytest.fixture(autouse=True)
def _only_on_a_gpu() -> None:
    if reason := OnnxRuntimeCudaBackend().cannot_run():
        pytest.skip(reason)


@pytest.fixture
def sticky(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the backend whose candidates break things, as a child finds it."""
    from tests.objectives.backends import sticky_cuda  # needs cuda-bindings

    sticky_cuda.install(tmp_path / "site")
    before = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(tmp_path / "site"), *before]))
    return sticky_cuda.NAME


@pytest.fixture
def isolation() -> Iterator[Subprocess]:
    with Subprocess(Limits(DEADLINE_S)) as found:
        yield found


Evaluate = Callable[..., Outcome]


@pytest.fixture
def evaluate(tmp_path: Path, sticky: str, isolation: Subprocess) -> Evaluate:
    """Evaluates one candidate: `evaluate(deed="illegal-access")`."""
    model = onnx_models.conv(tmp_path)
    pair = PairFiles("pair", str(tmp_path / "in"), str(tmp_path / "ref"))
    save_tensors(tmp_path / "in", {"image": np.random.default_rng(0).random((2, 3, 16, 16)).astype(np.float32)})
    isolation.reference(ReferenceRequest(sticky, str(model), (pair,), (True,), JUDGING))
    numbers = iter(range(1000))

    def run(**values: str) -> Outcome:
        workdir = tmp_path / f"work {next(numbers)}"
        workdir.mkdir()
        return isolation.evaluate(EvaluateRequest(sticky, str(model), values, (pair,), JUDGING, QUICK, str(workdir)))

    return run


def test_an_illegal_access_costs_its_candidate_and_its_process(evaluate: Evaluate, isolation: Subprocess) -> None:
    assert isinstance(evaluate(), Measured)
    before = isolation.pid
    assert before is not None
    outcome = evaluate(deed="illegal-access")
    assert isinstance(outcome, Failed)
    print(outcome.reason)
    assert outcome.stage is Stage.CHECK
    # The library may end the process when it cleans up on a context that is lost.
    assert outcome.kind in (FailureKind.RUN_FAILED, FailureKind.CRASHED)
    assert isolation.pid is None  # its context answers every call with the same error
    after = evaluate()
    assert isinstance(after, Measured)
    assert isolation.pid not in (None, before)


def test_a_refused_copy_costs_no_process(evaluate: Evaluate, isolation: Subprocess) -> None:
    assert isinstance(evaluate(), Measured)
    before = isolation.pid
    outcome = evaluate(deed="bad-copy")
    assert isinstance(outcome, Failed)
    print(outcome.detail)
    assert isolation.pid == before
    assert isinstance(evaluate(), Measured)
    assert isolation.pid == before


def test_a_kernel_that_never_ends_is_killed_at_the_deadline(evaluate: Evaluate) -> None:
    outcome = evaluate(deed="endless-kernel")
    assert isinstance(outcome, Failed)
    assert (outcome.stage, outcome.kind) == (Stage.CHECK, FailureKind.TIMED_OUT)
    assert isinstance(evaluate(), Measured)


@pytest.mark.parametrize(
    ("deed", "kind", "attempts"),
    [("ended-in-a-call", FailureKind.CRASHED, 1), ("killed-in-a-call", FailureKind.OUT_OF_MEMORY, 2)],
)
def test_a_child_killed_in_a_cuda_call_is_one_outcome(
    evaluate: Evaluate, deed: str, kind: FailureKind, attempts: int
) -> None:
    outcome = evaluate(deed=deed)
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.trace.attempts) == (kind, attempts)
    assert isinstance(evaluate(), Measured)


def test_what_comes_after_is_as_fast_as_before(evaluate: Evaluate) -> None:
    before, _, after = evaluate(), evaluate(deed="illegal-access"), evaluate()
    assert isinstance(before, Measured)
    assert isinstance(after, Measured)
    print(before.samples.median_ms, after.samples.median_ms, after.samples.flags, after.samples.conditions)
    assert "cuda_event" == before.samples.clock == after.samples.clock


def test_a_study_goes_on_after_every_one_of_them(tmp_path: Path, sticky: str) -> None:
    url = f"sqlite:///{tmp_path / 'tuner.db'}"
    options = StudyOptions(
        backend=sticky,
        knobs=("deed",),
        workload=WorkloadOptions(shapes={"image": (2, 3, 16, 16)}, pairs=1, hard=False),
        judging=JUDGING,
        budget=Budget(6),
        timing=QUICK,
        search="full",
        noise_sessions=0,
        control_every=1,  # the default is timed again after each of them
        trial_timeout_s=DEADLINE_S,
    )
    create_study("sticky", onnx_models.conv(tmp_path), options, storage=url)
    run_study("sticky", storage=url)
    view = show_study("sticky", storage=url).contexts[0]
    statuses = {dict(one.candidate.changes).get("deed", "none"): one.status for one in view.trials}
    print(statuses)
    assert statuses.pop("illegal-access") in ("run failed", "crashed")
    assert statuses == {
        "none": "ok",
        "endless-kernel": "timed out",
        "killed-in-a-call": "out of memory",
        "ended-in-a-call": "crashed",
        "bad-copy": "run failed",
    }
    assert view.summary.standard is not None
    assert view.summary.standard.n_controls >= 4


# ---- the backend as a whole


def test_the_self_check_passes() -> None:
    report = check_backend("onnxruntime-cuda")
    for one in report.results:
        print(f"{one.status:12} {one.name}: {one.detail} ({one.seconds:.1f} s)")
    assert report.failed == ()
    assert report.cannot_run == ""


def test_conditions_are_recorded_with_a_timing(evaluate: Evaluate) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    outcome = evaluate()
    assert isinstance(outcome, Measured)
    print(outcome.samples.conditions, outcome.samples.flags)
    assert outcome.samples.conditions["sm_clock_mhz"] > 0
    assert outcome.samples.conditions["temperature_c"] > 0
    assert "other_process" not in outcome.samples.flags, "the GPU is ours alone, or our own process is counted"


def test_a_child_sees_the_device_it_was_started_for() -> None:
    (found,) = environments("onnxruntime-cuda")
    print([(one.name, one.model, one.key) for one in found.devices])
    for device in found.devices:
        with Subprocess(Limits(DEADLINE_S), device.variables) as isolation:
            here = isolation.describe(DescribeRequest("onnxruntime-cuda"))
        assert here.environment.device == device.key


class _Notes(Progress):
    def __init__(self) -> None:
        self.lost: list[str] = []

    def on_device_lost(self, device: str, reason: str) -> None:
        self.lost.append(f"{device}: {reason}")


def test_all_gpus_of_the_machine_share_a_study(tmp_path: Path) -> None:
    (found,) = environments("onnxruntime-cuda")
    if len(found.devices) < 2:
        pytest.skip("there is only one GPU")
    url = f"sqlite:///{tmp_path / 'tuner.db'}"
    options = StudyOptions(
        backend="onnxruntime-cuda",
        workload=WorkloadOptions(shapes={"image": (2, 3, 16, 16)}, pairs=1, hard=False),
        judging=JUDGING,
        budget=Budget(16 * len(found.devices)),
        timing=QUICK,
        noise_sessions=0,
        trial_timeout_s=DEADLINE_S,
    )
    create_study("all", onnx_models.conv(tmp_path), options, storage=url)
    notes = _Notes()
    run_study("all", storage=url, devices=("all",), progress=notes)
    view = show_study("all", storage=url).contexts[0]
    assert notes.lost == []
    assert [trial.number for trial in view.trials] == list(range(16 * len(found.devices)))
    assert {trial.device for trial in view.trials} == {one.key for one in found.devices}
    assert view.summary.standard is not None
    print({key: state.level for key, state in view.summary.standard.devices.items()})
    assert all(abs(state.level) < 0.2 for state in view.summary.standard.devices.values())


def test_one_instance_on_each_gpu(tmp_path: Path) -> None:
    (found,) = environments("onnxruntime-cuda")
    if len(found.devices) < 2:
        pytest.skip("there is only one GPU")
    url = f"sqlite:///{tmp_path / 'tuner.db'}"
    options = StudyOptions(
        backend="onnxruntime-cuda",
        backend_options={"replicas": "all"},
        knobs=("replicas",),
        workload=WorkloadOptions(shapes={"image": (2, 3, 16, 16)}, pairs=1, hard=False),
        judging=JUDGING,
        budget=Budget(len(found.devices)),
        search="full",
        noise_sessions=0,
        control_every=0,
        trial_timeout_s=2 * DEADLINE_S,
    )
    create_study("replicas", onnx_models.conv(tmp_path), options, storage=url)
    run_study("replicas", storage=url)
    trials = show_study("replicas", storage=url).contexts[0].trials
    told = {one.outcome.trace.effective.get("replicas", "1"): one for one in trials}
    print(
        {number: (one.throughput, one.outcome.trace.effective.get("replica_devices")) for number, one in told.items()}
    )
    assert len(told) == len(found.devices)
    assert {one.status for one in trials} == {"ok"}
    alone, two = told["1"].throughput, told["2"].throughput
    assert alone is not None
    assert two is not None
    assert two > 1.2 * alone  # two GPUs do more than one
