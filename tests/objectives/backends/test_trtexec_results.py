"""Readers of trtexec's log and files. The texts are written for these tests in the documented forms; all values in
them are INVENTED."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from objectives.backends import trtexec_results as results
from objectives.errors import CandidateError

# INVENTED values, form of 8.6
LOG_8 = """\
&&&& RUNNING TensorRT.trtexec [TensorRT v8601] # trtexec --onnx=m.onnx
[05/01/2023-10:00:00] [I] TensorRT version: 8.6.1
[05/01/2023-10:00:01] [W] [TRT] An invented warning of the library
[05/01/2023-10:00:09] [I] Engine built in 8.5 sec.
[05/01/2023-10:00:12] [I] === Performance summary ===
[05/01/2023-10:00:12] [I] Throughput: 1234.56 qps
[05/01/2023-10:00:12] [I] Latency: min = 0.8 ms, max = 1.25 ms, mean = 0.91 ms, median = 0.9 ms, percentile(90%) = 0.95 ms, percentile(95%) = 0.97 ms, percentile(99%) = 1.1 ms
[05/01/2023-10:00:12] [I] Enqueue Time: min = 0.1 ms, max = 0.2 ms, mean = 0.12 ms, median = 0.11 ms, percentile(99%) = 0.19 ms
[05/01/2023-10:00:12] [I] GPU Compute Time: min = 0.7 ms, max = 1.1 ms, mean = 0.81 ms, median = 0.8 ms, percentile(99%) = 1 ms
[05/01/2023-10:00:12] [W] * GPU compute time is unstable, with coefficient of variance = 4.1%.
&&&& PASSED TensorRT.trtexec [TensorRT v8601] # trtexec --onnx=m.onnx
"""  # noqa: E501 - as the program prints it
# INVENTED values, form of 10.x
LOG_10 = """\
&&&& RUNNING TensorRT.trtexec [TensorRT v101600] [b7] # /opt/trtexec --onnx=m.onnx --fp16
[03/24/2026-10:00:00] [E] Error[2]: [invented.cpp::build::1] Error Code 2: OutOfMemory (invented)
[03/24/2026-10:00:00] [E] Engine could not be created from network
&&&& FAILED TensorRT.trtexec [TensorRT v101600] [b7] # /opt/trtexec --onnx=m.onnx --fp16
"""
# INVENTED values, form of 11.x
LOG_11 = """\
&&&& RUNNING TensorRT.trtexec [TensorRT v110100] [b106] # trtexec --onnx=m.onnx --setBuildRoute=-copy_ppg=off -peep:max=2
[06/24/2026-10:00:00] [I] Using tuning build route: -copy_ppg=off -peep:max=2
[06/24/2026-10:00:00] [V] [TRT] [TuningBuildRoute] Using build route: -copy_ppg=off -peep:max=2
[06/24/2026-10:00:01] [I] Accuracy loss for tensor y (L0): 0.001
[06/24/2026-10:00:01] [I] Accuracy loss for tensor z:0 (0) (L0): 0.25 [FAIL: >= threshold 0.1]
[06/24/2026-10:00:01] [I] Accuracy loss for tensor w (Cosine): nan
[06/24/2026-10:00:02] [I] Throughput: 9.5e+04 qps
[06/24/2026-10:00:02] [W] * Throughput may be bound by Enqueue Time rather than GPU Compute and the GPU may be under-utilized.
[06/24/2026-10:00:02] [E] Accuracy validation FAILED: one or more tensors exceeded the threshold.
"""  # noqa: E501 - as the program prints it


def test_the_log_of_8_6() -> None:
    report = results.read_report(LOG_8)
    assert (report.version, report.build, report.verdict) == ("8.6.1", "", "PASSED")
    assert report.throughput_qps == 1234.56
    assert report.figures_ms["Latency"]["percentile(99%)"] == 1.1
    assert report.figures_ms["GPU Compute Time"]["median"] == 0.8
    assert set(report.figures_ms) == {"Latency", "Enqueue Time", "GPU Compute Time"}
    assert report.quality == ("gpu_unstable",)
    assert report.route is None
    assert results.read_log(LOG_8).warnings[0] == "An invented warning of the library"


def test_the_log_of_10() -> None:
    report = results.read_report(LOG_10)
    assert (report.version, report.build, report.verdict) == ("10.16.0", "7", "FAILED")
    assert report.throughput_qps is None
    assert results.read_log(LOG_10).errors == (
        "Error[2]: [invented.cpp::build::1] Error Code 2: OutOfMemory (invented)",
        "Engine could not be created from network",
    )


def test_the_log_of_11() -> None:
    report = results.read_report(LOG_11)
    assert (report.version, report.build, report.verdict) == ("11.1.0", "106", "")
    assert report.route == "-copy_ppg=off -peep:max=2"
    assert report.throughput_qps == 95000
    assert [(one.tensor, one.algorithm, one.is_over) for one in report.accuracy] == [
        ("y", "L0", False),
        ("z:0 (0)", "L0", True),
        ("w", "Cosine", False),
    ]
    assert math.isnan(report.accuracy[2].loss)
    assert report.quality == ("enqueue_bound",)


def test_a_log_that_says_nothing_is_no_error() -> None:
    for text in ("", "docker: permission denied", "[01/02/2026-00:00:00] [I] Throughput: - qps", "&&&& RUNNING"):
        report = results.read_report(text)
        assert (report.version, report.verdict, report.throughput_qps) == ("", "", None)
    assert results.read_report("[I] TensorRT version: 11.1.0").version == "11.1.0"


@pytest.mark.parametrize(
    ("digits", "version"),
    [("8502", "8.5.2"), ("8601", "8.6.1"), ("9300", "9.3.0"), ("100300", "10.3.0"), ("110400", "11.4.0")],
)
def test_versions_in_banners(digits: str, version: str) -> None:
    assert results.decode_version(digits) == version


def test_routes_stand_among_other_lines() -> None:
    text = f"&&&& RUNNING x\n[I] hello\n{json.dumps({'tuner_options': [{'help': 'a } b {'}]}, indent=2)}\n&&&& PASSED"
    assert json.loads(results.read_routes_text(text))["tuner_options"] == [{"help": "a } b {"}]
    assert results.read_routes_text("} nothing {") == ""


def test_times() -> None:
    text = '[{"computeMs": 0.5, "latencyMs": 9}, {"startComputeMs": 1.0, "endComputeMs": 1.25}]'
    assert results.read_times(text) == (0.5, 0.25)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "[]",
        "{}",
        "[1, 2]",
        '[{"latencyMs": 1}]',
        '[{"computeMs": -1}]',
        '[{"computeMs": 1}, {"computeMs": 0}]',
    ],
)
def test_times_that_cannot_be_used(text: str) -> None:
    with pytest.raises(CandidateError):
        results.read_times(text)


# INVENTED values, form of all versions: numbers as C++ streams print them, which is not always JSON
OUTPUTS = """[
  { "name" : "a/b:0"
  , "dimensions" : "2x3"
  , "values" : [ 1.5, -nan, inf, -inf, 1e-07, nan ]
  }
, { "name" : "ids"
  , "dimensions" : "2"
  , "values" : [ 9007199254740993, -1 ]
  }
, { "name" : "scalar"
  , "dimensions" : ""
  , "values" : [ 7 ]
  }
, { "name" : "flags"
  , "dimensions" : "3"
  , "values" : [ 1, 0, true ]
  }
, { "name" : "none"
  , "dimensions" : "0x4"
  , "values" : [  ]
  }
]
"""


def test_outputs_come_in_the_models_order_and_types() -> None:
    types = {"ids": "int64", "scalar": "float16", "flags": "bool", "none": "float32", "a/b:0": "float32"}
    found = results.read_outputs(OUTPUTS, types)
    assert list(found) == list(types)
    assert found["ids"].tolist() == [9007199254740993, -1]
    assert (found["scalar"].shape, found["scalar"].dtype) == ((), np.float16)
    assert found["flags"].tolist() == [True, False, True]
    assert found["none"].shape == (0, 4)
    expected = np.array([[1.5, np.nan, np.inf], [-np.inf, 1e-7, np.nan]], np.float32)
    assert np.array_equal(found["a/b:0"], expected, equal_nan=True)


@pytest.mark.parametrize(
    ("text", "types"),
    [
        (OUTPUTS, {"missing": "float32"}),
        ("", {"y": "float32"}),
        (OUTPUTS.replace('"2x3"', '"7"'), {"a/b:0": "float32"}),
        (OUTPUTS.replace("1.5", "words"), {"a/b:0": "float32"}),
        (OUTPUTS, {"ids": "int8"}),
    ],
)
def test_outputs_that_cannot_be_used(text: str, types: dict[str, str]) -> None:
    with pytest.raises(CandidateError):
        results.read_outputs(text, types)


def test_layers_are_counted_where_they_are_told() -> None:
    assert results.count_layers('{"Layers": ["a", "b"], "I/O Tensors": []}') == 2
    for text in ("", "[]", "{}", '{"Layers": 3}'):
        assert results.count_layers(text) is None
