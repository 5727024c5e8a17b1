"""Tuner: Bayesian optimization of inference engines.

The public Python API; each name is loaded when it is first used, so that `import tuner` stays light.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from objectives.accuracy import Limit
    from objectives.requests import Judging
    from objectives.timing import TimingPlan
    from tuner.answers import ConfirmOptions
    from tuner.api import (
        best_of,
        check_backend,
        confirm_study,
        create_study,
        delete_study,
        describe,
        list_studies,
        minimize_study,
        retarget_study,
        run_study,
        show_study,
    )
    from tuner.check_answers import CheckOptions, CheckResult
    from tuner.checking import check_study
    from tuner.clone import clone_study
    from tuner.export import export_engine, verify_folder
    from tuner.moving import export_study, import_study
    from tuner.objective import Objective
    from tuner.progress import Progress
    from tuner.report.gather import study_facts
    from tuner.report.writing import report_text, write_report
    from tuner.shipping import list_engines, promote_engine, prune_engines, verify_engines
    from tuner.spec import Budget, StudyOptions, WorkloadOptions

try:
    __version__ = version("tensorrt-tuner")
except PackageNotFoundError:  # run from a source tree that was not installed
    __version__ = "0"

_HOMES = {
    "Budget": "tuner.spec",
    "CheckOptions": "tuner.check_answers",
    "CheckResult": "tuner.check_answers",
    "check_study": "tuner.checking",
    "Judging": "objectives.requests",
    "Limit": "objectives.accuracy",
    "Progress": "tuner.progress",
    "StudyOptions": "tuner.spec",
    "TimingPlan": "objectives.timing",
    "WorkloadOptions": "tuner.spec",
    "best_of": "tuner.api",
    "check_backend": "tuner.api",
    "clone_study": "tuner.clone",
    "ConfirmOptions": "tuner.answers",
    "confirm_study": "tuner.api",
    "create_study": "tuner.api",
    "delete_study": "tuner.api",
    "describe": "tuner.api",
    "list_studies": "tuner.api",
    "minimize_study": "tuner.api",
    "retarget_study": "tuner.api",
    "run_study": "tuner.api",
    "show_study": "tuner.api",
    "export_engine": "tuner.export",
    "export_study": "tuner.moving",
    "import_study": "tuner.moving",
    "verify_folder": "tuner.export",
    "list_engines": "tuner.shipping",
    "promote_engine": "tuner.shipping",
    "prune_engines": "tuner.shipping",
    "verify_engines": "tuner.shipping",
    "Objective": "tuner.objective",
    "report_text": "tuner.report.writing",
    "study_facts": "tuner.report.gather",
    "write_report": "tuner.report.writing",
}
__all__ = [
    "Budget",
    "CheckOptions",
    "CheckResult",
    "ConfirmOptions",
    "Judging",
    "Limit",
    "Objective",
    "Progress",
    "StudyOptions",
    "TimingPlan",
    "WorkloadOptions",
    "best_of",
    "check_backend",
    "check_study",
    "clone_study",
    "confirm_study",
    "create_study",
    "delete_study",
    "describe",
    "export_engine",
    "export_study",
    "import_study",
    "list_engines",
    "list_studies",
    "minimize_study",
    "promote_engine",
    "prune_engines",
    "report_text",
    "retarget_study",
    "run_study",
    "show_study",
    "study_facts",
    "verify_engines",
    "verify_folder",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
