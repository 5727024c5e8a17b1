"""Child: what it inherits, how its end is told, and that nothing of it stays behind."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from objectives.child import Child, Death, allowed_environment
from objectives.errors import HarnessError
from objectives.outcome import Stage
from objectives.requests import Described, DescribeRequest, EvaluateRequest, Judging
from objectives.timing import TimingPlan
from tests.processes import wait_for_end

DESCRIBE = DescribeRequest("synthetic")


def ignore(_: Stage) -> None:
    return


@pytest.fixture
def child() -> Iterator[Child]:
    started = Child(120.0, None)
    yield started
    started.kill()


def program(folder: Path, text: str) -> str:
    """A program that takes the place of Python."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


class TestEnvironment:
    @pytest.mark.parametrize(
        "name",
        [
            *("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "PYTHONPATH"),
            *("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "NVIDIA_TF32_OVERRIDE", "ORT_LOG", "TRT_LOG", "NCCL_DEBUG"),
        ],
    )
    def test_what_runtimes_are_steered_by_passes(self, name: str) -> None:
        assert allowed_environment({name: "value"}) == {name: "value"}

    @pytest.mark.parametrize(
        "name",
        [
            *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GITHUB_TOKEN", "HF_TOKEN", "PGPASSWORD", "TUNER_STORAGE"),
            *("SSH_AUTH_SOCK", "OPENAI_API_KEY", "DATABASE_URL", "path", "XPATH", "MY_PATH", "PATH2", ""),
        ],
    )
    def test_everything_else_stays_out(self, name: str) -> None:
        assert allowed_environment({name: "value"}) == {}

    def test_the_environment_given_is_not_changed(self) -> None:
        given = {"PATH": "/bin", "SECRET": "x"}
        allowed_environment(given)["MORE"] = "y"
        assert given == {"PATH": "/bin", "SECRET": "x"}


@pytest.mark.parametrize(
    ("death", "words"),
    [
        (Death("deadline", Stage.CHECK, {}, 9, None, ""), "did not finish before its deadline and was killed"),
        (Death("memory", Stage.CHECK, {}, 9, None, ""), "went over its memory limit and was killed"),
        (Death("signal", Stage.CHECK, {}, 11, None, ""), "was killed by SIGSEGV"),
        (Death("signal", Stage.CHECK, {}, 63, None, ""), "was killed by signal 63"),
        (Death("exit", Stage.CHECK, {}, None, 3, ""), "ended with exit code 3"),
    ],
)
def test_an_end_in_words(death: Death, words: str) -> None:
    assert death.describe() == words


def test_it_leads_a_group_of_its_own(child: Child) -> None:
    assert child.is_alive()
    assert os.getpgid(child.pid) == child.pid != os.getpgid(0)
    assert os.getsid(child.pid) != os.getsid(0)


def test_it_answers_again_and_again(child: Child) -> None:
    for _ in range(3):
        assert isinstance(child.exchange(DESCRIBE, ignore), Described)
    assert child.is_alive()


def test_a_request_to_a_dead_child_is_told_as_its_death(child: Child) -> None:
    assert isinstance(child.exchange(DESCRIBE, ignore), Described)
    os.kill(child.pid, signal.SIGTERM)
    wait_for_end(child.pid)
    death = child.exchange(DESCRIBE, ignore)
    assert isinstance(death, Death)
    assert (death.reason, death.signal, death.code, death.stage) == ("signal", signal.SIGTERM, None, Stage.BUILD)
    assert not child.is_alive()


def test_the_end_of_the_log_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    noise = "i=0; while [ $i -lt 500 ]; do echo line $i; i=$((i+1)); done; printf 'grün \\377' >&2; exit 5"
    monkeypatch.setattr(sys, "executable", program(tmp_path, noise))
    child = Child(60.0, None)
    try:
        death = child.exchange(DESCRIBE, ignore)
    except HarnessError as error:
        words = str(error)
    else:
        assert isinstance(death, Death)
        assert death.code == 5
        words = death.log
    finally:
        child.kill()
    assert "line 499 grün" in words
    assert "line 0 " not in words
    assert len(words) < 1000


@pytest.mark.timeout(10)
def test_a_request_that_nobody_reads_is_bounded_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # The samples of an incumbent alone can be more than a pipe holds (64 KiB).
    monkeypatch.setattr(sys, "executable", program(tmp_path, "exec sleep 600"))
    request = EvaluateRequest("b", "/m", {}, (), Judging(), TimingPlan(), "/w", tuple(0.1 + i for i in range(20_000)))
    child = Child(0.5, None)
    try:
        death = child.exchange(request, ignore)
        assert isinstance(death, Death)
        assert death.reason == "deadline"
    except HarnessError:
        pass
    finally:
        child.kill()


class TestKill:
    def test_it_leaves_nothing(self) -> None:
        before = psutil.Process().num_fds()
        child = Child(60.0, None)
        child.kill()
        wait_for_end(child.pid)
        assert not child.is_alive()
        assert psutil.Process().num_fds() == before

    def test_twice_does_not_close_what_is_somebody_elses_by_now(self) -> None:
        child = Child(60.0, None)
        child.kill()
        ours = [os.dup(0) for _ in range(12)]  # these take the numbers that have just become free
        child.kill()
        for descriptor in ours:
            os.close(descriptor)  # raises if the child has closed it

    def test_a_child_that_cannot_be_started_leaves_nothing_either(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
        gc.collect()
        before = psutil.Process().num_fds()
        with pytest.raises(HarnessError, match="cannot start"):
            Child(60.0, None)
        gc.collect()
        assert psutil.Process().num_fds() == before
