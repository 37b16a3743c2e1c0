"""Options: the fields of a dataclass, each with its default, meaning, unit and range, and the checks of their values.

A script declares its options as the fields of a dataclass, each made by `option()`. The values come from three sources;
later ones take precedence:

    the defaults in the dataclass  <  a preset, which is a TOML file  <  the command line (`command_line.py`)

`read_preset` and `parse_command_line` return only the values that were given; `build` combines them and checks every
one, whatever its source.

>>> from tinygrad_lite.config import option
>>> @dataclasses.dataclass
... class Recipe:
...     eggs: int = option(2, "number of eggs", unit="eggs", low=0)
...     sugar: float = option(0.1, "amount of sugar", unit="kg", above=0.0)
>>> build(Recipe, ("preset sweet", {"sugar": 0.2}), ("command line", {"eggs": 3}))
Recipe(eggs=3, sugar=0.2)
>>> build(Recipe, ("preset odd", {"eggs": -1}))
Traceback (most recent call last):
tinygrad_lite.errors.OptionError: --eggs -1 (preset odd): must be at least 0 (eggs)
"""

import codecs
import dataclasses
import difflib
import functools
import operator
import os
import sys
import tomllib
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tinygrad_lite.errors import OptionError

PRESETS = Path(__file__).parents[2] / "presets"
PRESET_FOLDERS = {PRESETS: "presets"}  # all folders of presets, and what --help calls them
BOUNDS = {"at least": operator.ge, "above": operator.gt, "at most": operator.le, "below": operator.lt}
MAX_INT = 10**300  # more digits are a mistake, and no float is as large
MAX_PRESET = 2**14  # bytes; the largest here has 600, and parsing a dotted key takes time quadratic in its length


# --- values ---------------------------------------------------------------------------------------------------


def build(cls: type, *layers: tuple[str, Mapping[str, Any]]) -> Any:
    """An instance of the dataclass from its defaults and layers of values, the later ones winning.

    Args:
        layers: pairs of a source (for messages) and the values by name.
    Raises: OptionError that names the option and the source of its value.
    """
    fields, kinds = fields_of(cls)
    values: dict[str, Any] = {}
    for where, layer in layers:
        for name, value in layer.items():
            if name not in fields:
                near = nearest(name, fields)
                hint = f": did you mean {near}?" if near else ""
                raise OptionError(f"unknown option {brief(name)} ({where}){hint}")
            label = f"--{name} {brief(value, quotes=True)} ({where})"  # with quotes, since "5" in a file is not 5
            values[name] = check(fields[name], kinds[name], value, label)
    return cls(**contained(cls, values))


def check(field: dataclasses.Field, kind: Any, value: Any, label: str) -> Any:
    """A value converted to its field's type and checked.

    A float may be given as 3 and an int as 3.0, but neither as text.

    Args:
        kind: the field's type.
        value: from TOML, JSON or the command line. TOML has no null, so "none" is None where that is allowed.
        label: how a message names the value.
    Raises: OptionError that says what is allowed.
    """
    if may_be_none(kind) and value in (None, "none"):
        return None
    base = base_type(kind)
    if base is float and type(value) is int and abs(value) <= sys.float_info.max:
        value = float(value)
    elif base is int and type(value) is float and value.is_integer():
        value = int(value)
    right = type(value) is base  # not isinstance: in Python, True is an int
    if right and base in (int, float):
        right = abs(value) <= (MAX_INT if base is int else sys.float_info.max)  # which nan is not
    if right and base in (str, list):  # a file can contain \0, a command line and a path cannot
        right = all(type(item) is str and "\0" not in item for item in value)
    if not right:
        raise OptionError(f"{label}: must be {allowed(field, kind)}")
    if not in_range(field, value):
        raise OptionError(f"{label}: must be {_range(field)}{_tail(field, kind)}")
    return list(value) if base is list else value


