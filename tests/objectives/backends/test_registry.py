"""Registry: backends by name, loaded on first use; what is not there says how to get it."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from objectives.backends import available, load, registry
from objectives.backends.registry import GROUP
from objectives.backends.synthetic import SyntheticBackend
from objectives.errors import BackendUnavailableError


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers `good`, and two whose packages are not installed."""
    entries = (
        EntryPoint("good", "objectives.backends.synthetic:SyntheticBackend", GROUP),
        EntryPoint("other", "no_such_package.backend:Backend", GROUP),
        EntryPoint("tensorrt", "no_such_package.backend:Backend", GROUP),
    )
    monkeypatch.setattr(registry, "entry_points", lambda group: entries if group == GROUP else ())


def test_ours_are_registered() -> None:
    assert {"onnxruntime", "synthetic"} <= set(available())
    assert isinstance(load("synthetic"), SyntheticBackend)


@pytest.mark.usefixtures("register")
def test_names_are_sorted_and_say_nothing_about_packages() -> None:
    assert available() == ("good", "other", "tensorrt")


@pytest.mark.usefixtures("register")
def test_anybodys_backend_is_loaded() -> None:
    assert isinstance(load("good"), SyntheticBackend)


@pytest.mark.usefixtures("register")
def test_an_unknown_name_is_refused_with_the_known() -> None:
    with pytest.raises(BackendUnavailableError, match="'tensort'") as error:
        load("tensort")
    assert "good, other, tensorrt" in error.value.hint


@pytest.mark.usefixtures("register")
@pytest.mark.parametrize(
    ("name", "hint"), [("tensorrt", "pip install 'tensorrt-tuner[tensorrt]'"), ("other", "backend's own requirements")]
)
def test_a_missing_package_is_told_with_the_way_to_it(name: str, hint: str) -> None:
    with pytest.raises(BackendUnavailableError, match="no_such_package") as error:
        load(name)
    assert hint in error.value.hint
    assert isinstance(error.value.__cause__, ImportError)
