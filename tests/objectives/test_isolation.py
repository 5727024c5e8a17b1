"""Isolation: both kinds pass the contract; a real process is killed, replaced and bounded whatever a candidate does."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from objectives.errors import HarnessError, ModelError
from objectives.isolation import InProcess, Isolation, Limits, Subprocess
from objectives.landscape import Fault, Interaction, Landscape
from objectives.outcome import Failed, FailureKind, Measured, Outcome, Rejected, Stage
from objectives.requests import DescribeRequest
from tests.contracts import plugin
from tests.contracts.isolation_contract import FUNCTIONS, IsolationContract, Task, knob
from tests.processes import wait_for_end
from tests.stages import entered

ROOT = Path(__file__).parents[2]
MEMORY_BYTES = 400 << 20  # several times what an idle child takes
DEADLINE_S = 4.0  # long enough for a child to start and to get as far as the fault
PATIENT = Limits(deadline_s=120.0, memory_bytes=MEMORY_BYTES)


@pytest.fixture(scope="module", autouse=True)
def _children_find_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A child imports metric functions from `tests`, and finds a backend that somebody else has installed."""
    installed = tmp_path_factory.mktemp("site")
    plugin.install(installed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), str(installed))))
        yield


@pytest.fixture(scope="module")
def patient() -> Iterator[Subprocess]:
    """One isolation for many tests: its child is replaced after every failure anyhow."""
    with Subprocess(PATIENT) as isolation:
        yield isolation


@pytest.fixture
def hasty() -> Iterator[Subprocess]:
    with Subprocess(Limits(deadline_s=DEADLINE_S)) as isolation:
        yield isolation


class TestInProcess(IsolationContract):
    @pytest.fixture
    def isolation(self) -> Isolation:
        return InProcess()


class TestSubprocess(IsolationContract):
    @pytest.fixture
    def isolation(self, patient: Subprocess) -> Isolation:
        return patient


@pytest.fixture
def faulty(tmp_path: Path) -> Callable[[Fault], Task]:
    """A task whose `mode=bad` has the fault."""

    def make(fault: Fault) -> Task:
        landscape = Landscape((knob("bad"),), interactions=(Interaction({"mode": "bad"}, fault=fault),))
        return Task(tmp_path, landscape.save(tmp_path / "landscape.json"))

    return make


@pytest.fixture
def acting(tmp_path: Path) -> Callable[[str], Task]:
    """A task for somebody else's backend, which does what it is told; its traces are in `tmp_path / "trace"`."""

    def make(act: str) -> Task:
        landscape = plugin.landscape(act, tmp_path / "trace")
        return Task(tmp_path, landscape.save(tmp_path / "landscape.json"), plugin.NAME)

    return make


def act(task: Task, isolation: Isolation, *stages: Stage) -> Outcome:
    heard: list[Stage] = []
    space = plugin.landscape_values(task.model)
    outcome = isolation.evaluate(task.evaluation(**space), entered(heard))
    if stages:
        assert tuple(heard) == stages
    return outcome


# What each fault must become. A process that dies or hangs does so where it stands: in the check of the outputs.
FATES: dict[Fault, tuple[Stage, FailureKind, int | None, str]] = {
    Fault.UNSUPPORTED: (Stage.BUILD, FailureKind.UNSUPPORTED, None, "not supported"),
    Fault.BUILD_FAILED: (Stage.BUILD, FailureKind.BUILD_FAILED, None, "no implementation"),
    Fault.BUILD_CRASH: (Stage.BUILD, FailureKind.CRASHED, signal.SIGSEGV, "SIGSEGV"),
    Fault.FALLBACK: (Stage.OPEN, FailureKind.FALLBACK, None, "got another"),
    Fault.SEGFAULT: (Stage.CHECK, FailureKind.CRASHED, signal.SIGSEGV, "SIGSEGV"),
    Fault.ABORT: (Stage.CHECK, FailureKind.CRASHED, signal.SIGABRT, "SIGABRT"),
    Fault.EXIT: (Stage.CHECK, FailureKind.CRASHED, None, "exit code 3"),
    Fault.EAT_MEMORY: (Stage.CHECK, FailureKind.OUT_OF_MEMORY, signal.SIGKILL, "memory limit"),
    Fault.MEMORY_ERROR: (Stage.CHECK, FailureKind.OUT_OF_MEMORY, None, "cannot allocate"),
    Fault.RUN_FAILED: (Stage.CHECK, FailureKind.RUN_FAILED, None, "launch failed"),
    Fault.HANG: (Stage.CHECK, FailureKind.TIMED_OUT, signal.SIGKILL, "deadline"),
}
WRONG_ANSWERS = {Fault.NAN, Fault.WRONG_SHAPE, Fault.WRONG_TYPE, Fault.MISSING_OUTPUT}


