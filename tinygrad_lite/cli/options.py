"""Options: one dataclass becomes a command line, a --help page, and the checks of both and of preset files.

A script declares its options as the fields of a dataclass, each made by `option()` with a default, an explanation,
and a unit and a range where there are any. The values come from three sources, of which the later win:

    the defaults in the dataclass  <  a preset, which is a TOML file  <  the command line

That works because `parse_command_line` and `read_preset` return only what was really said; `build` puts the layers
on top of each other and checks every value, whichever way it came.

>>> @dataclasses.dataclass
... class Recipe:
...     eggs: int = option(2, "how many eggs", unit="eggs", low=0)
...     sugar: float = option(0.1, "how much sugar", unit="kg", above=0.0)
>>> given = parse_command_line(Recipe, ["--eggs", "3"], prog="bake", description="Bake a cake.").values
>>> given
{'eggs': 3}
>>> build(Recipe, ("preset sweet", {"sugar": 0.2}), ("command line", given))
Recipe(eggs=3, sugar=0.2)
>>> build(Recipe, ("preset odd", {"eggs": -1}))
Traceback (most recent call last):
tinygrad_lite.cli.errors.OptionError: --eggs -1 (preset odd): must be at least 0 (eggs)
"""

from __future__ import annotations

import codecs
import dataclasses
import decimal
import difflib
import math
import operator
import re
import shutil
import sys
import textwrap
import tomllib
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import tinygrad_lite
from tinygrad_lite.cli.errors import OptionError

TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
BOUNDS = {"at least": operator.ge, "above": operator.gt, "at most": operator.le, "below": operator.lt}
MAX_INT = 10**1000  # what has more digits is a mistake, and from 4,300 on Python refuses to print it
MAX_PRESET = 2**14  # bytes; the largest here has 600, and the time for a dotted key grows with its length squared
OPTION = re.compile(r"--[^\W\d]")  # not "-1", which is a number, and not "-- Goethe", which may be a prompt


def option(
    default: Any,
    help: str,
    *,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: Sequence[str] | None = None,
    is_path: bool = False,
    group: str = "",
    hidden: bool = False,
) -> Any:
    """A dataclass field with all that the command line, --help and the checks need to know.

    The field's type can be int, float, bool, str, list[str], or one of them `| None`, which is written none.

    Args:
        default: the value if nothing else is said.
        help: what it means, in a few words.
        unit: what is counted or measured.
        low, high: smallest and largest value allowed.
        above, below: bounds that are themselves not allowed.
        choices: the strings allowed.
        is_path: whether the value is a file or folder, or a list of them.
        group: the heading under which --help shows it.
        hidden: leave it out of --help.
    """
    bounds = {"at least": low, "above": above, "at most": high, "below": below}
    facts = {"help": help, "unit": unit, "bounds": bounds, "choices": choices, "group": group, "hidden": hidden}
    facts["is_path"] = is_path
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=facts)
    return dataclasses.field(default=default, metadata=facts)


@dataclasses.dataclass
class Parsed:
    """What a command line says: only the options that were given, the positional arguments, notes for the user."""

    values: dict[str, Any]
    positionals: list[str]
    notes: list[str]

    @property
    def positional(self) -> str | None:
        """The one positional argument, where there may be only one."""
        return self.positionals[0] if self.positionals else None


# --- the command line -----------------------------------------------------------------------------------------


class Part(NamedTuple):
    """A part of a command line: an option with the words of its value, or a word that stands alone.

    Attributes:
        name: the option's, with _ for -; empty for a word that stands alone.
        words: the words of its value; none if it has none.
        text: all of it, as it was typed.
    """

    name: str
    words: list[str]
    text: str


