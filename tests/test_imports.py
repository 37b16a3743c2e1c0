"""What the files of the project may import, and what no file may contain. What imports what: test_rings.py.

The files are read with `ast`, not imported, so an import inside a function counts too.
"""

import ast
import functools
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FOLDERS = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))  # the packages of the project
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
    text = FILES[module].read_text(encoding="utf-8")
    return ForEditors().visit(ast.parse(text)) if "TYPE_CHECKING" in text else ast.parse(text)


@functools.cache
def nodes(module: str) -> list[ast.AST]:
    return list(ast.walk(tree(module)))


def imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    """Every module that one of the nodes imports, with the statement. `from package import module` names the module."""
    for statement in nodes:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                yield alias.name, statement
        elif isinstance(statement, ast.ImportFrom):
            assert statement.level == 0, f"line {statement.lineno}: import by the full name, not relative"
            for alias in statement.names:
                whole = f"{statement.module}.{alias.name}"
                yield (whole if whole in FILES else statement.module), statement


@functools.cache
def own_imports(module: str) -> set[str]:
    """The modules of this project that one of them imports."""
    return {target for target, _ in imports(nodes(module)) if target in FILES}


def packages(nodes: Iterable[ast.AST]) -> set[str]:
    """The packages that one of the nodes imports, such as numpy for numpy.random."""
    return {target.split(".")[0] for target, _ in imports(nodes)}


def outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a tree, except those in a function."""
    yield node
    for part in ast.iter_child_nodes(node):
        if not isinstance(part, ast.FunctionDef):
            yield from outside_functions(part)


DOORS = {"families", "train", "sample"}
REQUIRED = {*sys.stdlib_module_names, *FOLDERS, *DOORS, "extra", "numpy", "safetensors", "threadpoolctl", "tqdm"}
EXTRAS = {"cupy", "cupy_backends", "ml_dtypes", "tokenizers", "matplotlib", "sacrebleu", "gguf", "jinja2", "PIL"}
EXTRAS |= {"mpi4py", "rouge_score"}


def test_the_library_imports_only_known_packages_and_extras_only_in_the_functions_that_need_them():
    """Four packages are always installed, and the extras may be; torch is for benchmarks."""
    importers: dict[str, set[str]] = {library: set() for library in EXTRAS}
    for module in FILES:
        needed = packages(nodes(module))
        for library in needed & EXTRAS:
            importers[library].add(module)
        if not module.startswith("benchmarks"):
            assert needed <= REQUIRED | EXTRAS, module
            assert packages(outside_functions(tree(module))) <= REQUIRED - {"benchmarks"}, module
    for path in (ROOT / "docs" / "site").glob("*.py"):  # which import each other
        beside = {file.stem for file in path.parent.glob("*.py")}
        assert packages(ast.parse(path.read_text(encoding="utf-8")).body) <= REQUIRED | beside, path
    for library in ("tokenizers", "matplotlib", "PIL"):
        assert len(importers[library]) == ("extra" in FOLDERS), importers[library]
    assert "tinygrad_lite.cuda.find" in importers["cupy"]
    assert all(module.startswith("tinygrad_lite.cuda.") for module in importers["cupy"] | importers["cupy_backends"])


@pytest.mark.parametrize("family", ["gpt", "seq2seq"])
def test_the_definition_of_a_model_imports_the_engine_only(family):
    names = ("config", "model", "fast.step", "fast.step_cuda", "fast.weights")
    own = {f"{family}.{name}" for name in names} & FILES.keys()
    assert not {t for module in own for t in own_imports(module) - own if not t.startswith("tinygrad_lite")}


def test_code_is_loaded_by_imports_and_not_by_strings():
    """So that a reader and an editor can follow. Only the GPU's half of the engine is: CuPy may be missing.

    The museum's table of faults names the functions that get them.
    """
    loaders = {"import_module", "resolve_name", "__import__", "spec_from_file_location"}
    found = {module for module in FILES for _, function, _ in calls(module) if function in loaders}
    assert found - {"extra.museum.exhibits"} == {"tinygrad_lite.device", "tinygrad_lite.functional.registry"}


# --- what no file may contain ---------------------------------------------------------------------------------


def calls(module: str) -> Iterator[tuple[str, str, ast.Call]]:
    """(name of the object, name of the function, call): `path.open()` gives ("path", "open", ...)."""
    for call in nodes(module):
        if isinstance(call, ast.Call):
            if isinstance(call.func, ast.Name):
                yield "", call.func.id, call
            elif isinstance(call.func, ast.Attribute):
                yield ast.unparse(call.func.value), call.func.attr, call


OPEN_TEXT = {"read_text", "write_text", "fdopen", "TextIOWrapper", "NamedTemporaryFile"}


def test_every_text_file_is_opened_with_an_encoding_and_written_with_the_same_line_endings():
    """Without them, Python uses the system's: some cannot represent German letters, and Windows writes \\r\\n."""
    for module in FILES:
        for owner, function, call in calls(module):
            place, named = f"{FILES[module]}:{call.lineno}", {keyword.arg for keyword in call.keywords}
            values = [*call.args, *(k.value for k in call.keywords if k.arg == "mode")]
            modes = [v.value for v in values if isinstance(v, ast.Constant) and isinstance(v.value, str)]
            binary = any("b" in mode and set(mode) <= set("rwaxb+") for mode in modes)
            to_write = any(set(mode) <= set("rwaxt+") and set(mode) & set("wax+") for mode in modes)
            opens = function == "open" and owner not in ("os", "tarfile", "archive", "Image")
            if opens or function in OPEN_TEXT:
                assert binary or "encoding" in named, f"{place} opens a file without an encoding"
            if function == "write_text" or (opens and to_write):
                assert "newline" in named, f"{place} writes the system's own line endings"
            if {"text", "universal_newlines"} & named and owner == "subprocess":
                assert "encoding" in named, f"{place} reads a program's output without an encoding"


# Modules of Python that one system lacks, and parts of other modules that Windows lacks.
ON_ONE_SYSTEM = set("crypt curses fcntl grp posix pty pwd readline resource syslog termios".split())
ON_ONE_SYSTEM |= {"msvcrt", "winreg", "winsound", "_winapi"}
NOT_ON_WINDOWS = {
    "os": "chown fchmod fork geteuid getloadavg getpgid getuid killpg mkfifo sched_getaffinity statvfs sysconf uname "
    "wait",
    "signal": "SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGQUIT SIGUSR1 SIGUSR2 alarm pause pthread_kill pthread_sigmask "
    "setitimer sigpending sigwait",
    "time": "tzset",
}


def test_no_module_needs_what_another_system_lacks():
    for module in FILES:
        at_once = packages(tree(module).body)  # allowed inside a function that checks the system first
        assert not at_once & ON_ONE_SYSTEM, module
        for node in nodes(module):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                lacking = NOT_ON_WINDOWS.get(node.value.id, "").split()
                assert node.attr not in lacking, f"{FILES[module]}:{node.lineno}"


def test_importing_the_package_loads_its_parts_and_changes_nothing():
    program = """
import os, signal, sys
import numpy as np
before = dict(os.environ), np.geterr()
import tinygrad_lite as tg
tg.nn.Linear, tg.optim.AdamW, tg.functional.softmax
assert not {"cupy", "matplotlib", "safetensors", "tqdm"} & sys.modules.keys()
assert {name for name in sys.modules if name.startswith("extra.")} <= {"extra.torch_names"}
import training.folder, gpt.model
assert "cupy" not in sys.modules
assert (dict(os.environ), np.geterr()) == before
assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
