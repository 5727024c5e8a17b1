"""Facts of small studies, made once for all tests."""

from __future__ import annotations

import fcntl
from collections.abc import Callable

import pytest

from tests.tuner.conftest import Study
from tests.tuner.report.stories import NAME, facts_of, tell
from tuner.report.facts import StudyFacts

Told = Callable[[str], StudyFacts]
Kept = Callable[[str], Study]


@pytest.fixture(scope="session")
def study_of(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Kept:
    """The study of a kind; tests do not change it: `study_of("faster")`. Whoever asks first makes it for all."""
    base = tmp_path_factory.getbasetemp()
    shared = (base if worker_id == "master" else base.parent) / "stories"
    shared.mkdir(exist_ok=True)

    def give(kind: str) -> Study:
        folder = shared / kind.replace(" ", "-")
        with (shared / f"{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                tell(kind, folder)
        return Study(NAME, f"sqlite:///{folder / 'tuner.db'}", folder)

    return give


@pytest.fixture(scope="session")
def told(study_of: Kept) -> Told:
    """Facts of the study of a kind: `told("faster")`."""
    made: dict[str, StudyFacts] = {}

    def give(kind: str) -> StudyFacts:
        if kind not in made:
            made[kind] = facts_of(study_of(kind))
        return made[kind]

    return give
