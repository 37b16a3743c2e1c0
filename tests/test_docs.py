"""Every `>>>` example in docs/ is run, page by page, and must print what is shown below it.

docs/api.md lists the public names, each with the first sentence of its documentation.
"""

import doctest
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import tinygrad_lite
from tests.tiny_runs import undone
from tinygrad_lite import Tensor, functional, nn, optim
from tinygrad_lite.device import random_key

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("**/*.md"))


def session(page: str) -> str:
    """The Python blocks of a page; all else becomes empty lines, so that line numbers stay the same."""
    kept, inside = [], False
    for line in page.splitlines():
        if line.startswith("```"):
            inside = line == "```python"
            line = ""
        kept.append(line if inside else "")
    return "\n".join(kept) + "\n"


def test_no_number_is_missing():
    assert [path for path in PAGES if re.search(r"\bRESULT", path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT / "docs")))
def test_the_examples_on_a_page_print_what_it_shows(path, monkeypatch):
    monkeypatch.syspath_prepend(path.parent)  # a chapter of the course imports the files beside it
    test = doctest.DocTestParser().get_doctest(
        session(path.read_text(encoding="utf-8")), {"__name__": "__main__"}, path.name, str(path), 0
    )
    said = []
    with undone(), random_key(0):  # undoes any seed that a page sets
        outcome = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
    for name, module in list(sys.modules.items()):  # another chapter may have a file of the same name
        if path.parent in Path(getattr(module, "__file__", None) or "/").parents:
            del sys.modules[name]
    assert outcome.failed == 0, "".join(said)


def test_the_tour_of_the_engine_is_run():
    tour = session((ROOT / "docs" / "engine.md").read_text(encoding="utf-8"))
    assert len(doctest.DocTestParser().get_examples(tour)) > 40


def test_only_python_blocks_are_run_and_keep_their_lines():
    page = "# >>> 1\n```python\n>>> 1 + 1\n2\n```\n```sh\n>>> no\n```\n"
    assert session(page) == "\n\n>>> 1 + 1\n2\n\n\n\n\n"


# --- the list of public names -----------------------------------------------------------------------------------


def public(owner: ModuleType | type) -> Iterator[tuple[str, object]]:
    """The public names of a module or class. The reference and the fused version of an operation are not among them."""
    for name in getattr(owner, "__all__", dir(owner)):
        value = getattr(owner, name)
        here = isinstance(owner, type) or hasattr(owner, "__all__") or getattr(value, "__module__", 0) == owner.__name__
        if here and name[0] != "_" and not name.endswith(("_composed", "_fused")):
            yield name, value


def first_sentence(value: object) -> str:
    """The first sentence of its documentation, without the full stop, as a cell of a table."""
    text = " ".join(inspect.getdoc(value).split("\n\n")[0].split("\n")).replace("|", "\\|")
    return re.split(r"\.(?:  | (?=[A-Z(])|$)", text)[0]


def test_the_list_of_public_names_is_complete():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    owners = {"tinygrad_lite": tinygrad_lite, "Tensor": Tensor, "functional": functional, "nn": nn, "optim": optim}
    listed = dict.fromkeys(owners, ())
    for part in page.split("\n## ")[1:]:
        heading = part.split("\n")[0].strip("`").removeprefix("tinygrad_lite.")
        listed[heading] = re.findall(r"^\| `(\w+)` \| (.*) \|$", part, re.MULTILINE)
    assert listed.keys() == owners.keys()
    for heading, owner in owners.items():
        right = {name: first_sentence(value) for name, value in public(owner)}
        lines = "\n".join(
            f"| `{name}` | {text} |" for name, text in right.items() if (name, text) not in listed[heading]
        )
        assert not lines, f"docs/api.md, under {heading}, must have these lines:\n{lines}"
        assert [name for name, _ in listed[heading] if name not in right] == [], f"no longer in {heading}"
