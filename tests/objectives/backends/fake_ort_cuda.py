"""A FAKE CUDA provider: real sessions on the CPU that claim to run on a GPU, over the fake CUDA's host memory.

It checks how our code asks, binds and reads back, never what a GPU does. `DEFAULTS` has the form and the names of what
onnxruntime-gpu 1.31 tells; assets/ort_cuda_options.json says where they were read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from objectives.backends import cuda_runtime, ort_cuda_io, ort_cuda_provider, ort_graph
from objectives.backends.ort_cuda_provider import CPU, CUDA
from tests.objectives.backends.fake_cuda import FakeCuda

ASSET = Path(__file__).parent / "assets" / "ort_cuda_options.json"
DEFAULTS: dict[str, str] = json.loads(ASSET.read_text())["options"]


class FakeProvider:
    """What the provider does: its options, whether it loads, where it puts nodes, what it refuses."""

    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda = cuda
        self.defaults = dict(DEFAULTS)
        self.loads = True
        self.on_cpu: tuple[str, ...] = ()  # operators that it has no kernels for
        self.ignored: tuple[str, ...] = ()  # options that it takes and does not set
        self.refuses = ""  # words with which it refuses every session
        self.opened: list[Any] = []

    def new_session(self, path: Path | bytes, options: Any, providers: Sequence[Any]) -> Any:
        """As ort_graph.new_session; `providers` are those that a GPU would be asked for."""
        (name, asked), rest = providers
        assert (name, rest) == (CUDA, CPU)
        if self.refuses:
            raise RuntimeError(self.refuses)
        if unknown := asked.keys() - self.defaults.keys():
            raise RuntimeError(f"Unknown provider option: {sorted(unknown)}")
        session = ort_graph.new_session(path, options)
        if not self.loads:
            return session
        found = FakeSession(session, self.defaults | {k: v for k, v in asked.items() if k not in self.ignored}, self)
        self.opened.append(found)
        return found


class FakeSession:
    """A session on the CPU that says it is on a GPU; keeps the graph numbers of its inferences."""

    def __init__(self, session: Any, options: dict[str, str], provider: FakeProvider) -> None:
        self._session = session
        self._options = options
        self._provider = provider
        self.graphs: list[str] = []
        self.released: list[int] = []
        self.fails = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def get_providers(self) -> list[str]:
        return [CUDA, CPU]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {CUDA: self._options, CPU: {}}

    def get_provider_graph_assignment_info(self) -> list[Any]:
        nodes = [node for part in self._session.get_provider_graph_assignment_info() for node in part.get_nodes()]
        split = {
            CUDA: [node for node in nodes if node.op_type not in self._provider.on_cpu],
            CPU: [node for node in nodes if node.op_type in self._provider.on_cpu],
        }
        return [SimpleNamespace(ep_name=name, get_nodes=lambda of=of: of) for name, of in split.items() if of]

    def run_with_iobinding(self, binding: Any, options: Any = None) -> None:
        if self.fails:
            raise RuntimeError(self.fails)
        self.graphs.append("" if options is None else options.get_run_config_entry("gpu_graph_id"))
        self._session.run_with_iobinding(binding, options)
        self._provider.cuda.clock_ms += 0.5

    def release_captured_graph(self, number: int) -> None:
        self.released.append(number)


def install(patch: pytest.MonkeyPatch, provider: FakeProvider) -> None:
    """Put the fakes where the real ones are found."""
    patch.setattr(cuda_runtime, "runtime", provider.cuda)
    patch.setattr(ort_cuda_provider.ort, "get_available_providers", lambda: [CUDA, CPU])
    patch.setattr(ort_cuda_provider, "new_session", provider.new_session)
    patch.setattr(ort_cuda_io, "DEVICE", "cpu")
    ort_cuda_provider._probe.cache_clear()
