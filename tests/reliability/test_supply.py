"""The supply chain: few packages, no code made from data, verified downloads."""

import ast
import functools
import re
import tomllib
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_imports import ROOT, packages
from training.corpora import pairs
from training.corpora import texts as corpora

SELF = Path("tests/reliability/test_supply.py")
# The museum compiles a function of this project with a fault from its own table, and runs nothing of it by itself; the
# tool that tries mutants compiles files of this project with a fault.
MAY = {Path("extra/museum/exhibits.py"): {"compile"}, Path("tests/mutation/mutants.py"): {"compile"}}
# One test pickles a model and its optimizer; one uses a console, one runs the cells of a notebook
# made from a page of docs/; no other file may do so.
MAY |= {
    Path("tests/tinygrad_lite/test_second_hour.py"): {"pickle"},
    Path("tests/tinygrad_lite/debug/test_anomaly.py"): {"code"},
    Path("tests/extra/test_site.py"): {"exec", "eval", "compile"},
}
MODULES = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml", "code", "pty"}
BUILTINS = {"eval", "exec", "compile", "__import__"}
CALLS = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "torch.load", "np.fromfile"}
CALLS |= {"tempfile.mktemp", "tarfile.extractall", "shutil.unpack_archive", "runpy.run_path"}
METHODS = {"extractall", "unpack_archive"}  # of any object
LAST = {call.rpartition(".")[2] for call in CALLS} | METHODS | {"shell", "allow_pickle", "pickle", "marshal", "yaml"}
# No danger is in a text without these words, so that most files need not be parsed.
SUSPICIOUS = re.compile(
    rf"\b(import|from)\b.*\b({'|'.join(MODULES)})\b|(?<!\.)\b({'|'.join(BUILTINS)})\b|\b({'|'.join(LAST)})\b"
)
CONNECT = {"urllib", "http", "socket", "ssl", "ftplib", "smtplib", "requests", "httpx", "aiohttp", "asyncio"}


@functools.cache
def sources() -> dict[Path, str]:
    """All Python files of the repository, except in hidden and build folders, and their texts."""
    found = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))
    found = [path for path in found if not any(part.startswith(".") or part == "build" for part in path.parts)]
    return {path: unicodedata.normalize("NFKC", (ROOT / path).read_text(encoding="utf-8")) for path in found}


def dangers(program: str, allowed: set[str] = frozenset()) -> Iterator[str]:
    """Everything in a program that can make code from data or run a shell."""
    for node in ast.walk(ast.parse(program)) if SUSPICIOUS.search(program) else ():
        yield from (f"import {name}" for name in packages([node]) & (MODULES - allowed))
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            last = called.rpartition(".")[2]
            if called in (BUILTINS | CALLS) - allowed or (last in METHODS and called != last):
                yield f"{called}()"
            for keyword in node.keywords:
                on = not (isinstance(keyword.value, ast.Constant) and keyword.value.value in (False, None))
                if on and keyword.arg in ("shell", "allow_pickle"):
                    yield f"{called}({keyword.arg}=...)"
            if last in ("load", "loads") and any(word in called for word in {"pickle", "marshal", "yaml"} - allowed):
                yield f"{called}()"


def test_no_code_is_made_from_data_and_no_shell_is_used():
    files = sources()
    assert {Path("train.py"), Path("sample.py"), Path("training/checkpoint.py"), SELF} <= set(files)
    found = [f"{path}: {what}" for path, text in files.items() for what in dangers(text, MAY.get(path, set()))]
    assert not found


PLANTED = (
    "eval('1'); exec('1'); import pickle; from pickle import loads; import marshal as m; import shelve; eval ('1')"
)
PLANTED += "; os.system('x'); subprocess.run('x', shell=True); subprocess.run('x', shell=on); yaml.load('x')"
PLANTED += "; np.load('x', allow_pickle=True); tar.extractall('/'); __import__('os'); torch.load('x')"


@pytest.mark.parametrize("code", PLANTED.split("; "))
def test_each_danger_is_detected(code):
    assert list(dangers(code))


# --- downloads --------------------------------------------------------------------------------------------------------


def product() -> dict[Path, str]:
    return {path: text for path, text in sources().items() if path.parts[0] not in ("tests", "benchmarks")}


def test_one_file_opens_connections_and_few_start_programs():
    found: dict[str, set[str]] = {}
    for path, text in product().items():
        for node in ast.walk(ast.parse(text)) if any(name in text for name in (*CONNECT, "subprocess")) else ():
            for name in packages([node]) & (CONNECT | {"subprocess"}):
                found.setdefault(name, set()).add(path.as_posix())
    fetching = {"training/corpora/fetch.py"}
    others = {"docs/course/mark.py", "docs/site/build.py", "docs/site/demo.py", "training/cli/console.py"}
    assert found.pop("subprocess") - {"extra/chat/chat.py"} == fetching | others
    assert found.pop("urllib") == fetching | {"docs/site/build.py"}  # which only takes addresses apart
    assert all(files == fetching for files in found.values())


def test_one_function_starts_programs_and_one_file_prints():
    """`run_apart` starts them where nobody's file can take part; what is printed to a terminal has no commands for it.

    The page of colours that gpt/sample.py prints is its own, and the `> ` before what is typed has no text of anyone.
    """
    places = dict.fromkeys(("print", "sys.stdout.write", "sys.stderr.write"), "prints")
    places |= dict.fromkeys(("subprocess.run", "subprocess.Popen", "os.execv", "os.spawnv"), "starts")
    found = set()
    for path, text in product().items():
        is_checked = path.parts[0] not in ("docs", "nano.py", "tinygrad_lite")
        for node in ast.walk(ast.parse(text)) if is_checked and re.search(r"\bprint\(|subprocess|stdout", text) else ():
            if isinstance(node, ast.Call) and (what := places.get(ast.unparse(node.func))):
                found.add((what, path.as_posix()))
    # `run_apart` calls what it was given.
    assert found - {("prints", "extra/chat/interactive.py")} == {
        ("prints", "training/cli/console.py"),
        ("prints", "gpt/sample.py"),
    }


@pytest.mark.parametrize("module", [corpora, pairs], ids=["texts", "pairs"])
def test_every_corpus_has_a_hash_or_says_that_its_first_download_is_trusted(module):
    text = Path(module.__file__).read_text(encoding="utf-8")
    recipes = {name: recipe for name, recipe in module.RECIPES.items() if f'"{name}"' in text}  # its own
    assert recipes
    for name, recipe in recipes.items():
        assert recipe.source
        assert recipe.licence
        if recipe.expected is not None:
            assert re.fullmatch("[0-9a-f]{64}", recipe.expected), name
        else:
            assert re.search(r"^# .*(\n# .*)*None", text, re.MULTILINE), name
    unknown = {name for name, recipe in recipes.items() if recipe.expected is None}
    assert unknown <= {"faust", "faust2", "werther", "multi30k", "python-docs", "tatoeba"}


# --- packages ---------------------------------------------------------------------------------------------------------


def test_the_product_needs_four_packages_each_within_bounds():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = project["project"]["dependencies"]
    assert [re.match(r"[\w-]+", line)[0] for line in needed] == ["numpy", "safetensors", "threadpoolctl", "tqdm"]
    for line in needed:
        assert re.fullmatch(r"[\w-]+>=[\d.]+,<\d+", line), line