class TestFaults:
    def test_no_fault_is_left_out(self) -> None:
        assert set(FATES) | WRONG_ANSWERS == set(Fault)

    @pytest.mark.parametrize("fault", [fault for fault in FATES if fault is not Fault.HANG])
    def test_it_is_one_outcome_and_the_study_goes_on(
        self, fault: Fault, patient: Subprocess, faulty: Callable[[Fault], Task]
    ) -> None:
        self.require_fate(fault, patient, faulty(fault))

    def test_a_hang_ends_at_the_deadline(self, hasty: Subprocess, faulty: Callable[[Fault], Task]) -> None:
        self.require_fate(Fault.HANG, hasty, faulty(Fault.HANG))

    def require_fate(self, fault: Fault, isolation: Subprocess, task: Task) -> None:
        stage, kind, number, words = FATES[fault]
        heard: list[Stage] = []
        outcome = isolation.evaluate(task.evaluation(mode="bad"), entered(heard))
        assert isinstance(outcome, Failed)
        assert (outcome.stage, outcome.kind, outcome.signal) == (stage, kind, number)
        assert words in outcome.detail
        assert heard[-1] is stage
        assert outcome.trace.asked == {"mode": "bad"}
        assert stage.value in outcome.trace.stage_s
        assert outcome.trace.attempts == (2 if kind is FailureKind.OUT_OF_MEMORY else 1)
        assert isolation.pid is None, "a child that has failed is not asked again"

    @pytest.mark.parametrize("fault", sorted(WRONG_ANSWERS))
    def test_a_wrong_answer_is_no_reason_to_replace_the_child(
        self, fault: Fault, patient: Subprocess, faulty: Callable[[Fault], Task]
    ) -> None:
        task = faulty(fault)
        assert isinstance(patient.evaluate(task.evaluation()), Measured)
        before = patient.pid
        assert isinstance(patient.evaluate(task.evaluation(mode="bad")), Rejected)
        assert patient.pid == before


