"""The seam to a runtime: a Backend makes engines, a Session runs one.

Flow: evaluate.py -> build -> Engine -> open -> Session -> outputs and timings, or Reporter -> losses and samples.
Everything here runs inside the child process. `tests/contracts/backend_contract.py` (of a Reporter:
`reporter_contract.py`) is the executable form of what these docstrings promise; a third-party backend registers under
the entry-point group `tuner.backends` and passes the same suite.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import msgspec

from objectives.conditions import HostWatch, Watch
from objectives.devices import Device
from objectives.digest import digest_of
from objectives.errors import HarnessError, InputError
from objectives.knobs import KnobSpace
from objectives.model import ModelSpec
from objectives.outcome import EngineFile, FailureKind
from objectives.shapes import NO_SHAPES, Shapes
from objectives.tensors import Array, Tensors
from objectives.tiny import TinyModels, write_onnx

Values = Mapping[str, str]  # knob name -> value; a knob that is not named has its default


class Environment(msgspec.Struct, frozen=True):
    """Fingerprint of a machine and its software: `identity` makes it another one, `details` is only recorded."""

    backend: str
    backend_version: str
    device: str  # what a device lock guards: "cpu", "cuda:<uuid>"; empty: nothing is shared
    identity: Mapping[str, str]
    details: Mapping[str, str]

    @property
    def digest(self) -> str:
        # Which of several devices of one model it is makes no other environment; the kind of device does.
        kind = self.device.partition(":")[0]
        return digest_of([self.backend, self.backend_version, kind, dict(self.identity)])


class Option(msgspec.Struct, frozen=True):
    """What a user may set for a whole study beside the knobs. A name such as `ladder:KNOB` takes any KNOB."""

    name: str
    metavar: str
    help: str

    def covers(self, name: str) -> bool:
        """Whether a user's `name` is this option."""
        family, colon, _ = self.name.partition(":")
        return name.startswith(family + colon) and len(name) > len(family + colon) if colon else name == family


REPLICAS = Option(
    "replicas",
    "N or all or DEVICE,...",
    "Offer a knob for how many processes run the engine at once, one a device where there are several.",
)  # of the backends that list it; replicas/backend.py does it for all of them


@dataclass(frozen=True, slots=True)
class BuildTerms:
    """What a build is given beside model and values; the same for every candidate of a study, but for `on_step`."""

    shapes: Shapes = field(default_factory=lambda: NO_SHAPES)  # that the engine has to work with, by dynamic input
    calibration: tuple[Path, ...] = ()  # files of typical inputs (`tensors.load_tensors`), for ranges of numbers
    cache: Path | None = None  # what an earlier build left for others (`EngineFile.cache`); is only read
    on_step: Callable[[str], None] = lambda words: None  # told how far the build is: "phase, 3 of 10"


NO_TERMS = BuildTerms()


