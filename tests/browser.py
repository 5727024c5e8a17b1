"""A headless browser for tests of pages: fixtures `browser` and `open_page`, skipped where there is no browser.

The driver is playwright, of the extra `test`; the browser is Chromium or Chrome on PATH (`.ci/browser` installs one),
or one that `playwright install chromium` has brought.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_MISSING = "no browser: .ci/browser installs one (apt-get install chromium, or playwright install chromium)"


class Watched:
    """A page with everything it complained of and everything it asked a network for."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))


OpenPage = Callable[..., Watched]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A running headless Chromium."""
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    with driver.sync_playwright() as playwright:
        path = next((found for name in NAMES if (found := shutil.which(name))), None)
        if path is None and not os.path.exists(playwright.chromium.executable_path):
            pytest.skip(_MISSING)
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[OpenPage]:
    """Opens a URL: `open_page(url, width=390, scheme="dark")`; what the page does is watched from the start."""
    contexts = []

    def open_url(url: str, *, width: int = 1280, height: int = 900, scheme: str = "light") -> Watched:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        contexts.append(context)
        watched = Watched(context.new_page())
        watched.page.goto(url, wait_until="load")
        return watched

    yield open_url
    for context in contexts:
        context.close()
