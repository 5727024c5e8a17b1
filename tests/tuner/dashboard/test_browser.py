"""The pages of Optuna Dashboard in a real browser: our study as if it had been made for it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.browser import OpenPage, Watched
from tests.conftest import Cli
from tests.tuner.conftest import Study
from tests.tuner.dashboard.test_pages import Shown
from tests.tuner.dashboard.test_serve import dashboard
from tuner.answers import ConfirmOptions
from tuner.api import confirm_study

pytest.importorskip("optuna_dashboard", reason="pip install 'tensorrt-tuner[dashboard]'")
pytestmark = [pytest.mark.browser, pytest.mark.slow]

NAME = "demo [1] synthetic 1"
_PATIENCE_S = 60.0  # only for the case that it never answers


@pytest.fixture
def confirmed(finished: Study) -> Study:
    confirm_study(finished.name, ConfirmOptions(finalists=1, builds=2), storage=finished.url)
    return finished


@contextmanager
def plain_dashboard(study: Study) -> Iterator[str]:
    """Optuna's own command on the database, without anything of ours; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [os.path.join(os.path.dirname(sys.executable), "optuna-dashboard"), study.url, "--port", str(port)]
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen([*command, "--quiet"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until = time.monotonic() + _PATIENCE_S
            while True:
                try:
                    urllib.request.urlopen(f"{url}/api/meta").close()
                    break
                except urllib.error.URLError:
                    assert time.monotonic() < until, "it never answered"
                    assert process.poll() is None, "it ended"
                    time.sleep(0.1)
            yield url
        finally:
            process.terminate()


def _open_study(open_page: OpenPage, url: str, number: int = 1) -> Watched:
    """The page of a study, its plots drawn."""
    watched = open_page(f"{url}/dashboard/studies/{number}", width=1400, height=1200)
    watched.page.wait_for_selector(".js-plotly-plot .main-svg")
    return watched


def _require_our_study(watched: Watched, study: Study) -> None:
    """The best feasible trial as the best one, our figures, our note."""
    page = watched.page
    titles = [figure["layout"]["title"]["text"] for figure in Shown(study.url).figures.values()]
    assert len(titles) == 6
    # `a=v1 b=v1` would be faster, and is wrong.
    page.get_by_text("Params = [a: v0, b: v1]").wait_for()
    for title in titles:
        page.locator(".gtitle").get_by_text(title, exact=True).wait_for(state="attached")
    page.get_by_role("link", name="Note").or_(page.get_by_text("Note", exact=True)).first.click()
    page.get_by_role("heading", name="Faster: ").wait_for()
    page.get_by_text("engine export demo").first.wait_for()
    assert watched.errors == []


def test_list_study_figures_note_and_best_trial(confirmed: Study, open_page: OpenPage) -> None:
    with dashboard(confirmed) as (url, _):
        start = open_page(f"{url}/dashboard", width=1400)
        start.page.get_by_text(NAME).wait_for()
        watched = _open_study(open_page, url)
        _require_our_study(watched, confirmed)
        assert start.errors == []
        assert all(request.startswith((url, "data:", "blob:")) for request in watched.requests)


def test_the_page_cannot_delete(confirmed: Study, open_page: OpenPage, cli: Cli) -> None:
    with dashboard(confirmed) as (url, _):
        page = open_page(f"{url}/dashboard", width=1400).page
        page.locator("button:has(svg[data-testid='DeleteIcon'])").first.click()
        page.get_by_role("dialog").get_by_role("button", name="Yes").click()
        page.get_by_text("Failed to delete study").wait_for()
        page.reload()
        page.get_by_text(NAME).wait_for()
    assert cli("study", "show", *confirmed.at).code == 0


def test_optunas_own_command_shows_the_same(confirmed: Study, open_page: OpenPage) -> None:
    with plain_dashboard(confirmed) as url:
        _require_our_study(_open_study(open_page, url), confirmed)
