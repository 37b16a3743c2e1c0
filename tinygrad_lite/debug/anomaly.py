"""Checking mode: which operation produced the first NaN or infinity, and on which line?

When a loss is NaN, many operations have propagated the NaN, so the loss does not show where it arose. In checking mode
the observer `detect_anomaly` (see autograd.py) examines every array as soon as it is computed.
"""

import linecache
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tinygrad_lite import autograd
from tinygrad_lite.autograd import Node
from tinygrad_lite.device import Array, is_float
from tinygrad_lite.tensor import Tensor

Place = tuple[str, int]  # the name of a file, and a line in it

# Modules whose lines do not identify the caller. nn is among them: `return F.linear(x, self.weight, ...)` does not show
# which layer it was. NumPy is, because its errstate is wrapped around the operations.
PARTS = "autograd tensor methods ops compositions functional cuda nn".split()
ENGINE = (*(f"tinygrad_lite.{part}" for part in PARTS), "numpy")


class NonFiniteError(ArithmeticError):
    """An operation produced NaN or infinity from finite numbers; the message names the operation and its line."""


class detect_anomaly(autograd.Observer):
    """Inside, the first operation that produces a NaN or an infinity raises `NonFiniteError`. Slow; for diagnosis.

    An operation *produces* a NaN if its result has one and no input has; likewise for infinities. So infinities that
    a mask inserts on purpose are not reported, nor are operations that only propagate a NaN.

    The message names the line that called the operation. A gradient is computed far from the line of its operation, so
    in this mode every result remembers its line: put the forward pass inside too, not only `backward()`.
    """

    def made(self, result: Tensor, inputs: tuple[Tensor, ...], is_view: bool) -> None:
        place, arrays = caller(), [tensor.data for tensor in inputs]
        check(result.data, arrays, result.op, place)
        if result._node is not None:
            result._node.notes = place, arrays

    def after_backward(self, node: Node, dy: Array, gradients: Sequence[Array]) -> None:
        place, arrays = node.notes or (None, [])
        for dx in gradients:
            check(dx, [dy, *arrays], f"the gradient of {node.op}", place)


def check(array: Array, inputs: Sequence[Array], what: str, place: Place | None) -> None:
    """Raise NonFiniteError if an array has a NaN or an infinity, and no input has one."""
    if not is_float(array.dtype):
        return
    for name, test in (("a NaN", np.isnan), ("an infinity", np.isinf)):
        if _has(test, array) and not any(_has(test, x) for x in inputs if is_float(x.dtype)):
            where = _describe(place) if place else "in an unknown line, because its forward pass was not checked"
            raise NonFiniteError(f"{what} produced {name} (shape {array.shape}) from inputs without one, {where}")


def _has(test: np.ufunc, array: Array) -> bool:
    """Whether the test holds for any element; bfloat16, which NumPy cannot test, is converted to float32 first."""
    return bool(test(array if array.dtype.kind == "f" else array.astype(np.float32)).any())


def caller() -> Place | None:
    """The innermost line on the call stack outside the engine: the one that called the operation."""
    for frame, line in traceback.walk_stack(sys._getframe(1)):
        module = frame.f_globals.get("__name__", "")
        if module != __name__ and not any(module == name or module.startswith(name + ".") for name in ENGINE):
            return frame.f_code.co_filename, line
    return None


def _describe(place: Place) -> str:
    """A place in words, such as "at model.py:12 (`y = x.log()`)", relative to the current folder if it is inside.

    If there is no source, as for input at Python's prompt, the code is omitted.
    """
    name, number = place
    path = Path(name)
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    code = linecache.getline(name, number).strip()
    return f"at {path}:{number} (`{code}`)" if code else f"at {path}:{number}"
