"""Check report: a CheckResult as JSON, as JUnit XML for CI, and as Markdown for a pull request. Pure.

Flow: checking.py -> HERE -> files and lines of the command line.
"""

from __future__ import annotations

import math
import re
from typing import Any
from xml.etree import ElementTree

from tuner.check_answers import CheckAnswer, CheckResult, Question, State
from tuner.stats import Verdict

# What XML 1.0 cannot hold; libraries put colours and worse into their messages.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ASKED = {
    "loads": "does the engine load, its bytes those recorded?",
    "accuracy": "are its outputs within the limits?",
    "faster": "is it as fast as recorded, compared with the default?",
    "default": "is the default as fast as it was on this device?",
}


def to_json(result: CheckResult) -> dict[str, Any]:
    """Plain values."""
    return {
        "study": result.study,
        "passed": result.passed,
        "answer": result.answer.value,
        "trial": result.trial,
        "candidate": result.candidate,
        "how": result.how,
        "lost_changes": list(result.lost),
        "environment": result.environment,
        "recorded_environment": result.recorded_environment,
        "questions": [
            {"name": one.name, "state": one.state.value, "forbidden": one.forbidden, "detail": one.detail}
            for one in result.questions
        ],
        "speedup": None if result.verdict is None else _speedup(result.verdict),
        "recorded": None
        if result.recorded is None
        else {
            "speedup": result.recorded.speedup,
            "ci_low": result.recorded.ci_low,
            "ci_high": result.recorded.ci_high,
        },
        "default": None
        if result.default is None
        else {
            "here_ms": result.default.here_ms,
            "recorded_ms": result.default.recorded_ms,
            "noise_margin": result.default.margin,
            "recorded_in": result.default.recorded_in,
        },
        "n_pairs": result.n_pairs,
        "spent_s": result.spent_s,
    }


def lines(result: CheckResult) -> list[str]:
    """What the command line prints."""
    head = [
        f"{result.answer.value}: trial #{result.trial} of study {result.study!r}, {result.candidate}",
        f"compared: {result.how}; {result.environment}",
    ]
    head += [f"recorded: {result.recorded_environment}"] * (result.recorded_environment != result.environment)
    head += [f"not here: {', '.join(result.lost)}"] * bool(result.lost)
    rows = [f"  {_mark(one):<9} {one.name:<9} {one.detail}" for one in result.questions]
    return [*head, *rows, "the gate lets it pass" if result.passed else "the gate forbids it"]


def junit(result: CheckResult) -> str:
    """JUnit XML: one test case per question. What the gate forbids is a failure, what could not be asked is skipped."""
    forbidden = sum(one.forbidden for one in result.questions)
    skipped = sum(one.state is State.SKIPPED for one in result.questions)
    totals = {"tests": str(len(result.questions)), "failures": str(forbidden), "errors": "0", "skipped": str(skipped)}
    times = {"time": f"{result.spent_s:.3f}"}
    root = ElementTree.Element("testsuites", {**totals, **times})
    suite = ElementTree.SubElement(root, "testsuite", {"name": _xml(f"tuner check {result.study}"), **totals, **times})
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in (("answer", result.answer.value), ("environment", result.environment), ("how", result.how)):
        ElementTree.SubElement(properties, "property", {"name": name, "value": _xml(value)})
    for one in result.questions:
        case = {"classname": _xml(f"tuner.check.{result.study}"), "name": one.name, "time": "0.000"}
        _fill(ElementTree.SubElement(suite, "testcase", case), one, result.answer)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def markdown(result: CheckResult) -> str:
    """A summary for a pull request."""
    rows = [f"| {one.name}: {_ASKED[one.name]} | {_mark(one)} | {_cell(one.detail)} |" for one in result.questions]
    about = [
        f"- engine: trial #{result.trial}, {_code(result.candidate)}, {_cell(result.how)}",
        f"- here: {_cell(result.environment)}",
        f"- recorded: {_cell(result.recorded_environment)}",
        f"- {result.n_pairs} process pairs in {result.spent_s:.0f} s",
    ]
    if result.lost:
        about.insert(1, f"- changes that do not exist here: {_code(', '.join(result.lost))}")
    title = f"### tuner check {_cell(result.study)}: {result.answer.value} ({'pass' if result.passed else 'FAIL'})"
    return "\n".join([title, "", "| question | answer | detail |", "|---|---|---|", *rows, "", *about, ""])


def _fill(case: ElementTree.Element, one: Question, answer: CheckAnswer) -> None:
    detail = _xml(one.detail)
    if one.forbidden:
        ElementTree.SubElement(case, "failure", {"message": detail, "type": answer.value}).text = detail
    elif one.state is State.SKIPPED:
        ElementTree.SubElement(case, "skipped", {"message": detail})
    else:
        ElementTree.SubElement(case, "system-out").text = f"{one.state.value}: {detail}"


def _mark(one: Question) -> str:
    return "FORBIDDEN" if one.forbidden else one.state.value


def _speedup(verdict: Verdict) -> dict[str, Any]:
    return {
        "speedup": verdict.speedup,
        "ci_low": verdict.ci_low,
        "ci_high": verdict.ci_high if math.isfinite(verdict.ci_high) else None,
        "confidence": verdict.confidence,
        "verdict": verdict.kind.value,
        "n_pairs": verdict.n_pairs,
    }


def _xml(text: str) -> str:
    return _NOT_XML.sub("?", text)


def _cell(text: str) -> str:
    """Text in a table: one line, and nothing that Markdown or HTML would take for its own."""
    flat = " ".join(text.split())
    return re.sub(r"([\\|`*_<>\[\]])", r"\\\1", flat)


def _code(text: str) -> str:
    return "`" + " ".join(text.split()).replace("`", "'").replace("|", "/") + "`"
