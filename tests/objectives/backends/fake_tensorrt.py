"""A FAKE tensorrt module, small and honest: build routes as the header of 11.1 describes them, engines that only copy.

It stands for what cannot be had here, the enterprise library: how our code asks, reads back, and refuses is tested
with it; what TensorRT does is not. Models are chains of Identity; a plan is the JSON of its inputs and outputs. Names
are checked against the real bindings in test_trt_names.py.
"""

from __future__ import annotations

import ctypes
import json
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx

from tests.objectives.backends.fake_cuda import FakeCuda

DataType = IntEnum("DataType", "FLOAT HALF BF16 FP8 INT8 INT32 INT64 UINT8 BOOL INT4", start=0)
TensorIOMode = IntEnum("TensorIOMode", "NONE INPUT OUTPUT", start=0)
TensorLocation = IntEnum("TensorLocation", "DEVICE HOST", start=0)
Severity = IntEnum("Severity", "INTERNAL_ERROR ERROR WARNING INFO VERBOSE", start=0)
MemoryPoolType = IntEnum("MemoryPoolType", "WORKSPACE TACTIC_SHARED_MEMORY", start=0)
_ONNX = {
    1: "FLOAT",
    10: "HALF",
    16: "BF16",
    17: "FP8",
    3: "INT8",
    6: "INT32",
    7: "INT64",
    2: "UINT8",
    9: "BOOL",
    11: "FLOAT",
}
SIZES = {"FLOAT": 4, "HALF": 2, "BF16": 2, "FP8": 1, "INT8": 1, "INT32": 4, "INT64": 8, "UINT8": 1, "BOOL": 1}


class _Base:
    """Stands for the library's own base classes, which must be initialized."""


class Tensor(SimpleNamespace):
    name: str
    dtype: Any
    shape: tuple[int, ...]
    is_shape_tensor: bool


class Network:
    def __init__(self) -> None:
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.sources: list[int] = []

    num_inputs = property(lambda self: len(self.inputs))
    num_outputs = property(lambda self: len(self.outputs))

    def get_input(self, index: int) -> Tensor:
        return self.inputs[index]

    def get_output(self, index: int) -> Tensor:
        return self.outputs[index]


class OnnxParser:
    num_errors = 1

    def __init__(self, network: Network, logger: Any) -> None:
        self._network = network

    def get_error(self, index: int) -> str:
        return "Plugin not found, are the name and version right?"

    def parse(self, content: bytes, path: str | None = None) -> bool:
        return self._take(onnx.load_from_string(content))

    def parse_from_file(self, path: str) -> bool:
        return self._take(onnx.load(path))

    def _take(self, model: Any) -> bool:
        if any(node.op_type not in ("Identity", "QuantizeLinear") for node in model.graph.node):
            return False
        self._network.inputs = [_tensor(value) for value in model.graph.input]
        self._network.outputs = [_tensor(value) for value in model.graph.output]
        made = {node.output[0]: node.input[0] for node in model.graph.node}
        names = [one.name for one in self._network.inputs]
        self._network.sources = [names.index(made[one.name]) for one in self._network.outputs]
        return True


def _tensor(value: Any) -> Tensor:
    kind = value.type.tensor_type
    shape = tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in kind.shape.dim)
    return Tensor(name=value.name, dtype=DataType[_ONNX[kind.elem_type]], shape=shape, is_shape_tensor=False)


class TimingCache:
    def __init__(self, content: bytes) -> None:
        self.content = content

    def serialize(self) -> bytes:
        return self.content


class Profile:
    def __init__(self) -> None:
        self.shapes: dict[str, Any] = {}

    def set_shape(self, name: str, low: Any, opt: Any, high: Any) -> None:
        self.shapes[name] = (low, opt, high)


