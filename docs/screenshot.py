"""The picture in the README: the part of a page of `sample.py --explain` that shows where the heads look.

    pip install -e ".[e2e]"
    python sample.py out/shakespeare --start "ROMEO: O, she doth teach the torches to" --explain page.html
    python docs/screenshot.py page.html docs/page.png

Chromium must be installed.
"""

import shutil
import sys
from pathlib import Path


def main(page_file: str, picture: str) -> None:
    """Open the page, and save a picture of its panel `attention`, down to the map of the chosen head."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1000, "height": 1000}, color_scheme="light")
        page.goto(Path(page_file).resolve().as_uri())
        page.wait_for_selector("#attention svg")
        page.wait_for_timeout(500)
        top, end = (page.locator(place).bounding_box()["y"] for place in ("#attention", "text=The whole map"))
        page.screenshot(path=picture, full_page=True, clip={"x": 0, "y": top, "width": 1000, "height": end - top})
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
