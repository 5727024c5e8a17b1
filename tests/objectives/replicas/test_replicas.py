"""Several instances of one engine at once: real processes of ONNX Runtime, stand-ins where a time has to be known."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from objectives.backends.base import REPLICAS, Backend, Session, Values
from objectives.backends.registry import load
from objectives.backends.synthetic import SyntheticBackend
from objectives.device import device_lock
from objectives.errors import CandidateError, InputError, KnobError, StoppedError
from objectives.knobs import KnobKind
from objectives.landscape import tiny_landscape
from objectives.outcome import FailureKind
from objectives.processes import is_over
from objectives.replicas.backend import replicated
from objectives.replicas.board import AbandonedError, Board
from objectives.replicas.messages import Bind, Done, Measure, Order, Run, Spent
from objectives.replicas.process import ReplicaProcess
from objectives.replicas.session import replicated_session
from objectives.tensors import Array, Tensors, load_tensors, save_tensors
from tests import onnx_models
from tests.contracts.backend_contract import BackendContract
from tests.processes import wait_for_end
from tuner.api import create_study, run_study, show_study
from tuner.spec import Budget, StudyOptions, WorkloadOptions

X = {"x": np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)}


def end_replicas(backend: Any) -> None:
    for idle in backend._idle.values():
        for process in idle:
            process.end()


@pytest.fixture
def backend() -> Iterator[Any]:
    found = load("onnxruntime", {"replicas": "3"})
    yield found
    end_replicas(found)


def opened(backend: Backend, folder: Path, **values: str) -> Session:
    target = folder / f"engine-{len(list(folder.iterdir()))}"
    target.mkdir()
    return backend.open(backend.build(onnx_models.mlp(folder), values, target), values)


class TestReplicatedContract(BackendContract):
    """All that a backend promises holds for two instances as for one."""

    @pytest.fixture
    def backend(self) -> Iterator[Backend]:
        found = load("onnxruntime", {"replicas": "2"})
        yield found
        end_replicas(found)

    @pytest.fixture
    def model_path(self, tmp_path: Path) -> Path:
        return onnx_models.mlp(tmp_path)

    @pytest.fixture
    def inputs(self) -> dict[str, Array]:
        return X


# ---- the knob


def test_the_knob_is_offered_when_asked_for(backend: Backend, tmp_path: Path) -> None:
    path = onnx_models.mlp(tmp_path)
    knob = backend.knobs(path, backend.describe(path)).knobs[-1]
    assert (knob.name, knob.values, knob.default, knob.kind) == ("replicas", ("1", "2", "3"), "1", KnobKind.DEPLOYMENT)
    plain = load("onnxruntime")
    assert "replicas" not in {one.name for one in plain.knobs(path, plain.describe(path)).knobs}
    assert REPLICAS in plain.options


@pytest.mark.parametrize("text", ["0", "1", "65", "-2", "many", "all", ""])
def test_numbers_that_make_no_sense_are_refused(text: str, tmp_path: Path) -> None:
    path = onnx_models.mlp(tmp_path)
    found = load("onnxruntime", {"replicas": text})
    with pytest.raises(InputError, match="replicas=") as caught:
        found.knobs(path, found.describe(path))
    assert "2 to 64" in caught.value.hint


def test_a_backend_without_replicas_says_so() -> None:
    with pytest.raises(InputError, match="no option 'replicas'"):
        load("synthetic", {"replicas": "2"})


def test_a_number_beyond_the_offer_is_no_value(backend: Backend, tmp_path: Path) -> None:
    with pytest.raises(KnobError, match="replicas=4"):
        backend.build(onnx_models.mlp(tmp_path), {"replicas": "4"}, tmp_path)


# ---- real processes


def test_answers_and_timing(backend: Any, tmp_path: Path) -> None:
    expected = backend.reference(onnx_models.mlp(tmp_path), X)["y"]
    with opened(backend, tmp_path, replicas="3", intra_op_threads="1") as session:
        assert session.effective["replicas"] == "3"
        assert np.allclose(session.run(X)["y"], expected, rtol=1e-4, atol=1e-5)
        session.bind(X)
        watch = session.watch()
        assert session.measure(50) > 0
        figures, _ = watch.stop()
        assert "other_cpu_share" in figures


def test_processes_serve_the_next_session(backend: Any, tmp_path: Path) -> None:
    with opened(backend, tmp_path, replicas="3"):
        pass
    before = {process.pid for idle in backend._idle.values() for process in idle}
    assert len(before) == 2
    with opened(backend, tmp_path, replicas="3"), opened(backend, tmp_path, replicas="2") as second:
        second.run(X)
    after = {process.pid for idle in backend._idle.values() for process in idle}
    assert before < after
    assert len(after) == 3


def test_one_instance_is_no_replica(backend: Any, tmp_path: Path) -> None:
    with opened(backend, tmp_path) as session:
        session.run(X)
    assert backend._idle == {}


@pytest.mark.parametrize(
    ("number", "kind"), [(signal.SIGSEGV, FailureKind.CRASHED), (signal.SIGKILL, FailureKind.OUT_OF_MEMORY)]
)
def test_a_replica_that_dies_is_the_candidates_failure(
    backend: Any, tmp_path: Path, number: int, kind: FailureKind
) -> None:
    with opened(backend, tmp_path, replicas="2") as session:
        session.bind(X)
        (pid,) = _replicas_of(os.getpid())
        os.kill(pid, number)
        wait_for_end(pid)
        with pytest.raises(CandidateError, match="replica 1 was killed by") as caught:
            session.measure(10)
        assert caught.value.kind == kind
    assert not any(backend._idle.values())
    with opened(backend, tmp_path, replicas="2") as session:  # and the next has a new one
        session.run(X)


def _replicas_of(pid: int) -> list[int]:
    return [one.pid for one in psutil.Process(pid).children() if "objectives.replicas.replica" in one.cmdline()]


def test_a_replica_that_cannot_open_is_the_candidates_failure(backend: Any, tmp_path: Path) -> None:
    engine = backend.build(onnx_models.mlp(tmp_path), {}, tmp_path)
    moved = tmp_path / "elsewhere.onnx"
    real = backend._inner.open

    def first_only(given: Any, values: Values) -> Session:
        session: Session = real(given, values)
        os.rename(engine.path, moved)
        return session

    backend._inner.open = first_only
    with pytest.raises(CandidateError, match="replica 1: "):
        backend.open(engine, {"replicas": "2"})
    del backend._inner.open
    os.rename(moved, engine.path)
    with backend.open(engine, {"replicas": "2"}) as session:
        session.run(X)


@pytest.mark.slow
def test_a_study_of_replicas_and_threads(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'tuner.db'}"
    options = StudyOptions(
        backend="onnxruntime",
        backend_options={"replicas": "2"},
        knobs=("replicas", "intra_op_threads"),
        workload=WorkloadOptions(shapes={"x": (4, 64)}, pairs=1, hard=False),
        budget=Budget(6),
        search="full",
        noise_sessions=0,
        control_every=0,
    )
    create_study("replicas", onnx_models.mlp(tmp_path), options, storage=url)
    run_study("replicas", storage=url)
    trials = show_study("replicas", storage=url).contexts[0].trials
    assert {trial.status for trial in trials} == {"ok"}
    told = {trial.outcome.trace.effective.get("replicas", "1") for trial in trials}
    assert told == {"1", "2"}
    found = psutil.process_iter(["cmdline", "ppid"])
    replicas = [one for one in found if "objectives.replicas.replica" in (one.info["cmdline"] or ())]
    assert [one.pid for one in replicas if one.info["ppid"] == 1] == []  # nobody's


def test_replicas_count_into_the_memory_of_their_parent(backend: Any, tmp_path: Path) -> None:
    limit = psutil.Process().memory_info().rss + (20 << 20)
    assert not is_over(os.getpid(), limit)
    with opened(backend, tmp_path, replicas="3"):
        assert is_over(os.getpid(), limit)  # two more interpreters with a runtime


# ---- what is measured, with stand-ins


class FakeSession(Session):
    clock = "cuda_event"

    def __init__(self, seconds: float, answer: float = 1.0) -> None:
        self.seconds = seconds
        self.answer = answer

    @property
    def effective(self) -> Values:
        return {"a": "b"}

    def run(self, inputs: Tensors) -> dict[str, Array]:
        return {"y": np.full(3, self.answer, np.float32)}

    def bind(self, inputs: Tensors) -> None:
        return

    def _execute(self, repeats: int) -> None:
        return

    def measure(self, repeats: int) -> float:
        return self.seconds * repeats


class FakeProcess(ReplicaProcess):
    """Answers what a replica would, and is always done at once."""

    def __init__(self, name: str, seconds: float, answer: float = 1.0) -> None:
        self.name = name
        self._session = FakeSession(seconds, answer)
        self._answers_due: list[Done] = []
        self.measured: list[Measure] = []

    def is_idle(self) -> bool:
        return not self._answers_due

    def is_alive(self) -> bool:
        return True

    def send(self, order: Order) -> None:
        done = Done()
        match order:
            case Run():
                save_tensors(Path(order.outputs), self._session.run(load_tensors(Path(order.inputs))))
            case Bind():
                self._board = np.memmap(order.board, np.int64, "r+")
                self._own = order.own
            case Measure():
                self.measured.append(order)
                self._board[self._own] = 2 * order.turn + 2
                done = Done(self._session.measure(order.repeats))
            case Spent():
                done = Done(1.0)
        self._answers_due.append(done)

    def receive(self) -> Done:
        return self._answers_due.pop(0)


def together(first: FakeSession, *processes: FakeProcess) -> Session:
    session = replicated_session(first, processes, {"replicas": str(len(processes) + 1)}, ExitStack())
    session.bind({"x": np.zeros(1, np.float32)})
    return session


def test_the_slowest_counts_and_all_share_its_time() -> None:
    with together(FakeSession(0.010), FakeProcess("1", 0.014), FakeProcess("2", 0.012)) as session:
        assert session.measure(5) == pytest.approx(5 * 0.014 / 3)
        assert session.measure(1) == pytest.approx(0.014 / 3)
    with together(FakeSession(0.02), one := FakeProcess("1", 0.01)) as session:
        assert session.measure(1) == pytest.approx(0.01)
        assert session.measure(2) == pytest.approx(0.02)
        assert [(order.repeats, order.turn) for order in one.measured] == [(1, 0), (2, 1)]
        assert session.clock == "cuda_event"
        assert session.effective == {"a": "b", "replicas": "2"}


@pytest.mark.parametrize(("answer", "is_refused"), [(1.0, False), (1.0 + 1e-6, False), (1.01, True), (np.nan, True)])
def test_instances_have_to_agree(answer: float, is_refused: bool) -> None:
    with together(FakeSession(0.01), FakeProcess("1 on device b", 0.01, answer)) as session:
        if is_refused:
            with pytest.raises(CandidateError, match="replica 1 on device b: output 'y' differs"):
                session.run({"x": np.zeros(1, np.float32)})
        else:
            session.run({"x": np.zeros(1, np.float32)})


# ---- who waits for whom


class Instance(threading.Thread):
    """Runs on a board in a thread; `before_end`: what its timed part waits for."""

    def __init__(self, board: Path, own: int, before_end: Callable[[], bool] = lambda: True) -> None:
        super().__init__(daemon=True)
        self._board = Board(board, 2, own)
        self._before_end = before_end
        self.untimed, self.timed, self.seconds = 0, 0, 0.0
        self.error: BaseException | None = None
        self.fails, self.is_alone = False, False

    def run(self) -> None:
        try:
            self.seconds = self._board.measured(0, self._measure, 7, lambda: self.is_alone)
        except BaseException as error:
            self.error = error

    def _measure(self, repeats: int) -> float:
        if repeats == 1:
            self.untimed += 1
            time.sleep(0.001)
            return 0.001
        if self.fails:
            raise CandidateError(FailureKind.RUN_FAILED, "a launch failed")
        self.timed += 1
        while not self._before_end():
            time.sleep(0.001)
        return 0.5


def test_each_runs_until_all_are_done(tmp_path: Path) -> None:
    first = Instance(tmp_path / "board", 0)
    # The other one's timed part does not end before the first, which is done, has gone on for a while.
    second = Instance(tmp_path / "board", 1, lambda: first.timed == 1 and first.untimed >= waited + 3)
    first.start()
    while not first.untimed:  # it is at work and not timed while it is alone
        time.sleep(0.001)
    assert first.timed == 0
    waited = first.untimed
    second.start()
    first.join()
    second.join()
    assert (first.seconds, second.seconds) == (0.5, 0.5)
    assert (first.timed, second.timed) == (1, 1)
    assert first.error is second.error is None


def test_who_fails_sets_the_others_free(tmp_path: Path) -> None:
    first, second = Instance(tmp_path / "board", 0), Instance(tmp_path / "board", 1)
    second.fails = True
    first.start()
    second.start()
    first.join()
    second.join()
    assert isinstance(second.error, CandidateError)
    assert isinstance(first.error, AbandonedError)


def test_who_is_left_alone_does_not_wait_for_ever(tmp_path: Path) -> None:
    first = Instance(tmp_path / "board", 0)
    first.start()
    while not first.untimed:
        time.sleep(0.001)
    first.is_alone = True
    first.join()
    assert isinstance(first.error, AbandonedError)


# ---- devices


@pytest.fixture
def devices() -> Iterator[tuple[Any, list[str]]]:
    """The synthetic backend with three pretended devices of this test's own."""
    own = uuid.uuid4().hex[:8]
    names = [f"{own}-{letter}" for letter in "abc"]
    inner = SyntheticBackend()
    options = {"devices": ",".join(names)}
    inner.configure(options)
    found = replicated(inner, "all", options)
    yield found, names
    end_replicas(found)


