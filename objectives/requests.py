"""Requests and replies: what the parent and the child process say to each other.

Flow: the tuner makes a Request -> isolation.py sends it as one line of JSON -> worker.py answers with events and one
Reply. No pickle: what arrives is decoded against these types, and both sides state the version they speak.
"""

from __future__ import annotations

import msgspec

from objectives.accuracy import DEFAULT_LIMITS, Limit
from objectives.backends.base import Environment, Option
from objectives.checks.result import Status
from objectives.devices import Device
from objectives.knobs import KnobSpace
from objectives.metrics import Tolerance
from objectives.model import ModelSpec
from objectives.outcome import Built, EngineFile, Failed, Outcome, Rejected, Round, Samples, Stage
from objectives.shapes import ShapeRange
from objectives.timing import TimingPlan

VERSION = 5  # 2: self-checks; 3: engines that report their own samples have no pairs; 4: devices; 5: sound processes


class PairFiles(msgspec.Struct, frozen=True):
    """Paths of one pair's tensors (format of `tensors.save_tensors`); the reference may not exist yet."""

    label: str
    inputs: str
    reference: str


class Judging(msgspec.Struct, frozen=True):
    """How outputs are judged: limits, tolerance of `l0`, metric functions as `package.module:function`."""

    limits: tuple[Limit, ...] = DEFAULT_LIMITS
    tolerance: Tolerance = Tolerance()
    functions: tuple[str, ...] = ()


class DescribeRequest(msgspec.Struct, frozen=True, tag="describe"):
    """What is here: the environment and, for a model, its description and knobs."""

    backend: str
    model: str | None = None
    options: dict[str, str] = {}


class ReferenceRequest(msgspec.Struct, frozen=True, tag="reference"):
    """Compute reference outputs for `pairs` into their reference files; try the metric functions on them."""

    backend: str
    model: str
    pairs: tuple[PairFiles, ...]
    required: tuple[bool, ...]
    judging: Judging
    options: dict[str, str] = {}


class EvaluateRequest(msgspec.Struct, frozen=True, tag="evaluate"):
    """Build, check and time one candidate; the first pair is timed. `workdir` is empty, the call's own.

    `until` is the last of these steps: BUILD opens nothing, CHECK times nothing.
    """

    backend: str
    model: str
    values: dict[str, str]
    pairs: tuple[PairFiles, ...]
    judging: Judging
    timing: TimingPlan
    workdir: str
    until: Stage = Stage.TIME
    shapes: dict[str, ShapeRange] = {}
    calibration: tuple[str, ...] = ()  # paths of input tensors
    cache: str = ""  # path of what an earlier build left for others
    incumbent_ms: tuple[float, ...] = ()  # samples of the best candidate so far: hopelessly slower ones stop early
    options: dict[str, str] = {}


class BuildRequest(msgspec.Struct, frozen=True, tag="build"):
    """Build and check a candidate without timing it; the engine stays in `workdir`."""

    backend: str
    model: str
    values: dict[str, str]
    pairs: tuple[PairFiles, ...]
    judging: Judging
    workdir: str
    shapes: dict[str, ShapeRange] = {}
    calibration: tuple[str, ...] = ()  # paths of input tensors
    cache: str = ""  # path of what an earlier build left for others
    options: dict[str, str] = {}


class CheckRequest(msgspec.Struct, frozen=True, tag="check"):
    """Open an engine that is there and compare its outputs with the references; it is closed again."""

    backend: str
    engine: EngineFile
    values: dict[str, str]
    pairs: tuple[PairFiles, ...]
    judging: Judging
    options: dict[str, str] = {}


class OpenRequest(msgspec.Struct, frozen=True, tag="open"):
    """Open an engine, bind the inputs of `pair`, warm up, and keep it open for rounds."""

    backend: str
    engine: EngineFile
    values: dict[str, str]
    pair: PairFiles | None  # None: the engine brings its own inputs
    timing: TimingPlan
    options: dict[str, str] = {}


class RoundRequest(msgspec.Struct, frozen=True, tag="round"):
    """One round of the open engine."""


