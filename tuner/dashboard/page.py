"""Page: the Optuna study of one context as Optuna Dashboard shows it: attributes, note, figures, artifacts.

Flow: pages.py says what there is to show -> written HERE, only where it differs from what stands there. Nobody but the
projection adds trials; what is written here can change for as long as the study lives.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import optuna

from objectives.digest import digest_of
from tuner.errors import UsageError
from tuner.search.projection import open_storage

OWN_WORDS = "*Below this line is room for notes of your own: they are kept.*"
_DRAWN = "tuner:drawn"  # digests of what was written last, by what it is
_ARTIFACT = "artifacts:"  # Optuna's prefix for the artifacts of a study
_PACKAGE = "optuna_dashboard"


def is_installed() -> bool:
    """Whether Optuna Dashboard is there; only it knows how notes and figures are stored."""
    return find_spec(_PACKAGE) is not None


def require_installed() -> None:
    """Raises: UsageError if Optuna Dashboard is not there."""
    if not is_installed():
        raise UsageError("Optuna Dashboard is not installed", hint="pip install 'tensorrt-tuner[dashboard]'")


class Page:
    """The open Optuna study `name`. Owns its connections: `close`. Raises: KeyError if there is none."""

    def __init__(self, url: str, name: str) -> None:
        self._storage = open_storage(url)
        try:
            self._study = optuna.load_study(study_name=name, storage=self._storage)
        except KeyError:
            self.close()
            raise
        system = self._storage.get_study_system_attrs(self._study._study_id)
        self._drawn: dict[str, str] = dict(system.get(_DRAWN, {}))
        self._artifacts = {key[len(_ARTIFACT) :]: value for key, value in system.items() if key.startswith(_ARTIFACT)}

    def close(self) -> None:
        self._storage.engine.dispose()

    @property
    def study_id(self) -> int:
        """Its number in the dashboard's addresses."""
        return int(self._study._study_id)

    def is_of(self, state: str) -> bool:
        """Whether it shows `state`, as `mark` has said."""
        return self._drawn.get("state") == state

    def mark(self, state: str) -> None:
        """Say that everything of `state` is written."""
        self._remember("state", state)

    def attributes(self, values: Mapping[str, Any]) -> None:
        """Set user attributes of the study."""
        known = self._study.user_attrs
        for key, value in values.items():
            if key not in known or known[key] != value:
                self._study.set_user_attr(key, value)

    def note(self, text: str) -> None:
        """Set the note, Markdown; what a person has written below OWN_WORDS stays."""
        package = import_module(_PACKAGE)
        before = package.get_note(self._study)
        _, _, theirs = before.partition(OWN_WORDS)
        after = f"{text.rstrip()}\n\n---\n{OWN_WORDS}{theirs}"
        if after != before:
            package.save_note(self._study, after)

    def figure(self, name: str, figure: Any) -> None:
        """Attach a Plotly figure; `name` may have letters, digits, hyphens. It replaces the one of the same name."""
        digest = digest_of(figure.to_json())
        if self._drawn.get(f"figure:{name}") != digest:
            import_module(_PACKAGE).save_plotly_graph_object(self._study, figure, graph_object_id=name)
            self._remember(f"figure:{name}", digest)

    def artifacts(self, files: Mapping[str, str]) -> None:
        """The artifacts that are listed: digest of each file's content and its name to be shown; no others."""
        wanted = {
            digest: json.dumps(
                {"artifact_id": digest, "filename": name, "mimetype": "application/json", "encoding": None}
            )
            for digest, name in files.items()
        }
        gone = dict.fromkeys(self._artifacts.keys() - wanted.keys(), "null")  # attributes cannot be removed
        for digest, content in {**gone, **wanted}.items():
            if self._artifacts.get(digest) != content:
                self._storage.set_study_system_attr(self._study._study_id, _ARTIFACT + digest, content)
                self._artifacts[digest] = content

    def _remember(self, what: str, digest: str) -> None:
        self._drawn[what] = digest
        self._storage.set_study_system_attr(self._study._study_id, _DRAWN, self._drawn)


def listed_artifacts(url: str) -> set[str]:
    """Digests of the artifacts that any study of the database lists."""
    storage = open_storage(url)
    try:
        return {
            key[len(_ARTIFACT) :]
            for study in storage.get_all_studies()
            for key, value in study.system_attrs.items()
            if key.startswith(_ARTIFACT) and value != "null"
        }
    finally:
        storage.engine.dispose()
