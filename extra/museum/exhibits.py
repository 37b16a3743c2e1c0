"""The exhibits, and how a fault is planted into a running program and taken back.

exhibits.toml describes each fault: the function that has it, a part of its source, and what that is with the fault. The
function's file is compiled with the fault, in memory, and the function gets the new code object; afterwards it gets its
own one back. So all that refer to the function have the fault meanwhile, and no file is changed.

Nowhere else in this project is a function found by a name in a string, or compiled from one. Here the data must name
what is replaced, and they are a file of the project, as its code is. Only the museum, its tests and pages import this.
"""

import importlib
import inspect
import operator
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType, SimpleNamespace

# The exhibits, and the options of the models that scenes.py trains.
DATA = tomllib.loads(Path(__file__).with_name("exhibits.toml").read_text(encoding="utf-8"))


class Exhibit(SimpleNamespace):
    """A fault that public projects had, as it would look here.

    Attributes:
        title, symptom: what it is, and what one sees of it.
        function: the one that gets the fault, as module:name or module:Class.name.
        right, wrong: a part of its source, and what it is with the fault.
        scene, settings: the name of the function in scenes.py that shows it, and its arguments.
        threads: public ones about it.
        question, hints, answer: what a visitor is asked and told.
        tests: those of this repository that find it.
    """

    @contextmanager
    def planted(self) -> Iterator[FunctionType]:
        """Inside, this process has the fault, in the function that is yielded.

        Raises: ValueError if its source does not have the right part exactly once.
        """
        module, name = self.function.split(":")
        function = inspect.unwrap(operator.attrgetter(name)(importlib.import_module(module)))
        source, path = inspect.getsource(function), inspect.getsourcefile(function)
        before, after = source.split(self.right)
        file = Path(path).read_text(encoding="utf-8").replace(source, before + self.wrong + after, 1)
        codes = {code.co_qualname: code for code in codes_in(compile(file, path, "exec"))}
        sound, function.__code__ = function.__code__, codes[function.__qualname__]
        try:
            yield function
        finally:
            function.__code__ = sound


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """The code of a file, and of all functions in it."""
    yield code
    for part in filter(inspect.iscode, code.co_consts):
        yield from codes_in(part)


EXHIBITS = [Exhibit(**entry) for entry in DATA["exhibit"]]
