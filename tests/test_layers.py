"""The architecture as a table: layers import downwards only. And rules for all files of the project.

The files are read with `ast`, not imported, so an import inside a function counts too.
"""

import ast
import copy
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# From the bottom to the top: a module imports from layers below its own, and from other modules of its layer as long as
# there is no circular import. A name with ".*" stands for all modules of a package.
LAYERS = [
    ["tinygrad_lite.cli", "tinygrad_lite.cli.errors", "tinygrad_lite.cli.console", "tinygrad_lite.cli.files"],
    ["tinygrad_lite.explorer", "tinygrad_lite.explorer.*"],
    ["tinygrad_lite.device", "tinygrad_lite.cuda.find", "tinygrad_lite.autograd", "tinygrad_lite.spelling"],
    ["tinygrad_lite.tensor"],
    ["tinygrad_lite.ops", "tinygrad_lite.ops.*"],
    [f"tinygrad_lite.{name}" for name in "compositions functional functional.* cuda cuda.* muon".split()],
    ["tinygrad_lite.methods"],
    ["tinygrad_lite.debug", "tinygrad_lite.debug.*"],
    ["tinygrad_lite.nn", "tinygrad_lite.recomputing"],
    ["tinygrad_lite.flat"],
    ["tinygrad_lite.flops", "tinygrad_lite.optim", "tinygrad_lite.transformer"],
    ["tinygrad_lite.quantize", "tinygrad_lite.adapt"],
    ["tinygrad_lite"],  # __init__.py, the names that users import
    ["tinygrad_lite.cli.options", "tinygrad_lite.cli.command_line"],
    ["tinygrad_lite.tokenizers", "tinygrad_lite.tokenizers.*", "tinygrad_lite.corpora", "tinygrad_lite.corpora.*"],
    ["tinygrad_lite.decoding", "tinygrad_lite.decoding.*"],
    ["tinygrad_lite.training", "tinygrad_lite.training.*"],
    ["tinygrad_lite.viz", "tinygrad_lite.viz.*"],
    "gpt gpt.config gpt.options gpt.data gpt.fast_weights gpt.fast_step gpt.fast_step_cuda gpt.model".split()
    + ["gpt.sample_options"]
    + ["gpt.score"]
    + "gpt.baselines gpt.gpt2_layout gpt.llama_layout gpt.gguf_file gpt.smollm2 gpt.chat gpt.pictures".split()
    + "gpt.chat_template gpt.export gpt.trained gpt.task gpt.inside gpt.draw gpt.explorer gpt.explorer.*".split()
    + "gpt.damage gpt.interactive gpt.merge gpt.peft_layout gpt.quantized gpt.update".split()
    + ["gpt.answers", "gpt.few_shot", "gpt.pairs"],
    ["seq2seq", "seq2seq.*"],
    ["encoder", "encoder.*"],
    ["train", "sample"],
    ["benchmarks", "benchmarks.*"],
]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FOLDERS = ("tinygrad_lite", "gpt", "seq2seq", "encoder", "benchmarks")
FILES = {
    module_name(path): path
    for path in sorted([*ROOT.glob("*.py"), *(file for name in FOLDERS for file in (ROOT / name).rglob("*.py"))])
}


class ForEditors(ast.NodeTransformer):
    """Removes the code under `if TYPE_CHECKING`, which is never run."""

    def visit_If(self, statement: ast.If) -> ast.AST:
        return ast.Pass() if ast.unparse(statement.test) == "TYPE_CHECKING" else self.generic_visit(statement)


@functools.cache
def tree(module: str) -> ast.Module:
    return ForEditors().visit(ast.parse(FILES[module].read_text(encoding="utf-8")))


def layer(module: str) -> int:
    """The number of a module's layer, counted from the bottom."""
    for number, names in enumerate(LAYERS):
        if module in names or any(n.endswith(".*") and module.startswith(n[:-1]) for n in names):
            return number
    pytest.fail(f"{FILES[module].relative_to(ROOT)} is new: add {module!r} to LAYERS in {Path(__file__).name}")


