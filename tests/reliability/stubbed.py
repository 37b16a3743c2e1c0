"""A plugin of pytest that runs each test function without the code that it tests.

The code under test is all Python of this repository outside tests/. When the fixtures of a test have been made, by the
real code, its function runs in a forked child in which every function of that code returns None. In Pythons that the
child starts, the first call of such a function raises an exception (stubbed_programs/sitecustomize.py). A test that
passes nevertheless does not depend on that code.

Of a function with parameters, the first case runs that is not skipped. What became of each function is written to the
file that $STUBBED_OUTCOMES names, as JSON: "passed", "failed", "skipped" or, if it hung or ended its process, "ended",
and how many stubs were called.
"""

import builtins
import gc
import json
import os
import subprocess
import warnings
from pathlib import Path
from types import FunctionType

import pytest

from tests.mutation.planting import in_a_child

ROOT = f"{Path(__file__).parents[2]}{os.sep}"
PROGRAMS = str(Path(__file__).with_name("stubbed_programs"))
SECONDS = 20  # after which a child is killed
functions: list[FunctionType] = []  # of the code under test, as far as it was loaded with the tests
outcomes: dict[str, str] = {}
stub_calls: list[None] = []  # one for each, in a child


def stub(*args, **names):
    stub_calls.append(None)


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
    builtins.stub_calls = stub_calls  # a stub runs with the global names of the function that it replaces


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a test function in a child, instead of here."""
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    with warnings.catch_warnings(action="ignore"):  # since Python 3.12, of other threads, which a child lacks
        outcomes[pyfuncitem.nodeid] = in_a_child(lambda: with_stubs(pyfuncitem.obj, given), SECONDS) or "ended 0"
    return True


def with_stubs(test, given) -> str:
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
    return f"{outcome} {len(stub_calls)}"


def pytest_sessionfinish():
    Path(os.environ["STUBBED_OUTCOMES"]).write_text(json.dumps(outcomes, indent=0), encoding="utf-8")
