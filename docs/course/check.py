"""Check your answers to the exercises of the course.

    python docs/course/check.py 1                     what is right in chapter 1, what is not, and a hint
    python docs/course/check.py 1 --solution relu     show the solution of one exercise
    python docs/course/check.py capstone              the same for the skeleton of nano.py
    python docs/course/check.py                       your progress in every chapter

A chapter's folder has three files for this. `exercise.py` has the blanks, each written as `...`; the first check of a
chapter copies it to docs/course/answers/, which Git ignores, and there you fill it in. `checks.py` has a function of
the same name for each exercise, whose docstring is the hint. `solution.py` has the answers; those for the capstone are
in nano.py. There an exercise may be a method, and its check is a method of a class of the same name.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit(f"{sys.argv[0]} needs Python 3.11 or newer; this is Python {sys.version.split()[0]}: try python3.12")
if missing := [name for name in "numpy safetensors threadpoolctl tqdm tinygrad_lite".split() if not find_spec(name)]:
    sys.exit(f"{sys.argv[0]}: {missing[0]} is not installed: run pip install -e . in the root of the project")

import ast
import importlib.util
import inspect
import json
import shutil
import textwrap
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from tinygrad_lite.config import option
from tinygrad_lite.errors import OptionError, UserError
from training.cli.command_line import read_command
from training.cli.console import run_command, say
from training.cli.options import nearest

COURSE = Path(__file__).parent
BLANK = "still blank"
CAPSTONE = "capstone"


@dataclass
class CheckOptions:
    """The options of the check."""

    solution: str = option("", "show the solution of this exercise, and stop")


@dataclass
class Outcome:
    """What became of one exercise: right, blank, or else what is wrong with the answer."""

    name: str
    is_right: bool
    wrong: str = ""
    hint: str = ""


def chapters() -> dict[int, Path]:
    """The folder of each chapter that has exercises, by its number."""
    return {int(file.parent.name[:2]): file.parent for file in sorted(COURSE.glob("[0-9][0-9]-*/exercise.py"))}


def answers_in(folder: Path, name: str = "exercise.py") -> Path:
    """The file of this name with your answers to a chapter, or else the one in the chapter's folder."""
    own = COURSE / "answers" / folder.name / name
    return own if own.exists() else folder / name


