"""Knobs: one canonical form for each candidate, exact selection, and clear refusals."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectives.errors import KnobError
from objectives.knobs import BASELINE, Candidate, Knob, KnobKind, KnobSpace

names = st.text("abc:_/ü", min_size=1, max_size=4)


@st.composite
def spaces(draw: st.DrawFn) -> KnobSpace:
    knobs = []
    for name in draw(st.lists(names, unique=True, max_size=4)):
        values = tuple(draw(st.lists(st.text("01xy", min_size=1, max_size=2), unique=True, min_size=1, max_size=3)))
        kind = draw(st.sampled_from(KnobKind))
        knobs.append(Knob(name, values, draw(st.sampled_from(values)), kind, "help"))
    return KnobSpace(tuple(knobs))


@st.composite
def spaces_with_values(draw: st.DrawFn) -> tuple[KnobSpace, dict[str, str]]:
    space = draw(spaces())
    return space, {knob.name: draw(st.sampled_from(knob.values)) for knob in space.knobs}


def knob(name: str, *values: str, kind: KnobKind = KnobKind.RUNTIME, text: str = "") -> Knob:
    return Knob(name, values or ("off", "on"), values[0] if values else "off", kind, text)


SPACE = KnobSpace(
    (
        knob("route:a", kind=KnobKind.ROUTE),
        knob("threads", "1", "2", "4"),
        knob("route:b", kind=KnobKind.ROUTE),
        knob("precision", "fp32", "fp16", kind=KnobKind.PRECISION),
    )
)


def selected(*patterns: str) -> list[str]:
    return [one.name for one in SPACE.select(patterns).knobs]


class TestCanonicalForm:
    @settings(deadline=None)
    @given(spaces_with_values())
    def test_values_and_candidate_are_inverse(self, case: tuple[KnobSpace, dict[str, str]]) -> None:
        space, values = case
        candidate = space.candidate(values)
        assert space.values(candidate) == values
        assert list(space.values(candidate)) == [one.name for one in space.knobs]
        assert space.candidate(dict(candidate.changes)) == candidate

    @settings(deadline=None)
    @given(spaces_with_values())
    def test_defaults_and_the_order_of_the_assignment_do_not_count(
        self, case: tuple[KnobSpace, dict[str, str]]
    ) -> None:
        space, values = case
        changed = {one.name: values[one.name] for one in space.knobs if values[one.name] != one.default}
        candidate = space.candidate(dict(reversed(values.items())))
        assert candidate == space.candidate(changed)
        assert candidate.digest == space.candidate(changed).digest
        assert candidate.changes == tuple(changed.items())
        assert candidate.is_baseline == (not changed) == (candidate == BASELINE)

    @settings(deadline=None, max_examples=50)
    @given(spaces())
    def test_the_size_is_the_number_of_different_candidates(self, space: KnobSpace) -> None:
        combinations = product(*(one.values for one in space.knobs))
        found = {space.candidate(dict(zip([k.name for k in space.knobs], one, strict=True))) for one in combinations}
        assert space.size == len(found) == len({one.digest for one in found})

    def test_a_candidate_reads_as_its_changes(self) -> None:
        assert str(BASELINE) == "default"
        assert str(SPACE.candidate({"precision": "fp16", "route:a": "on"})) == "route:a=on precision=fp16"

    def test_unknown_names_and_values_are_refused_with_what_there_is(self) -> None:
        with pytest.raises(KnobError, match="'thread'") as error:
            SPACE.candidate({"thread": "1"})
        assert "threads" in error.value.hint
        with pytest.raises(KnobError, match="'3'") as error:
            SPACE.candidate({"threads": "3"})
        assert "1, 2, 4" in error.value.hint

    def test_a_candidate_of_another_space_is_refused(self) -> None:
        with pytest.raises(KnobError, match="gone"):
            SPACE.values(Candidate((("gone", "on"),)))
        with pytest.raises(KnobError, match="'8'"):
            SPACE.values(Candidate((("threads", "8"),)))

    def test_an_empty_space_has_the_baseline_alone(self) -> None:
        assert KnobSpace(()).size == 1
        assert KnobSpace(()).candidate({}) == BASELINE
        with pytest.raises(KnobError) as error:
            KnobSpace(()).candidate({"a": "1"})
        assert error.value.hint


class TestDigest:
    def test_help_texts_do_not_count(self) -> None:
        assert KnobSpace((knob("a", text="one"),)).digest == KnobSpace((knob("a", text="two"),)).digest

    @pytest.mark.parametrize(
        "other",
        [
            Knob("b", ("off", "on"), "off", KnobKind.RUNTIME, ""),
            Knob("a", ("on", "off"), "off", KnobKind.RUNTIME, ""),
            Knob("a", ("off", "on"), "on", KnobKind.RUNTIME, ""),
            Knob("a", ("off", "on"), "off", KnobKind.BUILDER, ""),
            Knob("a", ("off", "on", "auto"), "off", KnobKind.RUNTIME, ""),
        ],
    )
    def test_everything_else_counts(self, other: Knob) -> None:
        assert KnobSpace((knob("a"),)).digest != KnobSpace((other,)).digest

    def test_the_order_of_knobs_counts(self) -> None:
        assert KnobSpace((knob("a"), knob("b"))).digest != KnobSpace((knob("b"), knob("a"))).digest

    def test_a_space_survives_json(self) -> None:
        again = msgspec.json.decode(msgspec.json.encode(SPACE), type=KnobSpace)
        assert again == SPACE
        assert again.digest == SPACE.digest


class TestValidity:
    def test_the_default_is_a_value(self) -> None:
        with pytest.raises(KnobError, match="'c'"):
            Knob("a", ("a", "b"), "c", KnobKind.ROUTE, "")

    def test_values_differ(self) -> None:
        with pytest.raises(KnobError, match="twice"):
            Knob("a", ("x", "x"), "x", KnobKind.ROUTE, "")

    @pytest.mark.parametrize("name", ["", " a", "a\n"])
    def test_names_have_no_blanks_around(self, name: str) -> None:
        with pytest.raises(KnobError):
            knob(name)

    def test_names_differ(self) -> None:
        with pytest.raises(KnobError, match="a twice"):
            KnobSpace((knob("a"), knob("b"), knob("a")))

    def test_values_are_frozen(self) -> None:
        with pytest.raises(AttributeError):
            BASELINE.changes = ()  # type: ignore[misc]


class TestSelect:
    def test_nothing_said_is_everything(self) -> None:
        assert SPACE.select([]) == SPACE
        assert SPACE.select(["", " "]) == SPACE

    @pytest.mark.parametrize(
        ("patterns", "names"),
        [
            (["threads"], ["threads"]),
            (["route"], ["route:a", "route:b"]),
            (["route:*"], ["route:a", "route:b"]),
            (["precision", "route:a"], ["route:a", "precision"]),
            (["-route"], ["threads", "precision"]),
            (["!threads", "!precision"], ["route:a", "route:b"]),
            (["route", "-route:b"], ["route:a"]),
            (["-route", "route:b"], ["threads", "route:b", "precision"]),
            ([" threads "], ["threads"]),
            (["*"], ["route:a", "threads", "route:b", "precision"]),
            (["route:[b]"], ["route:b"]),
        ],
    )
    def test_patterns_act_in_order_and_the_space_orders(self, patterns: list[str], names: list[str]) -> None:
        assert selected(*patterns) == names

    @pytest.mark.parametrize("pattern", ["thread", "Threads", "-nothing", "-", "deployment"])
    def test_a_pattern_that_matches_nothing_is_refused(self, pattern: str) -> None:
        with pytest.raises(KnobError, match="no knob matches") as error:
            SPACE.select(["threads", pattern])
        assert "route:a, threads, route:b, precision" in error.value.hint

    def test_a_selection_of_nothing_is_refused(self) -> None:
        with pytest.raises(KnobError, match="leaves no knob"):
            SPACE.select(["threads", "-threads"])

    @pytest.mark.parametrize("name", ["tiles[0]", "a?", "x*y"])
    def test_a_name_is_a_pattern_of_itself(self, name: str) -> None:
        space = KnobSpace((knob(name), knob("other")))
        assert [one.name for one in space.select([name]).knobs] == [name]

    @settings(deadline=None, max_examples=50)
    @given(spaces().filter(lambda space: space.knobs), st.data())
    def test_a_selection_and_its_opposite_part_the_space(self, space: KnobSpace, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from([k.name for k in space.knobs]), min_size=1, unique=True))
        kept = space.select(chosen)
        assert {k.name for k in kept.knobs} >= set(chosen)
        assert [k for k in space.knobs if k in kept.knobs] == list(kept.knobs)
