"""Build routes: reading the list in every form, ranges, selection, canonical strings. All text, no library."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from objectives.backends.trt_routes import (
    Form,
    RouteDatabase,
    parse_route,
    read_routes,
    route_knobs,
    route_string,
)
from objectives.errors import KnobError
from objectives.knobs import Candidate, KnobKind, KnobSpace
from tests.objectives.backends.trt_fakes import ROUTES

DATABASE = read_routes(ROUTES)
SPACE = KnobSpace(route_knobs(DATABASE, {}))


def document(*entries: Any, **top: Any) -> str:
    return json.dumps({"tuner_version": "1.2.3", "tuner_options": list(entries), **top})


def entry(allowed: str, default: str = "", name: str = "k", text: str = "") -> dict[str, str]:
    return {"option": f"-{name}", "allowed_values": f"-{name}={allowed}", "default_value": default, "help": text}


def values_of(allowed: str, default: str, ladder: tuple[int, ...] | None = None) -> tuple[str, ...]:
    knobs = route_knobs(read_routes(document(entry(allowed, default))), {} if ladder is None else {"k": ladder})
    return knobs[0].values if knobs else ()


@pytest.mark.parametrize(
    ("allowed", "form", "listed"),
    [
        ("[on|off]", Form.LISTED, ("on", "off")),
        ("[ on |\toff ]", Form.LISTED, ("on", "off")),
        ("[0|1|2|3]", Form.LISTED, ("0", "1", "2", "3")),
        ("[auto|none]", Form.LISTED, ("auto", "none")),
        ("[a||b|]", Form.LISTED, ("a", "b")),
        ("[a|a]", Form.LISTED, ("a",)),
        ("int", Form.OPEN_INTEGER, ()),
        ("int32_t", Form.OPEN_INTEGER, ()),
        ("uint64_t", None, None),
        ("[int]", Form.OPEN_INTEGER, ()),
        ("[-1|int]", Form.OPEN_INTEGER, ("-1",)),
        ("[-1|0|int]", Form.OPEN_INTEGER, ("-1", "0")),
        ("[1|2|...]", Form.OPEN_INTEGER, ("1", "2")),
        ("[1|2|4|...]", Form.OPEN_INTEGER, ("1", "2", "4")),
        ("[a|...]", None, None),
        ("[string]", None, None),
        ("[]", None, None),
        ("<path>", None, None),
        ("", None, None),
        ("on|off", None, None),
    ],
)
def test_forms(allowed: str, form: Form | None, listed: tuple[str, ...] | None) -> None:
    database = read_routes(document(entry(allowed, "1" if form == Form.OPEN_INTEGER else "on")))
    if form is None:
        assert database.knobs == ()
        assert database.left_out == {"k": "takes free text"}
    else:
        assert [(knob.form, knob.listed) for knob in database.knobs] == [(form, listed)]


@pytest.mark.parametrize(
    ("allowed", "default", "expected"),
    [
        ("[1|2|...]", "1", ("1", "2", "4", "8", "16")),
        ("[0|1|...]", "0", ("0", "1", "2", "4", "8")),
        ("[1|2|4|...]", "2", ("1", "2", "4", "8", "16")),
        ("int", "10", ("5", "10", "20", "40")),
        ("int", "1", ("1", "2", "4")),
        ("int", "0", ("0", "1", "2", "4", "8")),
        ("int", "", ("unset", "1", "2", "4", "8")),
        ("[-1|int]", "-1", ("-1", "1", "2", "4", "8")),
        ("[-1|0|int]", "-1", ("-1", "0", "1", "2", "4", "8")),
    ],
)
def test_default_ladders_of_open_ended_integers(allowed: str, default: str, expected: tuple[str, ...]) -> None:
    assert values_of(allowed, default) == expected


def test_a_range_of_the_users_replaces_the_ladder() -> None:
    assert values_of("int32_t", "4", (4, 6, 9)) == ("4", "6", "9")
    assert values_of("int32_t", "4", (6, 9)) == ("4", "6", "9")


def test_a_range_for_another_kind_of_knob_is_refused() -> None:
    with pytest.raises(KnobError, match="k: no open-ended"):
        values_of("[on|off]", "on", (1, 2))
    assert route_knobs(RouteDatabase(), {"k": (1, 2)}) == ()


def test_a_default_that_is_missing_or_not_listed_stays_the_default() -> None:
    for default, expected in (("", ("unset", "a", "b")), ("c", ("c", "a", "b"))):
        (knob,) = route_knobs(read_routes(document(entry("[a|b]", default))), {})
        assert (knob.values, knob.default) == (expected, expected[0])
        assert route_string({knob.name: expected[0]}, [knob]) == ""
        assert route_string({knob.name: "b"}, [knob]) == "-k=b"


def test_entries_that_nothing_can_be_made_of_are_left_out() -> None:
    database = read_routes(
        document("text", {"option": 3}, entry("[a|b]", name=""), entry("[a|b]", name="with blank"), entry("[a]", "a"))
    )
    assert [knob.name for knob in database.knobs] == ["k"]
    assert route_knobs(database, {}) == ()  # one value is no choice
    assert read_routes(document(entry("[unset|a]"))).left_out["k"].startswith("has no default")
    assert "default is 'many'" in read_routes(document(entry("int", "many"))).left_out["k"]


def test_of_a_repeated_knob_the_last_definition_counts_in_the_first_place() -> None:
    database = read_routes(document(entry("[a|b]", "a"), entry("[x|y]", "x", name="other"), entry("[c|d]", "c")))
    assert [(knob.name, knob.listed) for knob in database.knobs] == [("k", ("c", "d")), ("other", ("x", "y"))]
    assert read_routes(document(entry("[string]"), entry("[a|b]", "a"))).left_out == {}


def test_no_list_is_an_empty_list_and_a_broken_one_an_error() -> None:
    assert read_routes("") == read_routes(" \n") == RouteDatabase()
    for text in ("{", "[]", "{}", '{"tuner_options": {}}'):
        with pytest.raises(KnobError, match="list of build routes"):
            read_routes(text)
    assert read_routes(document(tuner_version=7)).tuner_version == "unknown"


def test_the_recorded_list_reads_whole() -> None:
    assert len(json.loads(ROUTES)["tuner_options"]) == 209
    assert DATABASE.tuner_version == "0.0.0-invented"
    assert set(DATABASE.left_out) == {"invented:text", "invented:file", "invented:float"}
    assert {knob.kind for knob in SPACE.knobs} == {KnobKind.ROUTE}
    assert len(SPACE.knobs) == 205
    assert all(knob.help for knob in SPACE.knobs)


def test_selection_by_pattern() -> None:
    everything, kgen = SPACE.select(["route:*"]), SPACE.select(["route:kgen:*"])
    rest = SPACE.select(["route:*", "-route:kgen:*"])
    assert everything == SPACE
    assert {knob.name for knob in rest.knobs} | {knob.name for knob in kgen.knobs} == {k.name for k in SPACE.knobs}
    assert len(rest.knobs) + len(kgen.knobs) == len(SPACE.knobs)
    assert SPACE.select(["route"]) == SPACE


def test_a_canonical_route_names_what_is_not_default_in_the_lists_order() -> None:
    values = SPACE.values(Candidate((("route:conv_use_long_w", "off"), ("route:kgen:codegen:cuda_tile", "2"))))
    assert route_string(values, SPACE.knobs) == "-conv_use_long_w=off -kgen:codegen:cuda_tile=2"
    shuffled = dict(reversed(values.items()))
    assert route_string(shuffled, SPACE.knobs) == route_string(values, SPACE.knobs)
    assert route_string({}, SPACE.knobs) == ""


@given(st.data())
def test_a_canonical_route_reads_back(data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(SPACE.knobs), unique=True, max_size=12))
    assignment = {knob.name: data.draw(st.sampled_from(knob.values)) for knob in chosen}
    candidate = SPACE.candidate(assignment)
    route = route_string(assignment, SPACE.knobs)
    assert {f"route:{name}": value for name, value in parse_route(route).items()} == dict(candidate.changes)
    assert route == " ".join(route.split())


@pytest.mark.parametrize("route", ["k=on", "-k", "-k=", "-=on", "on", "-k=a=b extra"])
def test_a_bad_token_is_refused(route: str) -> None:
    with pytest.raises(KnobError, match="not of the form"):
        parse_route(route)


def test_a_knob_named_twice_is_refused() -> None:
    with pytest.raises(KnobError, match="sets 'k' twice"):
        parse_route("-k=on -other=1 -k=off")
