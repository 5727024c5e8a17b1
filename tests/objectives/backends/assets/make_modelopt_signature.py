"""Extract how ModelOpt's quantizer is called into modelopt_signature.json: parameters of some versions, in order.

Run by hand: `python make_modelopt_signature.py` (pip, network). Each wheel is downloaded, not installed, and its source
read, not run. Only names are kept, and which must be given; none of NVIDIA's text.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
VERSIONS = ("0.43.0", "0.44.0", "0.47.0")  # the first takes no reader of inputs and is refused
FOLDER = "modelopt/onnx/quantization/"


def signature(wheel: Path) -> dict[str, list[str]]:
    """Parameters of `modelopt.onnx.quantization.quantize`: `required`, `optional`, then what takes the `rest`."""
    with zipfile.ZipFile(wheel) as archive:
        door, source = (ast.parse(archive.read(FOLDER + name)) for name in ("__init__.py", "quantize.py"))
    exported = {
        name.name for node in door.body if isinstance(node, ast.ImportFrom) and node.level for name in node.names
    }
    if "quantize" not in exported:
        raise SystemExit(f"{wheel.name}: {FOLDER} exports no quantize")
    (function,) = (one for one in source.body if isinstance(one, ast.FunctionDef) and one.name == "quantize")
    names = [one.arg for one in function.args.args]
    first = len(names) - len(function.args.defaults)
    rest = [function.args.kwarg.arg] if function.args.kwarg else []
    return {"required": names[:first], "optional": names[first:], "rest": rest}


def main() -> None:
    found = {}
    for version in VERSIONS:
        with tempfile.TemporaryDirectory() as folder:
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder]
            subprocess.run([*pip, f"nvidia-modelopt=={version}"], check=True)
            found[version] = signature(next(Path(folder).glob("*.whl")))
    lines = ",\n".join(f"  {json.dumps(version)}: {json.dumps(names)}" for version, names in found.items())
    (HERE / "modelopt_signature.json").write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
