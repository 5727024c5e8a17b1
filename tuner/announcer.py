"""Announcer: tells the database what a run is at, so that `study watch` can show it in another terminal.

Flow: the loop's events -> Tracker -> HERE, a thread that writes at most twice a second and that nobody waits for ->
storage/activities.py. Nothing depends on what is written; it goes when the run ends, and is passed over when it died.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from storage.activities import activities_of, say
from storage.errors import StorageError
from tuner.context import Context
from tuner.doing import Tracker
from tuner.home import Home
from tuner.owner import is_alive, this_process
from tuner.progress import Progress
from tuner.together import Together

_BEAT_S = 15.0
_GAP_S = 0.5  # between two writes: trials may be shorter than that
_DETAIL_S = 1.0  # words within a stage are not worth more


@contextmanager
def announced(home: Home, context: Context, progress: Progress) -> Iterator[Progress]:
    """A listener to hand to the run instead of `progress`, which hears everything as well."""
    announcer = _Announcer(home, context)
    announcer.start()
    try:
        yield Together(progress, announcer.tracker)
    finally:
        announcer.stop()


class _Announcer:
    def __init__(self, home: Home, context: Context) -> None:
        self.tracker = Tracker(self._changed)
        self._database = home.database
        self._context_id = context.id
        self._owner = this_process()
        self._news = threading.Event()
        self._ended = threading.Event()
        self._written_s = 0.0
        self._thread = threading.Thread(target=self._write, name="tuner-announcer", daemon=True)

    def start(self) -> None:
        with suppress(StorageError):
            for left in activities_of(self._database, [self._context_id]):
                if is_alive(left.owner) is False:
                    say(self._database, self._context_id, left.owner, [])
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._news.set()
        self._thread.join()
        with suppress(StorageError):
            say(self._database, self._context_id, self._owner, [])

    def _changed(self, is_new: bool) -> None:
        # A stage is told at once; words within one are never told late, in the middle of what is being timed.
        if is_new or time.monotonic() - self._written_s >= _DETAIL_S:
            self._news.set()

    def _write(self) -> None:
        while True:
            self._news.wait(_BEAT_S)
            if self._ended.is_set():
                return
            self._news.clear()
            doings = [(device, one.words, one.since) for device, one in self.tracker.doing.items()]
            with suppress(StorageError):  # busy or gone: the loop's own writes report that
                say(self._database, self._context_id, self._owner, doings)
            self._written_s = time.monotonic()
            self._ended.wait(_GAP_S)
