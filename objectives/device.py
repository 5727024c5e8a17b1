"""Device lock: one device is measured by one process at a time.

Flow: the study's loop holds the lock HERE around each evaluation; a second study on the same device waits its turn.
An advisory lock of the operating system: it goes when its holder goes, however that ends.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from objectives.errors import HarnessError, StoppedError

_POLL_S = 0.1


@contextmanager
def device_lock(
    device: str, on_wait: Callable[[str], None] | None = None, is_stopped: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Hold the lock of `device` (as in `Environment.device`) while inside; an empty name locks nothing.

    `on_wait` is called once, with the device, if somebody else holds it. Raises: HarnessError if locks cannot be made,
    StoppedError if `is_stopped` says so while waiting.
    """
    if not device:
        yield
        return
    try:
        descriptor = _open(_path(device))
    except OSError as error:
        raise HarnessError(f"cannot open the device lock {_path(device)}: {error.strerror}") from error
    try:
        _acquire(descriptor, device, on_wait, is_stopped)
        yield
    finally:
        os.close(descriptor)


def _acquire(
    descriptor: int, device: str, on_wait: Callable[[str], None] | None, is_stopped: Callable[[], bool]
) -> None:
    waiting = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if is_stopped():
                raise StoppedError(f"stopped while waiting for {device}") from None
            if not waiting and on_wait is not None:
                on_wait(device)
            waiting = True
            time.sleep(_POLL_S)


def _open(path: Path) -> int:
    # Other users measure on the same device: the lock is everybody's, whatever our umask says.
    if not path.parent.is_dir():
        path.parent.mkdir(exist_ok=True)
        path.parent.chmod(0o777)
    is_new = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    if is_new:
        path.chmod(0o666)
    return descriptor


def _path(device: str) -> Path:
    return Path(tempfile.gettempdir()) / "tuner-device-locks" / (re.sub(r"[^A-Za-z0-9.-]", "_", device) + ".lock")
