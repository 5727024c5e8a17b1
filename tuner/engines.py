"""Engines: which built files a study keeps, and what is written beside them.

Flow: the loop asks for the baseline's and each new incumbent's engine to be kept -> HERE -> artifacts and manifest. An
engine is kept as the file it is, since building the same candidate again gives other bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from objectives.digest import digest_of_file
from objectives.knobs import Candidate
from objectives.outcome import Built, EngineFile, Measured, Outcome, Samples
from storage.confirmations import running_confirmations
from storage.engines import all_digests, drop_engines, engines_of, promote_engine
from storage.records import EngineRecord, NewEngine, Owner
from storage.trials import living_owners
from tuner import __version__
from tuner.context import Context
from tuner.home import Home
from tuner.ledger import Trial
from tuner.owner import is_alive
from tuner.results import Summary
from tuner.spec import StudySpec

KIND = "engines"  # of artifact
MANIFEST_FORMAT = 2  # 2: values, shapes, timing, versions
CONFIRM_KIND = "confirm"  # builds of a running confirmation


def keep_files(home: Home, engine: EngineFile) -> Path:
    """Copy an engine's files among the artifacts."""
    path = Path(engine.path)
    return home.artifacts.put_group(KIND, engine.digest, path.parent, (path.name, *engine.sidecars))


def prune(home: Home, context: Context, summary: Summary, known: Collection[str]) -> None:
    """Let go of the engines that there is no reason to keep, of the trials that the summary is about."""
    records = [one for one in engines_of(home.database, context.id) if one.trial_uid in known]
    drop(home, [one for one in records if not reasons(one, summary)])


def drop(home: Home, records: Sequence[EngineRecord]) -> None:
    """Forget these engines, and remove the files that no other trial has."""
    for digest in drop_engines(home.database, [one.trial_uid for one in records]):
        home.artifacts.remove(KIND, digest)


def reasons(record: EngineRecord, summary: Summary) -> list[str]:
    """Why an engine is kept: it is the default's or the best's, a confirmation's winner, or the user wants it."""
    found = [
        word
        for word, trial in (("default", summary.baseline), ("best", summary.best))
        if trial is not None and trial.uid == record.trial_uid
    ]
    return found + [word for word in ("confirmed", "promoted") if record.manifest.get(word)]


def registration(
    spec: StudySpec, context: Context, number: int, candidate: Candidate, outcome: Outcome, engine: EngineFile
) -> NewEngine:
    """What the database gets to know of an engine, together with its trial's end."""
    content = manifest(spec, context, number, candidate, outcome, engine)
    return NewEngine(engine.digest, engine.format, engine.size_bytes, content)


def tidy(home: Home, owner: Owner | None = None) -> None:
    """Remove what killed processes left: scratch folders, and engine files that no study knows of.

    Nothing happens while another process works in this home: its files may not be registered yet.
    """
    with home.artifacts.alone() as alone:
        # The lock tells of this host, the leases of the others.
        if not alone or living_owners(home.database, is_alive) - {owner.id if owner else ""}:
            return
        home.artifacts.clear_scratch()
        for digest in home.artifacts.digests(KIND) - all_digests(home.database):
            home.artifacts.remove(KIND, digest)
        for digest in home.artifacts.digests(CONFIRM_KIND) - _needed_builds(home):
            home.artifacts.remove(CONFIRM_KIND, digest)


def _needed_builds(home: Home) -> set[str]:
    """Builds of confirmations that have begun and not ended: they go on with them."""
    return {
        engine["digest"]
        for record in running_confirmations(home.database)
        for finalist in record.finalists
        for engine in finalist["builds"]
    }


def promote(
    home: Home, spec: StudySpec, context: Context, trial: Trial, engine: EngineFile, facts: Mapping[str, Any]
) -> None:
    """Make a rebuilt engine the one that ships for a trial; `facts` go into its manifest: who says so, and why."""
    keep_files(home, engine)
    content = {**manifest(spec, context, trial.number, trial.candidate, trial.outcome, engine), **facts}
    replaced = promote_engine(home.database, trial.uid, engine.digest, engine.format, engine.size_bytes, content)
    if replaced is not None:
        home.artifacts.remove(KIND, replaced)


