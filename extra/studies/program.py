"""What small programs begin with, the command line, as checked options and positional arguments; and how they write."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from extra.corpora.register import register
from tinygrad_lite.errors import OptionError
from training.cli.command_line import read_command
from training.cli.files import write_named

register()  # so that all of them know the shelf's texts
Main = Callable[[list[str]], int]


def program(name: str, cls: type, named: str = "", example: str = "", **more: Any) -> Callable[[Callable], Main]:
    """A decorator that makes a function of options and names the `main` of a program; its docstring heads --help.

    Args:
        name: the program's module, such as extra.studies.scores.
        cls, named, example, more: as for `read_command`.

    >>> import dataclasses
    >>> from tinygrad_lite.config import option
    >>> @dataclasses.dataclass
    ... class Baking:
    ...     minutes: int = option(40, "time in the oven", unit="minutes", low=1)
    >>> @program("bake", Baking, "DISH", "cake")
    ... def main(options, dish):
    ...     '''Bake.'''
    ...     print(f"{dish}: {options.minutes} minutes")
    >>> main(["cake", "--minutes", "50"])
    cake: 50 minutes
    0
    """

    def with_command_line(run: Callable[..., None]) -> Main:
        @functools.wraps(run)
        def main(argv: list[str]) -> int:
            options, names = read_command(cls, argv, f"python -m {name}", run.__doc__, named, example, **more)
            run(options, *names)
            return 0

        return main

    return with_command_line


def numbers(text: str) -> list[float]:
    """The numbers between the commas of a text, in ascending order; none if it has anything else.

    >>> numbers("1,0.5,1"), numbers("half")
    ([0.5, 1.0], [])
    """
    try:
        return sorted({float(word) for word in text.split(",")})
    except ValueError:
        return []


def write_lines(path: Path, lines: list[str]) -> None:
    """Write a text file.

    Raises: OptionError if it cannot be written.
    """
    try:
        write_named(path, "".join(f"{line}\n" for line in lines))
    except OSError as error:
        raise OptionError(f"--out {path} cannot be written ({error.strerror}): choose another file") from None
