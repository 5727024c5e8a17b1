"""Facts about the CPU at hand that make it another environment.

Flow: backends that run on the CPU -> HERE -> identity of their Environment.
"""

from __future__ import annotations

import platform
from pathlib import Path

# Instruction sets that choose kernels. Virtual machines hide them, and call very different CPUs by one name.
_INSTRUCTIONS = (
    "avx avx2 fma f16c avx512f avx512bw avx512vl avx512_vnni avx512_bf16 avx512_fp16 avx_vnni avx_vnni_int8"
    " amx_int8 amx_bf16 amx_fp16 asimddp asimdhp i8mm bf16 sve sve2 sme"
)


def cpu_identity() -> dict[str, str]:
    """Name and kernel-relevant instruction sets of the first core; without /proc what the platform says."""
    path = Path("/proc/cpuinfo")
    text = path.read_text(errors="replace") if path.exists() else ""
    lines = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    fields = {key.strip(): value.strip() for key, _, value in lines}
    kept = ("model name", "cpu family", "model", "stepping", "CPU implementer", "CPU part", "CPU variant")
    name = " ".join(fields[key] if key == "model name" else f"{key} {fields[key]}" for key in kept if key in fields)
    present = set(_INSTRUCTIONS.split()) & set((fields.get("flags") or fields.get("Features") or "").split())
    return {"cpu": name or platform.processor() or "unknown", "instructions": " ".join(sorted(present))}
