"""Names of searches and the words after them; what is missing is said before anything is made."""

from __future__ import annotations

import importlib.util
import math

import pytest

from tests.conftest import Cli, MakeModel
from tuner import searches
from tuner.errors import UsageError
from tuner.searches import SEARCHES, Search, parse_search, require_installed


@pytest.mark.parametrize("name", SEARCHES)
def test_every_name_is_a_search(name: str) -> None:
    assert parse_search(name) == Search(name)


def test_options_follow_the_name() -> None:
    assert parse_search("mixed:cap=10,shuffle") == Search("mixed", cap=10, shuffle=True)
    assert parse_search("mixed:margin=2%").margin == pytest.approx(math.log(1.02))
    assert parse_search("mixed:margin=0.02") == parse_search("mixed:margin=2%")
    assert parse_search("full:shuffle") == Search("full", shuffle=True)
    assert parse_search("optuna:QMCSampler") == Search("optuna", sampler="QMCSampler")


@pytest.mark.parametrize(
    "text",
    [
        "gradient",
        "",
        "optuna",
        "optuna:",
        "optuna:a b",
        "auto:cap=1",
        "full:cap=1",
        "mixed:cap=0",
        "mixed:cap",
        "mixed:cap=x",
        "mixed:shuffle=1",
        "mixed:margin=-1%",
        "mixed:margin=nan",
        "mixed:,",
    ],
)
def test_anything_else_is_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_search(text)
    assert caught.value.hint


def test_a_missing_package_is_said_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(package: str) -> None:
        if package == "torch":
            raise ImportError("no such library")

    monkeypatch.setattr(searches.importlib, "import_module", load)
    require_installed("auto")
    require_installed("optuna:QMCSampler")
    with pytest.raises(UsageError, match=r"torch.*no such library") as caught:
        require_installed("gp")
    assert "pip install torch" in caught.value.hint


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed")
def test_a_study_with_a_search_that_cannot_work_is_not_made(cli: Cli, landscape: MakeModel, home_url: str) -> None:
    create = ("study", "create", "s", "--backend", "synthetic", "--model", str(landscape()), "--storage", home_url)
    for search, code in (("gp", 2), ("optuna:NoSuchSampler", 2), ("mixed:cap=2", 0)):
        ended = cli(*create, "--search", search)
        assert ended.code == code, ended.err
        assert code == 0 or "hint: " in ended.err
