"""What the primitives share: dtypes of results, numbers as operands, broadcasting, axes."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from tinygrad_lite.device import Array, is_float, sum_over, xp_of
from tinygrad_lite.errors import counted
from tinygrad_lite.tensor import Axis, Tensor, check_fits, check_one_device, constant, node, respelled

# As in PyTorch, log(0) is -inf and 0/0 is NaN without a warning; train.py checks the loss and says where a NaN arose.
silent = np.errstate(all="ignore")

# --- types ----------------------------------------------------------------------------------------------------


def promote(a: np.dtype, b: np.dtype) -> np.dtype:
    """The dtype of a result: the higher category (bool < integer < float) wins, as in PyTorch.

    Within a category the larger type wins. NumPy would turn float32 and int64 into float64.

    >>> promote(np.dtype("float32"), np.dtype("int64"))
    dtype('float32')
    """
    if category(a) != category(b):
        return a if category(a) > category(b) else b
    return np.promote_types(a, b)


def refuse_truth_values(x: Tensor, op: str) -> None:
    """Raise TypeError for truth values, which have no sign."""
    if x.dtype == np.bool_:
        raise TypeError(f"{op}: truth values have no sign: write ~x, x ^ y, or x.cast('int64')")


def category(dtype: np.dtype) -> int:
    """0 for truth values, 1 for integers, 2 for floats: a higher one does not fit into a lower one."""
    return 2 if is_float(dtype) else 0 if dtype.kind == "b" else 1


@silent
def cast(x: Tensor, dtype: Any) -> Tensor:
    """The same numbers in another type; the gradient is cast back. Only floats pass a gradient on."""
    dtype = np.dtype(dtype)
    if x.dtype == dtype:
        return x
    y = x.data.astype(dtype)
    if not is_float(dtype):
        return constant(y, x)
    before = x.dtype
    return node(y, (x,), lambda dy: (dy.astype(before),), "cast", linear=True)


def as_float(x: Tensor) -> Tensor:
    """Integers, truth values and bfloat16 as float32, for functions whose results are fractions."""
    return x if x.dtype.kind == "f" else cast(x, np.float32)


# --- numbers, lists and arrays next to a tensor ---------------------------------------------------------------


def operands(x: Any, y: Any, op: str) -> tuple[Tensor, Tensor]:
    """Two operands as tensors of one dtype on one device; a Python number is converted where that is possible."""
    if not isinstance(x, Tensor):
        x = as_constant(x, y)
    if not isinstance(y, Tensor):
        y = as_constant(y, x)
    check_one_device((x, y), op)
    a, b = x.data, y.data
    if not broadcastable(a.shape, b.shape):
        raise ValueError(f"{op}: shapes {a.shape} and {b.shape} do not broadcast against each other")
    if a.dtype != b.dtype:
        dtype = promote(a.dtype, b.dtype)
        if (a.ndim == 0) != (b.ndim == 0):  # as in PyTorch, a single number does not make a tensor of floats wider
            many = a.dtype if a.ndim else b.dtype
            dtype = many if is_float(many) else dtype
        x, y = cast(x, dtype), cast(y, dtype)
    return x, y


def as_tensor(value: Any, like: Tensor) -> Tensor:
    """An argument given with a tensor, as a tensor: numbers, lists and arrays become constants.

    A number or a list is put on that tensor's device; an array stays where it is, on a GPU or on the CPU.
    """
    if isinstance(value, Tensor):
        return value
    return Tensor(value, device=None if getattr(value, "ndim", 0) else like.device)


def as_constant(value: Any, like: Tensor) -> Tensor:
    """An operand that is not a tensor, as a constant: a number takes the other operand's dtype if it can."""
    if isinstance(value, (np.ndarray, list, tuple, type(like.data))) and getattr(value, "ndim", 1):
        return as_tensor(value, like)
    # Most numbers are of the first two types; checking for a numbers.Real takes as long as an addition.
    if not isinstance(value, (float, int, numbers.Real, np.bool_, np.ndarray, type(like.data))):
        raise TypeError(f"a {type(value).__name__} cannot be combined with a tensor: use a number, a list or an array")
    dtype = like.data.dtype
    if not is_float(dtype):
        kind = np.asarray(value).dtype.kind
        if kind not in "biu":
            dtype = np.dtype(np.float32)
        elif dtype.kind == "b" and kind != "b":
            dtype = np.dtype(np.int64)
    try:
        if dtype.kind != "f":
            check_fits(value, dtype, "")
        return Tensor.wrap(like.xp.asarray(value, dtype=dtype))
    except (OverflowError, ValueError):
        raise ValueError(f"{value} does not fit into a tensor of {dtype}: write x.cast('int64') first") from None


