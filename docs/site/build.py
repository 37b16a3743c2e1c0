"""Build the documentation site, with a notebook of every chapter, and check its links.

    pip install -e ".[docs]"
    python docs/site/build.py [RUNS]      then open build/site/index.html; no server and no network are needed

The live pages show the models in the folder RUNS (default: out). With the address of the repository in the environment
variable REPOSITORY, as in REPOSITORY=https://example.org/lite python docs/site/build.py, every page links to it; SITE
is the address of the site itself, which others need to show its preview picture.

The pages are written for GitHub: their links lead to files of the repository. For the site, `prepare` copies README.md,
docs/ and every file that they link to into build/pages, at the same path; a source file becomes a page that shows it.
The site has a first page of its own, and README.md is its overview. Zensical turns that folder into build/site.
"""

from __future__ import annotations

import ast
import doctest
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
import zipfile
from collections.abc import Iterator
from html import escape as html_escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tinygrad_lite.errors import OptionError, UserError
from training.cli.console import run_command

sys.path.insert(0, str(Path(__file__).parent))
import annotate
import demo
import home

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GUIDES = "runs chat rewards together texts pictures translation encoders corpora weights performance machines".split()
REFERENCE = "map engine api reliability recipe how-to equations glossary costs".split()
LANGUAGES = {".py": "python", ".cu": "cuda", ".cuh": "cuda", ".toml": "toml"}
BLOCK = re.compile(r"^(```.*?^```\n)", re.MULTILINE | re.DOTALL)
VIEW = re.compile(r"`page\.html(#[^`\n]+)`")  # a view of the page of --explain; on the site, of the live page
ANSWER, END = "<details><summary>Answer</summary>", "</details>"
# A chapter's live piece, below the line that begins with "Live": a part of a live page in a frame.
FRAMES = {
    "06-attention": ("gpt.html#only=attention&head=2.2", "A cell of an attention map, opened"),
    "09-learning": ("learn.html#only=bench", "A GPT that learns in this page"),
}
LINK = re.compile(r"`[^`\n]*`|(?<=\]\()(?!\w+:|#)([^)#\s]+)")  # a code span, or else the file that a link names


# --- pages -------------------------------------------------------------------------------------------------------


def place(file: Path) -> Path:
    """The path of the page that shows a file or folder of the repository, relative to the site's root."""
    name = Path(*(part.removeprefix(".") for part in file.relative_to(ROOT).parts))  # Zensical leaves out .github
    if file == ROOT / "README.md":  # the site has another first page
        return Path("overview.md")
    if file.is_dir():
        return name / ("README.md" if (file / "README.md").exists() else "index.md")
    return name if file.suffix in (".md", ".svg", ".png") else name.with_name(f"{name.name}.md")


def html(page: Path) -> Path:
    """The path of the finished page; a picture stays what it is."""
    if page.suffix != ".md":
        return page
    return page.with_name("index.html") if page.stem in ("README", "index") else page.with_suffix(".html")


def relinked(text: str, page: Path, finish: Any = lambda page: page) -> tuple[str, list[Path]]:
    """A page's text with its links to files changed to links to the pages that show them; and these files."""
    targets = []

    def change(found: re.Match) -> str:
        target = (page.parent / (found[1] or "")).resolve()
        if not found[1] or not target.exists():  # a dead link stays as it is, and is found in the finished site
            return found[0]
        targets.append(target)
        return Path(os.path.relpath(ROOT / finish(place(target)), page.parent)).as_posix()

    parts = BLOCK.split(text)
    parts[::2] = [LINK.sub(change, part) for part in parts[::2]]
    return "".join(parts), targets


def blocks(text: str) -> Iterator[tuple[str, bool]]:
    """The blocks of a page, each with whether it belongs to an answer.

    The answer to a **Predict.** stands between the lines `ANSWER` and `END`, by which GitHub folds it away.
    """
    pieces = [[part] if part.startswith("```") else re.split(r"\n{2,}", part) for part in BLOCK.split(text)]
    is_answer = False
    for block in (block.strip("\n") for piece in pieces for block in piece if block.strip()):
        if block in (ANSWER, END):
            is_answer = block == ANSWER
        else:
            yield f"{block}\n", is_answer


