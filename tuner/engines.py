"""Engines: which built files a study keeps, and what is written beside them.

Flow: the loop asks for the baseline's and each new incumbent's engine to be kept -> HERE -> artifacts and manifest. An
engine is kept as the file it is, since building the same candidate again gives other bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from objectives.digest import digest_of_file
from objectives.knobs import Candidate
from objectives.outcome import Built, EngineFile, Measured, Outcome, Stage
from storage.confirmations import running_confirmations
from storage.engines import all_digests, drop_engines, engines_of, promote_engine
from storage.records import NewEngine, Owner
from storage.trials import living_owners
from tuner.context import Context
from tuner.home import Home
from tuner.ledger import Trial
from tuner.owner import is_alive
from tuner.results import Summary
from tuner.spec import StudySpec

KIND = "engines"  # of artifact
CONFIRM_KIND = "confirm"  # builds of a running confirmation


def keep_files(home: Home, engine: EngineFile) -> Path:
    """Copy an engine's files among the artifacts."""
    path = Path(engine.path)
    return home.artifacts.put_group(KIND, engine.digest, path.parent, (path.name, *engine.sidecars))


def prune(home: Home, context: Context, summary: Summary) -> None:
    """Let go of the engines that are neither the baseline's, nor the incumbent's, nor confirmed."""
    needed = {one.uid for one in (summary.baseline, summary.best) if one is not None}
    stale = [
        one.trial_uid
        for one in engines_of(home.database, context.id)
        if one.trial_uid not in needed and not one.manifest["confirmed"]
    ]
    for digest in drop_engines(home.database, stale):
        home.artifacts.remove(KIND, digest)


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
    home: Home, spec: StudySpec, context: Context, trial: Trial, engine: EngineFile, confirmed: dict[str, Any]
) -> None:
    """Make a rebuilt engine the one that ships for a trial, with the confirmation's answer in its manifest."""
    keep_files(home, engine)
    content = {
        **manifest(spec, context, trial.number, trial.candidate, trial.outcome, engine),
        "confirmed": True,
        "confirmation": confirmed,
    }
    replaced = promote_engine(home.database, trial.uid, engine.digest, engine.format, engine.size_bytes, content)
    if replaced is not None:
        home.artifacts.remove(KIND, replaced)


def file_of(home: Home, context: Context, trial: Trial) -> EngineFile | None:
    """The kept engine of a trial as the backend knows it; None if none is kept."""
    for record in engines_of(home.database, context.id):
        if record.trial_uid == trial.uid:
            found = record.manifest["engine"]
            path = home.artifacts.path(KIND, record.digest, found["file"])
            cache = found.get("cache", "")  # engines of earlier versions know of none
            return EngineFile(str(path), record.digest, record.size_bytes, record.format, found["sidecars"], cache)
    return None


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
    uids = [one.trial_uid for one in engines_of(home.database, context.id)]
    for digest in drop_engines(home.database, uids):
        home.artifacts.remove(KIND, digest)


def manifest(
    spec: StudySpec, context: Context, number: int, candidate: Candidate, outcome: Outcome, engine: EngineFile
) -> dict[str, Any]:
    """What an engine is bound to: model, environment, candidate, what took effect, its losses."""
    environment = context.record.environment
    return {
        "format": 1,
        "study": spec.name,
        "trial": number,
        "model_digest": spec.model_digest,
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
            "identity": dict(environment.identity),
        },
        "candidate": dict(candidate.changes),
        "effective": dict(outcome.trace.effective),
        "losses": msgspec.to_builtins(outcome.accuracy) if isinstance(outcome, Measured | Built) else None,
        "confirmed": False,
    }


def attributes(trial: Trial, ratio: float | None) -> dict[str, Any]:
    """User attributes of a trial in its Optuna study: short, since dashboards load them for every trial."""
    found: dict[str, Any] = {
        "candidate": str(trial.candidate),
        "outcome": trial.status,
        "trial": trial.number,
    }
    if isinstance(trial.outcome, Measured | Built):
        if isinstance(trial.outcome, Measured):
            found["latency_ms"] = trial.outcome.samples.median_ms
        if trial.outcome.engine is not None:
            found["engine_mb"] = trial.outcome.engine.size_bytes / 1e6
        found["build_s"] = trial.outcome.trace.stage_s.get(Stage.BUILD, 0.0)
        if ratio is not None:
            found["speedup" if isinstance(trial.outcome, Measured) else "gain"] = ratio
    else:
        found["reason"] = trial.outcome.reason[:300]
    return found
