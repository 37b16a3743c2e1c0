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
tinygrad_lite.errors.OptionError: --eggs -1 (preset odd): must be at least 0 (eggs)
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
from typing import Any

from tinygrad_lite.errors import OptionError

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
        group: the heading under which --help shows it.
        hidden: leave it out of --help.
    """
    bounds = {"at least": low, "above": above, "at most": high, "below": below}
    facts = {"help": help, "unit": unit, "bounds": bounds, "choices": choices, "group": group, "hidden": hidden}
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


def parse_command_line(
    cls: type,
    argv: Sequence[str],
    *,
    prog: str,
    description: str,
    epilog: str = "",
    positional: str | None = None,
    several: bool = False,
    aliases: Mapping[str, Sequence[str]] | None = None,
    ignored: Mapping[str, str] | None = None,
) -> Parsed:
    """Read `--name value` and `--name=value`; a truth value also as `--name` alone, a list as several values.

    Names are never abbreviated; in them, - and _ are the same. Of an option given twice the last value counts.

    Args:
        cls: the dataclass of options.
        argv: the arguments, without the program's name.
        prog, description, epilog: for --help, which prints the page and exits with status 0.
        positional: what the one argument without a name is called, if there may be one.
        several: whether there may be more of them.
        aliases: options that stand for others, such as resume: --init_from resume.
        ignored: options of other programs that are taken without effect, each with the reason for its note.
    Raises: OptionError with one sentence, for whatever is wrong.
    """
    aliases, ignored = aliases or {}, ignored or {}
    fields, kinds = _fields(cls)
    parsed = Parsed({}, [], [])
    todo = list(argv)
    while todo:
        word = todo.pop(0)
        if word in ("-h", "--help"):
            page = help_page(cls, prog, description, epilog, positional, aliases)
            encoding = sys.stdout.encoding or "utf-8"  # a terminal may lack a letter of a preset's description
            print(page.encode(encoding, "replace").decode(encoding), flush=True)
            sys.exit(0)
        if not OPTION.match(word):
            room = positional is not None and (several or not parsed.positionals)
            if not room or not word or word.startswith("-"):
                hint = f"options are written --name value ({prog} --help lists all)"
                raise OptionError(f"unexpected argument {word!r}: {hint}")
            parsed.positionals.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        name = name.replace("-", "_")
        if name in fields:
            words = [value] if equals else _take_words(fields[name], kinds[name], todo)
            meant = _from_words(kinds[name], words)
            parsed.values[name] = check(fields[name], kinds[name], meant, f"--{name} {_shown(' '.join(words))}")
        elif name in aliases:
            raw = value if equals else _take_truth(todo)
            if raw.lower() not in TRUTH:
                raise OptionError(f"--{name} {_shown(raw)}: must be true or false")
            todo[:0] = aliases[name] if TRUTH[raw.lower()] else []
        elif name in ignored:
            if not equals and todo and not OPTION.match(todo[0]):
                word += f" {todo.pop(0)}"
            parsed.notes.append(f"{_shown(word)} does nothing here: {ignored[name]}")
        else:
            near = _nearest(name, [*fields, *aliases])
            hint = f"did you mean --{near}? ({prog} --help lists all)" if near else f"{prog} --help lists all"
            raise OptionError(f"unknown option --{_shown(name)}: {hint}")
    return parsed


def _take_words(field: dataclasses.Field, kind: Any, todo: list[str]) -> list[str]:
    """The words that follow an option and are its value, taken off the list."""
    base = _base(kind)
    if base is bool:
        return [_take_truth(todo)]
    end = next((i for i, word in enumerate(todo) if OPTION.match(word)), len(todo))
    if base is not list:
        end = min(end, 1)
    words, todo[:end] = todo[:end], []
    if not words:
        hint = f" (one that begins with -- is written --{field.name}=...)" if todo and base in (str, list) else ""
        raise OptionError(f"--{field.name} needs a value: {allowed(field, kind)}{hint}")
    return words


def _take_truth(todo: list[str]) -> str:
    """The next word if it is a truth value; otherwise "true", since the option stands alone."""
    return todo.pop(0) if todo and todo[0].lower() in TRUTH else "true"


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
    names = {int: "a whole number", float: "a finite number", bool: "true or false", list: "a list of texts"}
    parts = ["" if field.metadata["choices"] else names.get(_base(kind), "a text"), _range(field)]
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
    """The name that a mistyped one was probably meant to be."""
    return next(iter(difflib.get_close_matches(name.lower(), list(names), n=1, cutoff=0.5)), None)


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
    cls: type, prog: str, description: str, epilog: str, positional: str | None, aliases: Mapping[str, Sequence[str]]
) -> str:
    """The text of --help: every option with its type or choices, meaning, unit and default, under its heading."""
    width = max(40, min(shutil.get_terminal_size().columns, 110))
    fields, kinds = _fields(cls)
    groups: dict[str, list[tuple[str, str]]] = {}
    for name, field in fields.items():
        if not field.metadata["hidden"]:
            entry = (f"--{name} {_placeholder(field, kinds[name])}", _explained(field))
            groups.setdefault(field.metadata["group"] or "options", []).append(entry)
    short = [(f"--{name}", " ".join(words)) for name, words in aliases.items()]
    groups["short forms"] = [*short, ("-h", "--help, which shows this page")]
    usage = f"usage: {prog}" + (f" [{positional}]" if positional else "") + " [--name value | --name=value ...]"
    lines = [usage, "", *textwrap.wrap(description, width)]
    for heading, entries in groups.items():
        lines += ["", f"{heading}:"]
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
    names = {int: "INT", float: "FLOAT", str: "TEXT", bool: "[true|false]", list: "TEXT ..."}
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
