"""Programs to tune: small real ones in Python, with a description; what they print is computed, so nothing is timed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# `level` and `--fast` (in DEMOFLAGS) make it faster, MODE=wild makes it wrong, MODE=turbo faster; the rest goes wrong.
ANSWERS = """
import json, os, signal, subprocess, sys, time

arguments = dict(one[2:].split("=", 1) for one in sys.argv[1:] if one.startswith("--") and "=" in one)
level, mode, act = arguments.get("level", "1"), os.environ.get("MODE", "plain"), arguments.get("act", "none")
fast = "--fast" in os.environ.get("DEMOFLAGS", "").split()
starts = 0

def answer():
    ms = {"1": 4.0, "2": 2.0, "3": 3.0}[level] * (0.9 if fast else 1.0) * (0.8 if mode == "turbo" else 1.0)
    loss = 0.5 if mode == "wild" else 0.001
    return {"samples_ms": [ms * (1 + k / 1e4) for k in range(12)], "losses": {"error": loss}}

def act_out():
    match act:
        case "exit": sys.exit("could not allocate the thing")
        case "segfault": os.kill(os.getpid(), signal.SIGSEGV)
        case "shell": sys.exit(139)
        case "killed": os.kill(os.getpid(), signal.SIGKILL)
        case "silent": sys.exit(0)
        case "text": print("all fine"); sys.exit(0)
        case "nojson": print("{all fine}"); sys.exit(0)
        case "list": print("[1, 2]"); sys.exit(0)
        case "empty": print(json.dumps({"samples_ms": []}))
        case "zero": print(json.dumps({"samples_ms": [1.0, 0.0]}))
        case "nan": print(json.dumps({"samples_ms": [1.0, float("nan")]}))
        case "words": print(json.dumps({"samples_ms": ["1.0"]}))
        case "nanloss": print(json.dumps({**answer(), "losses": {"error": float("nan")}}))
        case "infloss": print(json.dumps({**answer(), "losses": {"error": float("inf")}}))
        case "badloss": print(json.dumps({**answer(), "losses": {"error": "small"}}))
        case "noloss": print(json.dumps({"samples_ms": [1.0]}))
        case "other": print(json.dumps({**answer(), "effective": {"level": "7"}}))
        case "refuse": print(json.dumps({"unsupported": "no such kernel"}))
        case "hang": print("about to hang", file=sys.stderr, flush=True); time.sleep(1e6)
        case "late": print(json.dumps(answer())); sys.exit(3)
        case "eat":
            code = "x = bytearray(900 << 20); import time; time.sleep(1e6)"
            subprocess.run([sys.executable, "-c", code])
        case "leave":
            code = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(1e6)"
            subprocess.Popen([sys.executable, "-c", code, os.environ["DEMO_TRACE"]], start_new_session=True)
            while not (os.path.exists(os.environ["DEMO_TRACE"]) and os.path.getsize(os.environ["DEMO_TRACE"])):
                time.sleep(0.01)
            return
        case "leavehang":
            code = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(1e6)"
            subprocess.Popen([sys.executable, "-c", code, os.environ["DEMO_TRACE"]], start_new_session=True)
            time.sleep(1e6)
        case _: return
    sys.exit(0)

print("a line of the log", flush=True)
act_out()
print(json.dumps(answer()), flush=True)
if "--rounds" in sys.argv:
    for number, line in enumerate(sys.stdin, start=1):
        if act == "second": sys.exit("the second round failed")
        print("a line of the log of round", number, flush=True)
        print(json.dumps(answer()), flush=True)
"""
ACTS = (
    *(
        "none",
        "exit",
        "segfault",
        "shell",
        "killed",
        "silent",
        "text",
        "nojson",
        "list",
        "empty",
        "zero",
        "nan",
        "words",
    ),
    *(
        "nanloss",
        "infloss",
        "badloss",
        "noloss",
        "other",
        "refuse",
        "hang",
        "late",
        "eat",
        "leave",
        "leavehang",
        "second",
    ),
)
KNOBS: tuple[dict[str, Any], ...] = (
    {"name": "level", "values": [1, 2, 3], "default": 1, "flag": "--level={value}"},
    {
        "name": "fast",
        "values": ["default", "on"],
        "default": "default",
        "flags": {"on": ["--fast", "--really"]},
        "omit": "default",
        "join": "DEMOFLAGS",
    },
    {
        "name": "mode",
        "values": ["plain", "turbo", "wild"],
        "default": "plain",
        "variable": "MODE",
        "omit": "plain",
        "kind": "runtime",
    },
)
ACT = {"name": "act", "values": list(ACTS), "default": "none", "flag": "--act={value}"}


def describe(folder: Path, *, name: str = "tune.json", source: str = ANSWERS, **changes: Any) -> Path:
    """Write the program and its description into `folder`; `changes` replace keys of the description."""
    folder.mkdir(exist_ok=True)
    (folder / "measure.py").write_text(source)
    words = [sys.executable, "measure.py", *(["--rounds"] if changes.get("rounds") else [])]
    content = {"program": words, "knobs": list(KNOBS), **changes}
    path = folder / name
    path.write_text(json.dumps(content))
    return path