def failed_tries(file: Path, outcomes: list[Outcome]) -> Counter:
    """How often each answer in a file has been wrong, these outcomes included. A blank is no try."""
    notes = file.with_name("tries.json")
    try:
        tries = Counter(json.loads(notes.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):  # there are none yet, or they are damaged
        tries = Counter()
    tries.update(outcome.name for outcome in outcomes if not outcome.is_right and outcome.wrong != BLANK)
    notes.write_text(json.dumps(tries), encoding="utf-8")
    return tries


def load(file: Path, folder: Path | None = None) -> ModuleType:
    """A Python file as a module, which can import its neighbours, or those in another folder, and compare.py.

    Raises: UserError with the line, if it cannot be read.
    """
    folder = folder or file.parent
    spec = importlib.util.spec_from_file_location(f"{file.parent.name}.{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    before = set(sys.modules)
    paths = [str(folder), str(Path(__file__).parent)]
    sys.path[:0] = paths
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"{file} cannot be run: {describe(error, file)}") from None
    finally:
        for path in paths:
            sys.path.remove(path)
        for name in set(sys.modules) - before:  # another chapter may have a file of the same name
            if folder in Path(getattr(sys.modules[name], "__file__", None) or "/").parents:
                del sys.modules[name]
    return module


def describe(error: Exception, file: Path) -> str:
    """An error in one line, with the line of the file where it arose."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    if isinstance(error, SyntaxError):
        lines.append(error.lineno)
    place = f"line {lines[-1]}: " if lines else ""
    return f"{place}{type(error).__name__}: {error}"


def blanks(file: Path) -> set[str]:
    """The functions, methods and variables of a file whose code has a `...`; types such as tuple[int, ...] are not."""

    def is_blank(part: ast.AST) -> bool:
        if isinstance(part, ast.Subscript):
            return is_blank(part.value)
        return (isinstance(part, ast.Constant) and part.value is ...) or any(map(is_blank, ast.iter_child_nodes(part)))

    return {name for name, part in named(file).items() if is_blank(part)}


def named(file: Path) -> dict[str, ast.AST]:
    """The functions, variables and classes of a file, and the methods as Class.method, each with its code."""
    found = {}
    for part in ast.parse(file.read_text(encoding="utf-8")).body:
        for target in part.targets if isinstance(part, ast.Assign) else [part]:
            found[getattr(target, "id", getattr(target, "name", ""))] = part
        if isinstance(part, ast.ClassDef):
            found |= {f"{part.name}.{method.name}": method for method in part.body if hasattr(method, "name")}
    return found


def exercises(checks: ModuleType) -> Iterator[tuple[str, Callable[[ModuleType], None]]]:
    """The name of each exercise, and its check."""
    for name, value in vars(checks).items():
        if getattr(value, "__module__", "") != checks.__name__ or name.startswith("_"):
            continue
        if inspect.isclass(value):
            yield from ((f"{name}.{method}", f) for method, f in vars(value).items() if inspect.isfunction(f))
        elif inspect.isfunction(value):
            yield name, value


def check(folder: Path, answers: str | Path = "exercise.py", names: Collection[str] = ()) -> Iterator[Outcome]:
    """Check the answers to a chapter, exercise by exercise: all, or those with these names.

    Args:
        answers: their file; a name is that of a file in the chapter's folder.
    """
    file = folder / answers
    module, checks = load(file, folder), load(folder / "checks.py")
    unfinished = blanks(file)
    for name, function in exercises(checks):
        if names and name not in names:
            continue
        hint = " ".join(inspect.getdoc(function).split())
        if name in unfinished:
            yield Outcome(name, False, BLANK, hint)
            continue
        try:
            function(module)
        except AssertionError as error:
            yield Outcome(name, False, str(error) or "not right", hint)
        except Exception as error:  # the answer's own mistake
            yield Outcome(name, False, describe(error, file), hint)
        else:
            yield Outcome(name, True)


def solution(folder: Path, name: str) -> str:
    """The source of one exercise in the solution.

    Raises: OptionError if there is none.
    """
    file = folder / "solution.py" if folder.name != CAPSTONE else Path(__file__).parents[2] / "nano.py"
    known = [exercise for exercise, _ in exercises(load(folder / "checks.py"))]
    if name not in known:
        near = nearest(name, known)
        hint = f"did you mean {near}?" if near else f"there are {', '.join(known)}"
        raise OptionError(f"--solution {name}: this chapter has no such exercise; {hint}")
    if not file.exists():
        raise OptionError(f"--solution {name}: this copy of the course has no solutions")
    return textwrap.dedent(ast.get_source_segment(file.read_text(encoding="utf-8"), named(file)[name], padded=True))


def main(argv: list[str]) -> int:
    """Run the command line and return the exit status: 0 if everything that was checked is right."""
    options, names = read_command(
        CheckOptions,
        argv,
        "python docs/course/check.py",
        "Check your answers to the exercises of the course.",
        "CHAPTER",
        about_positional="its number, or capstone; none: your progress in every chapter",
    )
    found = chapters() | {CAPSTONE: COURSE / CAPSTONE}
    if not names:
        for number, folder in found.items():
            right = [outcome.is_right for outcome in check(folder, answers_in(folder))]
            print(f"{number if number == CAPSTONE else f'chapter {number:2}'}: {sum(right)} of {len(right)} right")
        return 0
    [name] = names
    number = int(name) if name.isdecimal() else name
    if number not in found:
        raise OptionError(f"there is no chapter {name}: choose one of {', '.join(map(str, found))}")
    folder = found[number]
    if options.solution:
        print(solution(folder, options.solution))
        return 0
    file = COURSE / "answers" / folder.name / "exercise.py"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / "exercise.py", file)
        say(f"copied the exercises to {file}: write your answers there")
    outcomes = list(check(folder, file))
    tries = failed_tries(file, outcomes)
    for outcome in outcomes:
        print(f"{outcome.name}: {'right' if outcome.is_right else outcome.wrong}")
    if missing := next((outcome for outcome in outcomes if not outcome.is_right), None):
        print(f"\nhint for {missing.name}: {missing.hint}")
        shows = f"; --solution {missing.name} shows the answer" if tries[missing.name] > 1 else ""
        print(f"fill in {file} and check again{shows}")
    return 1 if missing else 0


if __name__ == "__main__":
    run_command("check", main)