def test_there_is_one_instance_on_each_device(devices: tuple[Any, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    backend, names = devices
    assert [place.name for place in backend._places] == names
    monkeypatch.setenv("TUNER_SYNTHETIC_DEVICE", names[1])
    again = replicated(backend._inner, "2", {})
    assert [place.name for place in again._places] == [names[1], names[0]]  # type: ignore[attr-defined] # this one first
    chosen = replicated(backend._inner, f"{names[2]},{names[1]}", {})
    assert [place.name for place in chosen._places] == [names[1], names[2]]  # type: ignore[attr-defined]


@pytest.mark.parametrize("wanted", ["4", "1", "a"])
def test_devices_that_there_are_not_are_refused(devices: tuple[Any, list[str]], wanted: str) -> None:
    with pytest.raises(InputError):
        _ = replicated(devices[0]._inner, wanted, {})._places  # type: ignore[attr-defined]


def test_devices_without_this_process_are_refused(devices: tuple[Any, list[str]]) -> None:
    backend, names = devices
    with pytest.raises(InputError, match="among them") as caught:
        _ = replicated(backend._inner, f"{names[1]},{names[2]}", {})._places  # type: ignore[attr-defined]
    assert "replicas=all" in caught.value.hint


def test_further_devices_are_locked_while_a_session_is_open(devices: tuple[Any, list[str]], tmp_path: Path) -> None:
    backend, names = devices
    path = tiny_landscape().save(tmp_path / "tiny.json")
    engine = backend.build(path, {"replicas": "2"}, tmp_path)
    with backend.open(engine, {"replicas": "2"}) as session:
        assert session.effective["replica_devices"] == " ".join(names[:2])
        assert _is_taken(names[1])
        assert not _is_taken(names[2])
        session.bind({"x": np.zeros(8, np.float32)})
        assert session.measure(1) > 0
    assert not _is_taken(names[1])


def _is_taken(name: str) -> bool:
    try:
        with device_lock(f"synthetic:{name}", is_stopped=lambda: True):
            return False
    except StoppedError:
        return True