class Config:
    """`conduct` of the module decides what becomes of a route."""

    def __init__(self, module: FakeTensorRT, log: Any) -> None:
        self._module = module
        self._log = log
        self._route = ""
        self._flags: set[Any] = set(module.default_flags)
        self._pools = {MemoryPoolType.WORKSPACE: 1 << 36, MemoryPoolType.TACTIC_SHARED_MEMORY: 1 << 30}
        self._cache: TimingCache | None = None
        self.max_aux_streams = -1
        self.builder_optimization_level = 3
        self.progress_monitor: Any = None
        self.profiles: list[Profile] = []

    @property
    def all_build_routes(self) -> str:
        return self._module.routes

    @property
    def build_route(self) -> str:
        return self._route

    @build_route.setter
    def build_route(self, route: str) -> None:
        if self._module.conduct == "refuse at once":
            self._log(Severity.ERROR, f"Build route token '{route}' must match format -name=value.")
        if self._module.conduct not in ("refuse at once", "ignore"):
            self._route = route

    def set_flag(self, flag: Any) -> None:
        self._flags.add(flag)

    def clear_flag(self, flag: Any) -> None:
        self._flags.discard(flag)

    def get_flag(self, flag: Any) -> bool:
        return flag in self._flags

    def set_memory_pool_limit(self, pool: Any, size: int) -> None:
        self._pools[pool] = size

    def get_memory_pool_limit(self, pool: Any) -> int:
        return self._pools[pool]

    def add_optimization_profile(self, profile: Profile) -> int:
        self.profiles.append(profile)
        return len(self.profiles) - 1

    def create_timing_cache(self, content: bytes) -> TimingCache:
        return TimingCache(content)

    def set_timing_cache(self, cache: TimingCache, ignore_mismatch: bool) -> bool:
        self._cache = cache
        return not cache.content.startswith(b"other device")

    def get_timing_cache(self) -> TimingCache:
        assert self._cache is not None
        return self._cache

    def tactic_was_timed(self) -> None:
        if self._cache is not None:
            self._cache.content += b"+1"


class FakeTensorRT:
    """The module. `conduct` decides what becomes of a build, above all of its route."""

    DataType = DataType
    TensorIOMode = TensorIOMode
    TensorLocation = TensorLocation
    MemoryPoolType = MemoryPoolType
    ProfilingVerbosity = IntEnum("ProfilingVerbosity", "LAYER_NAMES_ONLY NONE DETAILED", start=0)
    LayerInformationFormat = IntEnum("LayerInformationFormat", "ONELINE JSON", start=0)
    ExecutionContextAllocationStrategy = IntEnum(
        "ExecutionContextAllocationStrategy", "STATIC ON_PROFILE_CHANGE", start=0
    )

    class ILogger(_Base):
        def __init__(self) -> None:
            _Base.__init__(self)

    class IProgressMonitor(_Base):
        def __init__(self) -> None:
            _Base.__init__(self)

    class IOutputAllocator(_Base):
        def __init__(self) -> None:
            _Base.__init__(self)

    def __init__(self, version: str = "11.1.0-fake", routes: str = "", cuda: FakeCuda | None = None) -> None:
        self.__version__ = version
        self.routes = routes
        self.cuda = cuda
        self.conduct = "take"
        self.has_gpu = True
        self.inspector = '{"Layers": [{"LayerType": "kgen"}, {"LayerType": "gemm"}, "text"]}'
        self.unknown_sizes = False
        major = int(version.split(".")[0])
        weak = "" if major >= 11 else " FP16 BF16 INT8" if major >= 9 else " FP16 INT8"
        self.BuilderFlag = IntEnum("BuilderFlag", f"TF32 SPARSE_WEIGHTS{weak}", start=0)
        self.default_flags = (self.BuilderFlag["TF32"],)
        kinds = {8: "EXPLICIT_BATCH", 10: "EXPLICIT_BATCH STRONGLY_TYPED"}.get(major, "STRONGLY_TYPED")
        self.NetworkDefinitionCreationFlag = IntEnum("NetworkDefinitionCreationFlag", kinds, start=0)
        self.network_flags: list[int] = []
        self.configs: list[Config] = []
        fake = self

        class IBuilderConfig:
            if major >= 11:
                all_build_routes = build_route = property()

        class Builder:
            if major < 10:
                max_batch_size = 1

            def __init__(self, logger: Any) -> None:
                if not fake.has_gpu:
                    logger.log(Severity.ERROR, "CUDA initialization failure with error: 35")
                    raise TypeError("pybind11::init(): factory function returned nullptr")
                self._log = logger.log

            def create_network(self, flags: int = 0) -> Network:
                fake.network_flags.append(flags)
                return Network()

            def create_builder_config(self) -> Config:
                fake.configs.append(Config(fake, self._log))
                return fake.configs[-1]

            def create_optimization_profile(self) -> Profile:
                return Profile()

            def build_serialized_network(self, network: Network, config: Config) -> bytes | None:
                return fake.build(network, config, self._log)

        self.IBuilderConfig = IBuilderConfig
        self.Builder = Builder
        self.OnnxParser = OnnxParser
        self.IExecutionContext = Context
        self.Runtime = lambda logger: Runtime(fake, logger)

    def build(self, network: Network, config: Config, log: Any) -> bytes | None:
        if not self._goes_on(config):
            log(Severity.ERROR, "IBuilder::buildSerializedNetwork: Error Code 7: BuildCanceled")
            return None
        route = config.build_route
        if self.conduct == "refuse in the build" and route:
            log(Severity.ERROR, f"Build route knob '{route.split('=')[0]}' is not a valid knob.")
            return None
        if self.conduct == "complain" and route:
            log(
                Severity.ERROR, "IBuilderConfig has an empty allBuildRoutes, this means setBuildRoute is not supported."
            )
        if self.conduct == "out of memory":
            log(Severity.ERROR, "Error Code 2: OutOfMemory (Requested size was 1 bytes.)")
            return None
        if route and self.conduct != "say nothing":
            used = "-copy_ppg=on" if self.conduct == "override" else f"-conv_lowering=on {route}"
            log(Severity.VERBOSE, f"[TuningBuildRoute] Using build route: {used}")
        log(Severity.WARNING, "a warning")
        config.tactic_was_timed()
        io = [[one.name, one.dtype.name, list(one.shape)] for one in (*network.inputs, *network.outputs)]
        return json.dumps({"io": io, "inputs": len(network.inputs), "sources": network.sources}).encode()

    @staticmethod
    def _goes_on(config: Config) -> bool:
        monitor = config.progress_monitor
        if monitor is None:
            return True
        monitor.phase_start("Building engine", None, 3)
        goes_on = all(monitor.step_complete("Building engine", step) for step in range(3))
        monitor.phase_finish("Building engine")
        return goes_on


