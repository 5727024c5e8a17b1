"""Teller: tells Optuna of finished trials behind the loop's back, in their order.

Flow: loop.py has recorded a trial -> `tell` keeps it HERE until `go`, when the next evaluation begins -> a thread adds
it to Optuna's study and notes that it is told. An Optuna trial takes dozens of small queries, some fifty milliseconds:
a device should not wait for them, nor the next proposal for a database that has one writer at a time. A kill in between
costs nothing, since what is recorded and not told is told at the next start.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

from storage.database import Database
from storage.trials import mark_told
from tuner.ledger import Trial
from tuner.search.observation import Observation
from tuner.search.projection import Projection


class _Word(NamedTuple):
    trial: Trial
    seen: Observation
    attributes: Mapping[str, Any]


class Teller:
    """Tells until `close`, which waits for the last word. An error is raised by the next call. Used under one lock."""

    def __init__(self, database: Database, projection: Projection) -> None:
        self._database = database
        self._projection = projection
        self._kept: list[_Word] = []
        self._words: queue.SimpleQueue[_Word | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="tuner-teller", daemon=True)
        self._thread.start()

    def tell(self, trial: Trial, seen: Observation, attributes: Mapping[str, Any]) -> None:
        """Have a recorded trial told after the next `go`. Raises: what the telling of an earlier one raised."""
        self._raise()
        self._kept.append(_Word(trial, seen, attributes))

    def go(self) -> None:
        """Now is a good time: nobody is about to write."""
        kept, self._kept = self._kept, []
        for word in kept:
            self._words.put(word)

    def close(self) -> None:
        """Wait until everything is told, and end. May be called twice. Raises: as `tell`."""
        self.go()
        self._words.put(None)
        self._thread.join()
        self._raise()

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _work(self) -> None:
        while (word := self._words.get()) is not None:
            try:
                trial = word.trial
                self._projection.tell(trial.uid, word.seen, word.attributes, trial.started_at, trial.finished_at)
                mark_told(self._database, [trial.uid])
            except BaseException as error:  # handed to the loop, whatever it is; the rest is told at the next start
                self._error = error
                return
