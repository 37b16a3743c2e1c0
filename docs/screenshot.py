"""The picture in the README: the diagram of a page of `sample.py --explain`, and a cell of an attention map, opened.

    pip install -e ".[e2e]"
    python sample.py out/plays --start "ROMEO: O, she doth teach the torches to" --explain page.html
    python docs/screenshot.py page.html docs/page.png

Chromium must be installed.
"""

import shutil
import sys
from pathlib import Path


def main(page_file: str, picture: str) -> None:
    """Open the page at the map of a head, open its strongest cell, and save a picture of both under the diagram."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1000, "height": 1000}, color_scheme="light")
        page.goto(Path(page_file).resolve().as_uri() + "#head=3.1")
        for panel in ("whole", "attention"):  # each is drawn when it is seen
            page.locator(f"#{panel}").scroll_into_view_if_needed()
            page.wait_for_timeout(500)
        page.locator("#attention .map").press("Enter")
        page.wait_for_timeout(1000)
        page.evaluate(
            """() => {
              const shown = document.createElement("div");
              shown.style.padding = "16px";
              shown.append(document.querySelector("#whole .diagram"), document.querySelector("#attention .beside"));
              document.body.replaceChildren(shown);
            }"""
        )
        page.locator("body > div").screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) == 3 else sys.exit(__doc__)