class Runtime:
    def __init__(self, module: FakeTensorRT, logger: Any) -> None:
        self._module = module
        self._logger = logger

    def deserialize_cuda_engine(self, plan: bytes) -> Engine | None:
        if not plan.startswith(b"{"):
            self._logger.log(Severity.ERROR, "Error Code 1: Serialization (magicTagRead == kMAGIC_TAG)")
            return None
        return Engine(self._module, json.loads(plan), self._logger)


class Engine:
    num_layers = 2
    device_memory_size_v2 = 64

    def __init__(self, module: FakeTensorRT, plan: Any, logger: Any) -> None:
        self.module = module
        self.logger = logger
        self.inputs: int = plan["inputs"]
        self.sources: list[int] = plan["sources"]
        self._io = {name: (DataType[kind], shape) for name, kind, shape in plan["io"]}
        self.names = list(self._io)

    num_io_tensors = property(lambda self: len(self.names))

    def get_tensor_name(self, index: int) -> str:
        return self.names[index]

    def get_tensor_mode(self, name: str) -> Any:
        return TensorIOMode["INPUT" if self.names.index(name) < self.inputs else "OUTPUT"]

    def get_tensor_dtype(self, name: str) -> Any:
        return self._io[name][0]

    def get_tensor_location(self, name: str) -> Any:
        return TensorLocation["HOST" if name.startswith("host") else "DEVICE"]

    def create_execution_context(self, strategy: Any = None) -> Context:
        return Context(self, strategy)

    def create_engine_inspector(self) -> Any:
        return SimpleNamespace(get_engine_information=lambda form: self.module.inspector)


class Context:
    nvtx_verbosity: Any = 0
    persistent_cache_limit = 0

    def __init__(self, engine: Engine, strategy: Any) -> None:
        self.engine = engine
        self.strategy = strategy
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}
        self.allocators: dict[str, Any] = {}
        self.runs = 0
        self.refuses = False

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        self.shapes[name] = tuple(shape)
        return 99 not in shape

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return True

    def set_output_allocator(self, name: str, allocator: Any) -> bool:
        self.allocators[name] = allocator
        return True

    def infer_shapes(self) -> list[str]:
        return []

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        shape = self._source(name)[1]
        return tuple(-1 for _ in shape) if self.engine.module.unknown_sizes else shape

    def execute_async_v3(self, stream_handle: int) -> bool:
        if self.refuses:
            self.engine.logger.log(Severity.ERROR, "the address of an input is missing")
            return False
        assert self.engine.module.cuda is not None
        for name in self.engine.names[self.engine.inputs :]:
            self.engine.module.cuda.work(lambda name=name: self._copy(name))  # type: ignore[misc]
        refuses, self.refuses = self.refuses, False
        return not refuses

    def _copy(self, name: str) -> None:
        source, shape = self._source(name)
        size = int(np.prod(shape, dtype=np.int64)) * SIZES[self.engine.get_tensor_dtype(name).name]
        target = self.addresses.get(name, 0)
        if name in self.allocators:
            target = self.allocators[name].reallocate_output_async(name, 0, size, 256, 0)
            if not target:
                self.refuses = True
                return
            self.allocators[name].notify_shape(name, shape)
        ctypes.memmove(target, self.addresses[source], size)
        self.runs += 1
        assert self.engine.module.cuda is not None
        self.engine.module.cuda.clock_ms += 0.5

    def _source(self, name: str) -> tuple[str, tuple[int, ...]]:
        position = self.engine.sources[self.engine.names.index(name) - self.engine.inputs]
        source = self.engine.names[position]
        return source, self.shapes[source]
