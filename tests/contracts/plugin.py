"""A backend as somebody else would write it, for the tests of the isolation: it does what its knob `act` says.

Registered by `install` through an entry point in a folder, so that a child process finds it as it finds any backend.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from objectives.backends.base import NO_TERMS, BuildTerms, Session, Values
from objectives.backends.synthetic import SyntheticBackend
from objectives.errors import CandidateError
from objectives.landscape import Landscape, SimulatedKnob, read_landscape
from objectives.model import ModelSpec
from objectives.outcome import EngineFile, FailureKind, Stage
from objectives.requests import StageEvent, encode
from objectives.tensors import Array, Tensors

NAME = "plugin"
_GROUP = "tuner.backends"


def install(folder: Path) -> None:
    """Make `folder` a place from which Python sees the backend as installed."""
    info = folder / "tuner_plugin-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tuner-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{_GROUP}]\n{NAME} = {__name__}:PluginBackend\n")


def landscape(act: str, file: Path) -> Landscape:
    """A model with nothing to tune: every candidate does `act`; `file` is where the act leaves its traces."""
    return Landscape((SimulatedKnob("act", (act,), act), SimulatedKnob("file", (str(file),), str(file))), noise=0.0)


def landscape_values(path: Path) -> dict[str, str]:
    """The one candidate of such a model."""
    return {knob.name: knob.default for knob in read_landscape(path).knobs}


class PluginBackend(SyntheticBackend):
    name = NAME

    def is_sound(self, kind: FailureKind) -> bool:
        """A refusal leaves nothing behind; after a failed run it looks, and its looking may break."""
        if kind is FailureKind.RUN_FAILED:
            raise OSError("the device does not answer")
        return kind is FailureKind.UNSUPPORTED

    def describe(self, path: Path) -> ModelSpec:
        if landscape_values(path)["act"] == "crash when described":
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().describe(path)

    def build(self, path: Path, values: Values, workdir: Path, terms: BuildTerms = NO_TERMS) -> EngineFile:
        found = sorted(entry.name for entry in workdir.iterdir())
        engine = super().build(path, values, workdir)
        if values["act"] == "list the folder":
            with Path(values["file"]).open("a") as stream:
                stream.write(f"{found}\n")
            _die_the_first_time(workdir.parent / "died")
        return engine

    def open(self, engine: EngineFile, values: Values) -> Session:
        return _PluginSession(super().open(engine, values), values)


class _PluginSession(Session):
    clock = "simulated"

    def __init__(self, inner: Session, values: Values) -> None:
        self._inner = inner
        self._act, self._file = values["act"], Path(values["file"])

    @property
    def effective(self) -> Values:
        return dict(os.environ) if self._act == "tell the environment" else self._inner.effective

    def run(self, inputs: Tensors) -> dict[str, Array]:
        ACTS.get(self._act, _nothing)(self._file)
        return self._inner.run(inputs)

    def bind(self, inputs: Tensors) -> None:
        self._inner.bind(inputs)

    def _execute(self, repeats: int) -> None:
        self._inner.measure(repeats)

    def measure(self, repeats: int) -> float:
        if self._act == "crash when timed":
            os.kill(os.getpid(), signal.SIGBUS)
        return self._inner.measure(repeats)


def _nothing(_: Path) -> None:
    return


def _make_noise(_: Path) -> None:
    print('{"version": 1, "body": {"type": "stage", "stage": "time"}}')
    sys.stdout.flush()
    os.write(1, b"no newline \xff\x00" * 1000)
    os.write(2, b"warning: something\n" * 1000)


def _say_last_words(_: Path) -> None:
    os.write(1, b"much noise " * 1000)
    os.write(2, "last words: grün\n".encode())
    os._exit(7)


def _spoil_the_channel(_: Path) -> None:
    os.write(int(sys.argv[2]), b"this is no message\n")
    time.sleep(600)


def _never_fall_silent(_: Path) -> None:
    while True:
        os.write(int(sys.argv[2]), encode(StageEvent(Stage.CHECK)))
        time.sleep(0.01)


def _start_a_grandchild_and_hang(file: Path) -> None:
    """The grandchild keeps all that it can get, and the thread never gives the interpreter back."""
    grandchild = subprocess.Popen(["sleep", "600"], close_fds=False)
    file.write_text(str(grandchild.pid))
    _hold_the_interpreter(file)


def _hold_the_interpreter(_: Path) -> None:
    ctypes.PyDLL(None).sleep(600)  # unlike CDLL, PyDLL does not release the interpreter's lock


def _be_killed_the_first_time(file: Path) -> None:
    _die_the_first_time(file)


def _die_the_first_time(mark: Path) -> None:
    """As the kernel's memory guard does it."""
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def _be_refused(_: Path) -> None:
    raise CandidateError(FailureKind.UNSUPPORTED, "not with this model")


def _fail_to_run(_: Path) -> None:
    raise CandidateError(FailureKind.RUN_FAILED, "a launch failed")


ACTS: Mapping[str, Callable[[Path], None]] = {
    "make noise": _make_noise,
    "say last words": _say_last_words,
    "spoil the channel": _spoil_the_channel,
    "never fall silent": _never_fall_silent,
    "start a grandchild and hang": _start_a_grandchild_and_hang,
    "hold the interpreter": _hold_the_interpreter,
    "be refused": _be_refused,
    "fail to run": _fail_to_run,
    "be killed the first time": _be_killed_the_first_time,
}
