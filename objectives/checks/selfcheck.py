"""Self-check: does a backend keep its promises on this machine, with this version of its library?

Flow: `env --check NAME` -> tuner/api -> HERE -> each check in a child process with a deadline -> Report. A check that
crashes or hangs has failed, and the others go on. The promises are those of backends/base.py.
"""

from __future__ import annotations

import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from objectives.checks import troubles
from objectives.checks.asking import Asker, CheckPlan
from objectives.checks.endings import kill_a_build, miss_a_deadline
from objectives.checks.options import every, one_each, take_a_route, try_all
from objectives.checks.result import Report, Result, Status
from objectives.device import device_lock
from objectives.errors import InputError, ModelError, ObjectiveError
from objectives.knobs import KnobKind, KnobSpace
from objectives.requests import Described, DescribeRequest, SelfChecked

_STARTS = 4  # deadlines that are meant to be missed leave time for this many starts of a process
_PACKAGES = ("tensorrt-tuner", "numpy", "onnx", "onnxruntime")


class Listener:
    """What a self-check tells while it runs; the default says nothing."""

    def on_start(self, name: str, index: int, total: int) -> None:
        """A check begins; `index` counts from 1."""

    def on_note(self, words: str) -> None:
        """Where the check is, when it does many things."""

    def on_result(self, result: Result, index: int, total: int) -> None:
        """A check has ended."""

    def on_wait(self, device: str) -> None:
        """Another process measures on the device."""


class _Check(NamedTuple):
    """`needs_run`: it makes sense only where engines can be run."""

    name: str
    take: Callable[[], SelfChecked]
    needs_run: bool = False


def self_check(
    backend: str,
    options: Mapping[str, str] | None = None,
    plan: CheckPlan | None = None,
    listener: Listener | None = None,
) -> Report:
    """Check a backend, with the user's options for it.

    Raises: BackendUnavailableError if it does not exist or cannot be used here at all, InputError for a bad option or a
    backend without a self-check.
    """
    with tempfile.TemporaryDirectory(prefix="tuner-check-") as folder:
        asker = Asker(backend, options or {}, plan or CheckPlan(), Path(folder))
        check = _SelfCheck(asker, listener or Listener())
        if reason := check.cannot_check:
            raise InputError(f"backend {backend!r} has no self-check", hint=reason)
        return check.run()


