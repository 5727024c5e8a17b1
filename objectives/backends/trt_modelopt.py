"""One conversion by NVIDIA ModelOpt: `python -m objectives.backends.trt_modelopt JOB`, with the job as JSON.

Flow: trt_quantize.py -> HERE -> a model with Q/DQ nodes, or a file with the converter's words. A process of its own:
ModelOpt replaces parts of ONNX Runtime's quantizer, writes shapes into the model it is given, may start TensorRT with
a logger of its own, and loads torch with its CUDA libraries. None of that may stand beside a build and its timing.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from modelopt.onnx.quantization import quantize
from onnxruntime.quantization import CalibrationDataReader

from objectives.backends.trt_quantize import Job
from objectives.tensors import Tensors, load_tensors


class Feeds(CalibrationDataReader):  # type: ignore[misc]  # the library has no types
    """Sets of inputs, one inference each; they may differ in shape."""

    def __init__(self, feeds: Iterable[Tensors]) -> None:
        self._feeds = [dict(one) for one in feeds]
        self.rewind()

    def get_next(self) -> Tensors | None:
        return next(self._left, None)

    def get_first(self) -> Tensors:
        """For a trial inference that tells shapes; does not count as taken."""
        return self._feeds[0]

    def rewind(self) -> None:
        self._left = iter(self._feeds)


def convert(job: Job) -> None:
    """Write `job.target`. Raises: whatever the converter raises; TypeError if this version lacks an argument."""
    feeds = (load_tensors(Path(one)) for one in job.calibration)
    arguments: dict[str, Any] = {
        "onnx_path": job.source,
        "quantize_mode": job.mode,
        "calibration_data_reader": Feeds({name: one[name] for name in job.inputs} for one in feeds),
        "calibration_method": job.method,
        # The CPU gives the same ranges everywhere, and another program may be timed on the GPU.
        "calibration_eps": ["cpu"],
        "high_precision_dtype": job.rest,
        "use_external_data_format": job.is_large,
        "output_path": job.target,
        "log_level": "WARNING",
    }
    # It swallows what it does not know: before 0.44 it would take random numbers instead of our inputs.
    if unknown := arguments.keys() - inspect.signature(quantize).parameters.keys():
        raise TypeError(f"this version of ModelOpt takes no {', '.join(sorted(unknown))}; 0.44 or newer is needed")
    quantize(**arguments)


def main(path: Path) -> int:
    """Convert as `path` says; 1 if the converter refused, with its words in the job's file for them."""
    job = msgspec.json.decode(path.read_bytes(), type=Job)
    # Files that the converter leaves behind when it fails go where the job's other files go.
    tempfile.tempdir = str(path.parent)
    try:
        convert(job)
    # It checks little and fails with whatever comes first: AssertionError, KeyError, RuntimeError, ...
    except Exception as error:
        Path(job.words).write_text(f"{type(error).__name__}: {error}")
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
