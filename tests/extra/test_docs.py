"""Every `>>>` example in docs/ is run, page by page, and must print what is shown below it.

docs/api.md lists the public names, each with the beginning of its documentation. A link whose text is a name leads
to the file in which it is defined. Numbers of tables and sentences are those of the files of rows.
"""

import ast
import csv
import doctest
import functools
import inspect
import math
import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import tinygrad_lite
from docs.course import check
from tests.test_imports import FILES, own_imports
from tests.test_rings import code_lines
from tests.tiny_runs import undone
from tinygrad_lite import Tensor, adapt, functional, nn, optim, quantize
from tinygrad_lite.random import random_key

ROOT = Path(__file__).parents[2]
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


@pytest.mark.parametrize("path", [ROOT / "README.md", *PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_the_examples_on_a_page_print_what_it_shows(path, monkeypatch):
    monkeypatch.syspath_prepend(path.parent)  # a chapter of the course imports the files beside it
    page = session(path.read_text(encoding="utf-8"))
    test = doctest.DocTestParser().get_doctest(page, {"__name__": "__main__"}, path.name, str(path), 0)
    said = []
    with undone(), np.printoptions(), random_key(0):  # undoes any seed and any format that a page sets
        outcome = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
    for name, module in list(sys.modules.items()):  # another chapter may have a file of the same name
        if path.parent != ROOT and path.parent in Path(getattr(module, "__file__", None) or "/").parents:
            del sys.modules[name]
    assert outcome.failed == 0, "".join(said)


def test_the_pages_have_no_more_words_than_their_cap():
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in PAGES) <= 95_000


def test_the_tour_of_the_engine_is_run():
    tour = session((ROOT / "docs" / "engine.md").read_text(encoding="utf-8"))
    assert len(doctest.DocTestParser().get_examples(tour)) > 40


# --- links to functions -----------------------------------------------------------------------------------------


@functools.cache
def defined_in(path: Path) -> set[str]:
    """The names that a file defines: functions, classes, assigned names; those of a class as Class.name."""
    found = set()
    for owner in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(owner, ast.Module | ast.ClassDef):
            prefix = f"{owner.name}." if isinstance(owner, ast.ClassDef) else ""
            for statement in owner.body:
                named = getattr(statement, "targets", [getattr(statement, "target", statement)])
                found |= {prefix + getattr(one, "id", getattr(one, "name", "")) for one in named}
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT / "docs")))
def test_a_name_in_a_link_is_defined_in_the_linked_file(path):
    links = re.findall(r"\[`(\w+(?:\.\w+)*)`\]\(([^)#]+\.py)\)", path.read_text(encoding="utf-8"))
    names = [(name, file) for name, file in links if not name.endswith(".py")]
    assert [(name, file) for name, file in names if name not in defined_in((path.parent / file).resolve())] == []
    assert len(names) > 50 or path.name != "equations.md"


def test_the_glossary_leads_to_the_chapters_of_the_course():
    """Its links stand together at its end, [c1] and so on."""
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    places = dict(re.findall(r"^\[c(\d+)\]: (.*)$", page, re.MULTILINE))
    chapters = [path.name for path in (ROOT / "docs" / "course").glob("[0-9][0-9]-*")]
    assert places == {str(int(name[:2])): f"course/{name}/README.md" for name in chapters}
    assert set(re.findall(r"\]\[c(\d+)\]", page)) == places.keys()


# --- numbers and statements ---------------------------------------------------------------------------------------


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def rows_of(name: str) -> list[dict[str, str]]:
    """The rows of a file in docs/experiments."""
    return list(csv.DictReader(text_of(f"docs/experiments/{name}.csv").splitlines()))


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def milliseconds(tokens: int, work: str = "training") -> float:
    (row,) = [row for row in rows_of("length") if (row["tokens"], row["work"]) == (str(tokens), work)]
    return float(row["milliseconds"])


def fitted(work: str) -> float:
    """The exponent of time: the slope of a line through the logarithms, from an eighth of the longest text on."""
    found = {int(row["tokens"]): float(row["milliseconds"]) for row in rows_of("length") if row["work"] == work}
    longer = {tokens: ms for tokens, ms in found.items() if 8 * tokens >= max(found)}
    return np.polyfit(np.log([*longer]), np.log([*longer.values()]), 1)[0]


