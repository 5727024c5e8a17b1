"""The page as text: whole, self-contained, semantic, and proof against whatever stands in names and messages."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from tests.tuner.report.conftest import Told
from tests.tuner.report.stories import KINDS, hostile
from tuner.report.figures import drawings
from tuner.report.headline import headline
from tuner.report.html import Markup, safe_json, script, script_json, tag
from tuner.report.page import comparison, page
from tuner.report.palette import DARK, LIGHT

_EMPTY = {"meta", "br", "link", "img", "input", "hr"}


class Read(HTMLParser):
    """Elements, attributes and texts of a page; complains of elements that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.scripts: list[str] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, name: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((name, {key: value or "" for key, value in attrs}))
        if name == "script":
            self.scripts.append("")
        if name not in _EMPTY and name not in ("path", "rect", "circle"):
            self._open.append(name)

    def handle_endtag(self, name: str) -> None:
        if name in ("path", "rect", "circle"):
            return
        assert self._open.pop() == name

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            self.scripts[-1] += data
        else:
            self.words += data

    def count(self, name: str) -> int:
        return sum(element == name for element, _ in self.elements)

    def ids(self) -> list[str]:
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_of_every_kind_is_whole(told: Told, kind: str) -> None:
    study = told(kind)
    text = page(study)
    found = Read(text)
    assert len(text.encode()) < 6e6
    assert found.count("h1") == found.count("main") == 1
    assert len(found.ids()) == len(set(found.ids()))
    assert found.count("table") == found.count("caption")
    assert study.name in found.words
    if study.context is None:
        return
    assert study.context.headline.sentence in found.words
    links = {attributes["href"][1:] for name, attributes in found.elements if name == "a"}
    assert links <= set(found.ids())
    for one in drawings(study.context):
        if one.figure is not None and f'data-figure="{one.key}"' not in text:
            raise AssertionError(f"{one.key} is not on the page")


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_asks_for_nothing(told: Told, kind: str) -> None:
    found = Read(page(told(kind)))
    for name, attributes in found.elements:
        assert "src" not in attributes, name
        assert name not in ("link", "iframe", "object", "embed")
        if "href" in attributes:
            assert attributes["href"].startswith("#")
    policy = next(one["content"] for name, one in found.elements if one.get("http-equiv"))
    assert "default-src 'none'" in policy


@pytest.mark.parametrize("kind", ["faster", "no candidate", "untried", "retargeted"])
def test_nothing_that_users_or_libraries_write_becomes_markup(told: Told, kind: str) -> None:
    plain, attacked = Read(page(told(kind))), Read(page(hostile(told(kind))))
    assert [name for name, _ in attacked.elements].count("script") == plain.count("script")
    assert attacked.count("img") == 0
    assert not any(key.startswith("on") for _, attributes in attacked.elements for key in attributes)
    assert "window.hacked" in attacked.words  # it was there, as words
    for text in attacked.scripts:
        if text.startswith("{"):
            json.loads(text)


def test_a_comparison_is_a_page_too(told: Told) -> None:
    found = Read(comparison([told("faster"), told("undecided"), told("untried"), hostile(told("size"))]))
    assert found.count("h1") == 1
    assert found.count("img") == 0
    assert "nothing measured yet" in found.words


def test_each_figure_has_a_title_and_words_for_those_who_cannot_see_it(told: Told) -> None:
    for name, attributes in Read(page(told("faster"))).elements:
        if name == "div" and attributes.get("class") == "plot":
            assert attributes["role"] == "img"
            assert attributes["aria-label"].strip(". ")


def test_empty_states_are_sentences(told: Told) -> None:
    assert "Nothing has been confirmed" in page(told("unconfirmed"))
    assert "Nothing is timed" in page(told("size"))
    assert "Too few feasible candidates" in page(told("no candidate"))
    assert "No candidate has been tried yet" in page(told("untried"))
    assert "has not been opened" in page(replace(told("untried"), contexts=(), shown=None))


def test_a_confirmation_that_is_running_decides_nothing(told: Told) -> None:
    study = told("faster")
    context = study.context
    assert context is not None
    (done,) = context.confirmations
    (one,) = done.finalists
    open_one = replace(one, verdict="", speedup=None, low=None, high=None, reason="", is_winner=False)
    running = replace(done, state="running", verdict="", reason="", confidence=None, finalists=(open_one,), spans=())
    head = headline(study.objective, context.default, context.best, running, len(context.trials))
    text = page(replace(study, contexts=(replace(context, confirmations=(running,), headline=head),)))
    assert "nothing is decided" in text
    assert "A confirmation is under way" in text
    assert "Not confirmed yet" in text
    assert "Faster:" not in Read(text).words


def test_colours_of_a_theme_differ_and_can_be_read() -> None:
    for palette in (LIGHT, DARK):
        for role in ("ink", "muted", "feasible", "rejected", "winner", "third", "second", "failed"):
            for ground in ("page", "paper"):
                assert _contrast(palette[role], palette[ground]) >= (3.0 if role == "failed" else 4.5), (role, ground)
    assert len(set(LIGHT.values())) == len(LIGHT), "colours are told apart by value when the theme changes"
    assert set(LIGHT) == set(DARK)


def test_attributes_and_text_are_escaped() -> None:
    assert tag("p", "<b>", title='"x"') == Markup('<p title="&quot;x&quot;">&lt;b&gt;</p>')
    assert script_json("</script>\u2028") == '"\\u003c/script\\u003e\\u2028"'
    assert json.loads(safe_json('{"a":"<&>"}')) == {"a": "<&>"}
    with pytest.raises(ValueError, match="end its own"):
        script("x </ScRiPt> y")


def _contrast(one: str, other: str) -> float:
    """WCAG 2 contrast of two colours `#rrggbb`."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
