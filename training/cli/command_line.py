"""The command line and its --help page, both made from a dataclass of options (`options.py`).

>>> from tinygrad_lite.config import option
>>> @dataclasses.dataclass
... class Recipe:
...     eggs: int = option(2, "number of eggs", unit="eggs", low=0)
...     sugar: float = option(0.1, "amount of sugar", unit="kg", above=0.0)
>>> parse_command_line(Recipe, ["--eggs", "3"], prog="bake", description="Bake a cake.")
({'eggs': 3}, [])
"""

import dataclasses
import decimal
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from tinygrad_lite.errors import OptionError
from tinygrad_lite.version import VERSION
from training.cli.console import say, show
from training.cli.options import allowed, base_type, brief, build, check, fields_of, may_be_none, nearest, values_of

TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
# What other programs call their options, and what to use here: the first of these whose options the script has.
ELSEWHERE = {
    "lr": "--learning_rate",
    "epochs": "is counted in steps here: --max_iters is the epochs times the steps of one, which --dry_run prints",
    "steps": "--max_iters | --max_new_tokens",
    "batch_size": "--batch_tokens",
    "hidden_size": "--n_embd",
    "seq_len": "--block_size",
    "context_length": "--block_size",
    "cpu": "--device cpu",
    "gpu": "--device cuda",
    "cuda": "--device cuda",
    "data": "--text | --pairs | --dataset",
    "threads": "--workers | is an environment variable here: OPENBLAS_NUM_THREADS",
    "prompt": "--start | is for sample.py, which writes with a trained model",
}
FIRST_PAGE = 45  # lines; of a longer help, --help shows the most used options, --help all everything
OPTION = re.compile(r"--[^\W\d]")  # not "-1", which is a number, and not "-- Goethe", which may be a prompt


def split_command_line(argv: Sequence[str], *classes: type) -> tuple[dict[str, list[str]], list[str]]:
    """Split a command line into the words of each option, by its name with _ for -, and the words of none.

    Nothing is checked yet. The number of words that an option takes depends on its type: a boolean takes the next word
    only if it is a truth value (`TRUTH`), a list takes all words up to the next option, other types and unknown options
    take one word. If an option is given twice, the last one counts.

    Args:
        classes: dataclasses of options, which define the types.

    >>> from tinygrad_lite.config import option
    >>> @dataclasses.dataclass
    ... class Recipe:
    ...     vegan: bool = option(False, "without animals")
    ...     dish: str = option("cake", "what to make")
    >>> split_command_line(["--vegan", "soup", "--dish", "pie"], Recipe)
    ({'vegan': [], 'dish': ['pie']}, ['soup'])
    """
    kinds = {name: base_type(kind) for cls in classes for name, kind in fields_of(cls)[1].items()} | {"version": bool}
    given: dict[str, list[str]] = {}
    others, name, room = [], "", 0  # how many more words the option of this name takes
    for word in argv:
        is_taken = room and (kinds.get(name) is not bool or word.lower() in TRUTH)
        word = "--help" if word == "-h" and not is_taken else word
        if OPTION.match(word):
            name, equals, value = word[2:].partition("=")
            name = name.replace("-", "_")
            given[name] = [value] if equals else []
            room = 0 if equals else len(argv) if kinds.get(name) is list else 1
        elif is_taken:
            given[name].append(word)
            room -= 1
        else:
            others.append(word)
            room = 0
    return given, others