class OpenEngine(ABC):
    """An open engine: a Session, which we check and time, or a Reporter, which does that itself.

    Used by one thread; a context manager; not usable after `close`. Any method may raise CandidateError (the
    candidate's fault) or kill the process; both are outcomes.
    """

    clock: ClassVar[str] = "host"
    least_sample_ms: ClassVar[float] = 0.0  # of one `measure`, as it counts, where less would say little

    @property
    @abstractmethod
    def effective(self) -> Values:
        """What really took effect, read back from the runtime: at least every knob asked for that can be read back."""

    def watch(self) -> Watch:
        """Start to watch the machine's conditions; asked to stop after a timing. A GPU session adds its device's."""
        return HostWatch()

    def close(self) -> None:
        """Release everything. Called once; the default has nothing to release."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Session(OpenEngine):
    """An open engine that turns inputs into outputs."""

    @abstractmethod
    def run(self, inputs: Tensors) -> dict[str, Array]:
        """One inference. `inputs` names every input of the model; the result names every output.

        Ownership: inputs are only read; outputs are fresh arrays that later calls do not change.
        """

    @abstractmethod
    def bind(self, inputs: Tensors) -> None:
        """Make `inputs` the resident inputs of `measure`, so that a timing holds no transfer or conversion."""

    @abstractmethod
    def _execute(self, repeats: int) -> None:
        """Run `repeats` inferences back to back on the bound inputs and wait until the last has ended."""

    def measure(self, repeats: int) -> float:
        """Seconds that `repeats` back-to-back inferences on the bound inputs take, by the best clock there is."""
        start_ns = time.perf_counter_ns()
        self._execute(repeats)
        return (time.perf_counter_ns() - start_ns) * 1e-9


class Report(msgspec.Struct, frozen=True):
    """One round as an engine that measures itself tells it: milliseconds per inference, at least one.

    `losses`: by the engine's own metric names, None where one is not finite; empty where it judges nothing.
    """

    samples_ms: tuple[float, ...]
    losses: Mapping[str, float | None] = {}


class Reporter(OpenEngine):
    """An open engine that brings its own inputs and reports samples and losses: there are no tensors to look at."""

    clock = "program"

    @property
    @abstractmethod
    def stays_open(self) -> bool:
        """Whether a further report costs no start: nothing is loaded or compiled again for it."""

    @abstractmethod
    def report(self) -> Report:
        """One more round, with fresh samples. The first report of every start holds all losses there are."""


def tensor_session(opened: OpenEngine) -> Session:
    """`opened` as what turns inputs into outputs. Raises: HarnessError if a backend opened anything else."""
    if not isinstance(opened, Session):
        raise HarnessError(f"a backend opened a {type(opened).__name__}, neither a Session nor a Reporter")
    return opened


class Backend(ABC):
    """One runtime library. Stateless but for its options and caches; made without arguments by the registry."""

    name: ClassVar[str]
    options: ClassVar[tuple[Option, ...]] = ()
    shares_device: ClassVar[bool] = False  # many processes use its device at once, as they use the processor's cores

    def configure(self, options: Mapping[str, str]) -> None:
        """Take the user's options; called at most once, before anything else.

        Raises: InputError for an option that there is not, or a value that it cannot have.
        """
        for name in options:
            if not any(option.covers(name) for option in self.options):
                offered = ", ".join(option.name for option in self.options)
                raise InputError(
                    f"backend {self.name!r} has no option {name!r}",
                    hint=f"it has: {offered}" if offered else "it has no options at all",
                )

    @abstractmethod
    def environment(self) -> Environment:
        """This machine and this library. Raises: BackendUnavailableError."""

    def devices(self) -> tuple[Device, ...]:
        """The devices of this machine that a process could be given alone, this one's among them, by name.

        Asked where `environment` has answered; the default knows the one that this process uses, if it is locked.
        """
        here = self.environment()
        return (Device(here.device, here.device, self.name),) if here.device else ()

    def cannot_run(self) -> str:
        """Why engines can be built here but not run, in a sentence; empty where they can be run."""
        return ""

    def environment_for(self, path: Path) -> Environment:
        """This machine as far as the model in `path` is concerned. Raises: BackendUnavailableError, ModelError."""
        return self.environment()

    def cannot_check(self) -> str:
        """Why there is no self-check of this backend, in a sentence; empty where there is one."""
        return ""

    @abstractmethod
    def describe(self, path: Path) -> ModelSpec:
        """The model in the file `path`. Raises: ModelError."""

    @abstractmethod
    def knobs(self, path: Path, model: ModelSpec) -> KnobSpace:
        """Every knob that the installed version offers for the model in `path`, found from the installation itself."""

    @abstractmethod
    def reference(self, path: Path, inputs: Tensors) -> dict[str, Array]:
        """Outputs of the untouched model at full precision, without optimization, on the CPU.

        Raises: ModelError or WorkloadError in the library's own words if the model does not run on `inputs`.
        """

    @abstractmethod
    def build(self, path: Path, values: Values, workdir: Path, terms: BuildTerms = NO_TERMS) -> EngineFile:
        """Build the model with `values` into a file inside `workdir` (empty, owned by this call).

        Raises: CandidateError; an unexpected exception is a failed build too.
        """

    def is_sound(self, kind: FailureKind) -> bool:
        """After a candidate failed in this way: whether this process can go on as if nothing had happened.

        The default is no: what failed may have left anything behind, and a new process is the safe answer. A backend
        whose library refuses in an orderly way, and that can see that it is well, saves its start.
        """
        return False

    def tiny_models(self, folder: Path) -> TinyModels:
        """Models to check this backend with, written into `folder`; the default writes ONNX files."""
        return write_onnx(folder)

    def build_raw_route(self, path: Path, route: str, workdir: Path, terms: BuildTerms = NO_TERMS) -> EngineFile | None:
        """As `build`, with every knob at its default and `route` given to the library as it is, unknown names and all.

        None: this backend knows no such text. Only a self-check asks for this. Raises: CandidateError.
        """
        return None

    @abstractmethod
    def open(self, engine: EngineFile, values: Values) -> OpenEngine:
        """Load a built engine and apply the values that act at run time.

        Raises: CandidateError, with kind `fallback` when the library did something else than asked.
        """
