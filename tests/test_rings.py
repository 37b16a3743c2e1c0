"""The rings of the project: what belongs where, how much of it there is, what loads what. The numbers may only fall.

    1  tinygrad_lite/   the engine: tensors, derivatives, modules, optimizers
    2  workshop/        what a model needs to be trained and used, and knows no model: command line, corpora, tokenizers
    3  families         gpt/, seq2seq/, encoder/
    4  studies/         what can be found out about a model: pictures, pages, costs, comparisons
    5  doors            train.py and sample.py

A ring imports inwards only. What is loaded by its name, such as a family by sample.py, is no import: the tables of such
names are workshop/run/families.py and those of the kinds of tokenizers. Whoever raises a number says in the CHANGELOG
what for.
"""

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable

import pytest

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
TRAIN = "goethe-char --text=text.txt --out_dir=run --max_iters=1 --n_layer=1 --n_embd=12 --block_size=8"
LINES = {1: 6523, 2: 6909, 3: 4822, 4: 2788, 5: 239, 6: 200}  # of code, in each ring
PRODUCT = 21481  # all of them
ARROWS = 35  # pairs of rooms of which one imports the other: the folders here, and those in tinygrad_lite/
OUTWARDS = 0  # imports of a ring further out
TO_CUDA = 0  # imports of cuda/ by files outside it, but for device.py, which looks for a GPU
LOADED = {  # modules of the project behind an import or a run, without the __init__ files of packages
    "import tinygrad_lite": 39,
    "from gpt.model import GPT": 46,
    "import gpt.family": 63,
    "import gpt.task": 71,
    "import seq2seq.task": 81,
    "import train": 69,
    "import sample": 65,
    f"import train; train.main({TRAIN!r}.split())": 85,
    "import sample; sample.main(['run', '--max_new_tokens=5'])": 80,
}
TOP = sorted({module.split(".")[0] for module in FILES})


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


def test_no_ring_has_more_lines_than_its_budget():
    lines = Counter()
    for module, path in FILES.items():
        lines[ring(module)] += code_lines(path.read_text(encoding="utf-8"), nodes(module))
    del lines[0]
    over = {number: (count, LINES[number]) for number, count in lines.items() if count > LINES[number]}
    assert not over, f"rings with more lines of code than their budgets: {over}"
    assert lines.total() <= PRODUCT


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


@pytest.fixture(scope="module")
def loaded(tmp_path_factory) -> dict[str, list[str]]:
    """The modules of the project that each statement loads. Between two statements they are unloaded."""
    folder = tmp_path_factory.mktemp("loaded")
    (folder / "text.txt").write_text("Es irrt der Mensch, solang er strebt.\n" * 9, encoding="utf-8")
    program = f"""
import json, sys
loaded = {{}}
for statement in {[*LOADED]}:
    exec(statement)
    loaded[statement] = [name for name in sys.modules if name.split(".")[0] in {{*{TOP}}}]
    for name in loaded[statement]:
        del sys.modules[name]
print(json.dumps(loaded))
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    out = subprocess.check_output([sys.executable, "-c", program], cwd=folder, env=environment, encoding="utf-8")
    return json.loads(out.splitlines()[-1])


@pytest.mark.parametrize("statement", LOADED)
def test_no_more_modules_are_loaded(statement, loaded):
    ours = [name for name in loaded[statement] if name in FILES and FILES[name].name != "__init__.py"]
    assert 0 < len(ours) <= LOADED[statement], f"{len(ours)}: {' '.join(sorted(ours))}"