def folded(text: str) -> str:
    """A page of the course with each answer folded away, and formulas as MathML."""
    page, was_answer = [], False
    for block, is_answer in blocks(text):
        block = formula(block) if block.startswith("```math\n") else block.replace("```python\n>>>", "```pycon\n>>>")
        if is_answer and not was_answer:
            page.append('??? answer "Answer"\n')
        page.append(textwrap.indent(block, "    ") if is_answer else block)
        was_answer = is_answer
    return "\n".join(page)


def formula(block: str) -> str:
    """A block of LaTeX as MathML, which browsers render themselves."""
    from latex2mathml.converter import convert

    latex = (
        block.removeprefix("```math\n").removesuffix("```\n").replace("{aligned}", "{align*}")
    )  # as it is named there
    return f'<div class="formula">{convert(latex, display="block")}</div>\n'


def source_page(file: Path) -> str:
    """A page that shows a source file, or lists the files of a folder. The search leaves it out."""
    if file in annotate.reading_path():
        return annotate.page(file)
    name = file.relative_to(ROOT).as_posix()
    if file.is_dir():
        body = "\n".join(f"- [`{path.name}`]({path.name})" for path in sorted(file.iterdir()) if path.is_file())
    else:
        body = f"``````{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text(encoding='utf-8').rstrip()}\n``````"
    return f"---\ntitle: {name}\nsearch:\n  exclude: true\nhide:\n  - toc\n---\n\n# `{name}`\n\n{body}\n"


def prepare(pages: Path, repository: str = "") -> None:
    """Fill the folder with what Zensical reads: the pages, all files they link to, and the notebooks.

    Args:
        repository: its address, which the first page links to; empty if it is unknown.
    """
    files = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
    for file in files:  # grows by what the pages link to
        target = pages / place(file)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.suffix != ".md":
            shutil.copy(file, target)
            continue
        text = file.read_text(encoding="utf-8") if file.suffix == ".md" else source_page(file)
        if file.suffix == ".md" or file.is_dir():
            text, linked = relinked(text, file / "index.md" if file.is_dir() else file)
            files += dict.fromkeys(path for path in linked if path not in files)
        if file.is_relative_to(ROOT / "docs") and file.suffix == ".md":
            live = Path(os.path.relpath(pages / "demo" / "gpt.html", target.parent)).as_posix()
            text = folded(VIEW.sub(rf"[\g<0>]({live}\g<1>)", text))
        if file in chapters():
            text = framed(text, file)
            download = write_notebook(file, target.parent)
            title, question, rest = text.split("\n\n", 2)
            link = f'[as a notebook]({download}){{ download="{download}" }}'
            text = f"{title}\n\n{question} ({link})\n\n{rest}"
        if file.name == "CHANGELOG.md":  # whose headings would hide the pages that explain these things
            text = f"---\nsearch:\n  exclude: true\n---\n\n{text}"
        target.write_text(text, encoding="utf-8")
    (pages / "index.md").write_text(home.page(chapters(), repository), encoding="utf-8")
    (pages / "assets").mkdir()
    for name in ("site.css", "iframe-worker.js", home.PREVIEW.name):
        shutil.copy(HERE / name, pages / "assets")


def framed(text: str, chapter: Path) -> str:
    """A chapter with its live piece, if it has one."""
    if chapter.parent.name not in FRAMES:
        return text
    view, title = FRAMES[chapter.parent.name]
    frame = f'<iframe class="piece" src="../../../demo/{html_escape(view)}" title="{title}" loading="lazy"></iframe>'
    return re.sub(r"^Live.*\n", lambda line: f"{line[0]}\n{frame}\n", text, count=1, flags=re.MULTILINE)


def chapters() -> list[Path]:
    """The chapters of the course, in order."""
    return sorted((ROOT / "docs" / "course").glob("[0-9][0-9]-*/README.md"))