class TimeRequest(msgspec.Struct, frozen=True, tag="time"):
    """Time an engine as an evaluation would, and close it again."""

    backend: str
    engine: EngineFile
    values: dict[str, str]
    pair: PairFiles | None  # None: the engine brings its own inputs
    timing: TimingPlan
    options: dict[str, str] = {}


class SelfCheckRequest(msgspec.Struct, frozen=True, tag="self_check"):
    """Take one step of a self-check (`step` names it in checks/steps.py). `workdir` is empty, the call's own."""

    backend: str
    step: str
    workdir: str
    values: dict[str, str] = {}
    options: dict[str, str] = {}


Request = (
    DescribeRequest
    | ReferenceRequest
    | EvaluateRequest
    | BuildRequest
    | CheckRequest
    | OpenRequest
    | RoundRequest
    | TimeRequest
    | SelfCheckRequest
)


class Described(msgspec.Struct, frozen=True, tag="described"):
    """`cannot_run`: why engines can be built here but not run; empty where they can. `options`: what may be set.

    `cannot_check`: why the backend has no self-check, empty where it has one.
    """

    environment: Environment
    model: ModelSpec | None = None
    knobs: KnobSpace | None = None
    cannot_run: str = ""
    options: tuple[Option, ...] = ()
    cannot_check: str = ""
    devices: tuple[Device, ...] = ()


class Referenced(msgspec.Struct, frozen=True, tag="referenced"):
    """`dropped`: label and reason of each pair that was not required and that the model refused."""

    dropped: tuple[tuple[str, str], ...] = ()


class Evaluated(msgspec.Struct, frozen=True, tag="evaluated"):
    """`is_sound`: after a failure, whether the process is as good as before."""

    outcome: Outcome
    is_sound: bool = False


class Checked(msgspec.Struct, frozen=True, tag="checked"):
    """`is_sound` as in Evaluated."""

    outcome: Built | Rejected | Failed
    is_sound: bool = False


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    warmup_ms: tuple[float, ...]
    warmup_reason: str


class Rounded(msgspec.Struct, frozen=True, tag="rounded"):
    round: Round


class Timed(msgspec.Struct, frozen=True, tag="timed"):
    samples: Samples


class SelfChecked(msgspec.Struct, frozen=True, tag="self_checked"):
    """What a step found, in a line; `facts` and `knobs` where the parent needs more than words."""

    status: Status
    detail: str
    facts: dict[str, str] = {}
    knobs: KnobSpace | None = None


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """An error that is the user's to mend (`error` names its class in errors.py) or the harness's."""

    error: str
    message: str
    hint: str


class StageEvent(msgspec.Struct, frozen=True, tag="stage"):
    """The evaluation has entered a stage, or come further in it; sent before the reply."""

    stage: Stage
    detail: str = ""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The child has started and reads requests; sent once, before anything else."""


Reply = Described | Referenced | Evaluated | Checked | Opened | Rounded | Timed | SelfChecked | Refused
Message = Reply | StageEvent | Ready


class _Envelope(msgspec.Struct, frozen=True):
    version: int
    body: msgspec.Raw


_REQUEST = msgspec.json.Decoder(Request)
_MESSAGE = msgspec.json.Decoder(Message)
_ENVELOPE = msgspec.json.Decoder(_Envelope)


def encode(message: Request | Message) -> bytes:
    """One line, newline included."""
    return msgspec.json.encode(_Envelope(VERSION, msgspec.Raw(msgspec.json.encode(message)))) + b"\n"


def decode_request(line: bytes) -> Request:
    """Raises: msgspec.MsgspecError for anything that is not a request of this version."""
    return _REQUEST.decode(_body(line))


def decode_message(line: bytes) -> Message:
    """Raises: msgspec.MsgspecError for anything that is not a message of this version."""
    return _MESSAGE.decode(_body(line))


def _body(line: bytes) -> msgspec.Raw:
    envelope = _ENVELOPE.decode(line)
    if envelope.version != VERSION:
        raise msgspec.ValidationError(f"message of version {envelope.version}, this side speaks {VERSION}")
    return envelope.body
