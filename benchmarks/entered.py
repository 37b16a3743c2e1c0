"""How much of the project is entered from the command line of a training run to its first loss.

    python -m benchmarks.entered            how many files and functions
    python -m benchmarks.entered --list     and the files, in the order in which they are entered

The run is `train.py goethe-char --text t.txt --workers 1`, with a text that this command writes. A file is entered when
one of its functions is called; what runs because a module is imported does not count. The first round begins with the
first call from the body of the loop in `train`. Nothing of the project is imported before the run, so no cache hides a
call.
"""

import argparse
import ast
import os
import sys
import tempfile
from contextlib import suppress
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = str(ROOT / "train.py")
TEXT = "Es irrt der Mensch, so lang er strebt.\n" * 200


class FirstLossError(BaseException):
    """Ends the run when its first loss has been computed."""


def entered() -> tuple[list[CodeType], int]:
    """Train until the first loss, in a temporary folder.

    Returns: the project's functions in the order of their first calls, and how many were called before the first round.
    """
    functions: dict[CodeType, None] = {}
    before, importing, loop = 0, 0, lines_of_loop()

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal before, importing
        code, caller = frame.f_code, frame.f_back
        if code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__":
            importing += (event == "call") - (event == "return")
        elif importing or not code.co_flags & CO_OPTIMIZED or not is_own(code.co_filename):
            return  # without this flag, it is the body of a class
        elif event == "call":
            if caller.f_code.co_filename == SCRIPT and caller.f_lineno in loop:
                before = before or len(functions)
            functions.setdefault(code)
        elif event == "return" and code.co_name == "loss" and before:
            raise FirstLossError

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("t.txt").write_text(TEXT, encoding="utf-8", newline="\n")
        sys.setprofile(note)
        with suppress(FirstLossError):
            import train

            train.main("goethe-char --text t.txt --workers 1".split())
        sys.setprofile(None)
        os.chdir(ROOT)  # Windows does not remove the current folder
    return [*functions], before


def lines_of_loop() -> range:
    """The lines of the first `for` in the function `train` of train.py."""
    functions = ast.parse(Path(SCRIPT).read_bytes()).body
    train = next(node for node in functions if isinstance(node, ast.FunctionDef) and node.name == "train")
    loop = next(node for node in ast.walk(train) if isinstance(node, ast.For))
    return range(loop.body[0].lineno, loop.end_lineno + 1)


def is_own(file: str) -> bool:
    """Whether a file is of the project, and not of a package that is installed in its folder."""
    return file.startswith(f"{ROOT}{os.sep}") and "site-packages" not in file


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.entered", description=__doc__.split("\n")[0])
    parser.add_argument("--list", action="store_true", help="the files, in the order in which they are entered")
    wants_list = parser.parse_args().list
    functions, before = entered()
    names = [Path(code.co_filename).relative_to(ROOT).as_posix() for code in functions]
    early, files = ([*dict.fromkeys(part)] for part in (names[:before], names))
    if wants_list:
        print(*early, "--- the first round of the loop", *files[len(early) :], sep="\n")
    print(f"{len(files)} files ({len(functions)} functions) up to the first loss")
    print(f"{len(early)} files ({before} functions) of them before the first round of the loop")


if __name__ == "__main__":
    main()
