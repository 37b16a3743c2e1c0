"""The checking mode: which operation made the first NaN or infinity, and in which line was it written?

By the time a loss is NaN, a hundred operations have handed the NaN on, so the loss does not tell where it came from.
In the checking mode an observer (see autograd.py) examines every array as soon as it is computed.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tinygrad_lite import autograd
from tinygrad_lite.autograd import Node
from tinygrad_lite.device import Array, is_float
from tinygrad_lite.tensor import Tensor

Place = tuple[str, int]  # the name of a file, and a line in it

# Their lines are the same whoever calls them. The modules of nn are among them: `return F.linear(x, self.weight, ...)`
# does not tell which layer it was. NumPy is, because its errstate is wrapped around the operations.
ENGINE = (
    "tinygrad_lite.autograd",
    "tinygrad_lite.tensor",
    "tinygrad_lite.methods",
    "tinygrad_lite.ops",
    "tinygrad_lite.compositions",
    "tinygrad_lite.spelling",
    "tinygrad_lite.functional",
    "tinygrad_lite.cuda",
    "tinygrad_lite.nn",
    "numpy",
)


class NonFiniteError(ArithmeticError):
    """An operation turned finite numbers into NaN or infinity; the message names the operation and its line."""


@contextmanager
def detect_anomaly() -> Iterator[None]:
    """Inside, the first operation that makes a NaN or an infinity raises `NonFiniteError`. Slow; for diagnosis.

    An operation *makes* one if its result has a NaN and no input has, or an infinity and no input has. So the
    infinities that a mask puts in on purpose are not reported, and neither is what merely passes on a NaN.

    The message names the line that called the operation. A gradient is computed far from where its operation was
    written, so in this mode every result remembers its line: put the forward pass inside too, not only `backward()`.
    """
    observer = _Checks()
    autograd.observers.append(observer)
    try:
        yield
    finally:
        autograd.observers.remove(observer)


class _Checks:
    """The observer: checks results as they are made and gradients as they are computed."""

    def made(self, result: Tensor, inputs: tuple[Tensor, ...], is_view: bool) -> None:
        place, arrays = caller(), [tensor.data for tensor in inputs]
        check(result.data, arrays, result.op, place)
        if result._node is not None:
            result._node.notes = place, arrays

    def before_backward(self, node: Node) -> None:
        pass

    def after_backward(self, node: Node, dy: Array, gradients: Sequence[Array]) -> None:
        place, arrays = node.notes or (None, [])
        for dx in gradients:
            check(dx, [dy, *arrays], f"the gradient of {node.op}", place)


def check(array: Array, inputs: Sequence[Array], what: str, place: Place | None) -> None:
    """Raise NonFiniteError if an array has a NaN or an infinity of which no input has any."""
    if not is_float(array.dtype):
        return
    for name, has in (
        ("a NaN", lambda a: bool(np.isnan(_known(a)).any())),
        ("an infinity", lambda a: bool(np.isinf(_known(a)).any())),
    ):
        if has(array) and not any(has(x) for x in inputs if is_float(x.dtype)):
            where = _describe(place) if place else "in a line that only a forward pass in the checking mode can tell"
            raise NonFiniteError(f"{what} made {name} (shape {array.shape}) out of inputs that have none, {where}")


def _known(array: Array) -> Array:
    """The array in a type that can be asked for NaN: bfloat16 as float32, which has all of its numbers."""
    return array if array.dtype.kind == "f" else array.astype(np.float32)


def caller() -> Place | None:
    """The nearest line outside of the engine on the way that led here: the one that asked for the operation."""
    frame = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module != __name__ and not any(module == name or module.startswith(name + ".") for name in ENGINE):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None


def _describe(place: Place) -> str:
    """A place in words, such as "at model.py:12 (`y = x.log()`)"; seen from the current folder if it is below it.

    Where no source is kept, as for what was typed at Python's prompt, there is no code in brackets.
    """
    name, number = place
    path = Path(name)
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    code = linecache.getline(name, number).strip()
    return f"at {path}:{number} (`{code}`)" if code else f"at {path}:{number}"
