"""Which knobs a study tunes: presets from a file and from earlier studies, and no run-time knobs where nothing runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from objectives.errors import KnobError
from objectives.knobs import Knob, KnobKind, KnobSpace
from storage.errors import NotFoundError
from tests import landscapes
from tests.conftest import Cli, MakeModel
from tuner.api import create_study, run_study, show_study
from tuner.cli import parse
from tuner.errors import StudyError, UsageError
from tuner.objective import Objective
from tuner.selection import expand, select
from tuner.spec import Budget, StudyOptions

BUILD = Knob("fuse", ("on", "off"), "on", KnobKind.BUILDER, "help")
RUN = Knob("threads", ("1", "2"), "1", KnobKind.RUNTIME, "help")


def test_knobs_of_a_run_are_left_out_where_nothing_runs() -> None:
    space = KnobSpace((BUILD, RUN))
    assert select(space, ()) == space
    assert select(space, (), Objective.ENGINE_SIZE).knobs == (BUILD,)
    with pytest.raises(KnobError, match="no knob that changes the build-time"):
        select(space, ("threads",), Objective.BUILD_TIME)


def test_a_file_of_patterns(tmp_path: Path) -> None:
    file = tmp_path / "knobs.txt"
    file.write_text("route:*  # all of them\n\n# but\n-route:kgen:*\n")
    assert parse.knob_patterns([f"@{file},builder"]) == ("route:*", "-route:kgen:*", "builder")
    file.write_text("# nothing\n")
    for wrong in (file, tmp_path / "missing"):
        with pytest.raises(UsageError) as caught:
            parse.knob_patterns([f"@{wrong}"])
        assert caught.value.hint


def test_the_top_knobs_of_an_earlier_study(landscape: MakeModel, home_url: str, cli: Cli) -> None:
    content = landscapes.wide()
    model = landscape(content)
    options = StudyOptions(backend="synthetic", budget=Budget(40), search="random", noise_sessions=0, control_every=0)
    create_study("first:one", model, options, storage=home_url)
    run_study("first:one", storage=home_url)
    space = show_study("first:one", storage=home_url).contexts[0].context.space
    strongest = max(content.knobs, key=lambda knob: max(abs(effect) for effect in knob.effects.values()))
    assert expand(("top:first:one:1",), space, home_url) == (strongest.name,)
    assert len(expand(("top:first:one", "-x"), space, home_url)) == min(10, len(space.knobs)) + 1
    create = ("study", "create", "third", "--model", model, "--backend", "synthetic", "--storage", home_url)
    assert cli(*create, "--knobs", "top:first:one:2").code == 0
    chosen = show_study("third", storage=home_url)
    assert len(chosen.contexts[0].context.space.knobs) == 2
    assert strongest.name in chosen.spec.knobs  # what was meant is remembered, not where it came from


def test_presets_that_cannot_be(landscape: MakeModel, home_url: str) -> None:
    create_study("empty", landscape(), StudyOptions(backend="synthetic"), storage=home_url)
    space = show_study("empty", storage=home_url).contexts[0].context.space
    with pytest.raises(StudyError, match="has measured no knob"):
        expand(("top:empty",), space, home_url)
    with pytest.raises(NotFoundError):
        expand(("top:unknown",), space, home_url)
    for wrong in ("top:", "top:empty:0"):
        with pytest.raises(UsageError, match="names no study"):
            expand((wrong,), space, home_url)