def imports(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Every module that a file imports, with the statement. `from package import module` names the module."""
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                yield alias.name, statement
        elif isinstance(statement, ast.ImportFrom):
            assert statement.level == 0, f"line {statement.lineno}: import by the full name, not relative"
            for alias in statement.names:
                whole = f"{statement.module}.{alias.name}"
                yield (whole if whole in FILES else statement.module), statement


def own_imports(module: str) -> set[str]:
    """The modules of this project that one of them imports."""
    return {target for target, _ in imports(tree(module)) if target in FILES}


def imports_at_start(module: str) -> set[str]:
    """Those of them that are imported at once, not when a function is called."""
    parsed = copy.deepcopy(tree(module))
    for function in ast.walk(parsed):
        if isinstance(function, ast.FunctionDef):
            function.body = [ast.Pass()]
    return {target for target, _ in imports(parsed) if target in FILES}


def test_the_table_names_only_modules_that_exist():
    gone = [name for names in LAYERS for name in names if not name.endswith(".*") and name not in FILES]
    assert not gone


def test_every_module_is_in_the_table_and_imports_downwards_only():
    for module in FILES:
        for target in own_imports(module) | {module}:
            assert layer(target) <= layer(module), f"{module} imports {target}, which lies above it"


def test_there_are_no_circular_imports():
    edges = {module: imports_at_start(module) for module in FILES}
    while leaves := [module for module, targets in edges.items() if not targets & edges.keys()]:
        for module in leaves:
            del edges[module]
    assert not edges, f"there are circular imports among {sorted(edges)}"


def test_the_library_imports_only_known_packages():
    """Four packages are always installed; CuPy, tokenizers, matplotlib and others may be; torch is for benchmarks."""
    known = {*sys.stdlib_module_names, *FOLDERS, "train", "sample"}
    known |= {"numpy", "safetensors", "threadpoolctl", "tqdm", "cupy", "cupy_backends", "ml_dtypes"}
    known |= {"tokenizers", "matplotlib", "sacrebleu", "gguf", "jinja2", "PIL", "sklearn", "mpi4py", "rouge_score"}
    for module in FILES:
        foreign = {target.split(".")[0] for target, _ in imports(tree(module))} - known
        assert not foreign or module.startswith("benchmarks"), f"{module} imports {foreign}"


def test_cupy_is_imported_only_in_the_folder_for_gpus():
    cupy = {"cupy", "cupy_backends", "cupyx"}
    importers = {module for module in FILES for target, _ in imports(tree(module)) if target.split(".")[0] in cupy}
    assert "tinygrad_lite.cuda.find" in importers
    assert all(module.startswith("tinygrad_lite.cuda.") for module in importers)


@pytest.mark.parametrize(
    ("library", "module"),
    [
        ("tokenizers", "tinygrad_lite.tokenizers.huggingface"),
        ("matplotlib", "tinygrad_lite.viz.figure"),
        ("PIL", "tinygrad_lite.corpora.pictures"),
    ],
)
def test_an_extra_is_imported_in_one_file_and_only_when_it_is_needed(library, module):
    assert {m for m in FILES for target, _ in imports(tree(m)) if target.split(".")[0] == library} == {module}
    at_once = [node for node in tree(module).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert library not in {target.split(".")[0] for node in at_once for target, _ in imports(node)}


# --- what no file may contain ---------------------------------------------------------------------------------


def calls(module: str) -> Iterator[tuple[str, str, ast.Call]]:
    """(name of the object, name of the function, call): `path.open()` gives ("path", "open", ...)."""
    for call in ast.walk(tree(module)):
        if isinstance(call, ast.Call):
            if isinstance(call.func, ast.Name):
                yield "", call.func.id, call
            elif isinstance(call.func, ast.Attribute):
                yield ast.unparse(call.func.value), call.func.attr, call


def test_every_text_file_is_opened_with_an_encoding():
    """Without one, Python uses the system's, which on some systems cannot represent German letters."""
    for module in FILES:
        for owner, function, call in calls(module):
            if (function == "open" and owner not in ("os", "tarfile", "archive", "Image")) or function in (
                "read_text",
                "write_text",
                "fdopen",
                "TextIOWrapper",
                "NamedTemporaryFile",
            ):
                values = [*call.args, *(k.value for k in call.keywords if k.arg == "mode")]
                modes = [v.value for v in values if isinstance(v, ast.Constant) and isinstance(v.value, str)]
                binary = any("b" in mode and set(mode) <= set("rwaxb+") for mode in modes)
                named = any(keyword.arg == "encoding" for keyword in call.keywords)
                assert binary or named, f"{FILES[module]}:{call.lineno} opens a file without an encoding"
            if any(k.arg in ("text", "universal_newlines") for k in call.keywords) and owner == "subprocess":
                named = any(keyword.arg == "encoding" for keyword in call.keywords)
                assert named, f"{FILES[module]}:{call.lineno} reads a program's output without an encoding"


def test_importing_the_package_loads_its_parts_and_changes_nothing():
    program = """
import os, sys
before = dict(os.environ)
import tinygrad_lite as tg
tg.nn.Linear, tg.optim.AdamW, tg.functional.softmax
assert not {"cupy", "matplotlib", "safetensors", "tqdm"} & sys.modules.keys()
assert dict(os.environ) == before
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
