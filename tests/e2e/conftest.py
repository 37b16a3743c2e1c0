"""A headless browser for the pages that sample.py writes."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's Chromium; skipped where it or the extra e2e is missing."""
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium; on Debian: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        # In a container, root has no sandbox to run it in; it opens only pages that we wrote.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser) -> Iterator[Callable[..., Any]]:
    """Opens a file once its model is ready; at the end, nothing was requested and no error was reported."""
    complaints, contexts = [], []

    def open_page(path: Path, width: int = 1100, scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        address = path.resolve().as_uri()
        page.on("request", lambda request: request.url == address or complaints.append(f"request: {request.url}"))
        page.on("console", lambda message: complaints.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.goto(address)
        page.locator("#status").wait_for(state="hidden")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
