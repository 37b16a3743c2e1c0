"""An option that changes nothing is refused: what was typed must be read by some part of the program.

Most options are always read. Whether the others are depends on another option: some schedules take `--plateau`, some
tokenizers `--vocab_size`. A table of readers says so,

    {"schedule": {"cosine": ("min_lr",), "trapezoid": ("min_lr", "plateau")}, "text": {False: ("dataset",)}}

by the option on which it depends, the value that this has, and what is read with it. True stands for any value that is
not in the table, False for none.
"""

from collections.abc import Collection, Mapping
from typing import Any

from tinygrad_lite.errors import OptionError
from training.cli.options import brief, fields_of, values_of

Readers = Mapping[str, Mapping[Any, Collection[str]]]


def refuse_unread(options: Any, given: Mapping[str, Any], readers: Readers) -> None:
    """Refuse what was typed and nothing reads.

    None and False are no requests: they switch off what a preset may have chosen.

    Args:
        options: the options, whatever their source.
        given: the values that were asked for: on the command line, in a preset.
    Raises: OptionError that names the option, and the one with which it changes nothing.

    >>> from dataclasses import dataclass
    >>> from tinygrad_lite.config import option
    >>> @dataclass
    ... class Recipe:
    ...     dish: str = option("cake", "what to make", choices=("cake", "soup"))
    ...     sugar: float = option(0.1, "amount of sugar", unit="kg")
    >>> refuse_unread(Recipe("soup", 0.2), {"sugar": 0.2}, {"dish": {"cake": ("sugar",)}})
    Traceback (most recent call last):
    tinygrad_lite.errors.OptionError: --sugar changes nothing with --dish soup: omit it
    """
    fields, values = fields_of(type(options))[0], values_of(options)
    # What has another value is read: the name of a file in --dataset, for example, which is moved to --text.
    asked = [name for name, now in given.items() if now == values[name] and now is not None and now is not False]
    for other in [name for name in readers if name in fields]:
        value = values[other]
        has_own = fields[other].metadata["choices"] or isinstance(value, bool)
        is_named = isinstance(value, str) and value in readers[other]
        read = readers[other].get(value if is_named else bool(value), ())
        unread = {name for names in readers[other].values() for name in names}.difference(read)
        if idle := [name for name in asked if name in unread]:
            where = f"{'with' if value else 'without'} --{other}"
            if value not in (None, True) and (has_own or isinstance(value, int | float)):
                where = f"with --{other} {brief(str(value).lower())}"
            raise OptionError(f"--{idle[0]} changes nothing {where}: omit it")
