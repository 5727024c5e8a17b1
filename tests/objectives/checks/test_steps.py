"""Steps that need what no library here has: build routes, over the FAKE library and the fake trtexec."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from objectives.backends import cuda_runtime
from objectives.backends.base import Backend
from objectives.backends.trt_build import BuildSettings
from objectives.backends.trtexec import TrtexecBackend
from objectives.checks.result import Status
from objectives.checks.steps import BAD_ROUTE, take
from objectives.errors import HarnessError
from objectives.outcome import Failed, FailureKind
from objectives.requests import SelfChecked, SelfCheckRequest
from objectives.tiny import TinyModel, TinyModels
from tests.objectives.backends import fake_trtexec
from tests.objectives.backends.fake_tensorrt import FakeTensorRT
from tests.objectives.backends.trt_fakes import ROUTES, backend, identity

Step = Callable[..., SelfChecked | Failed]


@pytest.fixture
def step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Step:
    monkeypatch.setattr(cuda_runtime, "runtime", None)

    def run(one: Backend, name: str, **values: str) -> SelfChecked | Failed:
        return take(one, SelfCheckRequest(one.name, name, str(tmp_path), values), lambda stage, detail: None)

    return run


def library(conduct: str = "take", settings: BuildSettings | None = None) -> Backend:
    """A backend with build routes, whose engines only copy."""
    fake = FakeTensorRT(routes=ROUTES)
    fake.conduct = conduct
    one = backend(fake, settings)
    one.tiny_models = lambda folder: TinyModels(TinyModel(identity(folder)))  # type: ignore[method-assign]
    return one


def test_a_route_is_taken(step: Step) -> None:
    assert step(library(), "values", **{"route:peep:max": "4"}) == SelfChecked(Status.PASS, "builds")


@pytest.mark.parametrize(
    ("conduct", "words"), [("refuse in the build", "not a valid knob"), ("complain", "not supported")]
)
def test_a_route_that_the_library_refuses_says_why_not(step: Step, conduct: str, words: str) -> None:
    found = step(library(conduct), "values", **{"route:peep:max": "4"})
    assert isinstance(found, SelfChecked)
    assert found.status is Status.UNSUPPORTED
    assert words in found.detail


def test_a_bad_route_is_refused_in_the_librarys_words(step: Step) -> None:
    found = step(library("refuse in the build"), "bad route")
    assert isinstance(found, SelfChecked)
    assert found.status is Status.PASS
    assert "not a valid knob" in found.detail


def test_a_bad_route_that_is_taken_is_a_failure(step: Step) -> None:
    found = step(library(), "bad route")
    assert isinstance(found, SelfChecked)
    assert found.status is Status.FAIL
    assert BAD_ROUTE in found.detail


def test_the_command_gets_a_bad_route_as_it_is(step: Step, tmp_path: Path) -> None:
    log = tmp_path.with_name(tmp_path.name + "-calls")
    program = fake_trtexec.install(tmp_path.with_name(tmp_path.name + "-bin"), log=str(log))
    found = step(TrtexecBackend(program), "bad route")
    assert isinstance(found, SelfChecked)
    assert found.status is Status.PASS
    assert "not a valid knob" in found.detail
    assert f"--setBuildRoute={BAD_ROUTE}" in fake_trtexec.calls(log)[-1]


def test_a_bad_route_says_nothing_where_the_model_does_not_build(step: Step) -> None:
    found = step(backend(FakeTensorRT(routes=ROUTES)), "bad route")  # which has no convolutions
    assert isinstance(found, Failed)
    assert "cannot be parsed" in found.detail


def test_a_timing_cache_goes_to_the_next_build(step: Step) -> None:
    found = step(library(settings=BuildSettings(keeps_timings=True)), "build cache")
    assert isinstance(found, SelfChecked)
    assert found.status is Status.PASS
    assert "read by the next build" in found.detail


def test_without_a_timing_cache_there_is_nothing_to_check(step: Step) -> None:
    found = step(library(), "build cache")
    assert isinstance(found, SelfChecked)
    assert found.status is Status.UNSUPPORTED


def test_what_a_backend_raises_is_a_failure_with_its_words(step: Step) -> None:
    class Broken(type(library())):  # type: ignore[misc]
        def describe(self, path: Path) -> None:
            raise ZeroDivisionError("no model has 0 inputs")

    found = step(Broken(), "model")
    assert isinstance(found, Failed)
    assert (found.kind, found.detail) == (FailureKind.BUILD_FAILED, "ZeroDivisionError: no model has 0 inputs")


def test_what_the_harness_raises_passes_through(step: Step) -> None:
    class Broken(type(library())):  # type: ignore[misc]
        def describe(self, path: Path) -> None:
            raise HarnessError("the session is closed")

    with pytest.raises(HarnessError):
        step(Broken(), "model")
