"""`residual` on a GPU: the sum is left to the norm that follows, if one does.

A sum reads two arrays and writes one, which the norm then reads. A norm that reads the two itself, and writes the sum
along with its result, saves reading it. So `residual` allocates the sum but does not compute it. Its result is a `Sum`:
the kernel of a norm fills it, or else the first use of its array does.

In the backward pass, the norm's kernel adds the gradient that has bypassed it through the residual connection (see
`adds` in autograd.py). If the part is bfloat16, the kernel also writes the total rounded to bfloat16, which is the
part's gradient; otherwise another kernel would read the total again to convert it.
"""

from typing import Any

import numpy as np

from tinygrad_lite.autograd import observers
from tinygrad_lite.cuda.launch import launch_packs
from tinygrad_lite.device import Array
from tinygrad_lite.functional.residual import check_residual, residual_composed
from tinygrad_lite.precision import bfloat16
from tinygrad_lite.tensor import Tensor, node


class Sum(Tensor):
    """x + part, whose array is allocated but not computed. Once it is, this becomes an ordinary tensor.

    Attributes:
        memory: the array.
        addends: the arrays x and part.
        seen: their counters of in-place writes, with the counts when the sum was requested.
    """

    shape = property(lambda self: self.memory.shape)
    dtype = property(lambda self: self.memory.dtype)
    device = property(lambda self: "cuda")

    def numel(self) -> int:
        return self.memory.size

    @property
    def data(self) -> Array:
        """The array: computed now, because something reads it."""
        x, part = self.addends
        y = self.settle()
        add(x, part, y)
        return y

    def settle(self) -> Array:
        """Become an ordinary tensor; returns its array, into which the caller writes the sum.

        Raises: RuntimeError if an addend was overwritten meanwhile.
        """
        if any(version[0] != count for version, count in self.seen):
            raise RuntimeError("residual: x or part was overwritten in place before their sum was read")
        y = self.memory
        del self.addends, self.memory, self.seen
        self.__class__ = Tensor
        self.data = y
        return y


def residual_cuda(x: Tensor, part: Tensor) -> Tensor:
    """`residual_composed` in one node, which may be computed later."""
    check_residual(x, part)
    xp, kind, given = x.xp, part.dtype, x.dtype  # characters, because `dtype.name` is computed at each use
    if given.char not in "fd" or kind.char not in (given.char, "E") or not x.numel():
        return residual_composed(x, part)
    arrays = xp.ascontiguousarray(x.data), xp.ascontiguousarray(part.data)
    y = xp.empty(x.shape, given)
    if looked_at := any(getattr(observer, "looks", True) for observer in observers):  # immediately
        add(*arrays, y)
    rounded: list[Array] = []  # the gradient and its bfloat16 copy, once a norm has written them

    def backward(dy):
        return dy, rounded.pop() if rounded and rounded[0] is dy else dy.astype(kind, copy=False)

    result = node(y, (x, part), backward, "residual", linear=True)
    if kind != given:
        result.rounded = rounded
    if not looked_at:
        del result.data
        result.__class__, result.memory, result.addends = Sum, y, arrays
        result.seen = tuple((tensor._version, tensor.version) for tensor in (x, part))
    return result


def add(x: Array, part: Array, y: Array) -> None:
    """y = x + part, for contiguous arrays."""
    launch_packs("residual", "residual", (x, part, y), X=x.dtype, P=part.dtype)


def empty_gradient(
    xp: Any, shape: tuple[int, ...], dtype: np.dtype, rounded: list[Array] | None
) -> tuple[Array, Array | None]:
    """Arrays for the gradient of a norm's input and for its bfloat16 copy; the latter only for a bfloat16 part.

    Args:
        rounded: the attribute of that name on a result of `residual`, which will find both arrays there.
    """
    dx, copy = xp.empty(shape, dtype), None
    if rounded is not None:
        copy = xp.empty(shape, bfloat16())
        rounded[:] = dx, copy
    return dx, copy


def take_addends(x: Tensor) -> tuple[Array, Array | None, Array | None]:
    """What a norm reads: for a `Sum`, the two addends and the array of the sum, which it must write; else x alone."""
    if type(x) is not Sum:
        return x.data, None, None
    first, part = x.addends
    return first, part, x.settle()
