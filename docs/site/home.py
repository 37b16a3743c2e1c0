"""The first page of the site: what this is, three live thumbnails, nano.py, the course, and the first commands.

home.html is the template. The commands are those of README.md, the code is that of nano.py, and the titles are those of
the chapters. preview.png, which other sites show beside a link to this one, is a picture of this page:

    pip install -e ".[docs,e2e]"
    python docs/site/build.py && python docs/site/home.py
"""

from __future__ import annotations

import ast
import html
import re
import shutil
import string
from pathlib import Path

from training.cli.console import run_command

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TITLE = "tinygrad_lite: learn Transformers by reading real code"
DESCRIPTION = (
    "A tensor class with automatic differentiation, a GPT, a translator and a course in twenty-four chapters, "
    "written to be read, with live pages that show what a model does."
)
PREVIEW = HERE / "preview.png"
SIZE = {"width": 1200, "height": 630}  # which other sites expect
# What `python nano.py plays.txt` wrote, learned from the text of `python train.py plays`.
WRITTEN = (HERE / "nano.txt").read_text(encoding="utf-8")


def page(chapters: list[Path], repository: str = "") -> str:
    """The first page, as Markdown with HTML in it.

    Args:
        repository: its address, to which the page links; empty if it is unknown.
    """
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.search(r"^```sh\n.*?^```\n", readme, re.MULTILINE | re.DOTALL)[0].replace(
        "this page", "the repository"
    )
    if repository:
        commands = re.sub(r"; REPOSITORY .*", "", commands).replace("REPOSITORY", repository)
    nano = (ROOT / "nano.py").read_text(encoding="utf-8")
    model = next(part for part in ast.parse(nano).body if getattr(part, "name", "") == "GPT")
    code = highlight(ast.get_source_segment(nano, model), PythonLexer(), HtmlFormatter(nowrap=True))
    door = f'<a href="{html.escape(repository)}">The repository</a>' if repository else ""
    filled = string.Template((HERE / "home.html").read_text(encoding="utf-8")).substitute(
        commands=commands,
        nano=unbroken(code.rstrip("\n")),
        written=unbroken(html.escape(WRITTEN.strip("\n"))),
        count=len(chapters),
        chapters="\n".join(map(step, chapters)),
        door=door,
        repository=f"<li>{door} has all of it.</li>\n" if door else "",
    )
    return f"---\nhide:\n  - navigation\n  - toc\n---\n\n# tinygrad_lite\n\n{filled}"


def unbroken(text: str) -> str:
    """HTML without blank lines, which would end its block in Markdown."""
    return text.replace("\n\n", "\n&#10;")


def step(chapter: Path) -> str:
    """A chapter as a step of the path: its title, which leads to it, and its question."""
    title, question = chapter.read_text(encoding="utf-8").split("\n\n")[:2]
    title, question = (html.escape(text.strip("*")) for text in (title.partition(". ")[2], question))
    return f'<li><a href="docs/course/{chapter.parent.name}/index.html">{title}</a><span>{question}</span></li>'


def with_head(text: str, address: str = "") -> str:
    """The finished page with a title, a description and a preview picture in its head.

    Args:
        address: of the site, which others need to find the picture; empty: it is named as the page names its own.
    """
    start = f"{address.rstrip('/')}/" if address else ""
    facts = {"og:title": TITLE, "og:description": DESCRIPTION, "og:type": "website"}
    facts |= {"og:image": f"{start}assets/{PREVIEW.name}"} | {f"og:image:{name}": size for name, size in SIZE.items()}
    lines = [f'<meta name="description" content="{DESCRIPTION}">']
    lines += [f'<meta property="{name}" content="{value}">' for name, value in facts.items()]
    text = re.sub(r"<title>.*?</title>", f"<title>{TITLE}</title>", text, count=1)
    return text.replace("</head>", "\n".join([*lines, "</head>"]), 1)


def main(_: list[str]) -> int:
    """Take the preview picture of the site in build/site."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.goto((ROOT / "build" / "site" / "index.html").as_uri())
        page.wait_for_timeout(20_000)  # the thumbnails write and learn
        page.screenshot(path=PREVIEW)
        browser.close()
    return 0


if __name__ == "__main__":
    run_command("home", main, __doc__)
