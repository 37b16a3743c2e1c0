"""Core and shelf: what belongs where, and how much of it there is. The numbers may only fall.

    1  tinygrad_lite/      the engine: tensors, derivatives, modules, optimizers
    2  text/ training/     what a model needs to be trained and used, and knows no model
    3  gpt/ seq2seq/       the families of models
    4  doors               train.py and sample.py, and families.py, the table that they read
    5  extra/              the shelf: whatever the core does not need

The core imports inwards only; the shelf, where it exists, is imported by its doors alone. No feature raises a number:
who needs lines finds lines that can go.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable

from gpt.options import GPTOptions
from seq2seq.options import Seq2SeqOptions
from tests.test_imports import FILES, ROOT, nodes, own_imports
from training.cli.options import fields_of

# The ring of a module is that of the longest name here that it begins with.
RINGS = {
    "tinygrad_lite": 1,
    **dict.fromkeys(("text", "training"), 2),
    **dict.fromkeys(("gpt", "seq2seq"), 3),
    **dict.fromkeys(("train", "sample", "families"), 4),
    "extra": 5,
    **dict.fromkeys(("encoder", "gpt.formats", "studies"), 5),  # say where things are now
    "nano": 6,  # the whole idea in one file, which imports nothing of the project, and which nothing imports
    "benchmarks": 0,  # may import anything
}
CORE = 11459  # lines of code
PRODUCT = 21000  # core and shelf together
NANO = 200  # of these, the one file
TESTS = 27000  # in tests/
TO_CUDA = 0  # imports of cuda/ by files outside it, but for device.py, which looks for a GPU
DOORS = {  # the only imports of the shelf by the core, where the shelf exists
    ("tinygrad_lite", "extra.torch_names"),
    ("families", "extra.families"),
    ("families", "extra.mpi.mpirun"),
}


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


def test_the_product_has_no_more_lines_than_its_caps():
    lines = {module: code_lines(path.read_text(encoding="utf-8"), nodes(module)) for module, path in FILES.items()}
    core, product = (sum(n for module, n in lines.items() if 0 < ring(module) < end) for end in (5, 7))
    assert core <= CORE, f"{core} lines of code in the core: something must go"
    assert product <= PRODUCT, f"{product} lines of code: something must go"
    assert lines["nano"] <= NANO
    tests = sum(code_lines(path.read_text(encoding="utf-8")) for path in (ROOT / "tests").rglob("*.py"))
    assert tests <= TESTS, f"{tests} lines of code in tests/: something must go"


def test_the_core_imports_inwards_only_but_for_its_doors():
    outwards = {(m, t) for m in FILES for t in own_imports(m) if 0 < ring(m) < ring(t)}
    assert outwards == {(door, target) for door, target in DOORS if target in FILES}


def test_the_core_works_without_the_shelf():
    """As if extra/ were deleted."""
    core = sorted(module for module in FILES if 0 < ring(module) < 5)
    code = "import sys; sys.modules['extra'] = None\n" + "\n".join(f"import {module}" for module in core)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(core) > 150


# Concepts of the shelf: what names one in the core, comments and docstrings apart, may be a hook that only it reaches.
SHELF = "reward teacher lora adapter peft gguf smollm mpi mpirun calculator pixel bert vit chat replay quantize profile"
IN_CHECKPOINTS = {("training.checkpoint", "adapter"), ("training.checkpoint", "quantize")}  # whose format stays


def test_the_core_names_no_concept_of_the_shelf():
    found = set()
    for module in (module for module in FILES if 1 < ring(module) < 5):
        documented = {node.body[0].value for node in nodes(module) if has_docstring(node)}
        for node in {*nodes(module)} - documented:
            texts = [getattr(node, name, "") for name in ("id", "attr", "arg", "name", "value")]
            words = {word for text in texts if isinstance(text, str) for word in re.findall("[a-z]+", text.lower())}
            found |= {(module, word) for word in SHELF.split() if words & {word, f"{word}s"}}
    assert found == IN_CHECKPOINTS


def has_docstring(node: ast.AST) -> bool:
    """Whether a node begins with a docstring."""
    return isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None


def test_every_option_of_the_core_is_read_by_the_core():
    """By the name of an attribute or of a parameter; and the GPT has no more of them than a reader can keep in mind."""
    core = [module for module in FILES if 0 < ring(module) < 5]
    read = {node.attr for module in core for node in nodes(module) if isinstance(node, ast.Attribute)}
    read |= {node.arg for module in core for node in nodes(module) if isinstance(node, ast.arg)}
    for options in (GPTOptions, Seq2SeqOptions):
        assert fields_of(options)[0].keys() <= read
    assert len(fields_of(GPTOptions)[0]) <= 45


def test_no_more_files_import_the_folder_for_gpus():
    outside = [m for m in FILES if ring(m) and m != "tinygrad_lite.device" and not m.startswith("tinygrad_lite.cuda")]
    importers = [f"{m} -> {t}" for m in outside for t in own_imports(m) if t.startswith("tinygrad_lite.cuda")]
    assert len(importers) <= TO_CUDA, "\n".join(sorted(importers))


def test_the_families_of_the_core_do_not_import_each_other():
    families = [module for module in FILES if ring(module) == 3]
    assert not [(m, t) for m in families for t in own_imports(m) if ring(t) == 3 and m.split(".")[0] != t.split(".")[0]]


def test_the_one_file_imports_nothing_of_the_project():
    assert not list(own_imports("nano"))


def test_the_table_names_only_what_exists():
    missing = [name for name in RINGS if not any(f"{module}.".startswith(f"{name}.") for module in FILES)]
    assert not [name for name in missing if name != "extra"]  # without which the core works