def split_command_line(argv: Sequence[str], *classes: type) -> list[Part]:
    """Cut a command line into options with their values and words that stand alone. Nothing is checked yet.

    How many words an option takes is a matter of its type: a truth value takes the next word only if it is one such
    as `true`, a list takes all words up to the next option, all other types (and unknown options) take one word.

    Args:
        classes: dataclasses of options, in which the types are found.

    >>> @dataclasses.dataclass
    ... class Recipe:
    ...     vegan: bool = option(False, "without animals")
    ...     dish: str = option("cake", "what to make")
    >>> [(part.name, part.words) for part in split_command_line(["--vegan", "soup", "--dish", "pie"], Recipe)]
    [('vegan', []), ('', ['soup']), ('dish', ['pie'])]
    """
    kinds: dict[str, type] = {"help": bool, "version": bool}
    for cls in classes:
        kinds |= {name: _base(kind) for name, kind in _fields(cls)[1].items()}
    parts, rest = [], list(argv)
    while rest:
        first = rest.pop(0)
        if not OPTION.match(first):
            parts.append(Part("", [first], first))
            continue
        name, equals, value = first[2:].partition("=")
        name = name.replace("-", "_")
        count = 0 if equals else _count_words(kinds.get(name), rest)
        words, rest = rest[:count], rest[count:]
        parts.append(Part(name, [value] if equals else words, " ".join([first, *words])))
    return parts


def _count_words(base: type | None, rest: Sequence[str]) -> int:
    """How many of the words that follow an option of this type are its value."""
    if base is bool:
        return int(bool(rest) and rest[0].lower() in TRUTH)
    end = next((i for i, word in enumerate(rest) if OPTION.match(word)), len(rest))
    return end if base is list else min(end, 1)


def parse_command_line(
    cls: type,
    argv: Sequence[str],
    *,
    prog: str,
    description: str,
    examples: Mapping[str, str] | None = None,
    epilog: str = "",
    positional: str | None = None,
    about_positional: str = "",
    several: bool = False,
    common: Sequence[str] = (),
    ignored: Mapping[str, str] | None = None,
    hints: Mapping[str, str] | None = None,
) -> Parsed:
    """Read `--name value` and `--name=value`; a truth value also as `--name` alone, a list as several values.

    Names are never abbreviated; in them, - and _ are the same. Of an option given twice the last value counts.

    Args:
        cls: the dataclass of options.
        argv: the arguments, without the program's name.
        prog, description, epilog: for --help, which prints the page and exits with status 0, as --version does.
        examples: commands with what they do, for --help.
        positional, about_positional: what the one argument without a name is called, if there may be one, and what
            it is, for --help.
        several: whether there may be more of them.
        common: the options that --help shows first.
        ignored: options of other programs that are taken without effect, each with the reason for its note.
        hints: what to say about options that there are not, see `answers`.
    Raises: OptionError with one sentence, for whatever is wrong.
    """
    ignored, hints = ignored or {}, hints or {}
    fields, kinds = _fields(cls)
    parsed, parts = Parsed({}, [], []), split_command_line(argv, cls)
    for number, (name, words, text) in enumerate(parts):
        if name == "help" or text == "-h":
            first = (positional, about_positional) if positional else None
            _print_and_exit(help_page(cls, prog, description, examples or {}, first, common, epilog))
        elif name == "version":
            _print_and_exit(f"{prog} of tinygrad_lite {tinygrad_lite.__version__}")
        elif name in fields:
            field, kind = fields[name], kinds[name]
            if not words and _base(kind) is not bool:
                # Only a text can begin with --, and only if something follows was it perhaps meant as the value.
                is_text = number + 1 < len(parts) and _base(kind) in (str, list)
                hint = f" (one that begins with -- is written --{name}=...)" if is_text else ""
                raise OptionError(f"--{name} needs a value: {allowed(field, kind)}{hint}")
            meant = _from_words(kind, words or ["true"])
            parsed.values[name] = check(field, kind, meant, f"--{name} {_shown(' '.join(words))}")
        elif name in ignored:
            parsed.notes.append(f"{_shown(text)} does nothing here: {ignored[name]}")
        elif name:
            raise OptionError(_unknown(name, fields, hints, prog))
        elif (positional and (several or not parsed.positionals)) and text and not text.startswith("-"):
            parsed.positionals.append(text)
        else:
            hint = f"options are written --name value ({prog} --help lists all)"
            raise OptionError(f"unexpected argument {text!r}: {hint}")
    return parsed


