"""A FAKE of `modelopt.onnx.quantization` for tests: the real arguments, and a genuine Q/DQ model, made otherwise.

The arguments are those of the newest version in modelopt_signature.json, or of FAKE_MODELOPT_VERSION. The model comes
from ONNX Runtime's own static quantizer: symmetric, one scale a channel of a weight in int8. What ModelOpt does to the
rest of a model, where it puts its nodes, and how exact the result is, this does not show. For fp8 all inputs must have
one shape, which the real one does not ask.
As the real one does, it overwrites the model it is given and fails with whatever comes first.
"""

from __future__ import annotations

import inspect
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

SIGNATURES = json.loads(Path(os.environ["FAKE_MODELOPT_SIGNATURES"]).read_text())
NAMES = SIGNATURES[os.environ.get("FAKE_MODELOPT_VERSION", list(SIGNATURES)[-1])]
KIND = inspect.Parameter.POSITIONAL_OR_KEYWORD
SIGNATURE = inspect.Signature(
    [
        *(inspect.Parameter(name, KIND) for name in NAMES["required"]),
        *(inspect.Parameter(name, KIND, default=None) for name in NAMES["optional"]),
        *(inspect.Parameter(name, inspect.Parameter.VAR_KEYWORD) for name in NAMES["rest"]),
    ]
)


def quantize(*given: Any, **named: Any) -> None:
    _quantize(**SIGNATURE.bind(*given, **named).arguments)


quantize.__signature__ = SIGNATURE


def _quantize(
    onnx_path: str,
    quantize_mode: str,
    calibration_data_reader: Any,
    calibration_method: str,
    calibration_eps: list[str],
    high_precision_dtype: str,
    use_external_data_format: bool,
    output_path: str,
    log_level: str,
) -> None:
    assert onnx_path.endswith(".onnx")
    assert calibration_eps == ["cpu"]
    assert calibration_method in ("entropy", "max")
    assert high_precision_dtype in ("fp32", "fp16")
    assert log_level == "WARNING"
    print(f"shapes of a trial: {[one.shape for one in calibration_data_reader.get_first().values()]}")
    tempfile.mkstemp(suffix=".onnx")  # stays when something fails
    model = onnx.version_converter.convert_version(onnx.load(onnx_path), 19)
    onnx.save(onnx.shape_inference.infer_shapes(model), onnx_path)
    if "Loop" in {node.op_type for node in model.graph.node}:
        raise KeyError("a tensor of an inner graph")
    if "Erf" in {node.op_type for node in model.graph.node} and quantize_mode == "fp8":
        os.abort()
    kind = {"int8": QuantType.QInt8, "fp8": QuantType.QFLOAT8E4M3FN}[quantize_mode]
    quantize_static(
        onnx_path,
        output_path,
        calibration_data_reader,
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=["Conv", "MatMul"],
        per_channel=quantize_mode == "int8",
        activation_type=kind,
        weight_type=kind,
        calibrate_method=CalibrationMethod.MinMax if quantize_mode == "int8" else CalibrationMethod.Distribution,
        use_external_data_format=use_external_data_format,
        extra_options={"ActivationSymmetric": True, "WeightSymmetric": True, "QuantizeBias": False},
    )