def as_tensors(values: tuple, axis: int, op: str) -> tuple[tuple[Tensor, ...], int]:
    """The arguments as tensors, and the axis: f(x, y, axis=1), f([x, y], axis=1), or torch's f([x, y], 1)."""
    if len(values) == 2 and isinstance(values[0], (tuple, list)) and isinstance(values[1], int):
        values, axis = (values[0],), values[1]
    if len(values) == 1 and isinstance(values[0], (tuple, list)):
        values = tuple(values[0])
    if bad := [value for value in values if isinstance(value, numbers.Real)]:
        raise TypeError(f"{op}: {bad[0]} is not a tensor; an axis is given by name, as in axis={bad[0]}")
    like = next((value for value in values if isinstance(value, Tensor)), None)
    if like is None:
        raise TypeError(f"{op}: needs tensors; make them with Tensor(...)")
    tensors = tuple(as_tensor(value, like) for value in values)
    check_one_device(tensors, op)
    return tensors, axis


# --- shapes and axes ------------------------------------------------------------------------------------------


def broadcastable(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether two shapes fit by NumPy's rule: from the last axis backwards, sizes are equal or one of them is 1."""
    return a == b or () in (a, b) or all(m == n or 1 in (m, n) for m, n in zip(a[::-1], b[::-1], strict=False))


def unbroadcast(dy: Array, shape: tuple[int, ...]) -> Array:
    """Undo broadcasting: sum a gradient over the axes along which its parent of this shape was stretched."""
    if dy.shape == shape:
        return dy
    extra = dy.ndim - len(shape)
    stretched = tuple(i + extra for i, size in enumerate(shape) if size == 1 and dy.shape[i + extra] != 1)
    return sum_over(dy, (*range(extra), *stretched)).reshape(shape)


def choose(condition: Array, x: Array | float, y: Array | float, like: Array) -> Array:
    """x where the condition is true, else y, in the dtype of `like`. (CuPy's `where` turns bfloat16 into float32.)"""
    return xp_of(like).where(condition, x, y).astype(like.dtype, copy=False)


def zero_unless(condition: Array, x: Array) -> Array:
    """x where the condition is true, else 0, also where x is infinite or NaN.

    The bits of x, read as an integer, are multiplied by 1 or 0, which takes NumPy a sixth of the time of `where`.
    """
    return (x.view(f"i{x.dtype.itemsize}") * condition).view(x.dtype)


def as_shape(sizes: tuple, op: str = "", names: dict[str, Any] | None = None) -> tuple[int, ...]:
    """The sizes, whether they were passed as f(2, 3) or as f((2, 3)). Arguments by other `names` are refused."""
    if names:
        respelled(getattr(Tensor, op), (), names)
    return tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes


def one_axis(axis: int, ndim: int, op: str) -> int:
    """An axis as a number from 0 to ndim - 1; negative ones count from the end."""
    if type(axis) is not int and (isinstance(axis, bool) or not isinstance(axis, (int, np.integer))):
        raise TypeError(f"{op}: an axis is a whole number, not {axis!r}")
    if not -ndim <= axis < ndim:
        raise ValueError(f"{op}: there is no axis {axis} in a tensor of {counted(ndim, 'axis', 'axes')}")
    return axis % ndim


def as_axes(axis: Axis, ndim: int, op: str) -> tuple[int, ...]:
    """One axis, several, or None for all of them, as a tuple of numbers from 0 to ndim - 1.

    A single number has no axis, but as in torch it may be treated as a vector of one: axis 0 or -1 then means no axis.
    """
    if axis is None or (ndim == 0 and type(axis) is int and axis in (0, -1)):
        return tuple(range(ndim))
    if type(axis) is int:
        return (one_axis(axis, ndim, op),)
    axes = tuple([one_axis(a, ndim, op) for a in (axis if isinstance(axis, (tuple, list)) else (axis,))])
    if len({*axes}) < len(axes):
        raise ValueError(f"{op}: an axis occurs twice in {axis}")
    if not axes:
        raise ValueError(
            f"{op}: an empty axis=() is every axis in torch and none in NumPy: name the axes, or leave it out"
        )
    return axes
