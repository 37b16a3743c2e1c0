"""Options: one dataclass becomes a command line, a --help page, and the checks of both and of preset files.

A script declares its options as the fields of a dataclass, each made by `option()` with a default, an explanation,
and a unit and a range where there are any. The values come in layers, of which the later win:

    the defaults of the dataclass  <  a preset, a TOML file  <  the command line

>>> @dataclasses.dataclass
... class Recipe:
...     eggs: int = option(2, "how many eggs", unit="eggs", low=0)
...     sugar: float = option(0.1, "how much sugar", unit="kg", above=0.0)
>>> given = parse_command_line(Recipe, ["--eggs", "3"], prog="bake", description="Bake a cake.").values
>>> build(Recipe, ("preset sweet", {"sugar": 0.2}), ("command line", given))
Recipe(eggs=3, sugar=0.2)
>>> build(Recipe, ("preset odd", {"eggs": -1}))
Traceback (most recent call last):
tinygrad_lite.errors.OptionError: --eggs -1 (preset odd): must be a whole number, at least 0 (eggs)
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import shutil
import sys
import textwrap
import tomllib
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tinygrad_lite.errors import OptionError

COMMAND_LINE = "command line"
TRUE, FALSE = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}


def option(
    default: Any,
    help: str,
    *,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: Sequence[str] = (),
    group: str = "",
) -> Any:
    """A dataclass field with all that the command line, --help and the checks need to know.

    Args:
        default: the value if nothing else is said.
        help: what it means, in a few words.
        unit: what is counted or measured.
        low, high: smallest and largest value allowed.
        above, below: bounds that are themselves not allowed.
        choices: the strings allowed.
        group: the heading under which --help shows it.
    """
    facts = {"help": help, "unit": unit, "choices": choices, "group": group}
    facts["bounds"] = {"low": low, "high": high, "above": above, "below": below}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=facts)
    return dataclasses.field(default=default, metadata=facts)


@dataclasses.dataclass
class Parsed:
    """What a command line says: only the options that were given, the positional argument, notes for the user."""

    values: dict[str, Any]
    positional: str | None
    notes: list[str]


# --- the command line -----------------------------------------------------------------------------------------


def parse_command_line(
    cls: type,
    argv: Sequence[str],
    *,
    prog: str,
    description: str,
    epilog: str = "",
    positional: str | None = None,
    aliases: Mapping[str, Sequence[str]] | None = None,
    ignored: Mapping[str, str] | None = None,
) -> Parsed:
    """Read `--name value`, `--name=value`, and for truth values also `--name` alone; dashes in names may be `-`.

    Args:
        cls: the dataclass of options.
        argv: the arguments, without the program's name.
        prog, description, epilog: for --help, which prints the page and exits with 0.
        positional: the name of the one argument without a name, if there is one.
        aliases: an option that stands for others, such as resume: --init_from resume.
        ignored: options of other programs that are taken without effect, each with the reason.
    Raises: OptionError with one sentence, for whatever is wrong.
    """
    aliases, ignored = aliases or {}, ignored or {}
    fields = {field.name: field for field in dataclasses.fields(cls)}
    kinds = typing.get_type_hints(cls)
    parsed = Parsed({}, None, [])
    todo = list(argv)
    while todo:
        word = todo.pop(0)
        if word in ("-h", "--help"):
            print(help_page(cls, prog, description, epilog, positional, aliases))
            sys.exit(0)
        if not word.startswith("--"):
            if positional is None or parsed.positional is not None or word.startswith("-"):
                raise OptionError(f"unexpected argument {word!r}: options are written --name value ({prog} --help)")
            parsed.positional = word
            continue
        name, equals, value = word[2:].partition("=")
        name = name.replace("-", "_")
        if name in aliases:
            if equals and value.lower() in FALSE:
                continue
            todo[:0] = aliases[name]
        elif name in ignored:
            parsed.notes.append(f"--{name} has no effect: {ignored[name]}")
            if not equals and todo and not todo[0].startswith("--"):
                todo.pop(0)
        elif name in fields:
            raw = value if equals else _take_value(name, kinds[name], todo)
            parsed.values[name] = convert(fields[name], kinds[name], raw, COMMAND_LINE)
        else:
            near = difflib.get_close_matches(name, [*fields, *aliases], n=1, cutoff=0.5)
            hint = f"did you mean --{near[0]}? ({prog} --help lists all)" if near else f"{prog} --help lists all"
            raise OptionError(f"unknown option --{name}: {hint}")
    return parsed


def _take_value(name: str, kind: Any, todo: list[str]) -> Any:
    """The value that follows an option, taken off the list of words."""
    if kind is bool:
        return todo.pop(0) if todo and todo[0].lower() in TRUE | FALSE else "true"
    if kind == list[str]:
        end = next((i for i, word in enumerate(todo) if word.startswith("--")), len(todo))
        values, todo[:end] = todo[:end], []
        if values:
            return values
    elif todo and not todo[0].startswith("--"):
        return todo.pop(0)
    raise OptionError(f"--{name} needs a value" + (f"; one that starts with --: --{name}={todo[0]}" if todo else ""))


# --- values ---------------------------------------------------------------------------------------------------


def build(cls: type, *layers: tuple[str, Mapping[str, Any]]) -> Any:
    """An instance of the dataclass from its defaults and layers of values, the later ones winning.

    Args:
        layers: pairs of where the values are from (for messages) and the values by name.
    Raises: OptionError that names the option and where its value is from.
    """
    fields = {field.name: field for field in dataclasses.fields(cls)}
    kinds = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for where, layer in layers:
        for name, value in layer.items():
            if name not in fields:
                near = difflib.get_close_matches(str(name), fields, n=1, cutoff=0.5)
                hint = f": did you mean {near[0]}?" if near else ""
                raise OptionError(f"unknown option {name} ({where}){hint}")
            values[name] = convert(fields[name], kinds[name], value, where)
    return cls(**values)


def convert(field: dataclasses.Field, kind: Any, raw: Any, where: str) -> Any:
    """A value in its field's type, checked; `raw` is text from a command line or a value from TOML or JSON.

    Raises: OptionError that says what is allowed.
    """
    may_be_none = type(None) in typing.get_args(kind)
    if may_be_none:
        if raw is None or (isinstance(raw, str) and raw.lower() == "none"):
            return None
        kind = next(part for part in typing.get_args(kind) if part is not type(None))
    value = _as_kind(kind, raw)
    if value is None or not _in_range(field, value):
        place = "" if where == COMMAND_LINE else f" ({where})"
        none = ", or none" if may_be_none else ""
        raise OptionError(f"--{field.name} {_shown(raw)}{place}: must be {allowed(field, kind)}{none}")
    return value


def _as_kind(kind: Any, raw: Any) -> Any:
    """The value in its type, or None if it cannot be had without changing it."""
    if kind is bool:
        if isinstance(raw, str):
            return True if raw.lower() in TRUE else False if raw.lower() in FALSE else None
        return raw if isinstance(raw, bool) else None
    if kind in (int, float):
        try:
            number = kind(raw) if isinstance(raw, str) else raw
        except ValueError:
            try:
                number = float(raw)  # 1e3 is a whole number too
            except ValueError:
                return None
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            return None
        if not math.isfinite(number) or (kind is int and number != int(number)):
            return None
        try:
            return kind(number)
        except OverflowError:
            return None
    if kind == list[str]:
        values = [raw] if isinstance(raw, str) else raw
        return list(values) if isinstance(values, list) and all(isinstance(v, str) for v in values) else None
    return raw if isinstance(raw, str) else None


def _in_range(field: dataclasses.Field, value: Any) -> bool:
    """Whether a value obeys the field's bounds and choices."""
    choices, bounds = field.metadata["choices"], field.metadata["bounds"]
    if choices and value not in choices:
        return False
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return True
    return (
        (bounds["low"] is None or value >= bounds["low"])
        and (bounds["high"] is None or value <= bounds["high"])
        and (bounds["above"] is None or value > bounds["above"])
        and (bounds["below"] is None or value < bounds["below"])
    )