def navigation() -> list[Any]:
    """The pages that exist, by kind; those not listed above come at the end of the reference."""
    pages = sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "extra").glob("*.md")], key=lambda path: path.name)
    found = {path.stem: path.relative_to(ROOT).as_posix() for path in pages}
    guides = [found.pop(name) for name in GUIDES if name in found]
    reference = [found.pop(name) for name in REFERENCE if name in found]
    sources = (file.relative_to(ROOT).as_posix() for file in annotate.reading_path())
    folders = (f"{path.parent.name}/" for path in chapters())
    return [
        {"Home": "index.md"},
        {"Overview": "overview.md"},
        {"Live": "demo/index.md"},
        {"Course": [f"docs/course/{name}README.md" for name in ("", *folders, "capstone/")]},
        {"Source": [{name.removeprefix("tinygrad_lite/"): f"{name}.md"} for name in sources]},
        {"Guides": guides},
        {"Reference": [*reference, *found.values(), "CHANGELOG.md"]},
    ]


# --- notebooks ---------------------------------------------------------------------------------------------------


def notebook(page: Path) -> dict[str, Any]:
    """A chapter as a Jupyter notebook (nbformat 4.5): each session becomes code cells with the outputs of the page.

    A cell ends where the page shows an output, because a notebook shows only the last value of a cell. Answers to
    predictions are folded away: outputs of cells are hidden, and paragraphs must be opened.
    """
    text, _ = relinked(page.read_text(encoding="utf-8"), page, html)
    cells = []

    def add(kind: str, source: str, **fields: Any) -> None:
        if kind == "markdown" and cells and cells[-1]["cell_type"] == kind:
            cells[-1]["source"] += lines(f"\n\n{source}".rstrip("\n"))
            return
        cell = {"cell_type": kind, "id": f"cell-{len(cells)}", "metadata": {}, "source": lines(source.strip("\n"))}
        cells.append(cell | fields)

    for block, is_answer in blocks(text):
        if not block.startswith("```python\n>>>"):
            block = re.sub(r"\A```math\n(.*)```\n\Z", r"$$\n\1$$\n", block, flags=re.DOTALL)
            add("markdown", f"{ANSWER}\n\n{block}\n{END}" if is_answer else block)
            continue
        hidden = {"collapsed": True, "jupyter": {"outputs_hidden": True}} if is_answer else {}
        source = ""
        for example in [*doctest.DocTestParser().get_examples(block.removesuffix("```\n")), None]:
            source += example.source if example else ""
            if source and (example is None or example.want):
                shown = outputs(example) if example else []
                fails = example is not None and example.exc_msg  # as the page says: the cells below it are run, too
                tags = {"tags": ["raises-exception"]} if fails else {}
                add("code", source, execution_count=None, metadata=tags | hidden, outputs=shown)
                source = ""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def write_notebook(page: Path, folder: Path) -> str:
    """Write the notebook of a chapter to a folder, and an archive of all that it needs; return the archive's name.

    A browser shows a notebook as the JSON that it is, but downloads an archive. In it, the modules that the notebook
    imports and its pictures are next to it.
    """
    name, made = page.parent.name, notebook(page)
    (folder / f"{name}.ipynb").write_text(json.dumps(made, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    beside = {page.parent / target for target in targets(made)} | {*page.parent.glob("*.py")}
    beside = sorted(file for file in beside if file.parent == page.parent and file.is_file())
    for file in beside:
        shutil.copy(file, folder)
    with zipfile.ZipFile(folder / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in [folder / f"{name}.ipynb", *beside]:  # with the same date always
            archive.writestr(zipfile.ZipInfo(f"{name}/{file.name}"), file.read_bytes())
    return f"{name}.zip"


def targets(notebook: dict[str, Any]) -> list[str]:
    """The files that a notebook's pictures and links lead to, relative to it; addresses and headings are left out."""
    texts = ("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    parts = (part for text in texts for part in BLOCK.split(text)[::2])
    return [unquote(found[1]) for part in parts for found in LINK.finditer(part) if found[1]]


def lines(text: str) -> list[str]:
    """A text as notebooks store it."""
    return text.splitlines(keepends=True)


def outputs(example: doctest.Example) -> list[dict[str, Any]]:
    """What a cell that ends with this example shows: an error, the value of an expression, or what was printed."""
    shown = lines(example.want.replace("<BLANKLINE>\n", "\n").removesuffix("\n"))
    if example.exc_msg:
        name, _, message = example.exc_msg.strip().partition(": ")
        return [{"output_type": "error", "ename": name, "evalue": message, "traceback": shown}]
    last = ast.parse(example.source).body[-1]
    if isinstance(last, ast.Expr) and not ast.unparse(last).startswith("print("):
        return [
            {"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": {"text/plain": shown}}
        ]
    return [{"output_type": "stream", "name": "stdout", "text": shown}]


# --- links -------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """The anchors of a finished page and the addresses it names, each with its tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors, self.addresses = {""}, []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("id", "name"):
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.addresses.append((tag, value))


def dead_links(site: Path) -> Iterator[str]:
    """One sentence for each dead link of the site and its notebooks, and for each request to another host."""
    for path in sorted(site.rglob("*.ipynb")):
        for target in targets(json.loads(path.read_text(encoding="utf-8"))):
            if not (path.parent / target).is_file():
                yield f"{path.relative_to(site).as_posix()}: there is no file {target}"
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        for tag, address in page.addresses:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if tag != "a":
                    yield f"{name}: <{tag}> asks another host for {address}"
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                yield f"{name}: there is no file {address}"
            elif "=" in parts.fragment:  # a view of a live page
                continue
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{name}: there is no heading {address}"


def main(argv: list[str]) -> int:
    """Build everything and return the exit status: 1 if a link is dead."""
    runs = Path(argv[0]).resolve() if argv else ROOT / "out"
    if argv[1:] or (argv and not runs.is_dir()):
        raise OptionError(f"{argv[-1]}: the only argument is a folder of runs")
    repository, address = (os.environ.get(name, "") for name in ("REPOSITORY", "SITE"))
    for name, value in (("REPOSITORY", repository), ("SITE", address)):
        if value and not re.fullmatch(r"https?://[^\s()<>\"]+", value):
            raise OptionError(f"{name}={value}: the address of a page, such as https://example.org/lite")
    if not importlib.util.find_spec("zensical"):
        raise UserError('the site is built by Zensical, which is not installed: pip install -e ".[docs]"')
    build = ROOT / "build"
    for name in ("pages", "site"):
        shutil.rmtree(build / name, ignore_errors=True)
    prepare(build / "pages", repository)
    demo.write(build / "pages" / "demo", runs, build, repository)
    config = tomllib.loads((HERE / "zensical.toml").read_text(encoding="utf-8"))["project"]
    if repository:  # at the foot of every page; the theme's own link would ask another host for numbers to show with it
        config["copyright"] = f'<a href="{repository}">The repository</a>'
    config_file = build / "mkdocs.yml"  # JSON is YAML
    config_file.write_text(json.dumps(config | {"nav": navigation()}), encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--config-file", str(config_file)]
    run = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    site = build / "site"
    if run.returncode or not (site / "index.html").exists():
        raise UserError(f"Zensical failed: {run.stdout}{run.stderr}")
    for name in ("404.html", "sitemap.xml"):  # which are of use only to a server
        (site / name).unlink(missing_ok=True)
    first = site / "index.html"
    first.write_text(home.with_head(first.read_text(encoding="utf-8"), address), encoding="utf-8")
    for page in (site / "docs" / "course").rglob("index.html"):  # so that no part of an error is copied with a session
        text = page.read_text(encoding="utf-8")
        error = re.compile(r'^<span class="gr">(.*?)</span>: <span class="n">(.*?)</span>$', re.MULTILINE)
        page.write_text(error.sub(r'<span class="go">\1: \2</span>', text), encoding="utf-8")
    dead = list(dead_links(site))
    for sentence in dead:
        print(sentence)
    count = len(list(site.rglob("*.html")))
    print(f"{count} pages, {len(chapters())} notebooks, {len(dead)} dead links: open {site / 'index.html'}")
    return 1 if dead else 0


if __name__ == "__main__":
    run_command("build", main, __doc__)
