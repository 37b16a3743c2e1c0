"""Reductions: the sum, the largest and the smallest element over axes."""

from __future__ import annotations

import numpy as np

from tinygrad_lite.device import sum_over, xp_of
from tinygrad_lite.ops.common import as_axes, one_axis, silent
from tinygrad_lite.tensor import Axis, Tensor, constant, node, respelled


@silent
def sum(x: Tensor, axis: Axis = None, *more, keepdim: bool = False, **names) -> Tensor:
    """y = the sum over the axes.  Each summand counts once, so dL/dx is dL/dy for each of them.

    Unsigned integers are added as int64, like signed ones, so that a difference of sums may be negative.
    """
    axis, keepdim = respelled(sum, more, names, axis, keepdim) if more or names else (axis, keepdim)
    a = x.data if x.data.dtype.kind != "u" else x.data.astype(np.int64)
    axes, shape = None if axis is None else as_axes(axis, a.ndim, "sum"), a.shape

    def backward(dy):
        if dy.ndim and not keepdim:
            dy = dy.reshape(tuple(1 if i in axes else size for i, size in enumerate(shape)))
        return (xp_of(dy).broadcast_to(dy, shape),)

    return node(sum_over(a, axes, keepdim), (x,), backward, "sum", True)


def amax(x: Tensor, axis: Axis = None, *more, keepdim: bool = False, **names) -> Tensor:
    """y = the largest element over the axes, which gets the gradient; equal ones share it evenly, as in torch.amax."""
    return _extreme(x, *respelled(amax, more, names, axis, keepdim), "max")


def amin(x: Tensor, axis: Axis = None, *more, keepdim: bool = False, **names) -> Tensor:
    """y = the smallest element over the axes, which gets the gradient; equal ones share it evenly, as in torch.amin."""
    return _extreme(x, *respelled(amin, more, names, axis, keepdim), "min")


def max(x: Tensor, *more, axis: Axis = None, keepdim: bool = False, **names) -> Tensor:
    """`amax`, as in NumPy; the axis is given by name, since torch's `x.max(1)` also returns positions."""
    return _extreme(x, *respelled(max, more, names, axis, keepdim), "max")


def min(x: Tensor, *more, axis: Axis = None, keepdim: bool = False, **names) -> Tensor:
    """`amin`, as in NumPy; the axis is given by name, since torch's `x.min(1)` also returns positions."""
    return _extreme(x, *respelled(min, more, names, axis, keepdim), "min")


def _extreme(x: Tensor, axis: Axis, keepdim: bool, op: str) -> Tensor:
    """The node of max and min: the gradient goes to the elements that equal y."""
    axes, a = as_axes(axis, x.ndim, op), x.data
    _check_choice(x.shape, axes, op)
    y = getattr(a, op)(axis=axes, keepdims=True)

    def backward(dy):
        chosen = (a == y).astype(dy.dtype)
        return (chosen * (dy.reshape(y.shape) / sum_over(chosen, axes, keepdims=True)),)

    return node(y if keepdim else y.squeeze(axis=axes), (x,), backward, op)


def _check_choice(shape: tuple[int, ...], axes: tuple[int, ...], op: str) -> None:
    if any(shape[axis] == 0 for axis in axes):
        raise ValueError(f"{op}: nothing to choose from in a tensor of shape {shape} over axes {axes}")


def argmax(x: Tensor, axis: int | None = None, *more, keepdim: bool = False, **names) -> Tensor:
    """The position of the largest element, the first of equal ones; over everything if no axis is given."""
    return _position(x, *respelled(argmax, more, names, axis, keepdim), "argmax")


def argmin(x: Tensor, axis: int | None = None, *more, keepdim: bool = False, **names) -> Tensor:
    """The position of the smallest element, the first of equal ones; over everything if no axis is given."""
    return _position(x, *respelled(argmin, more, names, axis, keepdim), "argmin")


def _position(x: Tensor, axis: int | None, keepdim: bool, op: str) -> Tensor:
    axes = as_axes(axis, x.ndim, op)
    _check_choice(x.shape, axes, op)
    if axis is not None:
        axis = one_axis(axis, x.ndim, op) if axes else None
    return constant(getattr(x.xp, op)(x.data, axis=axis, keepdims=keepdim), x)
