"""Studies that are there already, copied for each test: making one costs the start of a process."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from objectives.landscape import Fault, Interaction, Landscape
from tests import landscapes
from tuner.api import create_study, run_study
from tuner.spec import Budget, StudyOptions

STUDY = "demo"
BUDGET = 6
# Of the six candidates: three feasible (a=v1 the fastest), one inaccurate, two that cannot be built.
SHOWCASE = landscapes.small(
    interactions=(
        Interaction({"a": "v1", "b": "v1"}, loss=0.5),
        Interaction({"a": "v2"}, fault=Fault.BUILD_FAILED),
    )
)


class Study(NamedTuple):
    """A study that a test may change: its name, its database, the folder that both lie in."""

    name: str
    url: str
    folder: Path

    @property
    def artifacts(self) -> Path:
        return self.folder / "tuner.artifacts"

    @property
    def at(self) -> tuple[str, str, str]:
        """The words that lead a command to it: name and --storage."""
        return self.name, "--storage", self.url

    @property
    def search(self) -> tuple[str, ...]:
        """The words that run its search, without the confirmation that follows it."""
        return "study", "run", *self.at, "--no-confirm"


MakeStudy = Callable[..., Study]


def make_study(folder: Path, content: Landscape, **options: Any) -> Study:
    """Create the study in `folder`; `options` as in StudyOptions.

    Its whole budget is spent, and only its trials are timed, unless asked otherwise.
    """
    options = {"noise_sessions": 0, "control_every": 0, "early_end": False, **options}
    url = f"sqlite:///{folder / 'tuner.db'}"
    model = content.save(folder / "landscape.json")
    create_study(STUDY, model, StudyOptions(backend="synthetic", **options), storage=url)
    return Study(STUDY, url, folder)


@pytest.fixture
def new_study(tmp_path: Path) -> MakeStudy:
    """Creates a study: `new_study(landscapes.small(), budget=Budget(5))`."""
    return lambda content, **options: make_study(tmp_path, content, **options)


@pytest.fixture(scope="session")
def _created(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return make_study(tmp_path_factory.mktemp("created"), SHOWCASE, budget=Budget(BUDGET))


@pytest.fixture(scope="session")
def _finished(_created: Study, tmp_path_factory: pytest.TempPathFactory) -> Study:
    study = copy_study(_created, tmp_path_factory.mktemp("finished") / "home")
    run_study(study.name, storage=study.url)
    return study


@pytest.fixture
def created(_created: Study, tmp_path: Path) -> Study:
    """A study of SHOWCASE without a trial."""
    return copy_study(_created, tmp_path / "home")


@pytest.fixture
def finished(_finished: Study, tmp_path: Path) -> Study:
    """A study of SHOWCASE with all its trials."""
    return copy_study(_finished, tmp_path / "home")


def copy_study(study: Study, folder: Path) -> Study:
    """The study as it stands, in a folder of its own."""
    shutil.copytree(study.folder, folder)
    return Study(study.name, f"sqlite:///{folder / 'tuner.db'}", folder)
