"""The builder's timing cache: read from a file that never changes, left beside the plan for others.

Flow: trt_build.py -> load HERE before a build, store HERE after it. A cache makes builds fast and hides their noise, so
it is used only when the user says so, and every build of a search starts from the same bytes: those that the default's
build left. What other builds add is never handed on, and a confirmation builds without.
"""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path
from typing import Any

from objectives.backends.trt_log import Log
from objectives.errors import HarnessError, InputError

FILE = "engine.timing-cache"
_USELESS = "will not be used"  # the library's warning about bytes that it cannot read, while it says it took them


def load(config: Any, path: Path | None, log: Log) -> str:
    """Give `config` the cache in `path`, an empty one without a path. Returns the digest of its bytes.

    Raises: InputError if this version has no timing cache, HarnessError if it does not take this one.
    """
    content = b"" if path is None else path.read_bytes()
    heard = len(log.messages)
    if not hasattr(config, "create_timing_cache") or _is_idle(taken := _give(config, content)):
        raise InputError("this version of TensorRT uses no timing cache", hint="leave the timing cache out")
    refused = [message.text for message in log.messages[heard:] if _USELESS in message.text]
    if not taken[0] or refused:
        raise HarnessError(
            f"the timing cache {path} was not taken: {'; '.join(refused) or 'it fits another version or device'}",
            hint="create the study with timing-cache=off",
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


def store(config: Any, folder: Path) -> str:
    """Write the cache that `config` has now to `FILE` in `folder`. Returns the digest of its bytes."""
    content = bytes(config.get_timing_cache().serialize())
    (folder / FILE).write_bytes(content)
    return hashlib.sha256(content).hexdigest()