def zen4_seconds(command: str) -> str:
    (line,) = [line for line in text_of("docs/performance.md").splitlines() if line.startswith(f"| `{command}` |")]
    return cells(line)[1]


# A page, a pattern of which the group is a number, and what computes it.
NUMBERS = [
    ("extra/costs", r"64 to 512 tokens .* by (\S+) where", lambda: f"{milliseconds(512) / milliseconds(64):.0f}"),
    ("extra/costs", r"8,192 tokens .* by ([\d.]+),", lambda: f"{milliseconds(8192) / milliseconds(4096):.1f}"),
    ("extra/costs", r"^\| fitted \| T\^([\d.]+) \|", lambda: f"{fitted('training'):.2f}"),
    ("extra/costs", r"exponents of time, ([\d.]+) and ", lambda: f"{fitted('training'):.2f}"),
    ("extra/costs", r"exponents of time, [\d.]+ and ([\d.]+), ", lambda: f"{fitted('without cache'):.2f}"),
]
for command in ("", " goethe-char", " goethe-bpe", " goethe-char-modern"):
    row = re.escape(f"| `python train.py{command}` |")
    NUMBERS.append(("runs", rf"^{row} .* \| (.*) \|$", functools.partial(zen4_seconds, f"python train.py{command}")))


@pytest.mark.parametrize(("page", "pattern", "compute"), NUMBERS)
def test_a_number_on_a_page_is_what_its_source_gives(page, pattern, compute):
    assert re.findall(pattern, text_of(f"docs/{page}.md"), re.MULTILINE) == [compute()]


@pytest.mark.parametrize("name", ["texts", "same-author"])
def test_the_bits_of_every_run_are_on_their_page(name):
    bits = {f"{float(row['bits_per_char']):.3f}" for row in rows_of(name)}
    assert bits - set(re.findall(r"\d\.\d{3}", text_of("docs/extra/texts.md"))) == set()


def test_the_recipe_marks_what_is_no_difference():
    """The rows of its three tables, in the order of the file; ≈ at a change of at most two standard errors."""
    runs = {}
    for row in rows_of("recipe"):
        runs.setdefault(row["name"], []).append(float(row["bits_per_char"]))
    page = text_of("docs/recipe.md")
    parts = [part.splitlines() for part in page.split("\n## ")]
    tables = {part[0]: [cells(line) for line in part if re.match(r"\| .*\d", line)] for part in parts}
    added, *others = map(tables.get, ("Added, one after the other", "Taken away, one at a time", "Tried on top of it"))
    several = [values for values in runs.values() if len(values) == 3]
    right = []
    for before, values in zip([None, *several], several, strict=False):
        s, change = statistics.stdev(values), ""
        if before:
            difference = statistics.mean(values) - statistics.mean(before)
            is_noise = abs(difference) <= 2 * math.sqrt((s**2 + statistics.stdev(before) ** 2) / 3)
            change = f"{difference:+.3f}" + " ≈" * is_noise
        right.append([f"{statistics.mean(values):.3f} ± {s:.3f}", change])
    assert [row[1:] for row in added] == right
    preset = runs["goethe"]
    noise = 2 * round(statistics.stdev(preset), 3) * math.sqrt(2)
    assert f"at most {int(noise * 1000) / 1000} is marked" in page
    for first, *rows in others:
        assert first[1] == f"{preset[0]:.3f}"
        for name, bits, change in rows:
            difference = runs[name][0] - preset[0]
            mark = " ≈" * (abs(difference) <= noise)
            assert (bits, change) == (f"{runs[name][0]:.3f}", f"{difference:+.3f}{mark}"), name
    assert sum(map(len, others)) - 2 + len(several) == len(runs)


def test_every_solution_that_the_check_names_exists(capsys):
    commands = re.findall(r"check\.py (\d+) --solution (\w+)", check.__doc__ + text_of("docs/course/README.md"))
    assert commands
    for number, name in commands:
        assert check.main([number, "--solution", name]) == 0


# --- the list of public names -----------------------------------------------------------------------------------


