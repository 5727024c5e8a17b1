"""The backend `command` over small real programs: its contract, their answers, every way of failing, and their end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from objectives.accuracy import Limit
from objectives.backends.base import Backend
from objectives.backends.command import CommandBackend
from objectives.errors import BackendUnavailableError
from objectives.isolation import InProcess, Isolation, Limits, Subprocess
from objectives.outcome import Built, Failed, FailureKind, Measured, Outcome, Rejected, Round, Samples, Stage
from objectives.requests import (
    BuildRequest,
    CheckRequest,
    DescribeRequest,
    EvaluateRequest,
    Judging,
    OpenRequest,
    TimeRequest,
)
from objectives.timing import TimingPlan
from tests.contracts.reporter_contract import ReporterContract
from tests.processes import wait_for_end
from tests.programs import ACT, KNOBS, describe

ERROR = Judging((Limit("error", 0.01),))
PLAN = TimingPlan(max_rounds=3)


class TestContract(ReporterContract):
    @pytest.fixture
    def backend(self) -> Backend:
        return CommandBackend()

    @pytest.fixture(params=[False, True], ids=["a start each", "rounds"])
    def model_path(self, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
        return describe(tmp_path / "my programs ü", rounds=request.param)


@dataclass
class Task:
    """A program with the knob `act`, and the requests about it."""

    folder: Path
    isolation: Isolation
    rounds: bool = False

    def __post_init__(self) -> None:
        self.model = str(describe(self.folder / "program", knobs=[*KNOBS, ACT], rounds=self.rounds))
        self.count = 0

    def workdir(self) -> str:
        self.count += 1
        folder = self.folder / f"work-{self.count}"
        folder.mkdir()
        return str(folder)

    def evaluate(self, judging: Judging = ERROR, incumbent: tuple[float, ...] = (), **values: str) -> Outcome:
        request = EvaluateRequest(
            "command", self.model, values, (), judging, PLAN, self.workdir(), incumbent_ms=incumbent
        )
        return self.isolation.evaluate(request)

    def failed(self, **values: str) -> Failed:
        outcome = self.evaluate(**values)
        assert isinstance(outcome, Failed), outcome
        return outcome

    def built(self, **values: str) -> Built:
        built = self.isolation.build(BuildRequest("command", self.model, values, (), ERROR, self.workdir()))
        assert isinstance(built, Built), built
        return built


@pytest.fixture(params=[False, True], ids=["a start each", "rounds"])
def task(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Task]:
    with InProcess() as isolation:
        yield Task(tmp_path, isolation, request.param)


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Task]:
    with Subprocess(Limits(6.0, 500 << 20)) as isolation:
        yield Task(tmp_path, isolation)


class TestAnswers:
    def test_a_candidate_is_measured(self, task: Task) -> None:
        outcome = task.evaluate(level="2", fast="on", mode="turbo")
        assert isinstance(outcome, Measured)
        assert outcome.samples.median_ms == pytest.approx(2.0 * 0.9 * 0.8, rel=0.01)
        assert [len(one.samples_ms) for one in outcome.samples.rounds] == [12] * 3
        assert outcome.samples.clock == "program"
        assert outcome.accuracy.losses[0].losses == {"error": 0.001}
        assert outcome.trace.effective["mode"] == "turbo"

    def test_what_is_over_a_limit_is_rejected(self, task: Task) -> None:
        outcome = task.evaluate(mode="wild")
        assert isinstance(outcome, Rejected)
        assert outcome.reason == "as the program reports: error 0.5 is over 0.01"

    @pytest.mark.parametrize("act", ["nanloss", "infloss"])
    def test_a_loss_that_is_not_finite_is_rejected_without_limits_too(self, task: Task, act: str) -> None:
        outcome = task.evaluate(Judging(()), act=act)
        assert isinstance(outcome, Rejected)
        assert "error that is not finite" in outcome.reason

    def test_a_hopeless_candidate_is_timed_once(self, task: Task) -> None:
        outcome = task.evaluate(incumbent=(1.0, 1.001, 1.002))
        assert isinstance(outcome, Measured)
        assert outcome.samples.flags[0] == "stopped_early"
        assert len(outcome.samples.rounds) == 1

    def test_an_engine_is_checked_timed_and_opened(self, task: Task) -> None:
        engine, values = task.built(level="3").engine, {"level": "3"}
        checked = task.isolation.check(CheckRequest("command", engine, values, (), ERROR))
        assert isinstance(checked, Built)
        timed = task.isolation.time(TimeRequest("command", engine, values, None, PLAN))
        assert isinstance(timed, Samples)
        assert timed.median_ms == pytest.approx(3.0, rel=0.01)
        task.isolation.open(OpenRequest("command", engine, values, None, PLAN))
        taken = task.isolation.round()
        assert isinstance(taken, Round)
        assert taken.samples_ms[0] == pytest.approx(3.0, rel=0.01)

    def test_an_engine_of_other_values_is_no_substitute(self, task: Task) -> None:
        built = task.built(level="3")
        found = task.isolation.time(TimeRequest("command", built.engine, {"level": "2"}, None, PLAN))
        assert isinstance(found, Failed)
        assert found.kind is FailureKind.FALLBACK


@pytest.mark.parametrize(
    ("act", "kind", "words"),
    [
        ("exit", FailureKind.RUN_FAILED, "exit code 1.*could not allocate the thing"),
        ("segfault", FailureKind.CRASHED, "killed by SIGSEGV.*a line of the log"),
        ("shell", FailureKind.CRASHED, "killed by SIGSEGV"),
        ("killed", FailureKind.OUT_OF_MEMORY, "killed by SIGKILL"),
        ("silent", FailureKind.RUN_FAILED, "a line of the log"),
        ("text", FailureKind.RUN_FAILED, "all fine"),
        ("nojson", FailureKind.RUN_FAILED, "all fine"),
        ("list", FailureKind.RUN_FAILED, r"\[1, 2\]"),
        ("empty", FailureKind.RUN_FAILED, "no 'samples_ms', a list of at least one"),
        ("zero", FailureKind.RUN_FAILED, "holds 0.0: samples are positive"),
        ("nan", FailureKind.RUN_FAILED, "holds nan"),
        ("words", FailureKind.RUN_FAILED, "holds '1.0'"),
        ("badloss", FailureKind.RUN_FAILED, "loss 'error' is 'small'"),
        ("noloss", FailureKind.RUN_FAILED, "reports no loss error, on which there is a limit"),
        ("other", FailureKind.FALLBACK, "level=1 was asked for, the program says that it used 7"),
        ("refuse", FailureKind.UNSUPPORTED, "no such kernel"),
    ],
)
def test_every_way_of_failing(task: Task, act: str, kind: FailureKind, words: str) -> None:
    failed = task.failed(act=act)
    assert failed.kind is kind
    assert re.search(words, failed.detail, re.DOTALL), failed.detail
    assert failed.stage is Stage.CHECK


def test_a_bad_exit_code_after_a_good_answer_is_a_failure(tmp_path: Path) -> None:
    failed = Task(tmp_path, InProcess()).failed(act="late")
    assert failed.kind is FailureKind.RUN_FAILED
    assert "exit code 3" in failed.detail


def test_a_round_that_fails_is_the_candidates_failure(tmp_path: Path) -> None:
    with InProcess() as isolation:
        failed = Task(tmp_path, isolation, rounds=True).failed(act="second")
    assert (failed.stage, failed.kind) == (Stage.TIME, FailureKind.RUN_FAILED)
    assert "the second round failed" in failed.detail


class TestEnds:
    def test_a_hanging_program_meets_the_deadline(self, child: Task) -> None:
        failed = child.failed(act="hang")
        assert failed.kind is FailureKind.TIMED_OUT
        assert failed.stage is Stage.CHECK
        assert "about to hang" in failed.detail

    def test_memory_of_what_a_program_starts_counts(self, child: Task) -> None:
        failed = child.failed(act="eat")
        assert failed.kind is FailureKind.OUT_OF_MEMORY
        assert "memory limit" in failed.detail
        assert failed.trace.attempts == 2

    def test_what_a_program_leaves_ends_with_it(self, child: Task, monkeypatch: pytest.MonkeyPatch) -> None:
        trace = traced(child, monkeypatch)
        assert isinstance(child.evaluate(act="leave"), Measured)
        wait_for_end(int(trace.read_text()))

    def test_what_a_program_started_ends_at_the_deadline(self, child: Task, monkeypatch: pytest.MonkeyPatch) -> None:
        trace = traced(child, monkeypatch)
        assert child.failed(act="leavehang").kind is FailureKind.TIMED_OUT
        wait_for_end(int(trace.read_text()))

    def test_nothing_is_left_in_the_temporary_folder(self, child: Task, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = child.folder / "tmp"
        folder.mkdir()
        monkeypatch.setenv("TMPDIR", str(folder))
        child.evaluate(level="2")
        child.failed(act="exit")
        child.failed(act="hang")
        until = time.monotonic() + 30
        while any(list(one.iterdir()) for one in folder.iterdir()):  # a living worker has an empty one
            assert time.monotonic() < until
            time.sleep(0.05)

    @pytest.mark.parametrize("rounds", [False, True])
    def test_all_ends_when_the_tuner_is_killed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: bool
    ) -> None:
        task = Task(tmp_path, InProcess(), rounds)
        trace = traced(task, monkeypatch)
        code = (
            "import sys\n"
            "from objectives.isolation import Subprocess\n"
            "from objectives.requests import EvaluateRequest, Judging\n"
            "from objectives.timing import TimingPlan\n"
            "request = EvaluateRequest('command', sys.argv[1], {'act': 'leavehang'}, (), Judging(()), TimingPlan(), "
            "sys.argv[2])\n"
            "Subprocess().evaluate(request)\n"
        )
        (tmp_path / "tmp").mkdir()
        environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
        tuner = subprocess.Popen([sys.executable, "-c", code, task.model, task.workdir()], env=environment)
        until = time.monotonic() + 60
        while not (trace.exists() and trace.read_text()):
            assert time.monotonic() < until
            time.sleep(0.02)
        tuner.send_signal(signal.SIGKILL)
        tuner.wait()
        wait_for_end(int(trace.read_text()))
        until = time.monotonic() + 60
        while list((tmp_path / "tmp").rglob("*.py")):
            assert time.monotonic() < until
            time.sleep(0.02)


def traced(task: Task, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a process that the program leaves behind writes its number."""
    trace = task.folder / "trace"
    monkeypatch.setenv("DEMO_TRACE", str(trace))
    monkeypatch.setenv("TUNER_PASS", "OTHER, DEMO_TRACE")
    return trace


