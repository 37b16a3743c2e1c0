"""Pictures of a page of `sample.py --explain`: what a desktop and a phone show, in light and dark.

    pip install -e ".[e2e]"
    python sample.py out/goethe --explain page.html
    python docs/screenshot.py page.html FOLDER

For each it saves the first screen, when the model has written a little, and every panel; page.png, the stage and the
picture of the model, is docs/page.png, which the README shows. Chromium must be installed.
"""

import shutil
import sys
from pathlib import Path

WINDOWS = ((1280, 800), (390, 844))
SCHEMES = ("light", "dark")
README = {"x": 160, "y": 0, "width": 960, "height": 1110}


def main(page_file: str, folder: str) -> None:
    """Open the page in each window, and save what it shows."""
    from playwright.sync_api import sync_playwright

    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for width, height in WINDOWS:
            for scheme in SCHEMES:
                page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
                page.goto(Path(page_file).resolve().as_uri())
                page.wait_for_timeout(8000)  # it writes by itself,
                page.keyboard.press("Shift")  # until the reader touches anything
                page.wait_for_timeout(600)
                page.screenshot(path=out / f"{width}-{scheme}.png")
                if (width, scheme) == (1280, "light"):
                    page.screenshot(path=out / "page.png", full_page=True, clip=README)
                for name in page.evaluate("session.data.panels"):
                    panel = page.locator(f"#{name}")
                    panel.evaluate("(one) => one.scrollIntoView({ behavior: 'instant' })")
                    page.wait_for_timeout(2500 if name == "attention" else 600)  # drawn when it is seen
                    page.evaluate("document.querySelector('.stuck')?.classList.remove('stuck')")  # it would lie over it
                    panel.screenshot(path=out / f"{width}-{scheme}-{name}.png")
                page.close()
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) == 3 else sys.exit(__doc__)