def parse_command_line(
    cls: type,
    argv: Sequence[str],
    *,
    prog: str,
    positional: str | None = None,
    ignored: Mapping[str, str] = {},
    hints: Mapping[str, str] = {},
    **about: Any,
) -> tuple[dict[str, Any], list[str]]:
    """Read `--name value` and `--name=value`; a boolean also as `--name` alone, a list as several values.

    Names cannot be abbreviated; - and _ in them are equivalent. If an option is given twice, the last value counts.

    Args:
        cls: the dataclass of options.
        argv: the arguments, without the program's name.
        prog: the program's name.
        positional: the names of the positional arguments: a word for each, and ... if there may be more; None: there
            are none.
        ignored: options of other programs that are accepted without effect, each with the reason, for a printed note.
        hints: advice about options that do not exist: the rest of a sentence that begins with the name.
        about: for `help_page`; --help prints the page and exits with status 0, as --version does.
    Returns: the values of the options that are given, and the positional arguments.
    Raises: OptionError with one sentence that says what is wrong.
    """
    names = (positional or "").split()
    most = sys.maxsize if "..." in names else len(names)
    fields, kinds = fields_of(cls)
    given, others = split_command_line(argv, cls)
    values, notes, lists = {}, [], f"{prog} --help all lists them"
    for name, words in given.items():
        text = brief(" ".join([f"--{name}", *words]))
        if name == "help":
            if words not in ([], ["all"]):
                raise OptionError(f"{text}: only all can follow --help; a name of anything else comes before it")
            _print_and_exit(help_page(cls, prog, positional, whole=bool(words), **about))
        elif name == "version":
            _print_and_exit(f"{prog} of tinygrad_lite {VERSION}")
        elif name in fields:
            field, kind = fields[name], kinds[name]
            if not words and base_type(kind) is not bool:
                # Only a text can begin with --, and only if a word follows can it have been meant as the value.
                is_text = base_type(kind) in (str, list) and argv[-1][2:].replace("-", "_") != name
                hint = f" (write a value that begins with -- as --{name}=...)" if is_text else ""
                raise OptionError(f"--{name} needs a value: {allowed(field, kind)}{hint}")
            meant = _from_words(kind, words or ["true"])
            values[name] = check(field, kind, meant, f"--{name} {brief(' '.join(words))}")
        elif name in ignored:
            notes.append(f"note: {text} does nothing here: {ignored[name]}")
        else:
            raise OptionError(_unknown(name, fields, hints, lists))
    for number, word in enumerate(others):
        if number >= most or not word or word.startswith("-"):
            raise OptionError(f"unexpected argument {word!r}: write options as --name value ({lists})")
    for note in notes:
        say(note)
    return values, others


def read_command(
    cls: type, argv: Sequence[str], prog: str, about: str, named: str = "", example: str = "", **more: Any
) -> tuple[Any, list[str]]:
    """Read the command line of a small program: its checked options, and its positional arguments.

    Args:
        about: what the program does, in one line.
        named: the positional arguments, such as CHECKPOINT.
        example: example values for them; empty: none is needed.
        cls, argv, prog, more: as for `parse_command_line`.
    Raises: OptionError with one sentence that says what is wrong or missing.

    >>> from tinygrad_lite.config import option
    >>> @dataclasses.dataclass
    ... class Baking:
    ...     minutes: int = option(40, "time in the oven", unit="minutes", low=1)
    >>> read_command(Baking, ["cake", "--minutes", "50"], "bake", "Bake.", "DISH", "cake")
    (Baking(minutes=50), ['cake'])
    >>> read_command(Baking, [], "bake", "Bake.", "DISH", "cake")
    Traceback (most recent call last):
    tinygrad_lite.errors.OptionError: the dish is missing: bake cake
    """
    values, words = parse_command_line(cls, argv, prog=prog, description=about, positional=named or None, **more)
    needed = [word for word in named.split() if word != "..."] if example else []
    for word in needed[len(words) :]:
        raise OptionError(f"the {word.lower().replace('_', ' ')} is missing: {prog} {example}")
    return build(cls, ("command line", values)), words


def _print_and_exit(text: str) -> NoReturn:
    """Print a page that the user asked for, and exit; characters that the terminal lacks become question marks."""
    encoding = sys.stdout.encoding or "utf-8"
    show(text.encode(encoding, "replace").decode(encoding))
    sys.exit(0)


def _unknown(name: str, names: Iterable[str], hints: Mapping[str, str], lists: str) -> str:
    """The error message for an option that does not exist; `lists` says where all are listed."""
    meant = {own: f"--{own}" for own in names}
    own = {*meant.values()}
    for other, answers in ELSEWHERE.items():
        for answer in answers.split(" | "):
            if own >= {*re.findall(r"--\w+", answer)}:
                meant.setdefault(other, answer)
    key = name.lower()
    answer = meant.get(key) or hints.get(key) or meant.get(nearest(key, meant), "")
    if answer and not answer.startswith("--"):
        return f"--{name} {answer}"
    advice = f"it is called {answer} here" if key in ELSEWHERE else f"did you mean {answer}?"
    return f"unknown option --{brief(name)}: " + (f"{advice} ({lists})" if answer else lists)


def _from_words(kind: Any, words: list[str]) -> Any:
    """The words of a value converted to a field's type; a word that cannot be converted stays text."""
    text, base = words[0], base_type(kind)
    if may_be_none(kind) and len(words) == 1 and text.lower() == "none":
        return None
    if base is list:
        return words
    if base is bool:
        return TRUTH.get(text.lower(), text)
    with suppress(ValueError):
        return base(text)
    with suppress(decimal.InvalidOperation):  # a whole number written like 1e3 or 12.0; float would round it
        number = decimal.Decimal(text)
        # 1e1000000 is a mistake, and would fill the memory.
        if base is int and number.is_finite() and number.adjusted() <= 300 and number == int(number):
            return int(number)
    return text


