"""Digests: equal values have equal digests, whatever the order of keys; files are digested by content."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from objectives.digest import digest_of, digest_of_file

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def test_the_digest_is_sha256_of_json_with_sorted_keys() -> None:
    value = {"b": [1, True, None], "a": "größe"}
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert digest_of(value) == hashlib.sha256(text.encode()).hexdigest()


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.text(), plain, min_size=2, max_size=5))
def test_the_order_of_keys_does_not_count(value: dict[str, object]) -> None:
    assert digest_of(value) == digest_of(dict(reversed(value.items())))


@settings(deadline=None, max_examples=100)
@given(plain, plain)
def test_other_values_have_other_digests(one: object, two: object) -> None:
    assert (digest_of(one) == digest_of(two)) == (json.dumps(one, sort_keys=True) == json.dumps(two, sort_keys=True))


def test_a_tuple_is_a_list() -> None:
    assert digest_of((("a", "1"),)) == digest_of([["a", "1"]])
    assert digest_of(["ab"]) != digest_of(["a", "b"])


def test_a_file_is_digested_by_its_bytes_across_pieces(tmp_path: Path) -> None:
    for size in (0, 1, 1 << 20, (1 << 20) + 1):
        data = bytes(index % 251 for index in range(1000)) * (size // 1000) + b"x" * (size % 1000)
        path = tmp_path / f"größe {size}"
        path.write_bytes(data)
        assert digest_of_file(path) == hashlib.sha256(data).hexdigest()
