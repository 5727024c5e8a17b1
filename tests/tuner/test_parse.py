"""Words of flags to values."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.cli import parse
from tuner.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("90", 90.0), ("90s", 90.0), (" 90 s ", 90.0), ("1.5m", 90.0), ("2h", 7200.0), ("1d", 86400.0)),
        *(("250ms", 0.25), ("0", 0.0), ("0.5", 0.5)),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse.duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "5x", "-5", "5 minutes", "nan", "inf", "1e3", "1:30", ".5s", "5ms s"])
def test_words_that_are_no_duration(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse.duration_s(text)
    assert repr(text) in str(caught.value)
    assert "15m" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *(("1000", 1000), ("1K", 1024), ("512M", 512 << 20), ("8G", 8 << 30), ("8g", 8 << 30), ("1T", 1 << 40)),
        *(("1.5GiB", 3 << 29), ("2 GB", 2 << 30), ("7B", 7)),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse.size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "G", "-1G", "8X", "lots", "8GG", "nan", "1e9"])
def test_words_that_are_no_size(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse.size_bytes(text)
    assert repr(text) in str(caught.value)
    assert "8G" in caught.value.hint


@pytest.mark.parametrize(
    ("texts", "shapes"),
    [
        ([], {}),
        (["x:1x3x224x224"], {"x": (1, 3, 224, 224)}),
        (["x:5,y:1x2"], {"x": (5,), "y": (1, 2)}),
        (["x:5", " y:1x2 "], {"x": (5,), "y": (1, 2)}),
        (["in/put:0:2x3"], {"in/put:0": (2, 3)}),
        (["größe:0"], {"größe": (0,)}),
    ],
)
def test_shapes(texts: list[str], shapes: dict[str, tuple[int, ...]]) -> None:
    assert parse.shapes("--shapes", texts) == shapes


@pytest.mark.parametrize("text", ["x", "x:", ":1x2", "x:1xax2", "x:1x2x", "x:1.5", "1x3x224x224", "x:1*2"])
def test_words_that_are_no_shape(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse.shapes("--min-shapes", [text])
    assert "--min-shapes" in str(caught.value)
    assert text in str(caught.value)
    assert "1x3x224x224" in caught.value.hint


def test_a_shape_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="'x' twice"):
        parse.shapes("--shapes", ["x:1", "x:2"])
    with pytest.raises(UsageError, match="'x' twice"):
        parse.ranges(["x:1:2,x:1:3"])


@pytest.mark.parametrize(
    ("texts", "ranges"),
    [
        (["ids:0:30521"], {"ids": (0.0, 30521.0)}),
        (["x:-1.5:2e3", "in/put:0:3:4"], {"x": (-1.5, 2000.0), "in/put:0": (3.0, 4.0)}),
    ],
)
def test_ranges(texts: list[str], ranges: dict[str, tuple[float, float]]) -> None:
    assert parse.ranges(texts) == ranges


@pytest.mark.parametrize("text", ["x", "x:1", ":1:2", "x:a:2", "x:1:", "1:2"])
def test_words_that_are_no_range(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse.ranges([text])
    assert text in str(caught.value)
    assert "name:low:high" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("1e-3", ("rel_l2", None, 1e-3)),
        ("0", ("rel_l2", None, 0.0)),
        ("top1=0.01", ("top1", None, 0.01)),
        ("rel_l2:logits=1e-3", ("rel_l2", "logits", 1e-3)),
        ("linf:größe/out:0=2", ("linf", "größe/out:0", 2.0)),
        ("l2:out.1=2", ("l2", "out.1", 2.0)),
        ("l2:a=b=2", ("l2", "a=b", 2.0)),
        ("package.module:function=0.1", ("package.module:function", None, 0.1)),
        ("package.module:function:*=0.1", ("package.module:function", "*", 0.1)),
    ],
)
def test_limits(text: str, parsed: tuple[Any, ...]) -> None:
    assert parse.max_loss(text, "rel_l2") == parsed


@pytest.mark.parametrize("text", ["", "top1", "top1=", "top1=small", "=", "rel_l2:logits"])
def test_words_that_are_no_limit(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse.max_loss(text, "rel_l2")
    assert repr(text) in str(caught.value)
    assert "top1=0.01" in caught.value.hint


def test_knob_patterns_keep_their_order_over_flags() -> None:
    assert parse.knob_patterns(["runtime, -threads", "", "route:*"]) == ("runtime", "-threads", "route:*")
    assert parse.knob_patterns([]) == ()
