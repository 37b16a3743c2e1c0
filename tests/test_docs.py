"""The pages in docs/ show what happens: every `>>>` of theirs is run, page by page, and must print what is below it."""

import doctest
import re
from pathlib import Path

import pytest

from tests.tiny_runs import undone
from tinygrad_lite.device import random_key

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("**/*.md"))


def session(page: str) -> str:
    """The Python blocks of a page; all else becomes empty lines, so that line numbers stay those of the page."""
    kept, inside = [], False
    for line in page.splitlines():
        if line.startswith("```"):
            inside = line == "```python"
            line = ""
        kept.append(line if inside else "")
    return "\n".join(kept) + "\n"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_prints_what_it_shows(path):
    test = doctest.DocTestParser().get_doctest(
        session(path.read_text(encoding="utf-8")), {"__name__": "__main__"}, path.name, str(path), 0
    )
    said = []
    with undone(), random_key(0):  # whatever seed a page sets is forgotten again
        outcome = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
    assert outcome.failed == 0, "".join(said)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_names_only_files_that_exist(path):
    links = re.findall(r"\]\((?!http)([^)#]+)\)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_the_tour_of_the_engine_is_run():
    tour = session((ROOT / "docs" / "engine.md").read_text(encoding="utf-8"))
    assert len(doctest.DocTestParser().get_examples(tour)) > 40


def test_only_python_blocks_are_run_and_keep_their_lines():
    page = "# >>> 1\n```python\n>>> 1 + 1\n2\n```\n```sh\n>>> no\n```\n"
    assert session(page) == "\n\n>>> 1 + 1\n2\n\n\n\n\n"