def in_range(field: dataclasses.Field, value: Any) -> bool:
    """Whether a value of the right type satisfies its field's bounds and choices."""
    bounds, choices = field.metadata["bounds"].items(), field.metadata["choices"] or [value]
    return value in choices and all(end is None or BOUNDS[words](value, end) for words, end in bounds)


def allowed(field: dataclasses.Field, kind: Any) -> str:
    """The values that a field accepts, in words.

    >>> from tinygrad_lite.config import option
    >>> allowed(option(0.1, "", above=0.0, high=1.0, unit="m"), float)
    'a finite number, above 0 and at most 1 (m)'
    """
    text = "path" if field.metadata["is_path"] else "text"
    names = {int: "a whole number", float: "a finite number", bool: "true or false", list: f"a list of {text}s"}
    parts = ["" if field.metadata["choices"] else names.get(base_type(kind), f"a {text}"), _range(field)]
    return ", ".join(part for part in parts if part) + _tail(field, kind)


def _range(field: dataclasses.Field) -> str:
    """The bounds or choices in words; empty if there are none."""
    if field.metadata["choices"]:
        return "one of " + ", ".join(field.metadata["choices"])
    bounds = field.metadata["bounds"].items()
    return " and ".join(f"{words} {limit:.15g}" for words, limit in bounds if limit is not None)


def _tail(field: dataclasses.Field, kind: Any) -> str:
    """The end of a message, after the range: whether none is allowed too, and the unit."""
    return (", or none" if may_be_none(kind) else "") + (f" ({unit})" if (unit := field.metadata["unit"]) else "")


@functools.cache
def fields_of(cls: type) -> tuple[dict[str, dataclasses.Field], dict[str, Any]]:
    """The fields of the dataclass by name, and their types by name; of settings that it contains, those to choose."""
    fields, kinds = {}, typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if config := field.metadata.get("contains"):
            fields |= config.chosen()
            kinds |= {name: fields_of(config)[1][name] for name in config.chosen()}
            del kinds[field.name]
        else:
            fields[field.name] = field
    return fields, kinds