# --- help -----------------------------------------------------------------------------------------------------


def help_page(
    cls: type,
    prog: str,
    positional: str | None = None,
    *,
    description: str = "",
    examples: Mapping[str, str] = {},
    about_positional: str = "",
    common: Sequence[str] = (),
    epilog: str = "",
    defaults: Mapping[str, Any] = {},
    whole: bool = True,
) -> str:
    """The text of --help: every option with its type or choices, meaning, unit and default, under its heading.

    Args:
        cls, prog, positional: as for `parse_command_line`.
        description, epilog: the texts above and below the options.
        examples: commands and their explanations.
        about_positional: the meaning of the positional arguments.
        common: the most used options, which come first.
        defaults: those that differ from the dataclass's, such as a preset's.
        whole: whether all of it is asked for; else a text of more than FIRST_PAGE lines is cut to the examples and the
            most used options.
    """
    width = max(40, min(shutil.get_terminal_size().columns, 110))
    fields, kinds = fields_of(cls)
    usage = f"usage: {prog}" + (f" [{positional}]" if positional else "") + " [--name value | --name=value ...]"
    first = [(positional, about_positional)] if positional and about_positional else []
    groups = {"examples": [*examples.items()], "most used": first}
    shown = values_of(cls()) | {**defaults}
    for name in dict.fromkeys((*common, *fields)):  # the most used ones come first
        if field := fields.get(name):
            group = "most used" if name in common else field.metadata["group"] or "options"
            entry = (f"--{name} {_placeholder(field, kinds[name])}", _explained(field, shown[name]))
            groups.setdefault(group, []).append(entry)
    head, version = [usage, "", *textwrap.wrap(description, width)], ("--version", "show the version")
    groups["about"] = [("-h, --help", "show this page"), version]
    page = _laid_out(head, groups, epilog, width)
    if len(page) > FIRST_PAGE and whole:
        groups["about"] = [("-h, --help", "show the most used options"), version]
        page = _laid_out(head, groups, epilog, width)
    elif len(page) > FIRST_PAGE:
        groups = {name: groups[name] for name in ("examples", "most used")}
        page = _laid_out(head, groups | {"about": [version, ("--help all", "every option")]}, "", width)
    return "\n".join(page).replace("\xa0", " ")


def _laid_out(head: Sequence[str], groups: Mapping[str, Sequence[tuple[str, str]]], end: str, width: int) -> list[str]:
    """The lines of a page of help: its head, each heading that has entries, with the entries, and its end."""
    lines = [*head]
    for heading, entries in groups.items():
        lines += ["", f"{heading}:"] if entries else []
        for left, right in entries:
            lines += _help_entry(left, right, width)
    if end:
        lines.append("")
    for line in end.splitlines():
        column = re.match(r" *(\S+ {2,})?", line).end()  # in a list, the second column stays aligned
        lines += textwrap.wrap(line, width, subsequent_indent=" " * column, break_on_hyphens=False) or [""]
    return lines


def _help_entry(left: str, right: str, width: int) -> list[str]:
    """An option on the left and its explanation on the right, wrapped; below it if the terminal is narrow."""
    indent = 37 if width >= 80 else 8
    wrapped = textwrap.wrap(right, width - indent, break_on_hyphens=False)
    if width >= 80 and len(left) <= indent - 4:
        return [f"  {left:<{indent - 2}}{wrapped[0]}", *(" " * indent + line for line in wrapped[1:])]
    return [f"  {left}", *(" " * indent + line for line in wrapped)]


def _placeholder(field: dataclasses.Field, kind: Any) -> str:
    """The choices, or a placeholder for a value of this type."""
    if field.metadata["choices"]:
        return "{" + ",".join(field.metadata["choices"]) + "}"
    text = "PATH" if field.metadata["is_path"] else "TEXT"
    names = {int: "INT", float: "FLOAT", str: text, bool: "[true|false]", list: f"{text} ..."}
    return names[base_type(kind)] + ("|none" if may_be_none(kind) else "")


def _explained(field: dataclasses.Field, default: Any) -> str:
    """The meaning, with unit and default. The meaning of an empty default is in the help text.

    The space between "default" and its value is U+00A0, so that no line breaks there.
    """
    shown = str(default).lower() if default is None or isinstance(default, bool) else brief(default)
    known = f"default\xa0{shown}" if default not in ("", []) else ""
    facts = ", ".join(fact for fact in (field.metadata["unit"], known) if fact)
    return field.metadata["help"] + (f" ({facts})" if facts else "")
