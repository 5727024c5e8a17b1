"""Denormals: each session as asked, the rest of the process untouched."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from objectives.backends import ort
from objectives.backends.ort_denormals import denormals, float_mode
from tests import onnx_models
from tests.objectives.backends.evaluation import evaluate

DENORMAL = np.full(200_000, 1e-40, np.float32)  # large enough that worker threads get a share


@pytest.mark.skipif(float_mode() is None, reason="the calling thread's mode cannot be set here")
@pytest.mark.parametrize("threads", ["1", "2"])
def test_denormals_follow_each_session_whatever_came_before(
    tmp_path: Path, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ort.ort_knobs, "usable_cores", lambda: 2)
    path = onnx_models.scaled(tmp_path, 0.5)
    for flush in ("off", "on", "off", "on"):
        values = {"flush_denormals": flush, "intra_op_threads": threads}
        found, _ = evaluate(path, {"x": DENORMAL}, tmp_path, **values)
        assert (found["y"] == 0).all() == (flush == "on")
        assert (DENORMAL * np.float32(0.5) != 0).all(), "the caller's own arithmetic must not change"


@pytest.mark.skipif(float_mode() is None, reason="the calling thread's mode cannot be set here")
def test_denormals_are_kept_when_the_first_session_of_a_process_flushes(tmp_path: Path) -> None:
    onnx_models.scaled(tmp_path, 0.5)
    # The library sets the calling thread once per process, so only a fresh process shows it.
    script = f"""
        from pathlib import Path
        import numpy as np
        from objectives.backends.ort import OnnxRuntimeBackend
        backend, folder, x = OnnxRuntimeBackend(), Path({str(tmp_path)!r}), np.full(10, 1e-40, np.float32)
        values = {{"flush_denormals": "on", "intra_op_threads": "1"}}
        engine = backend.build(folder / "scaled.onnx", values, folder)
        with backend.open(engine, values) as session:
            assert not session.run({{"x": x}})["y"].any()
        assert (x * np.float32(0.5)).all()
        assert backend.reference(folder / "scaled.onnx", {{"x": x}})["y"].all()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=60)


@pytest.mark.skipif(float_mode() is None, reason="the calling thread's mode cannot be set here")
def test_the_mode_returns_when_the_inside_raises() -> None:
    mode = float_mode()
    assert mode is not None
    seen = []
    with suppress(ZeroDivisionError), denormals(flush=True):
        seen.append(mode.flushes)
        raise ZeroDivisionError
    seen.append(mode.flushes)
    assert seen == [True, False]