def _print_and_exit(text: str) -> NoReturn:
    """Print for a user who asked for it; a terminal may lack a letter of it."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "replace").decode(encoding), flush=True)
    sys.exit(0)


def _unknown(name: str, names: Iterable[str], hints: Mapping[str, str], prog: str) -> str:
    """What to say about an option that is not there."""
    hint, near = hints.get(name.lower(), ""), _nearest(name, names)
    advice = f"{prog} --help lists all"
    if hint.startswith("--"):
        advice = f"it is called {hint} here ({advice})"
    elif hint:
        return f"--{name} {hint}"
    elif near:
        advice = f"did you mean --{near}? ({advice})"
    return f"unknown option --{_shown(name)}: {advice}"


def answers(table: Mapping[str, str]) -> dict[str, str]:
    """What to say to each option that other programs have, of a table from what to say to such names.

    An answer is an option, such as `--learning_rate`, or the rest of a sentence that begins with the name.

    >>> answers({"--eggs": "ei eier", "is not for eating": "stone"})
    {'ei': '--eggs', 'eier': '--eggs', 'stone': 'is not for eating'}
    """
    return {name: answer for answer, names in table.items() for name in names.split()}


def _from_words(kind: Any, words: list[str]) -> Any:
    """What words of a command line mean in a field of this type; what means nothing there stays text."""
    text, base = words[0], _base(kind)
    if _may_be_none(kind) and len(words) == 1 and text.lower() == "none":
        return None
    if base is list:
        return words
    if base is bool:
        return TRUTH.get(text.lower(), text)
    try:
        return base(text)
    except ValueError:
        return _from_decimal(text) if base is int else text


def _from_decimal(text: str) -> int | str:
    """The whole number that is written like 1e3 or 12.0, without a detour over float, which would round it."""
    try:
        number = decimal.Decimal(text)
    except decimal.InvalidOperation:
        return text
    if not number.is_finite() or number.adjusted() > 300:  # nobody means 1e1000000, and it would fill the memory
        return text
    return int(number) if number == int(number) else text


# --- values ---------------------------------------------------------------------------------------------------


def build(cls: type, *layers: tuple[str, Mapping[str, Any]]) -> Any:
    """An instance of the dataclass from its defaults and layers of values, the later ones winning.

    Args:
        layers: pairs of where the values are from (for messages) and the values by name.
    Raises: OptionError that names the option and where its value is from.
    """
    fields, kinds = _fields(cls)
    values: dict[str, Any] = {}
    for where, layer in layers:
        for name, value in layer.items():
            if name not in fields:
                near = _nearest(name, fields)
                hint = f": did you mean {near}?" if near else ""
                raise OptionError(f"unknown option {_shown(name)} ({where}){hint}")
            label = f"--{name} {_quoted(value)} ({where})"  # with its quotes, as "5" in a file is not 5
            values[name] = check(fields[name], kinds[name], value, label)
    return cls(**values)


def check(field: dataclasses.Field, kind: Any, value: Any, label: str) -> Any:
    """A value in its field's type, checked. A whole number will do for a float, and 3.0 for an int; text will not.

    Args:
        kind: the field's type.
        value: as TOML, JSON or `_from_words` gives it. TOML has no null, so "none" is None where that is allowed.
        label: how a message names the value.
    Raises: OptionError that says what is allowed.
    """
    if _may_be_none(kind) and value in (None, "none"):
        return None
    base = _base(kind)
    if base is float and type(value) is int and abs(value) <= sys.float_info.max:
        value = float(value)
    elif base is int and type(value) is float and value.is_integer():
        value = int(value)
    # Not isinstance: to Python, True is an int.
    right = type(value) is base and not (base is float and not math.isfinite(value))
    if base is int and right:
        right = abs(value) <= MAX_INT
    if base is list:
        right = right and all(type(item) is str for item in value)
    if base in (str, list) and right:
        right = "\0" not in "".join(value)  # which a file can say, a command line not, and no path may hold
    if not right:
        raise OptionError(f"{label}: must be {allowed(field, kind)}")
    if not _in_range(field, value):
        raise OptionError(f"{label}: must be {_range(field)}{_tail(field, kind)}")
    return list(value) if base is list else value


def _in_range(field: dataclasses.Field, value: Any) -> bool:
    """Whether a value of the right type obeys its field's bounds and choices."""
    if (choices := field.metadata["choices"]) and value not in choices:
        return False
    return all(limit is None or BOUNDS[words](value, limit) for words, limit in field.metadata["bounds"].items())


