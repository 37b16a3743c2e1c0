"""A headless browser for the pages that sample.py writes."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's Chromium; skipped where it or the extra e2e is missing."""
    driver = pytest.importorskip("playwright.sync_api", reason='needs playwright: pip install -e ".[e2e]"')
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if not program:
        pytest.skip("needs Chromium: on Debian, apt-get install chromium")
    with driver.sync_playwright() as playwright:
        # In a container, root has no sandbox to run it in; it opens only pages that we wrote.
        found = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def opened(browser) -> Iterator[Callable[..., Any]]:
    """Opens a file once its model is ready; at the end, nothing was requested and no error was reported."""
    complaints, contexts = [], []

    def open_page(path: Path, width=1100, scheme="light", before="", motion="reduce", fragment="") -> Any:
        window = {"width": width, "height": 900}
        context = browser.new_context(viewport=window, color_scheme=scheme, reduced_motion=motion)
        contexts.append(context)
        page = context.new_page()
        own = (path.resolve().as_uri(), "blob:null/")  # the file, and a worker, which is made of its scripts
        page.on("request", lambda request: request.url.startswith(own) or complaints.append(f"request: {request.url}"))
        page.on("console", lambda message: complaints.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.add_init_script(before)  # runs before the scripts of the page
        page.goto(own[0] + fragment)
        page.locator("#status").wait_for(state="hidden")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def drawn() -> Callable[..., None]:
    """Waits until what can be seen of a page, with this panel in sight, is drawn and does not scroll any more.

    A panel is drawn in the frame after the one in which the browser finds it in sight, however long a frame takes.
    """

    def wait(page: Any, panel: str = "") -> None:
        if panel:
            page.locator(f"#{panel}").scroll_into_view_if_needed()
        page.evaluate(
            """() => new Promise((done) => {
              const boxes = Array.from(document.querySelectorAll(".scroll"));
              let [same, before] = [0, ""];
              const frame = () => {
                const now = [scrollY, ...boxes.map((one) => one.scrollLeft)].join();
                [same, before] = [now === before ? same + 1 : 0, now];
                if (same < 6) requestAnimationFrame(frame);
                else done();
              };
              requestAnimationFrame(frame);
            })"""
        )

    return wait


@pytest.fixture
def tab() -> Callable[[Any], str]:
    """Presses the Tab key: the name of what has the focus then, which can be seen to have it."""

    def pressed(page: Any) -> str:
        page.keyboard.press("Tab")
        name, outlined = page.evaluate(
            """() => {
              const now = document.activeElement;
              const style = getComputedStyle(now);
              return [now.getAttribute("aria-label") ?? now.closest("label")?.textContent ?? now.textContent,
                      style.outlineStyle !== "none"];
            }"""
        )
        assert outlined, f"no focus can be seen on {name}"
        return name.strip()

    return pressed


@pytest.fixture
def fits(drawn, accessible, tmp_path) -> Callable[..., None]:
    """Draws panels and keeps a picture of each: none may be wider than the window, and axe finds nothing."""

    def check(page: Any, *panels: str) -> None:
        for panel in panels:
            drawn(page, panel)
            page.locator(f"#{panel}").screenshot(path=tmp_path / f"{panel}.png")
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert accessible(page) == []

    return check


@pytest.fixture
def accessible() -> Callable[[Any], list[str]]:
    """What axe-core finds wrong with a page for readers who see little or use no mouse: should be empty."""
    Axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe

    def findings(page: Any) -> list[str]:
        found = Axe().run(page).response["violations"]
        return [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in found for node in one["nodes"]]

    return findings
