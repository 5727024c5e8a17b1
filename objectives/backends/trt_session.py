"""An open TensorRT engine: arrays in, arrays out, timed by the device's own clock.

Flow: trt_open.py makes engine and context -> TrtSession HERE -> evaluate.py checks and times it. Two sets of buffers,
one for `run` and one that `bind` keeps resident; whichever is used next is attached to the context first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from objectives.backends.base import Session, Values
from objectives.backends.cuda_runtime import Graph, Stream
from objectives.backends.trt_errors import failure
from objectives.backends.trt_io import Feed
from objectives.backends.trt_log import capture
from objectives.backends.trt_open import Loaded
from objectives.conditions import Watch
from objectives.errors import CandidateError, HarnessError
from objectives.outcome import FailureKind
from objectives.tensors import Array, Tensors, dtype_of


class TrtSession(Session):
    """`loaded` becomes the session's; `output_types` are the model's own, in the model's order."""

    clock = "cuda_event"

    def __init__(
        self,
        loaded: Loaded,
        output_types: Mapping[str, str],
        effective: Values,
        is_captured: bool,
        new_watch: Callable[[], Watch],
    ) -> None:
        self._loaded: Loaded | None = loaded
        self._output_types = dict(output_types)
        self._effective = dict(effective)
        self._is_captured = is_captured
        self._new_watch = new_watch
        self._stream = Stream()
        self._transient: Feed | None = None
        self._resident: Feed | None = None
        self._attached: Feed | None = None
        self._graph: Graph | None = None

    @property
    def effective(self) -> Values:
        return self._effective

    def run(self, inputs: Tensors) -> dict[str, Array]:
        loaded = self._require_open()
        done, self._transient = self._transient, None
        self._drop(done)
        self._transient = Feed(loaded, self._stream, inputs)
        self._attach(self._transient)
        self._launch()
        found = self._transient.outputs()
        return {name: found[name].astype(dtype_of(kind), copy=False) for name, kind in self._output_types.items()}

    def bind(self, inputs: Tensors) -> None:
        loaded = self._require_open()
        done, self._resident = self._resident, None
        self._drop(done)
        self._resident = Feed(loaded, self._stream, inputs)
        self._attach(self._resident)
        if any(slot.allocator is not None for slot in self._resident.slots):
            self._effective["outputs"] = "of a size that depends on the data"

    def measure(self, repeats: int) -> float:
        """Device time, from events around the inferences; copies are not in it."""
        self._attach_resident()
        return self._stream.seconds(lambda: self._repeat(repeats))

    def _execute(self, repeats: int) -> None:
        self._attach_resident()
        self._repeat(repeats)
        self._stream.synchronize()

    def watch(self) -> Watch:
        return self._new_watch()

    def close(self) -> None:
        if self._loaded is None:
            return
        loaded, self._loaded = self._loaded, None
        # After a fault on the device every further call fails: that must not hide the words of the first.
        with suppress(CandidateError):
            for feed in (self._transient, self._resident):
                self._drop(feed)
            self._drop_graph()
        self._transient = self._resident = None
        loaded.context = loaded.engine = None  # in this order, before the runtime
        with suppress(CandidateError):
            self._stream.close()

    def _require_open(self) -> Loaded:
        if self._loaded is None:
            raise HarnessError("this session is closed")
        return self._loaded

    def _attach_resident(self) -> None:
        self._require_open()
        if self._resident is None:
            raise HarnessError("measure was called before bind")
        self._attach(self._resident)

    def _attach(self, feed: Feed) -> None:
        """Make `feed` what the context works on. The first inference after that does extra work: it is done here."""
        if self._attached is feed:
            return
        self._drop_graph()
        self._attached = None
        feed.attach()
        self._enqueue()
        self._stream.synchronize()
        if self._is_captured:
            if any(slot.allocator is not None for slot in feed.slots):
                words = "cuda_graph=capture: outputs whose size depends on the data cannot be captured"
                raise CandidateError(FailureKind.UNSUPPORTED, words)
            self._graph = self._stream.capture(self._enqueue)
            self._effective["graph"] = "captured"
        self._attached = feed

    def _repeat(self, repeats: int) -> None:
        for _ in range(repeats):
            self._launch()

    def _launch(self) -> None:
        if self._graph is not None:
            self._graph.launch()
        else:
            self._enqueue()

    def _enqueue(self) -> None:
        # The log is listened to only after a failure would have been told by the result: capturing costs host time.
        if not self._require_open().context.execute_async_v3(self._stream.handle):
            with capture(self._require_open().library) as log:
                self._require_open().context.execute_async_v3(self._stream.handle)
            raise failure(log, FailureKind.RUN_FAILED, "the inference was not accepted")

    def _drop(self, feed: Feed | None) -> None:
        if feed is not None:
            if self._attached is feed:
                self._drop_graph()
                self._attached = None
            self._stream.synchronize()
            feed.close()

    def _drop_graph(self) -> None:
        graph, self._graph = self._graph, None
        if graph is not None:
            graph.close()
