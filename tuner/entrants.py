"""Entrants: the two sides of a check, as the files that were kept or built again.

Flow: checking.py says which candidate -> HERE: open what is kept and compare its outputs, or build in fresh processes
-> engine files for process pairs, or what is wrong with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from objectives.device import device_lock
from objectives.errors import EngineFileError
from objectives.knobs import BASELINE, Candidate
from objectives.outcome import Built, EngineFile, Failed, Rejected, require_intact
from tuner import ask, engines
from tuner.check_record import Release
from tuner.context import Context
from tuner.home import Home
from tuner.noise import NewIsolation
from tuner.progress import Progress
from tuner.spec import StudySpec

_SAME_BYTES_BUILDS = 2  # where rebuilding gives the same file, more builds are the same build


@dataclass(frozen=True, slots=True)
class Entrant:
    """One side: its engines, and how they came here. `trouble` says why there are none: words if a file is damaged."""

    candidate: Candidate
    engines: tuple[EngineFile, ...]
    how: str
    trouble: Rejected | Failed | str | None = None

    @property
    def reason(self) -> str:
        """The trouble in words, empty without one."""
        if self.trouble is None or isinstance(self.trouble, str):
            return self.trouble or ""
        return self.trouble.reason

    @property
    def is_one_file(self) -> bool:
        return len({engine.digest for engine in self.engines}) == 1


class Entrants:
    """Brings the two sides; what is built lies in `folder`."""

    def __init__(
        self, home: Home, spec: StudySpec, context: Context, fresh: NewIsolation, progress: Progress, folder: Path
    ) -> None:
        self._home = home
        self._spec = spec
        self._context = context
        self._fresh = fresh
        self._progress = progress
        self._folder = folder

    def candidate(self, release: Release, builds: int) -> Entrant:
        """The engine that ships: as it is kept, if it is for this environment; else built again."""
        if release.kept is None:
            return self._built(release.candidate, builds, "the candidate")
        engine = engines.to_file(self._home, release.kept)
        how = f"the kept engine, {engine.digest[:12]}"
        if trouble := _damage(engine):
            return Entrant(release.candidate, (), how, trouble)
        self._progress.on_check("comparing outputs")
        request = ask.check(self._home, self._spec, self._context, engine, release.candidate)
        with self._fresh() as isolation, device_lock(self._device, self._progress.on_wait):
            checked = isolation.check(request)
        if isinstance(checked, Built):
            return Entrant(release.candidate, (engine,), how)
        return Entrant(release.candidate, (), how, checked)

    def baseline(self, release: Release, builds: int) -> Entrant:
        """The default: its kept engine beside a kept engine, if there is one; else built as often as the candidate."""
        engine = None
        if release.kept is not None and release.view.summary.baseline is not None:
            engine = engines.file_of(self._home, release.context, release.view.summary.baseline)
        if engine is not None and not _damage(engine):
            return Entrant(BASELINE, (engine,), f"the default's kept engine, {engine.digest[:12]}")
        return self._built(BASELINE, builds if release.kept is None else 1, "the default")

    def _built(self, candidate: Candidate, builds: int, name: str) -> Entrant:
        made: list[EngineFile] = []
        while len(made) < builds:
            if len(made) >= _SAME_BYTES_BUILDS and len({engine.digest for engine in made}) == 1:
                break
            self._progress.on_check(f"building {name}, {len(made) + 1}")
            workdir = self._folder / f"{candidate.digest}-{len(made)}"
            workdir.mkdir()
            with self._fresh() as isolation, device_lock(self._device, self._progress.on_wait):
                built = isolation.build(ask.fresh_build(self._home, self._spec, self._context, candidate, workdir))
            if not isinstance(built, Built):
                return Entrant(candidate, (), f"{name} was built here", built)
            made.append(built.engine)
        return Entrant(candidate, tuple(made), f"{name} was built here {len(made)} times")

    @property
    def _device(self) -> str:
        return self._context.record.environment.device


def _damage(engine: EngineFile) -> str:
    try:
        require_intact(engine)
    except EngineFileError as error:
        return str(error)
    return ""
