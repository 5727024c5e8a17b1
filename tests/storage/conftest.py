"""Records and open databases for the tests of storage."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from storage.database import Database
from storage.migrate import create_database
from storage.records import EnvironmentRecord, Finish, KnobSpaceRecord, ModelRecord, Owner, RoundRecord, StudyRecord
from storage.studies import add_study, open_context

MODEL = ModelRecord("m" * 64, "net", "onnx", 3_000_000_000, {"inputs": ["größe"]})
ENVIRONMENT = EnvironmentRecord("e" * 64, "synthetic", "1", "cuda:GPU-1", {"machine": "x86_64"}, {"python": "3"})
SPACE = KnobSpaceRecord("k" * 64, [{"name": "a", "values": ["0", "1"]}, {"name": "b", "values": ["0"]}])
JUDGING = {"limits": [{"metric": "rel_l2", "limit": 0.01}]}
ME = Owner("owner-me", "here", 100, 1e9)
OTHER = Owner("owner-other", "there", 200, 2e9)


def study_record(name: str = "study", model: ModelRecord = MODEL, **spec: Any) -> StudyRecord:
    return StudyRecord(name, "synthetic", model, {"format": 1, **spec}, datetime(2030, 1, 2, 3, 4, 5, 678901, UTC))


def measured(**changes: Any) -> Finish:
    values = {
        "outcome": "measured",
        "stage": None,
        "kind": None,
        "reason": "",
        "latency_ms": 0.1 + 0.2,
        "throughput": 3333.3333333333335,
        "accuracy": {"losses": [{"pair": "ü", "losses": {"l2": None, "l1": 1e-310}}]},
        "trace": {"asked": {"a": "1"}},
        "timing": {"clock": "host"},
        "rounds": [RoundRecord(3, [1.5, 0.1 + 0.2]), RoundRecord(4, [2.5])],
        "spent_s": 1.25,
        "engine_digest": "f" * 64,
    }
    return Finish(**{**values, **changes})


def failed(reason: str = "no implementation") -> Finish:
    return Finish("failed", "build", "build_failed", reason, None, None, None, {"signal": 11}, None, [], 0.5)


@pytest.fixture
def database(any_url: str) -> Iterator[Database]:
    """An empty database with our tables."""
    found = create_database(any_url)
    yield found
    found.close()


@pytest.fixture
def context_id(database: Database) -> int:
    """The only context of the study `study`."""
    add_study(database, study_record())
    return open_context(database, "study", ENVIRONMENT, SPACE, JUDGING, "j" * 64).id
