"""What makes it another environment for a program: the device that it names, and what it says about itself.

Flow: command.py -> HERE -> identity and details of an Environment. A GPU is locked under its UUID, as elsewhere.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from objectives.backends.command_process import Program, inherited
from objectives.backends.cpu_facts import cpu_identity
from objectives.errors import BackendUnavailableError

_QUERY_S = 30.0
_FIELDS = ("index", "uuid", "name", "memory.total", "driver_version")
_VISIBLE = "CUDA_VISIBLE_DEVICES"


def device_facts(device: str) -> tuple[str, dict[str, str], dict[str, str]]:
    """What a lock guards, identity and details of the device that a description names: `cpu`, `cuda:0`, any word."""
    kind, _, number = device.partition(":")
    if kind == "cpu":
        return device, cpu_identity(), {}
    if kind != "cuda" or not number.isdecimal():
        return device, {"device": kind}, {}
    gpu = _gpu(int(number))
    if not gpu:
        return device, {"gpu": "unknown"}, {}
    identity = {"gpu": gpu["name"], "memory_mib": gpu["memory.total"], "cuda_generation": _generation(gpu)}
    return f"cuda:{gpu['uuid']}", identity, {"uuid": gpu["uuid"], "driver": gpu["driver_version"]}


def facts_of_program(command: Sequence[str], files: Mapping[str, Path]) -> dict[str, str]:
    """What the description's environment program prints: the last line that is a JSON object.

    Raises: BackendUnavailableError if it does not end well with such a line.
    """
    if not command:
        return {}
    program = Program(command, files, inherited())
    try:
        program.hush()
        found = [line for line in program.lines() if line.lstrip().startswith("{")]
        code, words = program.code, program.words[-600:]
    finally:
        program.close()
    try:
        facts = json.loads(found[-1]) if found and code == 0 else None
    except ValueError:
        facts = None
    if not isinstance(facts, dict):
        raise BackendUnavailableError(
            f"the environment program {command[0]!r} ended with code {code} and no JSON object; it printed: "
            f"{words or 'nothing'}",
            hint='it prints one line such as {"jaxlib": "0.10.2"} and ends with code 0',
        )
    return {str(name): value if isinstance(value, str) else json.dumps(value) for name, value in facts.items()}


def _gpu(number: int) -> dict[str, str]:
    """What nvidia-smi says of the GPU that a program sees as `number`; nothing where it cannot be asked."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    visible = [word.strip() for word in inherited().get(_VISIBLE, "").split(",") if word.strip()]
    wanted = visible[number] if number < len(visible) else str(number)
    query = [program, "-i", wanted, f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=_QUERY_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    values = [value.strip() for value in answer.partition("\n")[0].split(",")]
    return dict(zip(_FIELDS, values, strict=True)) if len(values) == len(_FIELDS) else {}


def _generation(gpu: Mapping[str, str]) -> str:
    """The driver's branch, which decides what a GPU's programs are compiled for; patches of it do not."""
    return gpu["driver_version"].partition(".")[0]
