"""The builder's timing cache: read from a file that never changes, written under the digest of its content.

Flow: trt_build.py -> load HERE before a build, store HERE after it. A cache makes builds fast and hides their noise,
so it is used only when a setting names one, every build starts from the same bytes, and what a build adds goes
elsewhere.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

from objectives.backends.trt_log import Log
from objectives.errors import HarnessError, InputError

_USELESS = "will not be used"  # the library's warning about bytes that it cannot read, while it says it took them


def load(config: Any, path: Path, log: Log) -> str:
    """Give `config` the cache in `path`, an empty one if there is no such file. Returns the digest of its bytes.

    Raises: InputError if this version has no timing cache, HarnessError if it does not take this one.
    """
    content = path.read_bytes() if path.exists() else b""
    heard = len(log.messages)
    if not hasattr(config, "create_timing_cache") or _is_idle(taken := _give(config, content)):
        raise InputError("this version of TensorRT uses no timing cache", hint="leave the timing cache out")
    refused = [message.text for message in log.messages[heard:] if _USELESS in message.text]
    if not taken[0] or refused:
        raise HarnessError(
            f"the timing cache {path} was not taken: {'; '.join(refused) or 'it fits another version or device'}",
            hint="delete the file to start with an empty one",
        )
    return hashlib.sha256(content).hexdigest()


def _give(config: Any, content: bytes) -> tuple[bool, list[warnings.WarningMessage]]:
    """Whether the library says that it took the cache, and what it warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cache = config.create_timing_cache(content)
        return cache is not None and bool(config.set_timing_cache(cache, False)), caught


def _is_idle(given: tuple[bool, list[warnings.WarningMessage]]) -> bool:
    """TensorRT-RTX keeps the calls, takes any bytes, and warns that they do nothing."""
    return any(issubclass(one.category, DeprecationWarning) for one in given[1])


def store(config: Any, beside: Path) -> str:
    """Write the cache that `config` has now into the folder of `beside`, named by digest. Returns the digest."""
    content = bytes(config.get_timing_cache().serialize())
    digest = hashlib.sha256(content).hexdigest()
    target = beside.parent / f"{digest}.timing-cache"
    if not target.exists():
        descriptor, temporary = tempfile.mkstemp(dir=beside.parent, prefix=".timing-cache.")
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        os.replace(temporary, target)
    return digest
