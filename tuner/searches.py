"""Searches: their names, and the words that may follow a name. Pure; nothing of a search is imported.

Flow: `--search NAME[:OPTION,...]` -> `parse_search` HERE checks it when a study is made -> `tuner/search/strategies.py`
makes the strategy from the same text, which is what the study remembers.
"""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass

from tuner.errors import UsageError

SEARCHES = ("auto", "tpe", "gp", "nsgaii", "random", "fast", "mixed", "full")
OPTUNA = "optuna"  # `optuna:NAME`: any other sampler of Optuna by the name of its class
_OPTIONS = {"mixed": ("cap", "shuffle", "margin"), "full": ("shuffle",)}
_NEEDS = {"gp": ("torch", "scipy"), "optuna:GPSampler": ("torch", "scipy"), "optuna:QMCSampler": ("scipy",)}


@dataclass(frozen=True, slots=True)
class Search:
    """A search with its options. `sampler`: the class, for the name `optuna`; the rest is of `mixed` and `full`.

    `cap`: at most so many knobs in phase 2. `shuffle`: combinations in random order. `margin`: by how much, in log
    throughput, a change has to beat the default.
    """

    name: str
    sampler: str = ""
    cap: int | None = None
    shuffle: bool = False
    margin: float = 0.0


def parse_search(text: str) -> Search:
    """The search that `text` names: `auto`, `mixed:cap=10,shuffle,margin=1%`, `optuna:QMCSampler`.

    Raises: UsageError.
    """
    name, _, rest = text.partition(":")
    if name == OPTUNA and rest.isidentifier():
        return Search(OPTUNA, sampler=rest)
    if name not in SEARCHES:
        raise UsageError(
            f"unknown search {text!r}",
            hint=f"choose one of: {', '.join(SEARCHES)}; or a sampler of Optuna by its class, optuna:QMCSampler",
        )
    options = dict(_option(text, name, word) for word in rest.split(",")) if rest else {}
    return Search(name, **options)  # type: ignore[arg-type]  # each value is of its option's type, see `_value`


def require_installed(text: str) -> None:
    """Refuse a search whose packages are missing or broken, before anything is made. Raises: UsageError."""
    for package in _NEEDS.get(text, ()):
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise UsageError(
                f"--search {text} needs {package}, which cannot be imported: {error}",
                hint=f"pip install {package}; or --search auto, which needs nothing more",
            ) from error


def _option(text: str, name: str, word: str) -> tuple[str, object]:
    key, equals, value = word.partition("=")
    known = _OPTIONS.get(name, ())
    if key not in known:
        offered = f"{name} takes {', '.join(known)}" if known else f"{name} takes no options"
        raise UsageError(f"--search {text}: unknown option {key!r}", hint=offered)
    try:
        return key, _value(key, value, bool(equals))
    except ValueError as error:
        raise UsageError(
            f"--search {text}: {word!r} is not understood", hint="for example mixed:cap=10,shuffle,margin=1%"
        ) from error


def _value(key: str, value: str, is_given: bool) -> object:
    if key == "shuffle":
        if is_given:
            raise ValueError(value)
        return True
    if key == "cap":
        if (cap := int(value)) < 1:
            raise ValueError(value)
        return cap
    share = float(value[:-1]) / 100 if value.endswith("%") else float(value)
    if not 0 <= share < 10:
        raise ValueError(value)
    return math.log1p(share)
