"""Puts the fake ModelOpt of `assets/` where this process and its children find it, or takes ModelOpt away."""

from __future__ import annotations

from pathlib import Path

import pytest

from objectives.backends import trt_quantize

ASSETS = Path(__file__).parent / "assets"


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages of the names that are looked for, in `folder`."""
    package = folder / "modelopt" / "onnx" / "quantization"
    package.mkdir(parents=True)
    for one in (package.parent, package.parent.parent):
        (one / "__init__.py").touch()
    (package / "__init__.py").write_text((ASSETS / "fake_modelopt.py").read_text())
    for name in ("lief", "onnx_graphsurgeon", "onnxscript", "onnxslim"):
        (folder / f"{name}.py").touch()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("FAKE_MODELOPT_SIGNATURES", str(ASSETS / "modelopt_signature.json"))


def remove(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where it is not installed."""
    monkeypatch.setattr(trt_quantize, "_NEEDED", ("no_such_module",))
