"""Requests and replies: every message survives as one line; what is of another version or form is refused."""

from __future__ import annotations

import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectives.accuracy import Limit
from objectives.backends.base import Environment
from objectives.knobs import Knob, KnobKind, KnobSpace
from objectives.metrics import Tolerance
from objectives.model import ModelSpec, TensorSpec
from objectives.outcome import Accuracy, Built, EngineFile, Failed, FailureKind, Rejected, Round, Samples, Stage, Trace
from objectives.requests import (
    VERSION,
    BuildRequest,
    Checked,
    CheckRequest,
    Described,
    DescribeRequest,
    Evaluated,
    EvaluateRequest,
    Judging,
    Message,
    Opened,
    OpenRequest,
    PairFiles,
    Ready,
    Referenced,
    ReferenceRequest,
    Refused,
    Request,
    Rounded,
    RoundRequest,
    StageEvent,
    Timed,
    TimeRequest,
    decode_message,
    decode_request,
    encode,
)
from objectives.timing import TimingPlan
from tests.objectives.test_outcome import OUTCOMES

PAIR = PairFiles("größe\n", "/in put", "/ref\u2028erence")
JUDGING = Judging((Limit("l1", 1e-3, "y"), Limit("m:f", 0.0)), Tolerance(0.0, 1e-9), ("m:f",))
ENGINE = EngineFile("/e", "digest", 7, "onnx", {"weights ü.bin": "d"})
SAMPLES = Samples((Round(2, (0.1, 0.2)),), (1.0,), "steady", "host")
MODEL = ModelSpec(
    "d", "m", "onnx", (TensorSpec("x", "float32", ("n", 3)), TensorSpec("u", "int4", None)), (), ("m",), 1
)
SPACE = KnobSpace((Knob("a b", ("1", "größe"), "1", KnobKind.ROUTE, "help"),))
FAILED = Failed(Trace(), Stage.TIME, FailureKind.TIMED_OUT, "late", 9)

REQUESTS: tuple[Request, ...] = (
    DescribeRequest("onnxruntime"),
    DescribeRequest("b", "/modèle.onnx"),
    ReferenceRequest("b", "/m", (PAIR, PAIR), (True, False), JUDGING),
    EvaluateRequest("b", "/m", {"a b": "1"}, (PAIR,), JUDGING, TimingPlan(min_rounds=9), "/w", incumbent_ms=(1.5, 2.5)),
    BuildRequest("b", "/m", {}, (), Judging(), "/w"),
    CheckRequest("b", EngineFile("/e", "0" * 64, 1, "f"), {}, (), Judging()),
    OpenRequest("b", ENGINE, {"a": "1"}, PAIR, TimingPlan()),
    TimeRequest("b", ENGINE, {"a": "1"}, PAIR, TimingPlan()),
    RoundRequest(),
)
MESSAGES: tuple[Message, ...] = (
    Described(Environment("b", "1", "cpu", {"k": "v"}, {})),
    Described(Environment("b", "1", "", {}, {"d": "ü"}), MODEL, SPACE),
    Referenced((("zeros", "why not"),)),
    *(Evaluated(outcome) for outcome in OUTCOMES),
    Checked(Built(Trace(), Accuracy(), ENGINE)),
    Checked(Rejected(Trace(), Accuracy(), "wrong")),
    Checked(FAILED),
    Opened((1.0, 2.0), "cap"),
    Rounded(Round(5, (0.5,))),
    Timed(SAMPLES),
    Refused("MetricError", "what", "hint"),
    *(StageEvent(stage) for stage in Stage),
    Ready(),
)


def test_the_examples_leave_no_type_out() -> None:
    assert {type(one) for one in REQUESTS} == set(get_args(Request))
    assert {type(one) for one in MESSAGES} == set(get_args(Message))


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: type(one).__name__)
def test_every_request_is_one_line_and_survives(request_: Request) -> None:
    line = encode(request_)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode_request(line) == request_


@pytest.mark.parametrize("message", MESSAGES, ids=lambda one: type(one).__name__)
def test_every_message_is_one_line_and_survives(message: Message) -> None:
    line = encode(message)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    again = decode_message(line)
    assert again == message
    assert type(again) is type(message)


@settings(deadline=None)
@given(st.text(), st.dictionaries(st.text(), st.text()), st.lists(st.floats(allow_nan=False, allow_infinity=False)))
def test_any_text_and_number_survives(text: str, values: dict[str, str], numbers: list[float]) -> None:
    request = EvaluateRequest(text, text, values, (), Judging(), TimingPlan(), text, incumbent_ms=tuple(numbers))
    line = encode(request)
    assert line.count(b"\n") == 1
    assert decode_request(line) == request


def altered(line: bytes, **changes: Any) -> bytes:
    return json.dumps({**json.loads(line), **changes}).encode()


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1, "1", None])
def test_another_version_is_refused(version: object) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_request(altered(encode(REQUESTS[0]), version=version))
    with pytest.raises(msgspec.MsgspecError):
        decode_message(altered(encode(MESSAGES[0]), version=version))


def test_the_refusal_names_both_versions() -> None:
    with pytest.raises(msgspec.MsgspecError, match=f"version {VERSION + 1}, this side speaks {VERSION}"):
        decode_request(altered(encode(REQUESTS[0]), version=VERSION + 1))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"null",
        b"[]",
        b"{}",
        b"some library's output\n",
        b"\x80\x04\x95pickle",
        b'{"version": 1}',
        b'{"version": 1, "body": {}}',
        b'{"version": 1, "body": {"type": "no such"}}',
        b'{"version": 1, "body": {"type": "evaluate"}}',
        b'{"version": 1, "body": {"type": "describe", "backend": 3}}',
        b'{"version": 1, "body": {"type": "describe", "backend": "b"}',
    ],
)
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_request(line)
    with pytest.raises(msgspec.MsgspecError):
        decode_message(line)


def test_a_request_is_no_reply_and_a_reply_no_request() -> None:
    for request in REQUESTS:
        with pytest.raises(msgspec.MsgspecError):
            decode_message(encode(request))
    for message in MESSAGES:
        with pytest.raises(msgspec.MsgspecError):
            decode_request(encode(message))
