"""Spread: the process pairs of a confirmation on every device at once, each pair on one.

Flow: confirm.py has pairs to take, in an order -> HERE each device takes the next one -> recorded as they come. A
device that fails is given up, its pair is taken by another; the last one's failure is the confirmation's.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from objectives.errors import HarnessError, StoppedError
from tuner.lanes import DeviceLostError, Lane, run_all
from tuner.places import Place
from tuner.progress import Progress

Job = tuple[str, int]  # finalist, number of the pair
Take = Callable[[Lane, Job], None]


class Spread:
    """The devices of one confirmation."""

    def __init__(self, places: Sequence[Place], progress: Progress) -> None:
        self._progress = progress
        self._lanes = [Lane(one, progress.for_device(one.name) if len(places) > 1 else progress) for one in places]
        self._lock = threading.Lock()
        self._jobs: deque[Job] = deque()

    def run(self, jobs: Sequence[Job], take: Take, is_over: Callable[[], bool]) -> None:
        """Take every pair, one after another on each device, until `is_over` says that no more begins.

        Raises: DeviceLostError or HarnessError of the last device that was left; StudyError.
        """
        self._jobs = deque(jobs)

        def work(lane: Lane) -> str:
            while not is_over():
                job = self._next()
                if job is None:
                    return "all pairs are taken"
                if not self._taken(lane, job, take):
                    return "the device was given up"
            return "the time is up"

        run_all(list(self._lanes), work, self._stop)
        if self._jobs and not is_over():  # of a device that was given up when the others had done
            self.run(list(self._jobs), take, is_over)

    def _next(self) -> Job | None:
        with self._lock:
            return self._jobs.popleft() if self._jobs else None

    def _taken(self, lane: Lane, job: Job, take: Take) -> bool:
        """Whether the pair was taken; if not the device is gone, and the pair is left for others."""
        try:
            take(lane, job)
        except StoppedError:
            raise
        except (DeviceLostError, HarnessError) as error:
            with self._lock:
                self._jobs.appendleft(job)
                self._lanes.remove(lane)
                if not self._lanes:
                    raise
            self._progress.on_device_lost(lane.name, str(error))
            return False
        return True

    def _stop(self) -> None:
        for lane in self._lanes:
            lane.stop()
