"""Compile the network as the options say, compare its logits, time it: a JSON line now, and for each line on stdin.

    python3 measure.py --size small                 on the GPU, as XLA_FLAGS and the arguments say
    python3 measure.py --size tiny --platform cpu   on the CPU
    python3 measure.py --versions                   what makes it another environment

The reference is the same network in float32 at highest precision on the CPU without any option, computed once and kept
in the folder that XLA_STUDY_CACHE names (a folder for users' caches without it).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from network import SIZES, Form, forward, images, typed, weights

SAMPLES, WARM_S, SAMPLE_S = 36, 0.15, 0.004
PACKAGES = ("jax", "jaxlib", "jax-cuda13-plugin", "jax-cuda13-pjrt", "nvidia-cudnn-cu13", "nvidia-cublas")


def versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def cache_folder() -> Path:
    named = os.environ.get("XLA_STUDY_CACHE")
    return Path(named) if named else Path(os.environ.get("HOME", "/tmp")) / ".cache" / "xla-study"


def reference(size: str) -> Any:
    """Logits to compare with, from the cache or computed by another process, which no option reaches."""
    source = Path(__file__).with_name("network.py").read_bytes()
    path = cache_folder() / f"{size}-{hashlib.sha256(source).hexdigest()[:16]}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        clean = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
        command = [sys.executable, __file__, "--size", size, "--write-reference", str(path)]
        subprocess.run(command, env={**clean, "JAX_PLATFORMS": "cpu"}, check=True, stdout=sys.stderr)
    return np.load(path)


def write_reference(size: str, path: Path) -> None:
    import jax

    with jax.default_matmul_precision("highest"):
        logits = jax.jit(forward, static_argnums=(0, 1))(
            Form("f32-highest"), SIZES[size], weights(SIZES[size]), images(SIZES[size])
        )
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".npy")
    with os.fdopen(descriptor, "wb") as stream:
        np.save(stream, np.asarray(logits))
    os.replace(temporary, path)


class Compiled:
    """The network as an executable, with resident weights and images."""

    def __init__(self, size: str, form: Form) -> None:
        import jax

        precision = "highest" if form.precision == "f32-highest" else "default"
        with jax.default_matmul_precision(precision):
            self._weights, self._images = jax.device_put((typed(form, weights(SIZES[size])), images(SIZES[size])))
            lowered = jax.jit(forward, static_argnums=(0, 1)).lower(form, SIZES[size], self._weights, self._images)
            self._run = lowered.compile()

    def logits(self) -> Any:
        return np.asarray(self._run(self._weights, self._images))

    def seconds(self, repeats: int) -> float:
        """Of `repeats` inferences, sent one after another and waited for once."""
        start = time.perf_counter()
        for _ in range(repeats):
            last = self._run(self._weights, self._images)
        last.block_until_ready()
        return time.perf_counter() - start

    def round(self) -> list[float]:
        """Milliseconds per inference, after a warm-up: the device may have been idle or somebody else's."""
        until, best = time.perf_counter() + WARM_S, self.seconds(1)
        while time.perf_counter() < until:
            best = min(best, self.seconds(1))
        repeats = max(1, round(SAMPLE_S / best))
        return [self.seconds(repeats) * 1e3 / repeats for _ in range(SAMPLES)]


def losses(logits: Any, expected: Any) -> dict[str, float]:
    off = np.linalg.norm(logits.astype(np.float64) - expected) / np.linalg.norm(expected)
    return {"rel_l2": float(off), "top1": float(np.mean(logits.argmax(-1) != expected.argmax(-1)))}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--platform", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--precision", default="f32")
    parser.add_argument("--attention", default="plain")
    parser.add_argument("--layout", default="NHWC")
    parser.add_argument("--unroll", type=int, default=1)
    parser.add_argument("--versions", action="store_true")
    parser.add_argument("--write-reference", type=Path)
    given = parser.parse_args()
    if given.versions:
        print(json.dumps(versions()))
        return
    if given.write_reference:
        write_reference(given.size, given.write_reference)
        return
    form = Form(given.precision, given.attention, given.layout, given.unroll)
    if form.attention == "cudnn" and (form.precision not in ("bf16", "f16") or given.platform == "cpu"):
        words = f"attention=cudnn takes bf16 and f16 on a GPU, not {form.precision} on {given.platform}"
        print(json.dumps({"unsupported": words}))
        return
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # two programs share the device in a confirmation
    os.environ["JAX_PLATFORMS"] = given.platform
    expected = reference(given.size)
    start = time.perf_counter()
    compiled = Compiled(given.size, form)
    ready = time.perf_counter() - start
    answer = {"losses": losses(compiled.logits(), expected), "effective": {"precision": form.precision}}
    print(json.dumps({"samples_ms": compiled.round(), **answer, "notes": f"ready after {ready:.1f} s"}), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"samples_ms": compiled.round()}), flush=True)


if __name__ == "__main__":
    main()
