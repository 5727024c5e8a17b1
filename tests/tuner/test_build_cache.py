"""What the default's build leaves for others: every later trial of the search gets it, a confirmation does not."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest

from objectives import worker
from objectives.backends.base import NO_TERMS, BuildTerms, Values
from objectives.backends.synthetic import SyntheticBackend
from objectives.isolation import InProcess
from objectives.outcome import EngineFile
from tests.tuner.conftest import SHOWCASE, make_study
from tuner.answers import ConfirmOptions
from tuner.api import confirm_study, run_study
from tuner.shipping import list_engines
from tuner.spec import Budget


class _Caching(SyntheticBackend):
    """Leaves what it was given and one byte more, and writes down what it was given."""

    given: list[bytes | None]

    def build(self, path: Path, values: Values, workdir: Path, terms: BuildTerms = NO_TERMS) -> EngineFile:
        content = None if terms.cache is None else terms.cache.read_bytes()
        self.given.append(content)
        engine = super().build(path, values, workdir)
        left = (content or b"") + b"+"
        (workdir / "left").write_bytes(left)
        digest = hashlib.sha256(left).hexdigest()
        return msgspec.structs.replace(engine, sidecars={"left": digest}, cache="left")


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[bytes | None]:
    """What each build of a study in this process is given."""
    backend = _Caching()
    backend.given = []
    monkeypatch.setattr(worker, "_backend", lambda request: backend)
    monkeypatch.setattr("tuner.places.isolation_for", lambda spec, variables: InProcess())
    return backend.given


def test_the_search_starts_from_the_defaults_cache_and_the_confirmation_from_nothing(
    tmp_path: Path, given: list[bytes | None]
) -> None:
    study = make_study(tmp_path, SHOWCASE, budget=Budget(6))
    run_study(study.name, storage=study.url)
    assert given[0] is None
    assert len(given) == 6
    assert given[1:] == [b"+"] * 5  # the default's, unchanged: what other builds add is not handed on
    default = next(one for one in list_engines(study.name, storage=study.url) if "default" in one.reasons)
    assert default.record.manifest["engine"]["cache"] == "left"
    run_study(study.name, storage=study.url, budget=Budget(6))
    del given[:]
    confirm_study(study.name, ConfirmOptions(finalists=1, builds=2), storage=study.url)
    assert given
    assert set(given) == {None}
