"""What small programs begin with: checked options and positional arguments; numbers in a text; a run's options."""

import functools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import extra.corpora.pairs
import extra.corpora.texts  # noqa: F401 (both, so that all programs know them)
from extra.plots.figure import write_or_refuse
from tinygrad_lite.errors import OptionError
from training.checkpoint import load_checkpoint
from training.cli.command_line import read_command
from training.cli.options import build
from training.family import Family
from training.folder import RunFolder
from training.options import TrainOptions
from training.origin import check_saved

Main = Callable[[list[str]], int]


@dataclass
class NoOptions:
    """The options of a program that has none."""


def program(name: str, cls: type, named: str = "", example: str = "", **more: Any) -> Callable[[Callable], Main]:
    """A decorator that makes a function of options and names the `main` of a program; its docstring heads --help.

    Args:
        name: the program's module, such as extra.studies.scores, or its file, such as docs/record.py.
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
            command = f"python {name}" if name.endswith(".py") else f"python -m {name}"
            options, names = read_command(cls, argv, command, run.__doc__, named, example, **more)
            run(options, *names)
            return 0

        return main

    return with_command_line


def chosen(text: str, known: Sequence[str], name: str) -> list[str]:
    """The names in a text like "baby, gpt2", in the order of `known`; all if it is empty.

    A name may itself hold commas: of several that fit, the longest is meant.

    Raises: OptionError for anything else.
    """
    found, rest = set(), text.strip()
    while rest:
        fitting = [one for one in known if f"{rest},".startswith(f"{one},")]
        if not fitting:
            raise OptionError(f"--{name} {text}: there is no {rest.split(',')[0]!r}, only {', '.join(known)}")
        longest = max(fitting, key=len)
        found.add(longest)
        rest = rest[len(longest) + 1 :].strip()
    return [one for one in known if one in found or not text]


def numbers(text: str, label: str, what: str, fits: Callable[[float], bool]) -> list[float]:
    """The numbers between the commas of a text, in ascending order.

    Raises: OptionError with the label that says what to write, if it has anything else, or numbers that do not fit.

    >>> numbers("1,0.5,1", "--shares", "numbers above 0", lambda share: share > 0)
    [0.5, 1.0]
    """
    with suppress(ValueError):
        found = sorted({float(word) for word in text.split(",")})
        if all(map(fits, found)):
            return found
    raise OptionError(f"{label} {text}: write {what}")


def write_lines(path: Path, lines: list[str], option: str = "--out ") -> None:
    """Write a text file that an option names.

    Raises: OptionError if it cannot be written.
    """
    write_or_refuse(path, "".join(f"{line}\n" for line in lines), option)


def options_of_run(family: Family, path: Path) -> TrainOptions:
    """The settings of the run that wrote a checkpoint, for the CPU; the paths of its files are in its options.json.

    Raises: CheckpointError or OptionError if they cannot be used.
    """
    training, folder = load_checkpoint(path).training, RunFolder(path.parent)
    check_saved(path, family, training)
    noted = folder.noted_options()
    files = {name: noted[name] for name in family.options.FILES if name in noted}
    return build(family.options, (str(path), training), (str(folder.options), files), ("here", {"device": "cpu"}))
