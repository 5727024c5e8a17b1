"""Words of `--backend-option` for the TensorRT family: what they become, and what is refused."""

from __future__ import annotations

import pytest

from objectives.backends import trt_options
from objectives.backends.trtexec import TrtexecBackend
from objectives.errors import InputError, KnobError
from tests import onnx_models
from tests.objectives.backends.fake_tensorrt import FakeTensorRT
from tests.objectives.backends.trt_fakes import ROUTES, backend


def test_options_become_settings() -> None:
    one = backend(FakeTensorRT(routes=ROUTES))
    one.configure({"workspace": "1.5G", "build-timeout": "10m", "timing-cache": "baseline"})
    assert one.settings.workspace_bytes == 3 << 29
    assert one.settings.limit_s == 600
    assert one.settings.keeps_timings
    assert one.settings.ladders == {}


def test_a_ladder_makes_an_open_ended_knob_tunable(tmp_path: pytest.TempPathFactory) -> None:
    database = FakeTensorRT(routes=ROUTES)
    model = onnx_models.identity(tmp_path, "float32", (2, 3))  # type: ignore[arg-type]
    plain = backend(database)
    before = {knob.name: knob.values for knob in plain.knobs(model, plain.describe(model)).knobs}
    name = next(one.name for one in plain._routes.knobs if one.form.name == "OPEN_INTEGER")
    told = backend(database)
    told.configure({f"ladder:{name}": "3,5,7"})
    after = {knob.name: knob.values for knob in told.knobs(model, told.describe(model)).knobs}
    assert {"3", "5", "7"} <= set(after[f"route:{name}"])
    assert before[f"route:{name}"] != after[f"route:{name}"]
    wrong = backend(database)
    wrong.configure({"ladder:no_such_knob": "1,2"})
    with pytest.raises(KnobError, match="no_such_knob"):
        wrong.knobs(model, wrong.describe(model))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"no-such": "1"}, "has no option 'no-such'"),
        ({"ladder:": "1"}, "has no option 'ladder:'"),
        ({"workspace": "much"}, "is no size"),
        ({"build-timeout": "soon"}, "is no duration"),
        ({"build-timeout": "0s"}, "more than nothing"),
        ({"timing-cache": "yes"}, "no such way"),
        ({"ladder:x": "1,many"}, "whole numbers"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        backend(FakeTensorRT()).configure(options)
    assert caught.value.hint


def test_trtexec_has_options_of_its_own() -> None:
    one = TrtexecBackend()
    one.configure({"program": "/opt/wrapped", "device": "1", "build-timeout": "90s", "ladder:x": "1,2"})
    assert one._wanted == "/opt/wrapped"
    assert (one._settings.device, one._settings.build_limit_s) == (1, 90)
    assert one._settings.ladders == {"x": (1, 2)}
    with pytest.raises(InputError, match="no option 'workspace'"):
        TrtexecBackend().configure({"workspace": "1G"})


def test_every_option_says_what_it_is() -> None:
    every = [trt_options.WORKSPACE, trt_options.LADDER, trt_options.PROGRAM, trt_options.DEVICE]
    assert all(one.metavar and one.help for one in every)
