"""Extract the public names of TensorRT's Python bindings into trt_names.json: classes and members, by version.

Run by hand: `python make_trt_names.py` (Linux on x86-64, Python 3.11, a C compiler, pip, network). Each wheel of
bindings is downloaded and imported in a process of its own against an empty stand-in for the native library, which is
enough to list names and no more. Only names are kept, none of NVIDIA's text. tensorrt_rtx is read as installed.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WHEELS = (
    ("tensorrt-bindings", "8.6.1"),
    ("tensorrt-cu12-bindings", "10.0.1"),
    ("tensorrt-cu12-bindings", "10.4.0"),
    ("tensorrt-cu12-bindings", "10.8.0.43"),
    ("tensorrt-cu12-bindings", "10.11.0.33"),
    ("tensorrt-cu12-bindings", "10.16.1.11"),
    ("tensorrt-cu13-bindings", "11.0.0.114"),
    ("tensorrt-cu13-bindings", "11.1.0.106"),
    ("tensorrt-cu13-bindings", "11.4.0.106"),
)
CLASSES = (
    *(
        "Builder",
        "BuilderFlag",
        "ComputeCapability",
        "CudaGraphStrategy",
        "DataType",
        "EngineInspector",
        "EngineValidity",
    ),
    *("DynamicShapesKernelSpecializationStrategy", "ExecutionContextAllocationStrategy", "HardwareCompatibilityLevel"),
    *("IBuilderConfig", "ICudaEngine", "IExecutionContext", "IHostMemory", "ILogger", "INetworkDefinition"),
    *("IOptimizationProfile", "IOutputAllocator", "IProgressMonitor", "IRuntimeConfig", "ITensor", "ITimingCache"),
    *("LayerInformationFormat", "MemoryPoolType", "NetworkDefinitionCreationFlag", "OnnxParser", "ParserError"),
    *("PreviewFeature", "ProfilingVerbosity", "Runtime", "TacticSource", "TensorIOMode", "TensorLocation"),
    *("TilingOptimizationLevel", "Logger"),
)
# Methods that only a subclass has: the bindings look them up by name, which stands in their native file.
_OVERRIDDEN = {
    "ILogger": ("log",),
    "IOutputAllocator": ("reallocate_output", "reallocate_output_async", "notify_shape"),
    "IProgressMonitor": ("phase_start", "step_complete", "phase_finish"),
}
_EMPTY_FUNCTIONS = re.compile(
    r" U (create\w+_INTERNAL|getBuilder\w+|getPlugin\w+|getNv\w+|initLibNv\w+|_ZN\d+nv\w+)$", re.M
)


def names_of(library: Any, native: Path) -> dict[str, list[str]]:
    """Public members of the classes that our code knows, and `` with the public names of the module itself."""
    found = {name: _public(getattr(library, name)) for name in CLASSES if hasattr(library, name)}
    content = native.read_bytes()
    for owner in _OVERRIDDEN.keys() & found.keys():
        extra = {name for name in _OVERRIDDEN[owner] if name.encode() + b"\0" in content}
        found[owner] = sorted({*found[owner], *extra})
    return {"": _public(library), **found}


def _public(thing: Any) -> list[str]:
    return sorted(name for name in dir(thing) if not name.startswith("_"))


def _names_in_wheel(package: str, version: str, folder: Path) -> dict[str, list[str]]:
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), f"{package}=={version}"]
    subprocess.run(pip, check=True)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        wheel.extractall(folder)
    module = next(path.parent.name for path in folder.glob("*/tensorrt.so"))
    library = folder / module / "tensorrt.so"
    _write_stand_ins(library, folder)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(folder)}
    code = f"import json, sys; sys.path.insert(0, {str(HERE)!r}); import make_trt_names as m; m.dump({module!r})"
    ended = subprocess.run([sys.executable, "-c", code], env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, list[str]] = json.loads(ended.stdout.splitlines()[-1])
    return found


def dump(module: str) -> None:
    """Print the names of an importable module as one line of JSON."""
    library = importlib.import_module(module)
    print(json.dumps(names_of(library, Path(str(importlib.import_module(module + ".tensorrt").__file__)))))


def _write_stand_ins(library: Path, folder: Path) -> None:
    """Shared libraries of the names that `library` needs, whose functions all return nothing."""
    dynamic = subprocess.run(["readelf", "-d", str(library)], check=True, capture_output=True, text=True).stdout
    symbols = subprocess.run(["nm", "-D", "--undefined-only", str(library)], check=True, capture_output=True, text=True)
    functions = sorted(set(_EMPTY_FUNCTIONS.findall(symbols.stdout)))
    source = folder / "empty.c"
    source.write_text("".join(f"void *{name}(void) {{ return 0; }}\n" for name in functions))
    for name in re.findall(r"\[(lib(?:nv|cu)\S+)\]", dynamic):
        command = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", str(folder / name), str(source)]
        subprocess.run(command, check=True)


def main() -> None:
    by_version: dict[str, dict[str, list[str]]] = {}
    for package, version in WHEELS:
        with tempfile.TemporaryDirectory() as folder:
            by_version[f"tensorrt {version}"] = _names_in_wheel(package, version, Path(folder))
    rtx = importlib.import_module("tensorrt_rtx")
    native = Path(str(importlib.import_module("tensorrt_rtx_bindings.tensorrt_rtx").__file__))
    by_version[f"tensorrt_rtx {rtx.__version__}"] = names_of(rtx, native)
    versions = list(by_version)
    members: dict[str, dict[str, list[int]]] = {}
    for index, version in enumerate(versions):
        for owner, names in by_version[version].items():
            for name in names:
                members.setdefault(owner, {}).setdefault(name, []).append(index)
    lines = (
        f"  {json.dumps(owner)}: {json.dumps(dict(sorted(names.items())), separators=(',', ':'))}"
        for owner, names in sorted(members.items())
    )
    text = f'{{"versions": {json.dumps(versions)},\n "members": {{\n' + ",\n".join(lines) + "\n}}\n"
    (HERE / "trt_names.json").write_text(text)


if __name__ == "__main__":
    main()