def allowed(field: dataclasses.Field, kind: Any) -> str:
    """What a field takes, in words.

    >>> allowed(option(0.1, "", above=0.0, high=1.0, unit="m"), float)
    'a number, above 0 and at most 1 (m)'
    """
    if field.metadata["choices"]:
        return "one of " + ", ".join(field.metadata["choices"])
    words = {"low": "at least", "high": "at most", "above": "above", "below": "below"}
    bounds = [f"{words[name]} {limit:,g}" for name, limit in field.metadata["bounds"].items() if limit is not None]
    bounds.sort(key=lambda text: text.startswith(("at most", "below")))
    names = {int: "a whole number", float: "a number", bool: "true or false", list[str]: "one or more words"}
    unit = f" ({field.metadata['unit']})" if field.metadata["unit"] else ""
    name = names.get(kind, "text")
    return (f"{name}, {' and '.join(bounds)}" if bounds else name) + unit


def _shown(raw: Any) -> str:
    """A wrong value for a message, cut short if it is long."""
    text = raw if isinstance(raw, str) else repr(raw)
    return (text if len(text) <= 60 else text[:57] + "...") or "''"


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What changed between two sets of values, a line each.

    >>> difference({"a": 1, "b": 2}, {"a": 1, "b": 3})
    ['b: 2 -> 3']
    """
    names = sorted(old.keys() | new.keys())
    return [f"{name}: {old.get(name)} -> {new.get(name)}" for name in names if old.get(name) != new.get(name)]


# --- presets --------------------------------------------------------------------------------------------------


def list_presets(folder: Path) -> dict[str, str]:
    """The presets of a folder, by name, each with the first line of its file, a comment, as its description."""
    described = {}
    for path in sorted(folder.glob("*.toml")):
        with open(path, encoding="utf-8", errors="replace") as file:
            described[path.stem] = file.readline().lstrip("# ").strip()
    return described


def find_preset(folder: Path, name: str) -> Path:
    """The file of a preset.

    Raises: OptionError that suggests the nearest name and lists all.
    """
    names = list(list_presets(folder))
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}? " if near else ""
        raise OptionError(f"there is no preset {name!r}: {hint}There are {', '.join(names)}")
    return folder / f"{name}.toml"


def read_preset(path: Path) -> dict[str, Any]:
    """The values in a TOML file.

    Raises: OptionError with the file, and the line if it is known.
    """
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise OptionError(f"the preset {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise OptionError(f"the preset {path} is not UTF-8 text (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise OptionError(f"the preset {path} is not TOML: {error}") from None


# --- help -----------------------------------------------------------------------------------------------------


def help_page(
    cls: type, prog: str, description: str, epilog: str, positional: str | None, aliases: Mapping[str, Sequence[str]]
) -> str:
    """The text of --help: every option with its type or choices, meaning, unit and default, under its heading."""
    width = max(60, min(shutil.get_terminal_size().columns, 110))
    kinds = typing.get_type_hints(cls)
    groups: dict[str, list[dataclasses.Field]] = {}
    for field in dataclasses.fields(cls):
        groups.setdefault(field.metadata["group"] or "options", []).append(field)
    usage = f"usage: {prog}" + (f" [{positional}]" if positional else "") + " [--option value ...]"
    lines = [usage, "", *textwrap.wrap(description, width)]
    for heading, fields in groups.items():
        lines += ["", f"{heading}:"]
        for field in fields:
            lines += _help_entry(f"--{field.name} {_placeholder(field, kinds[field.name])}", _explained(field), width)
    if aliases:
        lines += ["", "short for:"]
        for name, words in aliases.items():
            lines += _help_entry(f"--{name}", " ".join(words), width)
    return "\n".join([*lines, *(["", epilog] if epilog else [])])


def _help_entry(left: str, right: str, width: int) -> list[str]:
    """An option on the left and its explanation, wrapped, on the right."""
    indent = 38
    wrapped = textwrap.wrap(right, width - indent) or [""]
    if len(left) > indent - 4:
        return [f"  {left}", *(" " * indent + line for line in wrapped)]
    return [f"  {left:<{indent - 2}}{wrapped[0]}", *(" " * indent + line for line in wrapped[1:])]


def _placeholder(field: dataclasses.Field, kind: Any) -> str:
    if field.metadata["choices"]:
        return "{" + ",".join(field.metadata["choices"]) + "}"
    if kind is bool:
        return "[true|false]"
    names = {int: "N", float: "X", str: "TEXT", list[str]: "WORD ..."}
    return next((text for part, text in names.items() if kind == part or part in typing.get_args(kind)), "VALUE")


def _explained(field: dataclasses.Field) -> str:
    default = field.default if field.default is not dataclasses.MISSING else field.default_factory()
    shown = str(default).lower() if isinstance(default, bool) else default
    known = "" if shown in ("", [], None) else f"default {shown}" if shown != "\n" else "default: a line break"
    facts = ", ".join(fact for fact in (field.metadata["unit"], known) if fact)
    return field.metadata["help"] + (f" ({facts})" if facts else "")