class TestReplacement:
    def test_a_child_is_used_again_after_success_and_replaced_after_failure(
        self, patient: Subprocess, faulty: Callable[[Fault], Task]
    ) -> None:
        task = faulty(Fault.UNSUPPORTED)
        patient.evaluate(task.evaluation())
        first = patient.pid
        assert first is not None
        patient.describe(DescribeRequest("synthetic"))
        patient.evaluate(task.evaluation(mode="fast"))
        assert patient.pid == first
        patient.evaluate(task.evaluation(mode="bad"))
        wait_for_end(first)
        patient.evaluate(task.evaluation())
        assert patient.pid not in (None, first)

    @pytest.mark.parametrize(("deed", "stays"), [("be refused", True), ("fail to run", False)])
    def test_a_child_whose_backend_knows_it_to_be_sound_is_used_again(
        self, patient: Subprocess, acting: Callable[[str], Task], deed: str, stays: bool
    ) -> None:
        task = acting(deed)
        patient.describe(DescribeRequest(plugin.NAME))
        first = patient.pid
        values = plugin.landscape_values(task.model)
        assert isinstance(patient.evaluate(task.evaluation(**values)), Failed)
        assert (patient.pid == first) is stays
        patient.describe(DescribeRequest(plugin.NAME))
        second = patient.pid
        assert isinstance(patient.build(task.building(**values)), Failed)
        assert (patient.pid == second) is stays

    def test_a_child_that_died_between_requests_is_replaced(
        self, patient: Subprocess, faulty: Callable[[Fault], Task]
    ) -> None:
        task = faulty(Fault.UNSUPPORTED)
        patient.evaluate(task.evaluation())
        first = patient.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        wait_for_end(first)
        assert isinstance(patient.evaluate(task.evaluation()), Measured)
        assert patient.pid not in (None, first)

    def test_a_refused_request_replaces_it_too(self, patient: Subprocess) -> None:
        patient.describe(DescribeRequest("synthetic"))
        with pytest.raises(ModelError):
            patient.describe(DescribeRequest("synthetic", "/missing"))
        assert patient.pid is None

    def test_an_interruption_leaves_no_child(self, faulty: Callable[[Fault], Task]) -> None:
        pids: list[int] = []
        with Subprocess(PATIENT) as isolation:

            def interrupt(stage: Stage, detail: str) -> None:
                assert isolation.pid is not None
                pids.append(isolation.pid)
                raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                isolation.evaluate(faulty(Fault.HANG).evaluation(mode="bad"), interrupt)
            assert isolation.pid is None
            wait_for_end(*pids)

    def test_closing_leaves_no_child(self) -> None:
        isolation = Subprocess(PATIENT)
        assert isolation.pid is None
        isolation.close()
        isolation.describe(DescribeRequest("synthetic"))
        pid = isolation.pid
        assert pid is not None
        isolation.close()
        isolation.close()
        wait_for_end(pid)
        assert isolation.pid is None

    def test_a_child_that_was_prepared_is_the_one_that_is_asked(self) -> None:
        with Subprocess(PATIENT) as isolation:
            isolation.prepare()
            pid = isolation.pid
            assert pid is not None
            isolation.describe(DescribeRequest("synthetic"))
            assert isolation.pid == pid

    def test_no_descriptors_are_left(self) -> None:
        before = psutil.Process().num_fds()
        with Subprocess(PATIENT) as isolation:
            isolation.describe(DescribeRequest("synthetic"))
        assert psutil.Process().num_fds() == before


class TestMemory:
    def test_a_second_attempt_may_succeed(self, patient: Subprocess, acting: Callable[[str], Task]) -> None:
        outcome = act(acting("be killed the first time"), patient)
        assert isinstance(outcome, Measured)
        assert outcome.trace.attempts == 2

    def test_the_second_attempt_finds_an_empty_folder(
        self, patient: Subprocess, acting: Callable[[str], Task], tmp_path: Path
    ) -> None:
        # What a build may assume: "`workdir` (empty, owned by this call)".
        outcome = act(acting("list the folder"), patient)
        assert isinstance(outcome, Measured)
        assert outcome.trace.attempts == 2
        assert (tmp_path / "trace").read_text().splitlines() == ["[]", "[]"]

    def test_other_failures_are_not_tried_again(self, patient: Subprocess, acting: Callable[[str], Task]) -> None:
        outcome = act(acting("say last words"), patient)
        assert outcome.trace.attempts == 1


