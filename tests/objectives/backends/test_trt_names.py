"""Every name that our code uses of TensorRT exists in the bindings of at least one supported version.

The enterprise library cannot be had here, so a misspelt attribute would show on a user's machine first. The names come
from the published wheels (assets/make_trt_names.py); what stands for which class is told by the names of our variables.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from objectives.backends import trt_knobs, trt_routes
from tests.objectives.backends import fake_tensorrt
from tests.objectives.backends.trt_fakes import ASSETS

# The trtexec backend talks to a command, not to the library.
SOURCES = sorted(
    path for path in Path(trt_routes.__file__).parent.glob("trt*.py") if not path.name.startswith("trtexec")
)
DOCUMENT = json.loads((ASSETS / "trt_names.json").read_text())
VERSIONS: list[str] = DOCUMENT["versions"]
MEMBERS: dict[str, dict[str, list[int]]] = DOCUMENT["members"]
# Our variables that hold objects of the library, by class; `library` is the module itself.
HOLDS = {
    "library": "",
    "builder": "Builder",
    "network": "INetworkDefinition",
    "parser": "OnnxParser",
    "config": "IBuilderConfig",
    "fresh": "IBuilderConfig",
    "profile": "IOptimizationProfile",
    "tensor": "ITensor",
    "cache": "ITimingCache",
    "runtime": "Runtime",
    "engine": "ICudaEngine",
    "context": "IExecutionContext",
}
# Where such a name means something else.
ELSEWHERE = {("trt_precision.py", "tensor"), ("trt_build.py", "cache"), ("trt.py", "engine")}
# `config` in trt_open.py is the run-time configuration.
OTHER = {("trt_open.py", "config"): "IRuntimeConfig"}
OURS = {"__version__"}


def uses(source: Path) -> Iterator[tuple[str, str, int]]:
    """Class, attribute and line of every use, enum members and the strings of `hasattr` and `getattr` among them."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Attribute):
            owner, name = _class_of(source, node.value), node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("hasattr", "getattr"):
            owner = _class_of(source, node.args[0])
            name = node.args[1].value if isinstance(node.args[1], ast.Constant) else ""
        elif isinstance(node, ast.ClassDef):
            yield from _of_subclass(source, node)
            continue
        else:
            continue
        if owner is not None and name and not name.startswith("__") and name not in OURS:
            yield owner, name, node.lineno


def _class_of(source: Path, node: ast.expr) -> str | None:
    """The library's class of an expression: by the last name in it, or `library.Class`."""
    if isinstance(node, ast.Attribute) and _class_of(source, node.value) == "":
        return node.attr if node.attr in MEMBERS else None
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    if (source.name, name) in ELSEWHERE:
        return None
    return OTHER.get((source.name, name), HOLDS.get(name))


def _of_subclass(source: Path, node: ast.ClassDef) -> Iterator[tuple[str, str, int]]:
    """What we override of a base class of the library's."""
    for base in node.bases:
        if isinstance(base, ast.Attribute) and _class_of(source, base.value) == "":
            for method in (one for one in node.body if isinstance(one, ast.FunctionDef)):
                if not method.name.startswith("_") and method.name != "release":
                    yield base.attr, method.name, method.lineno


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.name))
def test_every_name_exists_somewhere(source: Path) -> None:
    unknown = [
        f"{source.name}:{line}: {owner or 'the module'} has no {name!r} in any version"
        for owner, name, line in uses(source)
        if name not in MEMBERS.get(owner, {}) and name != "__members__"
    ]
    assert unknown == []


def test_the_check_finds_what_is_misspelt(tmp_path: Path) -> None:
    source = tmp_path / "trt_wrong.py"
    source.write_text("config.bild_route = library.BuilderFlag.FP61\nhasattr(self._loaded.engine, 'num_layres')\n")
    found = [(owner, name) for owner, name, _ in uses(source) if name not in MEMBERS[owner]]
    assert found == [("IBuilderConfig", "bild_route"), ("ICudaEngine", "num_layres"), ("BuilderFlag", "FP61")] or set(
        found
    ) == {("IBuilderConfig", "bild_route"), ("ICudaEngine", "num_layres"), ("BuilderFlag", "FP61")}


def test_enough_is_looked_at() -> None:
    found = {(owner, name) for source in SOURCES for owner, name, _ in uses(source)}
    assert {
        ("IBuilderConfig", "build_route"),
        ("IExecutionContext", "execute_async_v3"),
        ("IProgressMonitor", "step_complete"),
        ("Builder", "build_serialized_network"),
        ("IRuntimeConfig", "set_execution_context_allocation_strategy"),
    } <= found
    assert len(found) > 60


@pytest.mark.parametrize("version", [name for name in VERSIONS if not name.startswith("tensorrt 8")])
def test_the_core_exists_in_every_version(version: str) -> None:
    index = VERSIONS.index(version)
    for owner, name in (
        ("Builder", "build_serialized_network"),
        ("IExecutionContext", "execute_async_v3"),
        ("IExecutionContext", "set_input_shape"),
        ("IExecutionContext", "infer_shapes"),
        ("ICudaEngine", "get_tensor_location"),
        ("OnnxParser", "parse_from_file"),
        ("IBuilderConfig", "set_memory_pool_limit"),
        ("IProgressMonitor", "step_complete"),
    ):
        assert index in MEMBERS[owner][name], (owner, name)


def test_names_that_tables_spell_as_text() -> None:
    assert set(trt_knobs._FLAGS) <= set(MEMBERS["BuilderFlag"])
    for name in ("builder_optimization_level", "max_num_tactics", "max_aux_streams", "avg_timing_iterations"):
        assert name in MEMBERS["IBuilderConfig"]
    for name in ("tiling_optimization_level", "l2_limit_for_tiling", "hardware_compatibility_level"):
        assert name in MEMBERS["IBuilderConfig"]
    assert {"WORKSPACE", "TACTIC_SHARED_MEMORY"} <= set(MEMBERS["MemoryPoolType"])
    assert {"cuda_graph_strategy", "dynamic_shapes_kernel_specialization_strategy"} <= set(MEMBERS["IRuntimeConfig"])
    assert {"nvtx_verbosity", "persistent_cache_limit"} <= set(MEMBERS["IExecutionContext"])
    assert {"FP16", "BF16", "INT8"} <= set(MEMBERS["BuilderFlag"])


def test_routes_came_with_11_1_and_weak_typing_went_with_11_0() -> None:
    routes = [VERSIONS[index] for index in MEMBERS["IBuilderConfig"]["build_route"]]
    assert routes == ["tensorrt 11.1.0.106", "tensorrt 11.4.0.106", "tensorrt_rtx 1.7.1.116"]
    weak = [VERSIONS[index] for index in MEMBERS["BuilderFlag"]["FP16"]]
    assert all(not version.startswith(("tensorrt 11", "tensorrt_rtx")) for version in weak)
    assert len(weak) == 6


def test_the_fake_has_no_names_of_its_own() -> None:
    for owner, fake in (
        ("IExecutionContext", fake_tensorrt.Context),
        ("ICudaEngine", fake_tensorrt.Engine),
        ("IBuilderConfig", fake_tensorrt.Config),
        ("Runtime", fake_tensorrt.Runtime),
        ("OnnxParser", fake_tensorrt.OnnxParser),
    ):
        methods = {name for name in vars(fake) if not name.startswith("_") and name != "tactic_was_timed"}
        assert methods <= set(MEMBERS[owner]), (owner, methods - set(MEMBERS[owner]))
