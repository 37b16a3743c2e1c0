"""Shapes and indexing: the numbers stay the same; they are rearranged, or some are picked."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from tinygrad_lite.autograd import Piece
from tinygrad_lite.device import Array, scatter_add
from tinygrad_lite.errors import counted
from tinygrad_lite.ops.common import as_shape, as_tensors, cast, one_axis, promote, unbroadcast
from tinygrad_lite.tensor import Tensor, check_fits, node, noted, respelled


def reshape(x: Tensor, *shape: Any) -> Tensor:
    """The same elements in the same order with another shape; one size may be -1, which is then worked out.

    The memory is shared where NumPy can share it. Where it cannot, as with a transposed matrix, the result is a copy.
    """
    shape, before = as_shape(shape), x.shape
    try:
        y = x.data.reshape(shape)
    except (ValueError, TypeError):
        size = counted(x.numel(), "element")
        raise ValueError(f"reshape: {size} of shape {before} cannot fill {tuple(shape)}") from None
    return node(y, (x,), lambda dy: (dy.reshape(before),), "reshape", linear=True, view=_is_view(y, x))


def _is_view(y: Array, x: Tensor) -> bool:
    """Whether an array made from x's array shares its memory. (A reshaped copy also has a base: the copy.)"""
    base = y.base
    return base is x.data or (base is not None and bool(x.xp.may_share_memory(y, x.data)))


def permute(x: Tensor, *axes: Any) -> Tensor:
    """The axes in another order: axis i of the result is axis axes[i] of x."""
    ndim = x.ndim
    axes = tuple(one_axis(axis, ndim, "permute") for axis in as_shape(axes))
    if sorted(axes) != list(range(ndim)):
        raise ValueError(f"permute: {axes} does not name each axis of a tensor of {counted(ndim, 'axis', 'axes')} once")
    back = tuple(sorted(range(ndim), key=axes.__getitem__))
    return node(x.data.transpose(axes), (x,), lambda dy: (dy.transpose(back),), "permute", view=True)


def expand(x: Tensor, *shape: Any) -> Tensor:
    """Stretch axes of size 1, without copying; -1 keeps a size.  dL/dx is dL/dy summed over the stretched axes."""
    shape = as_shape(shape)
    extra = len(shape) - x.ndim
    shape = tuple(x.shape[i - extra] if size == -1 and i >= extra else size for i, size in enumerate(shape))
    before = x.shape
    try:
        if min(shape, default=0) < 0:  # which CuPy does not refuse
            raise ValueError
        y = x.xp.broadcast_to(x.data, shape)
    except ValueError:
        raise ValueError(f"expand: a tensor of shape {before} cannot be stretched to {shape}") from None
    return node(y, (x,), lambda dy: (unbroadcast(dy, before),), "expand", view=True)


def pad(x: Tensor, padding: Sequence[tuple[int, int]], *, value: float = 0.0) -> Tensor:
    """Surround x with `value`: padding[i] = (how many before, how many after) along axis i."""
    pairs = list(padding) if np.iterable(padding) else [padding]
    if len(pairs) != x.ndim or any(np.shape(pair) != (2,) or np.min(pair) < 0 for pair in pairs):
        every = counted(x.ndim, "axis", "axes")
        raise ValueError(f"pad: needs a pair of numbers >= 0 for each of {every}, not {pairs}")
    if x.ndim == 0:  # a single number has no sides
        return x
    inner = tuple(slice(before, before + size) for (before, _), size in zip(padding, x.shape, strict=True))
    check_fits(value, x.dtype, "pad")
    return node(x.xp.pad(x.data, padding, constant_values=value), (x,), lambda dy: (dy[inner],), "pad", linear=True)


def cat(*tensors: Tensor, axis: int = 0, **names) -> Tensor:
    """This tensor and the others, joined along an axis; each gets its piece of the gradient."""
    tensors, axis = as_tensors(tensors, *respelled(cat, (), names, axis), "cat")
    first = tensors[0]
    axis = one_axis(axis, first.ndim, "cat")
    if len({(t.ndim, t.shape[:axis], t.shape[axis + 1 :]) for t in tensors}) > 1:
        raise ValueError(f"cat: shapes {', '.join(str(t.shape) for t in tensors)} differ in more than axis {axis}")
    dtype = functools.reduce(promote, (tensor.dtype for tensor in tensors))
    tensors = tuple(cast(tensor, dtype) for tensor in tensors)
    ends = np.cumsum([tensor.shape[axis] for tensor in tensors])[:-1].tolist()
    xp = first.xp

    def backward(dy):
        return tuple(xp.split(dy, ends, axis=axis))

    return node(xp.concatenate([tensor.data for tensor in tensors], axis), tensors, backward, "cat", linear=True)


# --- picking elements -----------------------------------------------------------------------------------------


READY = {int, slice, type(None), type(...)}  # the parts of an index that need no work; most are of these types


def raw_index(index: Any, xp: Any, copy: bool = False) -> tuple:
    """What stands in brackets, as the tuple that NumPy and CuPy take it for.

    A tuple lists the parts: numbers, slices, `...`, None, truth values, arrays of positions or of truth values. In a
    part, a tuple is a sequence, as are lists, ranges and all others; sequences and tensors become arrays.

    Args:
        copy: whether arrays are copied, because the caller may write other positions into them later.
    Raises: IndexError for a part that is none of these.
    """
    parts = index if isinstance(index, tuple) else (index,)
    parts = [part if type(part) in READY else _raw_part(part, xp, copy) for part in parts]
    if {*map(type, parts)} <= {int}:
        parts.append(...)  # NumPy copies a single element, unless an ellipsis asks for an array
    return tuple(parts)


def _raw_part(part: Any, xp: Any, copy: bool) -> Any:
    """A part of an index as a number or an array."""
    array = noted(part).data if isinstance(part, Tensor) else part  # observers see what is read without a node
    if isinstance(array, np.generic) or not isinstance(getattr(array, "dtype", None), np.dtype):
        if hasattr(part, "__index__") and type(part) is not bool:
            with suppress(TypeError):  # from an array of another library
                return operator.index(part)
        array, copy = np.array(part if xp is np else _on_host(part)), False
        if array.dtype.kind not in "biu" and array.size:
            raise IndexError(f"{part!r:.60} is not a whole number, nor a sequence of them or of truth values")
        array = array if array.size else array.astype(np.int64)  # NumPy makes an empty list one of fractions
    return xp.array(array) if copy else xp.asarray(array)


def _on_host(part: Any) -> Any:
    """A sequence with arrays in place of the tensors in it, which may be on a GPU."""
    return part.numpy() if isinstance(part, Tensor) else [*map(_on_host, part)] if type(part) in (list, tuple) else part


def getitem(x: Tensor, index: Any) -> Tensor:
    """y = x[index] by NumPy's rules.  dL/dx is dL/dy put back in its place, summed where an index occurs twice.

    Slices and single numbers give a view; arrays of integers or truth values ("advanced" indexing) give a copy.
    """
    shape = x.shape
    try:
        index = raw_index(index, x.xp, copy=x.requires_grad)
        y = x.data[index]
    except (IndexError, ValueError) as error:
        reason = str(error)
        raise IndexError(f"getitem: {reason[:1].lower()}{reason[1:]} (a tensor of shape {shape})") from None

    def backward(dy):
        dx = Piece(shape, scatter_add, index, dy)
        return (dx if shape else dx.added(),)

    return node(y, (x,), backward, "getitem", linear=True, view=_is_view(y, x))