def allowed(field: dataclasses.Field, kind: Any) -> str:
    """What a field takes, in words.

    >>> allowed(option(0.1, "", above=0.0, high=1.0, unit="m"), float)
    'a finite number, above 0 and at most 1 (m)'
    """
    text = "path" if field.metadata["is_path"] else "text"
    names = {int: "a whole number", float: "a finite number", bool: "true or false", list: f"a list of {text}s"}
    parts = ["" if field.metadata["choices"] else names.get(_base(kind), f"a {text}"), _range(field)]
    return ", ".join(part for part in parts if part) + _tail(field, kind)


def _range(field: dataclasses.Field) -> str:
    """The bounds or choices in words; empty if there are none."""
    if field.metadata["choices"]:
        return "one of " + ", ".join(field.metadata["choices"])
    bounds = field.metadata["bounds"].items()
    return " and ".join(f"{words} {limit:.15g}" for words, limit in bounds if limit is not None)


def _tail(field: dataclasses.Field, kind: Any) -> str:
    """What follows after the range in a message: whether none is allowed too, and the unit."""
    return (", or none" if _may_be_none(kind) else "") + (f" ({unit})" if (unit := field.metadata["unit"]) else "")


def _fields(cls: type) -> tuple[dict[str, dataclasses.Field], dict[str, Any]]:
    """The fields of the dataclass by name, and their types by name."""
    return {field.name: field for field in dataclasses.fields(cls)}, typing.get_type_hints(cls)


def _may_be_none(kind: Any) -> bool:
    return type(None) in typing.get_args(kind)


def _base(kind: Any) -> type:
    """The type without its `| None`, and list for list[str]."""
    if _may_be_none(kind):
        kind = next(part for part in typing.get_args(kind) if part is not type(None))
    return list if kind == list[str] else kind


def _shown(value: Any) -> str:
    """A value for a message: on one line, and cut short if it is long.

    >>> print(_shown("cpu"), _shown(""), _shown(["a\\nb"]))
    cpu '' ['a\\nb']
    """
    return _cut(value) if isinstance(value, str) and value and value.isprintable() else _quoted(value)


def _quoted(value: Any) -> str:
    """A value of whatever type for a message, as Python writes it."""
    try:
        return _cut(repr(value))
    except (ValueError, RecursionError):  # a number of 5,000 digits; lists within lists within lists
        return "..."


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that a mistyped or shortened one was probably meant to be."""
    name, names = name.lower(), list(names)
    longer = [other for other in names if len(name) > 1 and other.startswith(name)]
    return next(iter(longer or difflib.get_close_matches(name, names, n=1)), None)


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What changed between two sets of values, a line each.

    >>> difference({"learning_rate": 0.001, "seed": 2}, {"learning_rate": 0.0005, "seed": 2})
    ['learning_rate: 0.001 -> 0.0005']
    """
    lines = []
    for name in sorted(old.keys() | new.keys()):
        before, after = (_shown(values[name]) if name in values else "not set" for values in (old, new))
        if name not in old or name not in new or old[name] != new[name]:
            lines.append(f"{name}: {before} -> {after}")
    return lines


# --- presets --------------------------------------------------------------------------------------------------


def list_presets(folder: Path) -> dict[str, str]:
    """The presets of a folder by name, each described by the first line of its file that is a comment."""
    described = {}
    for path in sorted(path for path in folder.glob("*.toml") if path.is_file()):
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            comments = (line.lstrip("# ").rstrip() for line in file if line.startswith("#"))
            described[path.stem] = next(comments, "")
    return described


def find_preset(folder: Path, name: str) -> Path:
    """The file of a preset.

    Raises: OptionError that suggests the nearest name and lists all.
    """
    names = sorted(path.stem for path in folder.glob("*.toml"))
    if name not in names:
        near = _nearest(name, names)
        there_are = f"there are {', '.join(names)}" if names else f"there are none in {folder}"
        hint = f"did you mean {near}? ({there_are})" if near else there_are
        raise OptionError(f"no preset {_shown(name)}: {hint}")
    return folder / f"{name}.toml"