def public(owner: ModuleType | type) -> Iterator[tuple[str, object]]:
    """The public names of a module or class. The reference and the fused version of an operation are not among them."""
    for name in getattr(owner, "__all__", dir(owner)):
        value = getattr(owner, name)
        here = isinstance(owner, type) or hasattr(owner, "__all__") or getattr(value, "__module__", 0) == owner.__name__
        if here and name[0] != "_" and not name.endswith(("_composed", "_fused")) and not isinstance(value, tuple):
            yield name, value


def first_sentence(value: object) -> str:
    """The first sentence of its documentation, up to a semicolon or the full stop, as a cell of a table."""
    text = " ".join(inspect.getdoc(value).split("\n\n")[0].split("\n")).replace("|", "\\|")
    return re.split(r"; |\.(?:  | (?=[A-Z(])|$)", text)[0]


def test_the_list_of_public_names_is_complete():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    modules = {"functional": functional, "nn": nn, "optim": optim, "adapt": adapt, "quantize": quantize}
    classes = {"nn.Module": nn.Module, "optim.Optimizer": optim.Optimizer}
    owners = {"tinygrad_lite": tinygrad_lite, "Tensor": Tensor, **modules, **classes}
    listed = dict.fromkeys(owners, ())
    for part in page.split("\n## ")[1:]:
        heading = part.split("\n")[0].strip("`").removeprefix("tinygrad_lite.")
        listed[heading] = re.findall(r"^\| `(\w+)` \| (.*) \|$", part, re.MULTILINE)
    assert listed.keys() == owners.keys()
    for heading, owner in owners.items():
        right = {name: first_sentence(value) for name, value in public(owner)}
        if owner is functional:  # not again what is a method of tensors with the same meaning
            right = {name: text for name, text in right.items() if (name, text) not in listed["Tensor"]}
        lines = [f"| `{name}` | {text} |" for name, text in right.items() if (name, text) not in listed[heading]]
        lines = "\n".join(lines)
        assert not lines, f"docs/api.md, under {heading}, must have these lines:\n{lines}"
        assert [name for name, _ in listed[heading] if name not in right] == [], f"no longer in {heading}"


def test_the_page_on_upgrading_names_modules_that_exist():
    pairs = re.findall(r"^\| `([\w.]+)` \| `?(\w[\w./-]*)\b.*\|$", text_of("docs/upgrading.md"), re.MULTILINE)
    assert len(pairs) > 40
    assert not [new for _, new in pairs if not (new in FILES or new == "removed" or (ROOT / new).is_file())]
    assert not [old for old, _ in pairs if old in FILES and "moved(" not in FILES[old].read_text(encoding="utf-8")]


def test_the_reading_path_uses_nothing_that_was_neither_read_nor_said():
    """Of 14 files and 2,000 lines: what a file imports was read before, or is linked on the way."""
    page = ROOT / "docs" / "map.md"
    path = text_of("docs/map.md").split("## The reading path")[1].split("\n## ")[0]
    module_of = {file: module for module, file in FILES.items()}
    read, said, missing = [], set(), {}
    for item in re.findall(r"^\d+\. (.+)$", path, re.MULTILINE):
        for part, found in zip(item.split("*Given:*", 1), (read, said), strict=False):
            modules = [module_of[(page.parent / link).resolve()] for link in re.findall(r"\]\(([^)]+\.py)\)", part)]
            (found.extend if found is read else found.update)(modules)
        for module in read:
            missing[module] = {used for used in own_imports(module) if used not in {*read[: read.index(module)], *said}}
    assert {module: used for module, used in missing.items() if used} == {}
    assert len(read) <= 14
    assert sum(code_lines(FILES[module].read_text(encoding="utf-8")) for module in read) <= 2000


def test_the_reading_list_names_every_file():
    """By itself, or by a link to the `__init__.py` of its folder; a package is named by its files."""
    page = ROOT / "docs" / "map.md"
    links = {(page.parent / link).resolve() for link in re.findall(r"\]\((\.\./[^)#]+)\)", page.read_text("utf-8"))}
    folders = {link.parent for link in links if link.name == "__init__.py"}
    missing = {file for name, file in FILES.items() if not f"{name}.".startswith("benchmarks.")} - links
    missing = {file for file in missing if file.name != "__init__.py"}
    assert not {str(file.relative_to(ROOT)) for file in missing if file.parent not in folders}