def contained(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of options as the dataclass takes them: those of settings that it contains are one argument."""
    values = dict(values)
    for field in dataclasses.fields(cls):
        if config := field.metadata.get("contains"):
            chosen = {name: values.pop(name) for name in config.chosen() if name in values}
            values[field.name] = dataclasses.replace(field.default_factory(), **chosen)
    return values


def values_of(options: Any) -> dict[str, Any]:
    """The value of every option, by name."""
    values = dict(vars(options))
    for field in dataclasses.fields(options):
        if "contains" in field.metadata:
            values = vars(values[field.name]) | values
    return {name: values[name] for name in fields_of(type(options))[0]}


def may_be_none(kind: Any) -> bool:
    """Whether None is a value of this type."""
    return type(None) in typing.get_args(kind)


def base_type(kind: Any) -> type:
    """The type without its `| None`, and list for list[str]."""
    if may_be_none(kind):
        kind = next(part for part in typing.get_args(kind) if part is not type(None))
    return list if kind == list[str] else kind


def brief(value: Any, quotes: bool = False) -> str:
    """A value for a message: on one line, and cut short if it is long.

    Args:
        quotes: whether a text has quotes in any case; otherwise it has them if it is empty or not printable.

    >>> print(brief("cpu"), brief(""), brief(["a\\nb"]))
    cpu '' ['a\\nb']
    """
    is_plain = isinstance(value, str) and value and value.isprintable() and not quotes
    try:
        text = value if is_plain else repr(value)
    except (ValueError, RecursionError):  # a number of 5,000 digits; lists within lists within lists
        return "..."
    return text if len(text) <= 60 else text[:57] + "..."


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The known name that is closest to a mistyped or shortened one, if any."""
    name, names = name.lower(), list(names)
    longer = [other for other in names if len(name) > 1 and other.startswith(name)]
    return next(iter(longer or difflib.get_close_matches(name, names, n=1)), None)


def not_among(name: str, names: Iterable[str]) -> str:
    """A name that is none of these, for a message: with the nearest of them, if any, and a list of all.

    >>> print("no text is called", not_among("fuast", ["faust", "werther"]))
    no text is called 'fuast' (did you mean 'faust'?): there are faust, werther
    """
    near = nearest(name, names)
    return f"{name!r}{f' (did you mean {near!r}?)' if near else ''}: there are {', '.join(names)}"


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The changes from one set of values to another, a line each.

    >>> difference({"learning_rate": 0.001, "seed": 2}, {"learning_rate": 0.0005, "seed": 2})
    ['learning_rate: 0.001 -> 0.0005']
    """
    lines = []
    for name in sorted(old.keys() | new.keys()):
        before, after = (brief(values[name]) if name in values else "not set" for values in (old, new))
        if name not in old or name not in new or old[name] != new[name]:
            lines.append(f"{name}: {before} -> {after}")
    return lines


# --- presets --------------------------------------------------------------------------------------------------


def list_presets(*folders: Path) -> dict[str, str]:
    """The presets in folders by name, each described by the first comment line of its file."""
    described, files = {}, (path for folder in folders for path in folder.glob("*.toml"))
    for path in sorted(filter(Path.is_file, files), key=lambda path: path.name):
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            comments = (line.lstrip("# ").rstrip() for line in file if line.startswith("#"))
            described[path.stem] = next(comments, "")
    return described


def all_presets() -> dict[str, dict[str, str]]:
    """What `list_presets` finds, by what --help calls the folders."""
    titles = PRESET_FOLDERS.items()
    return {title: list_presets(*(folder for folder, its in titles if its == title)) for _, title in titles}


def is_preset(word: str | None) -> bool:
    """Whether a word names a preset, or a file of settings."""
    is_known = any(os.path.isfile(folder / f"{word}.toml") for folder in PRESET_FOLDERS)
    return word is not None and (Path(word).suffix == ".toml" or is_known)


def find_preset(name: str, folders: Iterable[Path] = PRESET_FOLDERS, kind: str = "preset") -> Path:
    """The file of a preset in one of the folders, or of another kind of page of settings.

    Raises: OptionError that suggests the nearest name and lists all.
    """
    files = {path.stem: path for folder in folders for path in sorted(folder.glob("*.toml"))}
    if name not in files:
        near = nearest(name, files)
        there_are = f"there are {', '.join(files)}" if files else f"there are none in {', '.join(map(str, folders))}"
        hint = f"did you mean {near}? ({there_are})" if near else there_are
        raise OptionError(f"no {kind} {brief(name)}: {hint}")
    return files[name]


def read_preset(path: Path, kind: str = "preset") -> dict[str, Any]:
    """The values in a TOML file, not yet checked; `kind` is what messages call it.

    A preset may begin with `like = "NAME"`: it has the values of that preset, except those that it states itself.

    Raises: OptionError with the file and the line.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_PRESET + 1)
        if len(data) > MAX_PRESET:
            raise OptionError(f"the {kind} {path} has more than {MAX_PRESET:,} bytes, too many for a page of settings")
        values = tomllib.loads(data.removeprefix(codecs.BOM_UTF8).decode("utf-8"))
    except OSError as error:
        raise OptionError(f"cannot read the {kind} {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        wrong = f"byte 0x{error.object[error.start]:02x} at line {line}"
        raise OptionError(f"the {kind} {path} is not UTF-8 text ({wrong}): save it as UTF-8") from None
    except (ValueError, RecursionError) as error:  # a TOMLDecodeError is a ValueError and names the line
        raise OptionError(f"the {kind} {path} is not valid TOML: {error}") from None
    if kind == "preset" and isinstance(like := values.pop("like", None), str):
        values = read_preset(find_preset(like)) | values
    return values


def settings_of(name: str) -> dict[str, Any]:
    """The settings of a preset, or of a file of them, and its family; raises as `find_preset` and `read_preset` do."""
    is_file = Path(name).suffix == ".toml" and os.path.isfile(name)
    return read_preset(Path(name) if is_file else find_preset(name))
