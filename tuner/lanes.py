"""Lanes: a run on several devices is several threads that each carry a device's process through the loop's steps.

Flow: loop.py makes a Lane for each place -> HERE they run at once and end together: with the work, with an interrupt,
or with an error that is no device's. One lane runs in the caller's thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from objectives.errors import HarnessError, StoppedError
from objectives.isolation import Isolation
from objectives.outcome import Outcome
from objectives.requests import EvaluateRequest
from tuner.errors import StudyError
from tuner.owner import this_process
from tuner.places import Place, label
from tuner.progress import Progress

_HARNESS_ATTEMPTS = 3
_HARNESS_PAUSE_S = 1.0


class DeviceLostError(StudyError):
    """A device, or the machinery on it, keeps failing; another device may go on."""


class Lane:
    """One device of a run: its process, the owner of its leases, the listener to its trials."""

    def __init__(self, place: Place, progress: Progress) -> None:
        self.place = place
        self.progress = progress
        self.owner = this_process()
        self._stopped = threading.Event()
        self._started: list[Isolation] = []
        self.isolation = self.fresh()

    @property
    def device(self) -> str:
        """As it is locked and recorded."""
        return self.place.key

    @property
    def name(self) -> str:
        return label(self.place)

    def fresh(self) -> Isolation:
        """Another process on this device."""
        made = self.place.fresh()
        self._started.append(made)
        if self._stopped.is_set():
            made.stop()
        return made

    def stop(self) -> None:
        """End what is going on here, from any thread."""
        self._stopped.set()
        for one in self._started:
            one.stop()

    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    def evaluate(self, request: EvaluateRequest) -> Outcome:
        """The outcome of a request. Raises: DeviceLostError if the machinery fails again and again, StoppedError."""
        for attempt in range(1, _HARNESS_ATTEMPTS + 1):
            try:
                return self.isolation.evaluate(request, self.progress.on_stage)
            except StoppedError:
                raise
            except HarnessError as error:
                if attempt == _HARNESS_ATTEMPTS:
                    raise DeviceLostError(
                        f"the evaluation machinery failed {attempt} times in a row: {error}",
                        hint=error.hint or "nothing is lost: run the study again when the cause is gone",
                    ) from error
                time.sleep(_HARNESS_PAUSE_S)
        raise AssertionError("unreachable: the loop returns or raises")

    def close(self) -> None:
        """End the process."""
        self.isolation.close()


def run_all(lanes: Sequence[Lane], work: Callable[[Lane], str], stop: Callable[[], None]) -> str:
    """Carry out `work` for every lane at once; returns what the last to end gives as reason.

    An error in one stops all, and is raised when all have ended; so does an interrupt of this thread.
    """
    if len(lanes) == 1:
        return work(lanes[0])
    reasons: list[str] = []
    errors: list[BaseException] = []

    def carry(lane: Lane) -> None:
        try:
            reasons.append(work(lane))
        except BaseException as error:  # handed to the caller's thread, whatever it is
            errors.append(error)
            stop()

    threads = [threading.Thread(target=carry, args=(lane,), name=f"tuner-lane-{lane.name}") for lane in lanes]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        stop()
        raise
    finally:
        for thread in threads:
            if thread.ident is not None:
                thread.join()
    if errors:
        # What was stopped because of it says nothing.
        raise next((error for error in errors if not isinstance(error, StoppedError)), errors[0])
    return reasons[-1]
