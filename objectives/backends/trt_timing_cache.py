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


def has_timing_cache(config: Any) -> bool:
    """Whether the installed version uses timing caches; TensorRT-RTX keeps the calls and warns that they do nothing."""
    if not hasattr(config, "create_timing_cache"):
        return False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        config.create_timing_cache(b"")
    return not any(issubclass(one.category, DeprecationWarning) for one in caught)


def load(config: Any, path: Path, log: Log) -> str:
    """Give `config` the cache in `path`, an empty one if there is no such file. Returns the digest of its bytes.

    Raises: InputError if this version has no timing cache, HarnessError if it does not take this one.
    """
    if not has_timing_cache(config):
        raise InputError("this version of TensorRT uses no timing cache", hint="leave the timing cache out")
    content = path.read_bytes() if path.exists() else b""
    cache = config.create_timing_cache(content)
    heard = len(log.messages)
    taken = cache is not None and config.set_timing_cache(cache, False)
    refused = [message.text for message in log.messages[heard:] if _USELESS in message.text]
    if not taken or refused:
        raise HarnessError(
            f"the timing cache {path} was not taken: {'; '.join(refused) or 'it fits another version or device'}",
            hint="delete the file to start with an empty one",
        )
    return hashlib.sha256(content).hexdigest()


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
