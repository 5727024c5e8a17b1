"""An open ONNX Runtime engine on the GPU: arrays in, arrays out, timed by the device's own clock.

Flow: ort_cuda.py opens an engine -> OrtCudaSession HERE -> evaluate.py checks and times it. Inputs and outputs stay on
the GPU. The library waits for its stream at the end of each inference (1.31), as it does for everybody who uses it: the
gaps between inferences belong to what is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

from objectives.backends.base import Session, Values
from objectives.backends.cuda_runtime import Stream
from objectives.backends.ort_cuda_io import Feed
from objectives.backends.ort_errors import translate_errors
from objectives.conditions import Watch
from objectives.errors import CandidateError, HarnessError
from objectives.outcome import FailureKind
from objectives.tensors import Array, Tensors


class OrtCudaSession(Session):
    """`session` and the `stream` that it computes on become this object's own."""

    clock = "cuda_event"

    def __init__(
        self, session: Any, stream: Stream, effective: Values, is_captured: bool, new_watch: Callable[[], Watch]
    ) -> None:
        self._session = session
        self._stream = stream
        self._effective = dict(effective)
        self._is_captured = is_captured
        self._new_watch = new_watch
        self._graphs = count(1)  # a graph keeps the addresses that it was captured with: a new number for each feed
        self._resident: Feed | None = None

    @property
    def effective(self) -> Values:
        return self._effective

    def run(self, inputs: Tensors) -> dict[str, Array]:
        feed = self._feed(inputs)
        try:
            outputs = feed.outputs()
        except BaseException:
            feed.discard()
            raise
        feed.close()
        return outputs

    def bind(self, inputs: Tensors) -> None:
        done, self._resident = self._resident, None
        if done is not None:
            done.close()
        self._resident = self._feed(inputs)
        self._effective["inputs"] = "resident"

    def measure(self, repeats: int) -> float:
        """Device time, from events around the inferences; copies of inputs and outputs are not in it."""
        feed = self._require_bound()
        with translate_errors(FailureKind.RUN_FAILED):
            return self._stream.seconds(lambda: _repeat(feed, repeats))

    def _execute(self, repeats: int) -> None:
        feed = self._require_bound()
        with translate_errors(FailureKind.RUN_FAILED):
            _repeat(feed, repeats)
        self._stream.synchronize()

    def watch(self) -> Watch:
        return self._new_watch()

    def close(self) -> None:
        if self._session is None:
            return
        if self._resident is not None:
            self._resident.discard()
        self._resident = self._session = None  # the library is done with the stream before it goes
        with suppress(CandidateError):
            self._stream.close()

    def _feed(self, inputs: Tensors) -> Feed:
        if self._session is None:
            raise HarnessError("this session is closed")
        return Feed(self._session, self._stream, inputs, next(self._graphs) if self._is_captured else None)

    def _require_bound(self) -> Feed:
        if self._session is None:
            raise HarnessError("this session is closed")
        if self._resident is None:
            raise HarnessError("measure was called before bind")
        return self._resident


def _repeat(feed: Feed, repeats: int) -> None:
    for _ in range(repeats):
        feed.launch()