def read_preset(path: Path) -> dict[str, Any]:
    """The values in a TOML file, not yet checked.

    Raises: OptionError with the file and the line.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_PRESET + 1)
        if len(data) > MAX_PRESET:
            raise OptionError(
                f"the preset {path} has more than {MAX_PRESET:,} bytes, but it should be a page of settings"
            )
        return tomllib.loads(data.removeprefix(codecs.BOM_UTF8).decode("utf-8"))
    except OSError as error:
        raise OptionError(f"cannot read the preset {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        wrong = f"byte 0x{error.object[error.start]:02x} at line {line}"
        raise OptionError(f"the preset {path} is not UTF-8 text ({wrong}): save it as UTF-8") from None
    except (ValueError, RecursionError) as error:  # a TOMLDecodeError is a ValueError and says the line
        raise OptionError(f"the preset {path} is not valid TOML: {error}") from None


# --- help -----------------------------------------------------------------------------------------------------


def help_page(
    cls: type,
    prog: str,
    description: str,
    examples: Mapping[str, str],
    positional: tuple[str, str] | None,
    common: Sequence[str],
    epilog: str,
) -> str:
    """The text of --help: every option with its type or choices, meaning, unit and default, under its heading."""
    width = max(40, min(shutil.get_terminal_size().columns, 110))
    fields, kinds = _fields(cls)
    common = [name for name in common if name in fields]
    usage = f"usage: {prog}" + (f" [{positional[0]}]" if positional else "") + " [--name value | --name=value ...]"
    groups = {"examples": [*examples.items()], "most used": [positional] if positional and positional[1] else []}
    for name in [*common, *(name for name in fields if name not in common)]:
        field = fields[name]
        if not field.metadata["hidden"]:
            group = "most used" if name in common else field.metadata["group"] or "options"
            entry = (f"--{name} {_placeholder(field, kinds[name])}", _explained(field))
            groups.setdefault(group, []).append(entry)
    groups["about"] = [("-h, --help", "show this page"), ("--version", "show the version")]
    lines = [usage, "", *textwrap.wrap(description, width)]
    for heading, entries in groups.items():
        lines += ["", f"{heading}:"] if entries else []
        for left, right in entries:
            lines += _help_entry(left, right, width)
    if epilog:
        lines.append("")
    for line in epilog.splitlines():
        column = re.match(r" *(\S+ {2,})?", line).end()  # of a list, the second column stays one
        lines += textwrap.wrap(line, width, subsequent_indent=" " * column, break_on_hyphens=False) or [""]
    return "\n".join(lines)


def _help_entry(left: str, right: str, width: int) -> list[str]:
    """An option on the left and its explanation, wrapped, on the right; on a narrow terminal below it."""
    indent = 37 if width >= 80 else 8
    lines = textwrap.wrap(right, width - indent, break_on_hyphens=False)
    wrapped = [line.replace("\xa0", " ") for line in lines]
    if width >= 80 and len(left) <= indent - 4:
        return [f"  {left:<{indent - 2}}{wrapped[0]}", *(" " * indent + line for line in wrapped[1:])]
    return [f"  {left}", *(" " * indent + line for line in wrapped)]


def _placeholder(field: dataclasses.Field, kind: Any) -> str:
    """The choices, or what stands for a value of this type."""
    if field.metadata["choices"]:
        return "{" + ",".join(field.metadata["choices"]) + "}"
    text = "PATH" if field.metadata["is_path"] else "TEXT"
    names = {int: "INT", float: "FLOAT", str: text, bool: "[true|false]", list: f"{text} ..."}
    return names[_base(kind)] + ("|none" if _may_be_none(kind) else "")


def _explained(field: dataclasses.Field) -> str:
    """The meaning, with unit and default. An empty default means something special, which the help text says.

    The space between "default" and its value is U+00A0, so that no line is broken there.
    """
    default = field.default_factory() if field.default is dataclasses.MISSING else field.default
    shown = str(default).lower() if default is None or isinstance(default, bool) else _shown(default)
    known = f"default\xa0{shown}" if default not in ("", []) else ""
    facts = ", ".join(fact for fact in (field.metadata["unit"], known) if fact)
    return field.metadata["help"] + (f" ({facts})" if facts else "")
