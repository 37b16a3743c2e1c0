"""How a fault gets into a program in memory, in a child process that then ends: no file is changed.

Starting Python, importing the project and collecting thousands of tests takes seconds, the test that finds a fault
hundredths of one. So one process does the former once, and copies itself, with `os.fork`, for every mutant.
"""

import gc
import importlib.machinery
import inspect
import json
import os
import select
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType

from tests.mutation.mutants import ROOT, Mutant


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """The code of a file, and of all functions in it."""
    yield code
    for part in filter(inspect.iscode, code.co_consts):
        yield from codes_in(part)


def place_of(code: CodeType) -> tuple[str, int, int]:
    """Which function of its file a code belongs to. Two lambdas may share a name and a line, but not a column."""
    columns = (column for _, _, column, _ in code.co_positions() if column)
    return code.co_qualname, code.co_firstlineno, next(columns, 0) if code.co_name == "<lambda>" else 0


def functions_by_file() -> dict[str, list[FunctionType]]:
    """All functions that this process has, by the file in which they are written."""
    gc.unfreeze()  # what is frozen is not listed
    found = defaultdict(list)
    for function in (thing for thing in gc.get_objects() if isinstance(thing, FunctionType)):
        found[function.__code__.co_filename].append(function)
    gc.freeze()  # or a child's garbage collector would write to, and so copy, all memory
    return found


def plant(mutant: Mutant, functions: dict[str, list[FunctionType]]) -> bool:
    """Give all functions of the mutant's file their code with the fault; whoever refers to them has it from now on.

    False if that cannot be done: a function that exists cannot lose a variable of the one around it.
    """
    faulty = {place_of(code): code for code in codes_in(mutant.code())}
    with suppress(ValueError):
        for function in functions[str(ROOT / mutant.path)]:
            function.__code__ = faulty.get(place_of(function.__code__), function.__code__)
        return True
    return False


def plant_for_import(mutant: Mutant) -> None:
    """Forget the project's modules and those of its tests: when they are imported again, the fault is there."""
    for name, module in list(sys.modules.items()):
        if ROOT in Path(getattr(module, "__file__", None) or "/").parents and name != __name__:
            del sys.modules[name]
    sound = importlib.machinery.SourceFileLoader.get_code

    def get_code(loader: importlib.machinery.SourceFileLoader, name: str) -> CodeType | None:
        return mutant.code() if Path(loader.path) == ROOT / mutant.path else sound(loader, name)

    importlib.machinery.SourceFileLoader.get_code = get_code


def in_a_child(work: Callable[[], object], seconds: float | None = None) -> object:
    """What the work returns in a copy of this process, as JSON has it; None if the child fails or takes too long.

    The child is silent, and the processes that it has started end with it.
    """
    reading, writing = os.pipe()
    if not (child := os.fork()):
        try:
            os.setsid()
            for descriptor in range(3):
                os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
            with open(writing, "w", encoding="utf-8") as pipe:
                print(json.dumps(work()), file=pipe)
        finally:
            os._exit(0)
    os.close(writing)
    said = b""
    with open(reading, "rb", buffering=0) as pipe:
        while not said.endswith(b"\n") and select.select([pipe], [], [], seconds)[0] and (part := pipe.read(1 << 20)):
            said += part
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return json.loads(said) if said.endswith(b"\n") else None
