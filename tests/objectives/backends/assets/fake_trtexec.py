"""A FAKE trtexec for tests: no TensorRT, no GPU, every number invented. It honours the documented options and writes
the documented files, with log lines in the documented forms of 8.6, 10.x and 11.x; an "engine" is a JSON file, and
running one copies inputs to outputs.

The variable FAKE_TRTEXEC holds JSON: `digits` (the version in the banner), `rules` (pairs of a text that the arguments
contain and an action, see `misbehave`), `log` (a file that every command line is added to), `without` (options that
this version is not to have).
Needs nothing but the standard library, so that it starts quickly.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
import time

SETTINGS = json.loads(os.environ.get("FAKE_TRTEXEC", "{}"))
DIGITS = SETTINGS.get("digits", "110100")
NUMBER = int(DIGITS)
MAJOR = NUMBER // 10_000 if NUMBER >= 10_000 else NUMBER // 1000
COMMON = (
    *("help", "version", "onnx", "saveEngine", "loadEngine", "skipInference", "minShapes", "optShapes", "maxShapes"),
    *("shapes", "loadInputs", "iterations", "warmUp", "duration", "exportTimes", "exportOutput", "exportLayerInfo"),
    *("profilingVerbosity", "avgTiming", "builderOptimizationLevel", "maxAuxStreams", "noTF32", "sparsity"),
    *("memPoolSize", "tacticSources", "hardwareCompatibilityLevel", "persistentCacheRatio", "device"),
)
LATER = {
    8: ("fp16", "int8", "fp8", "useCudaGraph", "noDataTransfers", "useSpinWait"),
    10: (
        *("fp16", "bf16", "int8", "fp8", "stronglyTyped", "useCudaGraph", "noDataTransfers", "useSpinWait"),
        *("tilingOptimizationLevel", "l2LimitForTiling", "allocationStrategy", "distributiveIndependence"),
        "maxTactics",
    ),
    11: (
        *("stronglyTyped", "noCudaGraph", "includeDataTransfers", "noSpinWait", "maxTactics"),
        *("tilingOptimizationLevel", "l2LimitForTiling", "allocationStrategy", "distributiveIndependence"),
        *("helpBuildRoute", "setBuildRoute"),
    ),
}
ROUTES = {
    "tuner_version": "0.0.0-invented",
    "tuner_options": [
        {"option": "-copy_ppg", "allowed_values": "-copy_ppg=[on|off]", "default_value": "on", "help": "public name"},
        {
            "option": "-kgen:codegen:cuda_tile",
            "allowed_values": "-kgen:codegen:cuda_tile=[0|1|2|3]",
            "default_value": "1",
            "help": "public name, {braces} in the help",
        },
    ],
}
KNOWN = [name for name in (*COMMON, *LATER[min(MAJOR, 11)]) if name not in SETTINGS.get("without", [])]
CODES = {1: "f", 2: "B", 3: "b", 6: "i", 7: "q" if MAJOR >= 10 else "i", 9: "?", 10: "e", 11: "f", 16: "H"}


def say(severity: str, text: str) -> None:
    stream = sys.stdout if severity in "IV" else sys.stderr
    print(f"[01/02/2026-03:04:05] [{severity}] {text}", file=stream, flush=True)


def banner(word: str) -> None:
    build = " [b42]" if MAJOR >= 10 else ""
    line = " ".join(["trtexec", *sys.argv[1:]])
    print(f"&&&& {word} TensorRT.trtexec [TensorRT v{DIGITS}]{build} # {line}", flush=True)


def fail(*lines: str) -> None:
    for line in lines:
        say("E", line)
    banner("FAILED")
    raise SystemExit(1)


# ---- the few fields of an ONNX file that matter here


def fields(data: bytes) -> list[tuple[int, object]]:
    found: list[tuple[int, object]] = []
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = number()
        if key & 7 == 0:
            found.append((key >> 3, number()))
        elif key & 7 == 2:
            length = number()
            found.append((key >> 3, data[at : at + length]))
            at += length
        else:
            size = {1: 8, 5: 4}[key & 7]
            found.append((key >> 3, data[at : at + size]))
            at += size
    return found


def only(data: bytes, number: int) -> list:
    return [value for key, value in fields(data) if key == number]


def tensors(graph: bytes, number: int) -> list[dict]:
    result = []
    for value in only(graph, number):
        kind = only(only(value, 2)[0], 1)[0]
        dims = [only(dim, 1) for dim in only(only(kind, 2)[0], 1)] if only(kind, 2) else []
        shape = [dim[0] if dim else -1 for dim in dims]
        result.append({"name": only(value, 1)[0].decode(), "type": only(kind, 1)[0], "shape": shape})
    return result


# ---- the two jobs


def build(options: dict[str, str]) -> None:
    with open(options["onnx"], "rb") as stream:
        graph = only(stream.read(), 7)[0]
    say("I", "Start parsing network model.")
    route = options.get("setBuildRoute", "")
    known = {entry["option"] for entry in ROUTES["tuner_options"]}
    for token in route.split():
        if token.partition("=")[0] not in known:
            fail(f"Build route knob '{token.partition('=')[0]}' is not a valid knob. Use getAllBuildRoutes()")
    if route and not acts("silent_route"):
        say("I", f"Using tuning build route: {'-copy_ppg=on' if acts('other_route') else route}")
    plan = {
        "inputs": tensors(graph, 11),
        "outputs": tensors(graph, 12),
        "route": route,
        "flags": sorted(sys.argv[1:]) if SETTINGS.get("keep_flags") else [],
    }
    with open(options["saveEngine"], "w") as stream:
        if not acts("no_engine"):
            json.dump(plan, stream)
    say("W", "An invented warning.")
    say("I", "Engine built in 0.123 sec.")
    say("I", "Created engine with size: 0.001 MiB")
    if "exportLayerInfo" in options:
        with open(options["exportLayerInfo"], "w") as stream:
            json.dump({"Layers": ["one", "two"], "Bindings": []}, stream)


def pairs(text: str) -> dict[str, str]:
    """`name:value,'na:me':value` as trtexec splits it: quotes keep what they hold together."""
    result: dict[str, str] = {}
    while text:
        if text[0] == "'":
            name, _, text = text[1:].partition("'")
            text = text[1:]
        else:
            name, _, text = text.partition(":")
        value, _, text = text.partition(",")
        result[name] = value
    return result


def infer(options: dict[str, str]) -> None:
    with open(options["loadEngine"]) as stream:
        text = stream.read()
    try:
        plan = json.loads(text)
    except ValueError:
        fail("IRuntime::deserializeCudaEngine: Error Code 1: Serialization (Magic tag does not match)")
    files, shapes = pairs(options.get("loadInputs", "")), pairs(options.get("shapes", ""))
    graph = "noCudaGraph" not in options if MAJOR >= 11 else "useCudaGraph" in options
    if graph and acts("no_capture"):
        say("W", "CUDA graph capture failed: operation not permitted (invented). Falling back to plain enqueue.")
    if acts("unstable"):
        say("W", "* GPU compute time is unstable, with coefficient of variance = 7.5%.")
    if "exportTimes" in options and not acts("no_file"):
        times(options["exportTimes"], max(10, int(options.get("iterations", "10"))), plan)
    if "exportOutput" in options and not acts("no_file"):
        outputs(options["exportOutput"], plan, files, shapes)
    say("I", "=== Performance summary ===")
    say("I", "Throughput: 1234.5 qps")


def times(path: str, count: int, plan: dict) -> None:
    typical = 0.4 if "-copy_ppg=off" in plan["route"] else 0.5
    names = ("startEnqMs", "endEnqMs", "startH2dMs", "endH2dMs", "startComputeMs", "endComputeMs", "startD2hMs")
    rows = []
    for index in range(count):
        one = typical * (1 + 0.01 * (index * 7 % 5 - 2))
        row = dict.fromkeys((*names, "endD2hMs", "h2dMs", "d2hMs"), 0.0)
        row |= {"startComputeMs": index * 1.0, "endComputeMs": index + one, "computeMs": one, "latencyMs": one}
        rows.append(row)
    with open(path, "w") as stream:
        json.dump(rows, stream)


def outputs(path: str, plan: dict, files: dict[str, str], shapes: dict[str, str]) -> None:
    parts = []
    for index, output in enumerate(plan["outputs"]):
        source = plan["inputs"][index % len(plan["inputs"])]
        with open(files[source["name"]], "rb") as stream:
            data = stream.read()
        code = CODES[source["type"]]
        values = struct.unpack(f"{len(data) // struct.calcsize(code)}{code}", data)
        if source["type"] == 16:
            values = tuple(struct.unpack("f", struct.pack("I", value << 16))[0] for value in values)
        dims = shapes.get(source["name"]) or "x".join(str(dim) for dim in source["shape"])
        said = ", ".join(f"{value:.6g}" if isinstance(value, float) else str(int(value)) for value in values)
        name, sep = output["name"], ", " if index else "  "
        parts.append(f'{sep}{{ "name" : "{name}"\n  , "dimensions" : "{dims}"\n  , "values" : [ {said} ]\n  }}\n')
    with open(path, "w") as stream:
        stream.write("[\n" + "".join(parts) + "]\n")


# ---- misbehaviour


def acts(action: str) -> bool:
    line = " ".join(sys.argv[1:])
    return any(done == action and text in line for text, done in SETTINGS.get("rules", []))


def misbehave() -> None:
    if acts("error"):
        fail("Error Code 2: OutOfMemory (invented: requested size was 123 bytes)")
    if acts("crash"):
        say("I", "about to crash")
        os.kill(os.getpid(), signal.SIGSEGV)
    if acts("exit139"):
        raise SystemExit(139)
    if acts("hang"):
        if child := SETTINGS.get("pid_file"):
            pid = os.fork()  # what a wrapper leaves behind unless the whole group is ended
            if pid == 0:
                time.sleep(600)
            with open(child + ".part", "w") as stream:
                stream.write(f"{os.getpid()} {pid}")
            os.replace(child + ".part", child)
        time.sleep(600)


def main() -> None:
    if path := SETTINGS.get("log"):
        with open(path, "a") as stream:
            stream.write(json.dumps(sys.argv[1:]) + "\n")
    if not acts("no_banner"):
        banner("RUNNING")
    options = {}
    for argument in sys.argv[1:]:
        name, _, value = argument.removeprefix("--").partition("=")
        options[name] = value
    if unknown := [name for name in options if name not in KNOWN]:
        fail(*(f"Unknown option: --{name}" for name in unknown))
    misbehave()
    if "help" in options:
        print("=== INVENTED help ===", *(f"  --{name}  INVENTED text" for name in KNOWN), sep="\n")
        print("  mode: none, ampere+, sameComputeCapability; pools: workspace, tacticSharedMem")
        print("  tactics: EDGE_MASK_CONVOLUTIONS, JIT_CONVOLUTIONS")
        return
    if "version" in options:
        print("TensorRT version: 11.1.0")
        return
    if "helpBuildRoute" in options:
        print(json.dumps(ROUTES, indent=2))
    elif "onnx" in options:
        build(options)
    else:
        infer(options)
    banner("PASSED")


main()
