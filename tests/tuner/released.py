"""A study that was released: searched, confirmed, its engine kept; in this process, on a landscape that may change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from objectives.isolation import InProcess
from objectives.landscape import Landscape, read_landscape
from storage.confirmations import confirmations_of
from storage.studies import get_study
from tuner import api
from tuner.answers import ConfirmOptions
from tuner.ask import model_path
from tuner.check_answers import CheckOptions, CheckResult
from tuner.checking import Check
from tuner.confirm import Confirmation
from tuner.context import contexts
from tuner.home import open_home
from tuner.loop import StudyLoop
from tuner.noise import NewIsolation
from tuner.progress import Progress
from tuner.spec import Budget, StudyOptions, read_spec
from tuner.views import view_of

NAME = "s"
QUIET = {"repeatable": False, "noise": 0.003, "load_noise": 0.002}


class Released:
    """A study with a winner, all in this process; what it runs on can be changed afterwards."""

    def __init__(self, folder: Path, landscape: Landscape, confirm: bool = True, control_every: int = 0) -> None:
        self.url = f"sqlite:///{folder / 'tuner.db'}"
        model = landscape.save(folder / "landscape.json")
        options = StudyOptions(backend="synthetic", budget=Budget(6), noise_sessions=4, control_every=control_every)
        api.create_study(NAME, model, options, storage=self.url)
        self.run(confirm)

    def run(self, confirm: bool = False) -> None:
        """The study's search in the environment as it is, and the confirmation of its best."""
        with open_home(self.url) as home:
            spec = read_spec(get_study(home.database, NAME).spec)
            context = contexts(home, NAME)[-1]
            with StudyLoop(home, spec, context, InProcess, Progress()) as loop:
                loop.run()
                best, baseline = loop.summary.best, loop.summary.baseline
            assert best is not None
            assert baseline is not None
            if confirm:
                asked = Confirmation(home, spec, context, InProcess, Progress())
                assert asked.run(baseline, [best], ConfirmOptions(finalists=1, builds=2)).winner is not None

    def change(self, **changes: Any) -> None:
        """Make the model another one: what the engines do changes with it, their bytes do not."""
        with open_home(self.url) as home:
            path = model_path(home, read_spec(get_study(home.database, NAME).spec))
            msgspec.structs.replace(read_landscape(path), **changes).save(path)

    def check(
        self,
        options: CheckOptions = CheckOptions(pairs=16),  # noqa: B008 - frozen
        fresh: NewIsolation = InProcess,
    ) -> CheckResult:
        with open_home(self.url) as home:
            spec = read_spec(get_study(home.database, NAME).spec)
            return Check(home, spec, fresh, Progress()).run(options)

    def stored(self) -> str:
        """All that is on record, in words."""
        with open_home(self.url) as home:
            spec = read_spec(get_study(home.database, NAME).spec)
            found = contexts(home, NAME)
            told = [view_of(home, spec, one) for one in found]
            return repr((spec, told, [confirmations_of(home.database, one.id) for one in found]))
