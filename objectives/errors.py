"""The errors of this room.

ObjectiveError                 root; `hint` says what to do, `exit_code` is what a command line ends with
 |- InputError                 the user's model, data, knobs or metric cannot be used (exit code 2)
 |   |- ModelError             the model file cannot be read or described
 |   |- WorkloadError          shapes, input data or references do not fit the model
 |   |- KnobError              an unknown knob, value or selection
 |   |- MetricError            an unknown metric, limit or metric function
 |   |- BackendUnavailableError  a backend's package or device is missing
 |   '- EngineFileError        an engine file is gone or has other bytes than were recorded
 |- HarnessError               our own machinery broke: retry, then stop the study (exit code 1)
 |   |- StartError             an evaluation process did not get ready
 |   '- StoppedError           another thread asked for an end
 '- CandidateError             the candidate's own fault: `evaluate` makes it a Failed outcome
"""

from __future__ import annotations

from typing import ClassVar


class ObjectiveError(Exception):
    """Root of this room's errors: what was wrong, and in `hint` what to do about it."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class InputError(ObjectiveError):
    """What the user gave cannot be used."""

    exit_code = 2


class ModelError(InputError):
    """The model file is missing, unreadable, or not what its name says."""


class WorkloadError(InputError):
    """Shapes, input data or reference outputs do not fit the model."""


class KnobError(InputError):
    """An unknown knob, an unknown value, or a selection that selects nothing."""


class MetricError(InputError):
    """An unknown metric, a bad limit, or a metric function that cannot be used."""


class BackendUnavailableError(InputError):
    """The backend is not installed here, or its device is missing."""


class EngineFileError(InputError):
    """An engine file is missing, or its bytes are not those that were recorded: it is not loaded."""


class HarnessError(ObjectiveError):
    """The evaluation machinery itself failed; says nothing about a candidate."""


class StartError(HarnessError):
    """An evaluation process ended or hung before it was ready."""


class StoppedError(HarnessError):
    """An evaluation was ended from another thread; not tried again."""


class CandidateError(ObjectiveError):
    """A backend's way to say that this candidate cannot be built, opened or run.

    `kind` is one of `outcome.FailureKind`; the message is the library's own words.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
