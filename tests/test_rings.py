"""The rings of the project: what belongs where, and how much of it there is. The numbers may only fall.

    1  tinygrad_lite/   the engine: tensors, derivatives, modules, optimizers
    2  workshop/        what a model needs to be trained and used, and knows no model: command line, corpora, tokenizers
    3  families         gpt/, seq2seq/, encoder/
    4  studies/         what can be found out about a model: pictures, pages, costs, comparisons
    5  doors            train.py and sample.py

A ring imports inwards only. What is loaded by its name, such as a family by sample.py, is no import: the tables of such
names are workshop/run/families.py and those of the kinds of tokenizers. No feature raises
a number: who needs lines finds lines that can go.
"""

import ast
from collections.abc import Iterable

from tests.test_imports import FILES, ROOT, nodes, own_imports

# The ring of a module is that of the longest name here that it begins with.
RINGS = {
    "tinygrad_lite": 1,
    "workshop": 2,
    **dict.fromkeys(("gpt", "seq2seq", "encoder"), 3),
    "studies": 4,
    **dict.fromkeys(("train", "sample"), 5),
    "nano": 6,  # the whole idea in one file, which imports nothing of the project, and which nothing imports
    "benchmarks": 0,  # may import anything
}
PRODUCT = 21954  # lines of code
NANO = 200  # of these, the one file
ARROWS = 35  # pairs of rooms of which one imports the other: the folders here, and those in tinygrad_lite/
OUTWARDS = 0  # imports of a ring further out
TO_CUDA = 0  # imports of cuda/ by files outside it, but for device.py, which looks for a GPU


def ring(module: str) -> int:
    """The ring of a module."""
    names = [name for name in RINGS if f"{module}.".startswith(f"{name}.")]
    assert names, f"{FILES[module].relative_to(ROOT)} is new: add its folder to RINGS in tests/test_rings.py"
    return RINGS[max(names, key=len)]


def code_lines(text: str, nodes: Iterable[ast.AST] = ()) -> int:
    """The lines that are neither blank nor a comment nor part of a docstring; `nodes` are those of the parsed text."""
    documented = set()
    for item in nodes or ast.walk(ast.parse(text)):
        if isinstance(item, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(item) is not None:
            documented.update(range(item.body[0].lineno, item.body[0].end_lineno + 1))
    lines = enumerate(text.splitlines(), start=1)
    return sum(bool(line.strip()) and line.lstrip()[0] != "#" and n not in documented for n, line in lines)


def test_the_product_has_no_more_lines_than_its_cap():
    files = [(module, path) for module, path in FILES.items() if ring(module)]
    lines = sum(code_lines(path.read_text(encoding="utf-8"), nodes(module)) for module, path in files)
    assert lines <= PRODUCT, f"{lines} lines of code: something must go"
    assert code_lines(FILES["nano"].read_text(encoding="utf-8")) <= NANO


def test_no_more_rooms_import_each_other():
    def room(module: str) -> str:
        *folders, _ = FILES[module].relative_to(ROOT).parts
        return "/".join(folders[: 1 + (folders[:1] == ["tinygrad_lite"])]) or module

    pairs = {(room(m), room(t)) for m in FILES for t in own_imports(m) if ring(m) and ring(t)}
    arrows = {(one, other) for one, other in pairs if one != other}
    assert len(arrows) <= ARROWS, sorted(arrows)


def test_no_more_imports_point_outwards():
    outwards = [
        f"{module} -> {target}" for module in FILES for target in own_imports(module) if 0 < ring(module) < ring(target)
    ]
    assert len(outwards) <= OUTWARDS, "\n".join(sorted(outwards))


def test_no_more_files_import_the_folder_for_gpus():
    outside = [m for m in FILES if ring(m) and m != "tinygrad_lite.device" and not m.startswith("tinygrad_lite.cuda")]
    importers = [f"{m} -> {t}" for m in outside for t in own_imports(m) if t.startswith("tinygrad_lite.cuda")]
    assert len(importers) <= TO_CUDA, "\n".join(sorted(importers))


def test_families_import_each_other_in_one_direction_only():
    families = [module for module in FILES if ring(module) == 3]
    pairs = {(m.split(".")[0], t.split(".")[0]) for m in families for t in own_imports(m) if ring(t) == 3}
    assert len({one for one, _ in pairs}) == 3
    assert not {(one, other) for one, other in pairs if one != other and (other, one) in pairs}


def test_the_scripts_import_no_family_and_no_study():
    assert not [f"{s} -> {target}" for s in ("train", "sample") for target in own_imports(s) if ring(target) > 2]


def test_the_one_file_imports_nothing_of_the_project():
    assert not list(own_imports("nano"))


def test_the_table_names_only_what_exists():
    assert not [name for name in RINGS if not any(f"{module}.".startswith(f"{name}.") for module in FILES)]
