"""An open candidate of the backend `command`: the program is run, or kept running, and its answers are read.

Flow: command.py opens -> HERE -> a round is one run of the program, or one more line of a program that stays alive ->
Report. Protocol: docs/command.md. What is no answer is a failure with the program's last words.
"""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from objectives.backends.base import Report, Reporter, Values
from objectives.backends.command_handover import Launch
from objectives.backends.command_process import Program, inherited
from objectives.errors import CandidateError, HarnessError
from objectives.outcome import FailureKind

ROUND = "round"  # the line that asks for one more
SAMPLES, LOSSES, EFFECTIVE, NOTES, UNSUPPORTED = "samples_ms", "losses", "effective", "notes", "unsupported"
_WORDS = 1200  # characters of a program's last words that a failure keeps
_SHELL_SIGNALS = {128 + number for number in (4, 6, 7, 8, 9, 11, 15)}  # how a wrapper reports that its program died


@dataclass(frozen=True, slots=True)
class Run:
    """What is run for a candidate: the whole command, its files by name, and what its knobs add."""

    program: tuple[str, ...]
    files: Mapping[str, Path]
    launch: Launch
    rounds: bool
    asked: Mapping[str, str]  # every knob
    told: tuple[str, ...]  # knobs of which the program is told something

    def start(self) -> Program:
        """Raises: BackendUnavailableError."""
        command = (*self.program, *self.launch.arguments)
        return Program(command, self.files, self.launch.environment(inherited()))


class CommandSession(Reporter):
    """Nothing is started before the first report."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._effective = dict(run.asked)
        self._program: Program | None = None
        self._lines: Iterator[str] = iter(())
        self._closed = False

    @property
    def effective(self) -> Values:
        return self._effective

    @property
    def stays_open(self) -> bool:
        return self._run.rounds

    def report(self) -> Report:
        if self._closed:
            raise HarnessError("this session is closed")
        answer = self._next() if self._run.rounds else self._once()
        self._take_effect(answer)
        return report_of(answer)

    def close(self) -> None:
        self._closed = True
        if self._program is not None:
            self._program.close()
            self._program = None

    def _once(self) -> Mapping[str, Any]:
        """Run the program to its end; its answer is the last line that is a JSON object."""
        program = self._run.start()
        try:
            program.hush()
            answers = [answer for answer in map(_answer, program.lines()) if answer is not None]
            require_good_end(program)
            if not answers:
                raise _failure("it ended well, but printed no JSON object", program)
            return answers[-1]
        finally:
            program.close()

    def _next(self) -> Mapping[str, Any]:
        """The first answer of the program that stays alive, or the next one."""
        if self._program is None:
            self._program = self._run.start()
            self._lines = self._program.lines()
        else:
            self._program.ask(ROUND)
        for line in self._lines:
            answer = _answer(line)
            if answer is not None and (SAMPLES in answer or UNSUPPORTED in answer):
                return answer
        require_good_end(self._program)
        raise _failure(f"it ended where it was to wait for the line {ROUND!r} or the end of its input", self._program)

    def _take_effect(self, answer: Mapping[str, Any]) -> None:
        """Raises: CandidateError if a value that was handed over did not take effect."""
        effective = answer.get(EFFECTIVE, {})
        if not isinstance(effective, Mapping):
            raise CandidateError(FailureKind.RUN_FAILED, f"{EFFECTIVE!r} is no JSON object: {_shown(effective)}")
        told = {str(name): _text(value) for name, value in effective.items()}
        for name in self._run.told:
            if told.get(name, self._run.asked[name]) != self._run.asked[name]:
                words = f"{name}={self._run.asked[name]} was asked for, the program says that it used {told[name]}"
                raise CandidateError(FailureKind.FALLBACK, words)
        self._effective |= told
        if NOTES in answer:
            self._effective[NOTES] = _text(answer[NOTES])


def report_of(answer: Mapping[str, Any]) -> Report:
    """An answer as a report. Raises: CandidateError for anything but finite, positive samples and numeric losses."""
    if UNSUPPORTED in answer:
        raise CandidateError(FailureKind.UNSUPPORTED, _text(answer[UNSUPPORTED]))
    samples, losses = answer.get(SAMPLES), answer.get(LOSSES, {})
    if not isinstance(samples, list) or not samples:
        words = f"its answer has no {SAMPLES!r}, a list of at least one number: {_shown(answer)}"
        raise CandidateError(FailureKind.RUN_FAILED, words)
    for one in samples:
        if not _is_number(one) or not math.isfinite(one) or one <= 0:
            words = f"{SAMPLES!r} holds {_shown(one)}: samples are positive milliseconds"
            raise CandidateError(FailureKind.RUN_FAILED, words)
    if not isinstance(losses, Mapping):
        raise CandidateError(FailureKind.RUN_FAILED, f"{LOSSES!r} is no JSON object: {_shown(losses)}")
    return Report(tuple(map(float, samples)), {str(name): _loss(name, value) for name, value in losses.items()})


def require_good_end(program: Program) -> None:
    """Raises: CandidateError if the program, which has ended, did not end well."""
    code = program.code
    if not code:
        return
    number = -code if code < 0 else code - 128 if code in _SHELL_SIGNALS else None
    if number is None:
        raise _failure(f"the program ended with exit code {code}", program)
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    # Nobody but the kernel's memory guard sends SIGKILL as a rule.
    kind = FailureKind.OUT_OF_MEMORY if number == signal.SIGKILL else FailureKind.CRASHED
    raise _failure(f"the program was killed by {name}", program, kind)


def _failure(words: str, program: Program, kind: FailureKind = FailureKind.RUN_FAILED) -> CandidateError:
    last = program.words[-_WORDS:]
    return CandidateError(kind, f"{words}; its last words: {last}" if last else f"{words}; it printed nothing")


def _answer(line: str) -> dict[str, Any] | None:
    """The JSON object that a line is; NaN and Infinity are read as Python writes them."""
    text = line.strip()
    if not text.startswith("{"):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _loss(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if not _is_number(value) or value < 0:
        words = f"loss {name!r} is {_shown(value)}: a loss is a number of at least 0, 0 is perfect"
        raise CandidateError(FailureKind.RUN_FAILED, words)
    return float(value) if math.isfinite(value) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else json.dumps(value) if isinstance(value, list | dict) else str(value)


def _shown(value: Any) -> str:
    words: Sequence[str] = repr(value)
    return str(words)[:200]
