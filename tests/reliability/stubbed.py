"""A plugin of pytest that runs each test function without the code that it tests.

The code under test is all Python of this repository outside tests/. When the fixtures of a test have been made, by the
real code, its function runs in a forked child in which every function of that code raises StubError, and in another in
which each returns None. In Pythons that the children start, the first call of such a function raises an exception
(stubbed_programs/sitecustomize.py). A test that passes nevertheless does not depend on that code.

Of a function with parameters, the first case runs that is not skipped. What became of each function is written to the
file that $STUBBED_OUTCOMES names, as JSON: for each stub "passed", "failed", "skipped" or "hung", and how many stubs
were called.
"""

import builtins
import gc
import json
import os
import select
import shutil
import signal
import subprocess
import warnings
from contextlib import suppress
from pathlib import Path
from types import FunctionType

import pytest

ROOT = f"{Path(__file__).parents[2]}{os.sep}"
PROGRAMS = str(Path(__file__).with_name("stubbed_programs"))
SECONDS = 20  # after which a child is killed
functions: list[FunctionType] = []  # of the code under test, as far as it was loaded with the tests
outcomes: dict[str, dict[str, str]] = {}


class StubError(Exception):
    """What a stub raises."""

    made = 0  # in a child

    def __init__(self) -> None:
        super().__init__("a stub was called")
        StubError.made += 1


def raises(*args, **names):
    raise StubError


def returns_none(*args, **names):
    StubError()  # which is only counted


def loaded() -> list[FunctionType]:
    """The functions, methods and closures of the code under test that the garbage collector tracks."""
    found = [thing for thing in gc.get_objects() if type(thing) is FunctionType]
    files = {f.__code__.co_filename for f in found}
    tested = {file for file in files if file.startswith(ROOT) and not file.startswith(f"{ROOT}tests{os.sep}")}
    return [f for f in found if f.__code__.co_filename in tested]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Keep one case of each function."""
    kept = {}
    for item in items:
        if isinstance(item, pytest.Function) and not item.get_closest_marker("skip"):
            kept.setdefault((item.path, item.cls, item.originalname), item)
    items[:] = kept.values()


@pytest.hookimpl(tryfirst=True)  # before conftest.py hides them from the garbage collector
def pytest_collection_finish():
    functions[:] = loaded()
    builtins.StubError = StubError  # a stub runs with the global names of the function that it replaces


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a test function in two children, instead of here."""
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    folder = pyfuncitem.funcargs.get("tmp_path")
    before = folder and shutil.copytree(folder, f"{folder}.before", symlinks=True)
    became = outcomes[pyfuncitem.nodeid] = {raises.__name__: in_child(pyfuncitem.obj, given, raises)}
    if folder:  # as it was; it may be the current one, so it stays itself
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        shutil.copytree(before, folder, symlinks=True, dirs_exist_ok=True)
    became[returns_none.__name__] = in_child(pyfuncitem.obj, given, returns_none)
    return True


def in_child(test, given, stub) -> str:
    """The outcome of `with_stubs` in a process that is ended, with all that it has started."""
    reading, writing = os.pipe()
    with warnings.catch_warnings(action="ignore"):  # since Python 3.12, of other threads, which a child lacks
        child = os.fork()
    if not child:
        try:
            os.setpgrp()
            os.write(writing, with_stubs(test, given, stub).encode())
        finally:
            os._exit(0)  # whatever happens: a child must never go on as pytest
    os.close(writing)
    answered, _, _ = select.select([reading], [], [], SECONDS)
    outcome = os.read(reading, 100).decode() if answered else "hung 0"
    os.close(reading)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert outcome, "the stubs could not be installed, or the test has ended its process"
    return outcome


def with_stubs(test, given, stub) -> str:
    """What becomes of a test function with stubs instead of the code under test."""
    start = subprocess.Popen.__init__

    def start_stubbed(self, *args, env=None, **names):
        env = os.environ if env is None else env
        path = os.pathsep.join(filter(None, (PROGRAMS, env.get("PYTHONPATH"))))
        start(self, *args, env={**env, "PYTHONPATH": path}, **names)

    subprocess.Popen.__init__ = start_stubbed
    os.environ["PYTHONPATH"] = PROGRAMS  # for processes that are started in other ways
    for f in functions + loaded():
        f.__code__ = stub.__code__.replace(co_freevars=f.__code__.co_freevars)
    try:
        test(**given)
        outcome = "passed"
    except pytest.skip.Exception:
        outcome = "skipped"
    except BaseException:
        outcome = "failed"
    return f"{outcome} {StubError.made}"


def pytest_sessionfinish():
    Path(os.environ["STUBBED_OUTCOMES"]).write_text(json.dumps(outcomes, indent=0), encoding="utf-8")
