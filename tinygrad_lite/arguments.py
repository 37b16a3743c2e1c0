"""Arguments that a function does not have: another library's name for one that it has is read, all others are refused.

A function that knows other names ends with `*more` and `**names`, which catch what it has no place for, and hands them
on together with its own last arguments:

    axis, keepdim = respelled(prod, more, names, axis, keepdim)

Where that would be felt, it first asks whether there are any. The tables are for everybody to fill: without entries, no
other name is known.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

ACCEPTED: dict[str, str] = {}  # another name of an argument -> the names here: the first one that the function has
INSTEAD = {  # an argument that no function has -> what to write; None is ignored: np.sum(x) calls x.sum(out=None)
    "dtype": "write .cast(dtype) before or after it, or module.to(device, dtype)",
    "out": "write y = ...; every operation returns a new tensor",
}
BY_NAME_ONLY: dict[str, str] = {}  # a function that takes or returns something else elsewhere -> what to write


def respelled(function: Callable, more: tuple, names: dict[str, Any], *values: Any) -> Sequence[Any]:
    """The values of the function's last arguments, with those among them that a call gave by other names.

    Raises: TypeError for what the function has no place for: values by position (`more`), unknown names; and for an
        argument that is given twice.
    """
    if not more and not names:
        return values
    own = named(function)
    first, last = [*own][: len(own) - len(values)], [*own][len(own) - len(values) :]
    given = {name: value for name, value in zip(last, values, strict=True) if value is not own[name].default}
    given = by_own_names(function, more, dict.fromkeys(first) | given | names)
    return [given.get(name, own[name].default) for name in last]


def by_own_names(function: Callable, more: tuple, options: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments of a call under the function's own names. Raises: TypeError with what to write."""
    title = function.__qualname__.removesuffix(".__init__").split(".")[-1].removesuffix("_composed")
    own = named(function)
    if title in BY_NAME_ONLY and (more or options.keys() & {"dim", "other"}):
        raise TypeError(f"{title}: {BY_NAME_ONLY[title]}")
    if more:
        rest = ", ".join(f"{name}=..." for name, p in own.items() if p.kind is p.KEYWORD_ONLY)
        first = ", ".join(name for name, p in own.items() if p.kind is p.POSITIONAL_OR_KEYWORD)
        raise TypeError(f"{title}: by position it takes {first}, and {f'by name {rest}' if rest else 'no more'}")
    result: dict[str, Any] = {}
    for given, value in options.items():
        name = next((name for name in (given, *ACCEPTED.get(given, "").split()) if name in own), None)
        if name in result:
            raise TypeError(f"{title}: {name} is given twice")
        if name:
            result[name] = value
        elif value is not None or given not in INSTEAD:
            instead = INSTEAD.get(given) or f"it takes {', '.join(own)}"
            raise TypeError(f"{title}: there is no argument {given!r}; {instead}")
    return result


@functools.cache
def named(function: Callable) -> dict[str, inspect.Parameter]:
    """The arguments that may be given by keyword, without `self`."""
    return {n: p for n, p in inspect.signature(function).parameters.items() if n != "self" and p.kind.name[:3] != "VAR"}
