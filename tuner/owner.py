"""Owner: who works on a trial, whether that process still lives, and its heartbeat.

Flow: the loop leases its trials as HERE; another process that finds a lease asks `is_alive` before it takes over.
"""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psutil

from storage.database import Database
from storage.errors import StorageError
from storage.records import Owner
from storage.trials import beat

_BEAT_S = 15.0
_SAME_START_S = 2.0  # start times read from the kernel's tick counter differ by fractions of a second


def this_process() -> Owner:
    """An owner for this run of this process."""
    return Owner(str(uuid.uuid4()), socket.gethostname(), os.getpid(), psutil.Process().create_time())


def is_alive(owner: Owner) -> bool | None:
    """Whether the owner's process runs; None if it is on another host."""
    if owner.host != socket.gethostname():
        return None
    try:
        started_s = psutil.Process(owner.pid).create_time()
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True  # it exists, but is somebody else's
    return bool(abs(started_s - owner.started_s) < _SAME_START_S)


@contextmanager
def heartbeat(database: Database, owners: Sequence[Owner]) -> Iterator[None]:
    """Renew the owners' leases in the background while inside."""
    stop = threading.Event()

    def renew() -> None:
        while not stop.wait(_BEAT_S):
            try:
                for owner in owners:
                    beat(database, owner)
            except StorageError:
                continue  # the next beat may get through; the loop's own writes report a database that is gone

    thread = threading.Thread(target=renew, name="tuner-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
