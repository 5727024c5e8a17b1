"""The page in a browser: drawn whole, quiet, without a network, in both themes and on a telephone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser import OpenPage, Watched
from tests.tuner.report.conftest import Told
from tests.tuner.report.stories import hostile
from tuner.report.page import comparison, page

pytestmark = pytest.mark.browser

PATIENCE_MS = 120_000  # no measure of anything: after this long a page is taken to be stuck
SIZES = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]
Show = Callable[..., Watched]

# Pairs of labels in one figure that lie over one another, and labels that leave their figure.
_CROWDED = """() => {
  const found = [];
  for (const plot of document.querySelectorAll('.plot')) {
    const box = plot.getBoundingClientRect();
    const texts = [...plot.querySelectorAll('svg text')]
      .map(one => [one.textContent, one.getBoundingClientRect()])
      .filter(([words, area]) => words.trim() && area.width > 0 && area.height > 0);
    texts.forEach(([words, area], place) => {
      const out = Math.max(box.left - area.left, area.right - box.right, box.top - area.top, area.bottom - box.bottom);
      if (out > 2) found.push([plot.dataset.figure, words, 'leaves its figure by', out]);
      for (const [others, other] of texts.slice(place + 1)) {
        const wide = Math.min(area.right, other.right) - Math.max(area.left, other.left);
        const high = Math.min(area.bottom, other.bottom) - Math.max(area.top, other.top);
        if (wide > 2 && high > 3) found.push([plot.dataset.figure, words, 'lies over', others]);
      }
    });
  }
  return found;
}"""
_DRAWN = """() => [...document.querySelectorAll('.plot')].map(one =>
  [one.dataset.figure, one.querySelectorAll('svg.main-svg').length, one.dataset.drawn])"""
_WIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture
def show(open_page: OpenPage, tmp_path: Path) -> Show:
    """Opens a page's text, and waits until every figure is drawn: `show(text, width=390)`."""

    def open_text(text: str, **options: Any) -> Watched:
        path = tmp_path / "report.html"
        path.write_text(text, encoding="utf-8")
        watched = open_page(path.as_uri(), **options)
        watched.page.wait_for_selector("html[data-waiting='0']", state="attached", timeout=PATIENCE_MS)
        return watched

    return open_text


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_a_page_is_drawn_whole_and_asks_for_nothing(told: Told, show: Show, width: int, scheme: str) -> None:
    watched = show(page(told("faster")), width=width, scheme=scheme)
    assert watched.errors == []
    assert [url for url in watched.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    drawn = watched.page.evaluate(_DRAWN)
    assert len(drawn) >= 10
    assert all(layers >= 1 and theme == scheme for _, layers, theme in drawn), drawn
    assert watched.page.evaluate(_WIDE) <= 0
    assert watched.page.evaluate(_CROWDED) == []


@pytest.mark.parametrize(
    "kind", ["untried", "unconfirmed", "undecided", "no candidate", "size", "retargeted", "program"]
)
def test_other_ends_are_drawn_too(told: Told, show: Show, kind: str) -> None:
    watched = show(page(told(kind)), width=390)
    assert watched.errors == []
    assert watched.page.evaluate(_WIDE) <= 0
    assert watched.page.evaluate(_CROWDED) == []


def test_a_comparison_is_drawn(told: Told, show: Show) -> None:
    watched = show(comparison([told("faster"), told("undecided"), told("untried")]), width=390, scheme="dark")
    assert watched.errors == []
    assert watched.page.evaluate(_WIDE) <= 0
    assert watched.page.evaluate(_CROWDED) == []


def test_nothing_that_was_written_runs(told: Told, show: Show) -> None:
    watched = show(page(hostile(told("faster"))), width=390)
    assert watched.page.evaluate("window.hacked") is None
    assert watched.errors == []
    assert watched.page.evaluate("document.images.length") == 0
    assert watched.page.evaluate(_WIDE) <= 0


def test_the_switch_changes_every_figure_and_is_remembered(told: Told, show: Show) -> None:
    watched = show(page(told("unconfirmed")))
    ground = "getComputedStyle(document.body).backgroundColor"
    before = watched.page.evaluate(ground)
    watched.page.click("#theme")
    assert watched.page.evaluate(ground) != before
    assert {theme for _, _, theme in watched.page.evaluate(_DRAWN)} == {"dark"}
    assert watched.page.inner_text("#theme") == "Light theme"
    watched.page.reload()
    assert watched.page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert watched.errors == []


def test_without_scripts_the_words_are_there(told: Told, browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page(told("faster")), encoding="utf-8")
    context = browser.new_context(java_script_enabled=False)
    opened = context.new_page()
    opened.goto(path.as_uri())
    study = told("faster").context
    assert study is not None
    assert study.headline.sentence.replace("\u00a0", " ") in opened.inner_text("#verdict").replace("\u00a0", " ")
    assert "Figures need JavaScript" in opened.inner_text("main")
    context.close()


def test_a_printed_page_is_light_and_whole(told: Told, show: Show) -> None:
    watched = show(page(told("faster")), scheme="dark")
    assert watched.page.pdf()[:5] == b"%PDF-"
    assert {theme for _, _, theme in watched.page.evaluate(_DRAWN)} == {"dark"}  # again, as it was
    assert watched.errors == []