class _SelfCheck:
    def __init__(self, asker: Asker, listener: Listener) -> None:
        self._asker = asker
        self._listener = listener
        self._space: KnobSpace | None = None
        self._start_s = 0.0
        self._here = self._describe()

    @property
    def _cannot_run(self) -> str:
        return self._here.cannot_run if isinstance(self._here, Described) else ""

    @property
    def cannot_check(self) -> str:
        return self._here.cannot_check if isinstance(self._here, Described) else ""

    def run(self) -> Report:
        here = self._here.environment if isinstance(self._here, Described) else None
        checks = tuple(self._checks())
        with device_lock(here.device if here else "", self._listener.on_wait):
            results = tuple(self._take(check, index, len(checks)) for index, check in enumerate(checks, start=1))
        return Report(self._asker.backend, here, self._cannot_run, _software(), results, self._asker.options)

    def _take(self, check: _Check, index: int, total: int) -> Result:
        self._listener.on_start(check.name, index, total)
        start = time.monotonic()
        if check.needs_run and self._cannot_run:
            found = SelfChecked(Status.UNSUPPORTED, self._cannot_run)
        else:
            found = check.take()
        result = Result(check.name, found.status, " ".join(found.detail.split()), time.monotonic() - start)
        self._listener.on_result(result, index, total)
        return result

    def _checks(self) -> Iterator[_Check]:
        """In the order in which they tell most: what fails early explains what fails late."""
        ask, note = self._asker.ask, self._listener.on_note
        yield _Check("environment", self._environment)
        yield _Check("model", partial(ask, "model"))
        yield _Check("knobs", self._knobs)
        yield _Check("unknown values", partial(ask, "unknown values"))
        yield _Check("build", partial(ask, "build"))
        yield _Check("ranged build", partial(ask, "ranged build"))
        for step in ("outputs", "ranged outputs", "fresh outputs", "read-only inputs", "two sessions", "timing"):
            yield _Check(step, partial(ask, step), needs_run=True)
        yield _Check("graph capture", partial(self._group, KnobKind.RUNTIME, "graph"), needs_run=True)
        yield _Check("build route", partial(self._of_routes, lambda space: take_a_route(self._asker, space, note)))
        yield _Check("bad route", partial(self._of_routes, lambda _: ask("bad route")))
        yield _Check("build cache", partial(ask, "build cache"))
        yield _Check("builder options", partial(self._group, KnobKind.BUILDER))
        yield _Check("precision", partial(self._group, KnobKind.PRECISION, ""))
        yield _Check("runtime options", partial(self._group, KnobKind.RUNTIME), needs_run=True)
        yield _Check("deadline", self._deadline)
        yield _Check("cancelling", partial(kill_a_build, self._asker))

    def _describe(self) -> Described | str:
        """What is here, or why that cannot be read. Raises: BackendUnavailableError, InputError for a bad option."""
        start = time.monotonic()
        try:
            with self._asker.isolation() as isolation:
                return isolation.describe(DescribeRequest(self._asker.backend, options=self._asker.options))
        except ModelError as error:  # no model was asked for: the library has crashed or hung
            return str(error)
        except InputError:
            raise
        except ObjectiveError as error:
            return str(error)
        finally:
            self._start_s = time.monotonic() - start  # the last time counts: before that, files were not yet in memory

    def _environment(self) -> SelfChecked:
        try:
            again = self._describe()
        except InputError as error:  # it was usable a moment ago
            again = str(error)
        if not isinstance(self._here, Described) or not isinstance(again, Described):
            return SelfChecked(Status.FAIL, next(one for one in (self._here, again) if isinstance(one, str)))
        trouble = troubles.of_environment(self._here.environment, again.environment, self._asker.backend)
        digest = again.environment.digest[:12]
        return SelfChecked(Status.FAIL if trouble else Status.PASS, trouble or f"the same in two processes: {digest}")

    def _knobs(self) -> SelfChecked:
        found = self._asker.ask("knobs")
        self._space = found.knobs
        return found

    def _group(self, kind: KnobKind, word: str | None = None) -> SelfChecked:
        """One value of each knob of a kind; with `word`, every value of those that have it in their name."""
        if self._space is None:
            return _no_knobs()
        changes = one_each(self._space, kind) if word is None else every(self._space, kind, word)
        if not changes:
            return SelfChecked(Status.UNSUPPORTED, f"no {kind} knob{f' about {word}s' if word else ''} is listed")
        return try_all(self._asker, changes, self._listener.on_note)

    def _of_routes(self, take: Callable[[KnobSpace], SelfChecked]) -> SelfChecked:
        if self._space is None:
            return _no_knobs()
        if not one_each(self._space, KnobKind.ROUTE):
            return SelfChecked(Status.UNSUPPORTED, "no build routes are listed")
        return take(self._space)

    def _deadline(self) -> SelfChecked:
        deadline_s = min(max(self._asker.plan.short_s, _STARTS * self._start_s), self._asker.plan.step_s)
        if self._cannot_run:
            return miss_a_deadline(self._asker, "build for ever", "build", deadline_s)
        return miss_a_deadline(self._asker, "time for ever", "outputs", deadline_s)


def _no_knobs() -> SelfChecked:
    return SelfChecked(Status.UNSUPPORTED, "the knobs could not be listed, see there")


def _software() -> dict[str, str]:
    found = {"python": platform.python_version(), "system": platform.platform()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # run from a source tree, or a runtime that is not needed
            continue
    return found