class TestBounds:
    def test_the_deadline_ends_the_whole_group(
        self, hasty: Subprocess, acting: Callable[[str], Task], tmp_path: Path
    ) -> None:
        # A library that hangs without giving the interpreter back, and a process of its own beside it.
        outcome = act(acting("start a grandchild and hang"), hasty)
        assert isinstance(outcome, Failed)
        assert (outcome.kind, outcome.stage) == (FailureKind.TIMED_OUT, Stage.CHECK)
        wait_for_end(int((tmp_path / "trace").read_text()))

    def test_the_deadline_also_ends_one_that_never_falls_silent(
        self, hasty: Subprocess, acting: Callable[[str], Task]
    ) -> None:
        outcome = act(acting("never fall silent"), hasty)
        assert isinstance(outcome, Failed)
        assert (outcome.kind, outcome.stage) == (FailureKind.TIMED_OUT, Stage.CHECK)
        assert sum(outcome.trace.stage_s.values()) < 2 * DEADLINE_S

    def test_the_environment_is_a_whitelist(
        self, acting: Callable[[str], Task], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        secrets = ("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "HF_TOKEN", "TUNER_STORAGE", "PGPASSWORD", "SOMETHING_ELSE")
        for name in secrets:
            monkeypatch.setenv(name, "secret-7c1f")
        monkeypatch.setenv("OMP_NUM_THREADS", "3")
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
        with Subprocess(PATIENT) as isolation:
            seen = act(acting("tell the environment"), isolation).trace.effective
        assert not set(secrets) & set(seen)
        assert "secret-7c1f" not in str(seen)
        assert (seen["OMP_NUM_THREADS"], seen["CUDA_VISIBLE_DEVICES"]) == ("3", "1")
        assert seen["PATH"] == os.environ["PATH"]

    def test_noise_on_the_standard_streams_disturbs_nothing(
        self, patient: Subprocess, acting: Callable[[str], Task], capfd: pytest.CaptureFixture[str]
    ) -> None:
        outcome = act(acting("make noise"), patient, Stage.BUILD, Stage.OPEN, Stage.CHECK, Stage.TIME)
        assert isinstance(outcome, Measured)
        assert capfd.readouterr() == ("", "")

    def test_last_words_are_in_the_detail(self, patient: Subprocess, acting: Callable[[str], Task]) -> None:
        outcome = act(acting("say last words"), patient)
        assert isinstance(outcome, Failed)
        assert (outcome.kind, outcome.signal) == (FailureKind.CRASHED, None)
        assert "exit code 7" in outcome.detail
        assert outcome.detail.endswith("last words: grün")
        assert len(outcome.detail) < 1000

    def test_a_crash_while_timing_says_so(self, patient: Subprocess, acting: Callable[[str], Task]) -> None:
        outcome = act(acting("crash when timed"), patient)
        assert isinstance(outcome, Failed)
        assert (outcome.stage, outcome.kind, outcome.signal) == (Stage.TIME, FailureKind.CRASHED, signal.SIGBUS)
        assert list(outcome.trace.stage_s) == ["build", "open", "check", "time"]

    def test_a_large_request_arrives(self, patient: Subprocess, faulty: Callable[[Fault], Task]) -> None:
        # Larger than a pipe holds: it has to be read while it is written.
        task = faulty(Fault.UNSUPPORTED)
        names = tuple(f"{FUNCTIONS}:missing_{'x' * 1000}_{number}" for number in range(300))
        with pytest.raises(Exception, match="missing_x"):
            patient.reference(task.referencing(task.pair(), functions=names))


class TestHarness:
    def test_a_child_that_does_not_start_says_nothing_about_a_candidate(
        self, monkeypatch: pytest.MonkeyPatch, faulty: Callable[[Fault], Task]
    ) -> None:
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
        with Subprocess(PATIENT) as isolation, pytest.raises(HarnessError, match="cannot start"):
            isolation.evaluate(faulty(Fault.UNSUPPORTED).evaluation())

    def test_nor_does_one_that_ends_before_it_has_begun(
        self, monkeypatch: pytest.MonkeyPatch, faulty: Callable[[Fault], Task]
    ) -> None:
        # An installation that is broken would otherwise be held against every candidate in turn.
        monkeypatch.setenv("PYTHONHOME", "/nowhere")
        with Subprocess(PATIENT) as isolation:
            with pytest.raises(HarnessError):
                isolation.evaluate(faulty(Fault.UNSUPPORTED).evaluation())
            with pytest.raises(HarnessError):
                isolation.describe(DescribeRequest("synthetic"))

    def test_a_spoilt_channel_is_the_harness(self, patient: Subprocess, acting: Callable[[str], Task]) -> None:
        with pytest.raises(HarnessError, match="unreadable"):
            act(acting("spoil the channel"), patient)
        assert patient.pid is None

    def test_an_unexpected_answer_is_the_harness(self, patient: Subprocess, faulty: Callable[[Fault], Task]) -> None:
        with pytest.raises(HarnessError, match="answered Checked where Evaluated was expected"):
            patient.evaluate(faulty(Fault.UNSUPPORTED).building())  # type: ignore[arg-type]

    def test_a_model_that_kills_the_runtime_is_a_bad_model(
        self, patient: Subprocess, acting: Callable[[str], Task]
    ) -> None:
        with pytest.raises(ModelError, match="SIGSEGV") as error:
            patient.describe(DescribeRequest(plugin.NAME, str(acting("crash when described").model)))
        assert error.value.hint