def file_of(home: Home, context: Context, trial: Trial) -> EngineFile | None:
    """The kept engine of a trial as the backend knows it; None if none is kept."""
    kept = record_of(home, context, trial)
    return None if kept is None else to_file(home, kept)


def record_of(home: Home, context: Context, trial: Trial) -> EngineRecord | None:
    """What is kept for a trial; None if nothing is."""
    return next((one for one in engines_of(home.database, context.id) if one.trial_uid == trial.uid), None)


def to_file(home: Home, record: EngineRecord) -> EngineFile:
    """A kept engine as the backend knows it."""
    found = record.manifest["engine"]
    path = home.artifacts.path(KIND, record.digest, found["file"])
    cache = found.get("cache", "")  # engines of earlier versions know of none
    return EngineFile(str(path), record.digest, record.size_bytes, record.format, found["sidecars"], cache)


def cache_of(home: Home, context: Context, trial: Trial) -> Path | None:
    """What the build of a trial's kept engine left for later builds; None where it left nothing, or none is kept."""
    engine = file_of(home, context, trial)
    return Path(engine.path).with_name(engine.cache) if engine is not None and engine.cache else None


def path_of(home: Home, trial: Trial) -> Path | None:
    """The main file of the engine kept for a trial; None if none is kept."""
    if trial.engine_digest is None:
        return None
    folder = home.artifacts.path(KIND, trial.engine_digest)
    names = [path for path in folder.glob("*") if digest_of_file(path) == trial.engine_digest]
    return names[0] if names else None


def drop_all(home: Home, context: Context) -> None:
    """Let go of every engine of a context."""
    drop(home, engines_of(home.database, context.id))


def manifest(
    spec: StudySpec, context: Context, number: int, candidate: Candidate, outcome: Outcome, engine: EngineFile
) -> dict[str, Any]:
    """What an engine is bound to: model, shapes, environment, knobs as asked and in effect, losses, timing."""
    environment = context.record.environment
    measured = outcome if isinstance(outcome, Measured | Built) else None
    return {
        "format": MANIFEST_FORMAT,
        "tuner_version": __version__,
        "study": spec.name,
        "trial": number,
        "model_digest": spec.model_digest,  # over all its files, external weights included
        "model_file": spec.model_file,
        "shapes": {"timed": msgspec.to_builtins(spec.shapes), "ranges": msgspec.to_builtins(spec.ranges)},
        "engine": {
            "digest": engine.digest,
            "format": engine.format,
            "file": Path(engine.path).name,
            "sidecars": dict(engine.sidecars),
            "cache": engine.cache,
            "size_bytes": engine.size_bytes,
        },
        "environment": {
            "backend": environment.backend,
            "backend_version": environment.backend_version,
            "device": environment.device,
            "identity": dict(environment.identity),
            "details": dict(environment.details),
        },
        "knob_space_digest": context.space.digest,
        "backend_options": dict(spec.backend_options),
        "candidate": dict(candidate.changes),
        "values": context.space.values(candidate),
        "effective": dict(outcome.trace.effective),
        "stage_s": dict(outcome.trace.stage_s),
        "losses": None if measured is None else msgspec.to_builtins(measured.accuracy),
        "limits": [str(limit) for limit in spec.judging.limits],
        "timing": _timing(outcome.samples) if isinstance(outcome, Measured) else None,
        "confirmed": False,
        "promoted": False,
    }


def _timing(samples: Samples) -> dict[str, Any]:
    """The trial's samples in short; the raw ones are in the database, and in what `engine export` writes."""
    return {
        "median_ms": samples.median_ms,
        "n_samples": len(samples.all_ms),
        "clock": samples.clock,
        "flags": list(samples.flags),
        "conditions": dict(samples.conditions),
    }
