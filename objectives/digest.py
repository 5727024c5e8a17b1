"""Digests: one canonical form for everything that has an identity.

Flow: every value whose identity is stored (knob space, candidate, environment, workload) passes HERE.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

_CHUNK_BYTES = 1 << 20


def digest_of(value: Any) -> str:
    """SHA-256 (64 hex digits) of the JSON of `value` with sorted keys: equal values, equal digests."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


def digest_of_file(path: Path) -> str:
    """SHA-256 (64 hex digits) of a file's bytes, read in pieces."""
    hasher = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            hasher.update(chunk)
    return hasher.hexdigest()
