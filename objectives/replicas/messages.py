"""Messages: what a replicated session and the processes of its replicas say to each other, one line of JSON each.

Flow: session.py asks -> replica.py answers. Arrays go by file.
"""

from __future__ import annotations

import msgspec

from objectives.outcome import EngineFile


class Open(msgspec.Struct, frozen=True, tag="open"):
    """Open an engine; what was open before is closed."""

    backend: str
    options: dict[str, str]
    engine: EngineFile
    values: dict[str, str]


class Run(msgspec.Struct, frozen=True, tag="run"):
    """One inference on the arrays of a file; outputs go to another."""

    inputs: str
    outputs: str


class Bind(msgspec.Struct, frozen=True, tag="bind"):
    """Make the arrays of a file the resident inputs, and take a cell of the board of `count` instances."""

    inputs: str
    board: str
    count: int
    own: int


class Measure(msgspec.Struct, frozen=True, tag="measure"):
    """Time `repeats` inferences beside the other instances; `turn` counts the timings of a session."""

    repeats: int
    turn: int


class Spent(msgspec.Struct, frozen=True, tag="spent"):
    """How much processor time the process has taken."""


class Close(msgspec.Struct, frozen=True, tag="close"):
    """Close the open engine; the process waits for another."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """`seconds`: measured, or spent. `is_abandoned`: nothing was measured, because another instance has failed."""

    seconds: float = 0.0
    is_abandoned: bool = False


class Trouble(msgspec.Struct, frozen=True, tag="trouble"):
    """The candidate's fault: `kind` of outcome.FailureKind, and the library's words."""

    kind: str
    words: str


Order = Open | Run | Bind | Measure | Spent | Close
Answer = Done | Trouble
_ORDER, _ANSWER = msgspec.json.Decoder(Order), msgspec.json.Decoder(Answer)


def encode(message: Order | Answer) -> bytes:
    """One line, newline included."""
    return msgspec.json.encode(message) + b"\n"


def decode_order(line: bytes) -> Order:
    return _ORDER.decode(line)


def decode_answer(line: bytes) -> Answer:
    return _ANSWER.decode(line)