class TestFolder:
    """Each start has a folder of its own, with copies."""

    WRITER = """
import json, os, pathlib
here = sorted(str(one) for one in pathlib.Path().rglob("*") if one.is_file())
pathlib.Path("left.txt").write_text("x")
pathlib.Path("measure.py").write_text("broken")
print(json.dumps({"samples_ms": [1.0], "notes": here, "losses": {"error": 0}}))
"""

    def test_what_it_writes_changes_nothing(self, tmp_path: Path) -> None:
        folder = tmp_path / "program"
        (folder / "data").mkdir(parents=True)
        (folder / "data" / "list.txt").write_text("x")
        path = describe(folder, source=self.WRITER, files=["data/list.txt"])
        (tmp_path / "work").mkdir()
        engine = CommandBackend().build(path, {}, tmp_path / "work")
        with CommandBackend().open(engine, {}) as reporter:
            assert hasattr(reporter, "report")
            for _ in range(3):
                reporter.report()
            assert reporter.effective["notes"] == '["data/list.txt", "measure.py"]'
        assert {one.name for one in folder.iterdir()} == {"data", "measure.py", "tune.json"}


class TestIdentity:
    def test_content_of_files_belongs_to_it(self, tmp_path: Path) -> None:
        path = describe(tmp_path)
        before = CommandBackend().describe(path)
        assert before.files == ("tune.json", "measure.py")
        renamed = path.rename(tmp_path / "other.json")
        assert CommandBackend().describe(renamed).digest == before.digest
        (tmp_path / "measure.py").write_text("pass")
        assert CommandBackend().describe(renamed).digest != before.digest

    def test_other_files_make_another_engine(self, tmp_path: Path) -> None:
        path, digests = describe(tmp_path / "program"), set()
        for index in range(2):
            (tmp_path / str(index)).mkdir()
            digests.add(CommandBackend().build(path, {}, tmp_path / str(index)).digest)
            (path.parent / "measure.py").write_text("pass")
        assert len(digests) == 2

    def test_the_environment_says_what_the_program_says(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DEMOFLAGS", "--mine")
        (tmp_path / "versions.py").write_text('print(\'hello\'); print(\'{"lib": "1.2", "cores": 4}\')')
        path = describe(tmp_path, environment=[sys.executable, "versions.py"], device="npu:3")
        found = CommandBackend().environment_for(path)
        assert found.device == "npu:3"
        assert found.identity["lib"] == "1.2"
        assert found.identity["cores"] == "4"
        assert found.identity["$DEMOFLAGS"] == "--mine"
        monkeypatch.delenv("DEMOFLAGS")
        assert CommandBackend().environment_for(path).digest != found.digest

    @pytest.mark.parametrize("text", ["import sys; sys.exit('no driver')", "print('no JSON')", "print('{')"])
    def test_an_environment_that_fails_is_said(self, text: str, tmp_path: Path) -> None:
        tmp_path.joinpath("versions.py").write_text(text)
        path = describe(tmp_path, environment=[sys.executable, "versions.py"])
        with pytest.raises(BackendUnavailableError, match="no JSON object"):
            CommandBackend().environment_for(path)

    def test_a_program_that_is_not_there_is_said(self, tmp_path: Path) -> None:
        path = _without_program(tmp_path)
        with pytest.raises(BackendUnavailableError, match="there is no program 'no-such-program'"):
            CommandBackend().environment_for(path)


def _without_program(folder: Path) -> Path:
    path = folder / "tune.toml"
    path.write_text(
        'program = ["no-such-program"]\n[[knobs]]\nname = "a"\nvalues = [1, 2]\ndefault = 1\nvariable = "A"\n'
    )
    return path


def test_gpus_are_locked_under_their_uuid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text('#!/bin/sh\ntest "$2" = 3 && echo "3, GPU-abc, NVIDIA H200, 143771, 580.159.04"\n')
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    found = CommandBackend().environment_for(describe(tmp_path / "program", device="cuda:1"))
    assert found.device == "cuda:GPU-abc"
    assert {"gpu": "NVIDIA H200", "cuda_generation": "580"}.items() <= found.identity.items()
    assert "GPU-abc" not in found.identity.values()


def test_describing_goes_through_the_child(tmp_path: Path) -> None:
    with Subprocess() as isolation:
        found = isolation.describe(DescribeRequest("command", str(describe(tmp_path))))
    assert found.model is not None
    assert found.model.measures_itself
    assert found.knobs is not None
    assert [knob.name for knob in found.knobs.knobs] == ["level", "fast", "mode"]
    assert found.cannot_check
