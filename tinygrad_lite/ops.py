"""The primitives: the closed list of operations from which everything else is composed.

Each is one function that computes y and defines, right below, what flows back: `backward(dy)` receives dL/dy and
returns dL/dx for each parent x, by the chain rule dL/dx = dL/dy * dy/dx. Shapes follow NumPy's broadcasting; a
parent that was stretched gets the sum over the stretched axes (`unbroadcast`), because it acted at every place.

Where a derivative does not exist (|x| at 0, the maximum of equal numbers), the choice is PyTorch's and the
docstring says which.
"""

from __future__ import annotations

import functools
import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinygrad_lite.device import Array, device_of, get_device, is_float, scatter_add, sum_over, xp_of
from tinygrad_lite.tensor import Axis, Tensor, check_one_device, node

# Like PyTorch, log(0) is -inf and 0/0 is NaN without a warning; train.py looks at the loss and says where one arose.
silent = np.errstate(all="ignore")

# --- what the primitives share --------------------------------------------------------------------------------


def promote(a: np.dtype, b: np.dtype) -> np.dtype:
    """The dtype of a result: the higher category (bool < integer < float) wins, as in PyTorch.

    Within a category the larger type wins. NumPy would make float32 and int64 into float64.

    >>> promote(np.dtype("float32"), np.dtype("int64"))
    dtype('float32')
    """

    def rank(dtype: np.dtype) -> int:
        return 2 if is_float(dtype) else 0 if dtype.kind == "b" else 1

    if rank(a) != rank(b):
        return a if rank(a) > rank(b) else b
    return np.promote_types(a, b)


def operands(x: Any, y: Any, op: str) -> tuple[Tensor, Tensor]:
    """Two operands as tensors of one dtype on one device; a Python number takes the tensor's type if it can."""
    if not isinstance(x, Tensor):
        x = _constant(x, y)
    if not isinstance(y, Tensor):
        y = _constant(y, x)
    check_one_device((x, y), op)
    a, b = x.data, y.data
    if not broadcastable(a.shape, b.shape):
        raise ValueError(f"{op}: shapes {a.shape} and {b.shape} do not broadcast against each other")
    if a.dtype != b.dtype:
        dtype = promote(a.dtype, b.dtype)
        x, y = cast(x, dtype), cast(y, dtype)
    return x, y


def as_tensor(value: Any, like: Tensor) -> Tensor:
    """What stands where a tensor is expected beside another one: numbers, lists and arrays become constants.

    A number or a list goes to the other tensor's device; an array stays where it is, on a GPU as on the CPU.
    """
    if isinstance(value, Tensor):
        return value
    return Tensor(value, device=None if getattr(value, "ndim", 0) else like.device)


def _constant(value: Any, like: Tensor) -> Tensor:
    if isinstance(value, (np.ndarray, list, tuple, type(like.data))) and getattr(value, "ndim", 1):
        return as_tensor(value, like)
    # Most numbers are of the first types; to ask whether it is a numbers.Real takes as long as an addition.
    if not isinstance(value, (float, int, numbers.Real, np.bool_, np.ndarray, type(like.data))):
        raise TypeError(f"a {type(value).__name__} cannot be combined with a tensor: use a number, a list or an array")
    dtype = like.data.dtype
    if not is_float(dtype):
        kind = np.asarray(value).dtype.kind
        if kind not in "biu":
            dtype = np.dtype(np.float32)
        elif dtype.kind == "b" and kind != "b":
            dtype = np.dtype(np.int64)
    return Tensor.wrap(like.xp.asarray(value, dtype=dtype))


def broadcastable(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether two shapes fit by NumPy's rule: counted from the last axis on, sizes are equal or one of them is 1."""
    return a == b or () in (a, b) or all(m == n or 1 in (m, n) for m, n in zip(a[::-1], b[::-1], strict=False))


def as_float(x: Tensor) -> Tensor:
    """Integers and truth values as float32, for functions that leave the whole numbers; and bfloat16 too."""
    return x if x.dtype.kind == "f" else cast(x, np.float32)


def unbroadcast(dy: Array, shape: tuple[int, ...]) -> Array:
    """Undo broadcasting: sum a gradient over the axes along which its parent of this shape was stretched."""
    if dy.shape == shape:
        return dy
    extra = dy.ndim - len(shape)
    stretched = tuple(i + extra for i, size in enumerate(shape) if size == 1 and dy.shape[i + extra] != 1)
    return sum_over(dy, (*range(extra), *stretched)).reshape(shape)


def choose(condition: Array, x: Array | float, y: Array | float, like: Array) -> Array:
    """x where the condition is true, else y, in the type of `like`. (Of bfloat16, CuPy's `where` makes float32.)"""
    return xp_of(like).where(condition, x, y).astype(like.dtype, copy=False)


def one_axis(axis: int, ndim: int, op: str) -> int:
    """An axis as a number from 0 to ndim - 1; negative ones count from the end."""
    if type(axis) is not int and not isinstance(axis, (int, np.integer)):
        raise TypeError(f"{op}: an axis is a whole number, not {axis!r}")
    if not -ndim <= axis < ndim:
        raise ValueError(f"{op}: there is no axis {axis} in a tensor of {ndim} axes")
    return axis % ndim


def as_axes(axis: Axis, ndim: int, op: str) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(ndim))
    if isinstance(axis, int):
        return (one_axis(axis, ndim, op),)
    axes = tuple([one_axis(a, ndim, op) for a in (axis if isinstance(axis, (tuple, list)) else (axis,))])
    if not axes:
        raise ValueError(
            f"{op}: an empty axis=() is every axis in torch and none in NumPy: name the axes, or leave it out"
        )
    return axes


# --- arithmetic -----------------------------------------------------------------------------------------------


@silent
def add(x: Any, y: Any) -> Tensor:
    """z = x + y.  Both parents get dL/dz as it is."""
    x, y = operands(x, y, "add")
    z, x_shape, y_shape, x_needs, y_needs = x.data + y.data, x.shape, y.shape, x.requires_grad, y.requires_grad

    def backward(dz):
        return unbroadcast(dz, x_shape) if x_needs else None, unbroadcast(dz, y_shape) if y_needs else None

    return node(z, (x, y), backward, "add", linear=True)


@silent
def sub(x: Any, y: Any) -> Tensor:
    """z = x - y.  dL/dx = dL/dz and dL/dy = -dL/dz."""
    x, y = operands(x, y, "sub")
    z, x_shape, y_shape, x_needs, y_needs = x.data - y.data, x.shape, y.shape, x.requires_grad, y.requires_grad

    def backward(dz):
        return unbroadcast(dz, x_shape) if x_needs else None, unbroadcast(-dz, y_shape) if y_needs else None

    return node(z, (x, y), backward, "sub", linear=True)


@silent
def mul(x: Any, y: Any) -> Tensor:
    """z = x * y.  dL/dx = dL/dz * y and dL/dy = dL/dz * x."""
    x, y = operands(x, y, "mul")
    a, b, x_needs, y_needs = x.data, y.data, x.requires_grad, y.requires_grad

    def backward(dz):
        return unbroadcast(dz * b, a.shape) if x_needs else None, unbroadcast(dz * a, b.shape) if y_needs else None

    return node(a * b, (x, y), backward, "mul")


@silent
def div(x: Any, y: Any) -> Tensor:
    """z = x / y.  dL/dx = dL/dz / y and dL/dy = -dL/dz * z / y.  Integers are divided as float32."""
    x, y = operands(x, y, "div")
    x, y = as_float(x), as_float(y)
    z, b, x_needs, y_needs = x.data / y.data, y.data, x.requires_grad, y.requires_grad
    x_shape = x.shape

    def backward(dz):
        dx = unbroadcast(dz / b, x_shape) if x_needs else None
        dy = unbroadcast(-dz * z / b, b.shape) if y_needs else None
        return dx, dy

    return node(z, (x, y), backward, "div")


@silent
def pow(x: Any, exponent: Any) -> Tensor:
    """z = x^n.  dL/dx = dL/dz * n * x^(n-1), also for negative x if n is whole;  dL/dn = dL/dz * z * log(x).

    As in PyTorch the gradient of x is 0 where n is 0, and that of n is 0 where x is 0 and n >= 0.
    """
    x, n = operands(x, exponent, "pow")
    a, b, xp, x_needs, n_needs = x.data, n.data, x.xp, x.requires_grad, n.requires_grad
    z = a**b

    def backward(dz):
        dx = dn = None
        if x_needs:
            dx = unbroadcast(choose(b == 0, 0, dz * b * a ** (b - 1), dz), a.shape)
        if n_needs:
            dn = unbroadcast(choose((a == 0) & (b >= 0), 0, dz * z * xp.log(a), dz), b.shape)
        return dx, dn

    return node(z, (x, n), backward, "pow")


@silent
def mod(x: Any, y: Any) -> Tensor:
    """z = x - y floor(x / y), the remainder with the sign of y.  dL/dx = dL/dz and dL/dy = -dL/dz * floor(x / y).

    That is PyTorch's gradient: where the remainder jumps back to 0, the slope is that beside the jump.
    """
    x, y = operands(x, y, "mod")
    a, b, xp = x.data, y.data, x.xp

    def backward(dz):
        return unbroadcast(dz, a.shape), unbroadcast(-dz * xp.floor_divide(a, b), b.shape)

    return node(xp.remainder(a, b), (x, y), backward, "mod")


@silent
def floordiv(x: Any, y: Any) -> Tensor:
    """floor(x / y), a constant: it stays the same when x or y moves a little, and no gradient flows through it."""
    x, y = operands(x, y, "floordiv")
    return Tensor.wrap(x.xp.asarray(x.xp.floor_divide(x.data, y.data)))


def neg(x: Tensor) -> Tensor:
    """y = -x.  dL/dx = -dL/dy."""
    return node(-x.data, (x,), lambda dy: (-dy,), "neg", linear=True)


@silent
def maximum(x: Any, y: Any) -> Tensor:
    """z = the larger of x and y; it gets the gradient, and equal ones get half each (PyTorch's choice)."""
    x, y = operands(x, y, "maximum")
    return _chosen(x, y, x.xp.maximum(x.data, y.data), x.xp.less, "maximum")


@silent
def minimum(x: Any, y: Any) -> Tensor:
    """z = the smaller of x and y; it gets the gradient, and equal ones get half each (PyTorch's choice)."""
    x, y = operands(x, y, "minimum")
    return _chosen(x, y, x.xp.minimum(x.data, y.data), x.xp.greater, "minimum")


def _chosen(x: Tensor, y: Tensor, z: Array, loses: Callable[[Array, Array], Array], op: str) -> Tensor:
    """The node of maximum and minimum: the loser gets no gradient. Against NaN nobody loses, and both get all of it."""
    a, b = x.data, y.data

    def backward(dz):
        share = choose(a == b, dz * 0.5, dz, dz)
        dx, dy = choose(loses(a, b), 0, share, dz), choose(loses(b, a), 0, share, dz)
        return unbroadcast(dx, a.shape), unbroadcast(dy, b.shape)

    return node(z, (x, y), backward, op)


def compare(x: Any, y: Any, how: str) -> Tensor:
    """A truth value for each pair (`how` names NumPy's function); a constant: no gradient flows through it."""
    x, y = operands(x, y, how)
    return Tensor.wrap(x.xp.asarray(getattr(x.xp, how)(x.data, y.data)))


def logical(x: Any, y: Any, how: str) -> Tensor:
    """`compare` for masks: "logical_and", "logical_or" or "logical_xor" of two truth values."""
    x, y = operands(x, y, how)
    if x.dtype != np.bool_:
        raise TypeError(f"&, | and ^ combine truth values, not {x.dtype}: compare first, as in (x > 0) & (y > 0)")
    return compare(x, y, how)


# --- functions of one element ---------------------------------------------------------------------------------


@silent
def exp(x: Tensor) -> Tensor:
    """y = e^x, element-wise.  dL/dx = dL/dy * y, because the exponential is its own derivative."""
    x = as_float(x)
    y = x.xp.exp(x.data)

    def backward(dy):
        return (dy * y,)

    return node(y, (x,), backward, "exp")


@silent
def log(x: Tensor) -> Tensor:
    """y = ln x.  dL/dx = dL/dy / x."""
    x = as_float(x)
    a = x.data

    def backward(dy):
        return (dy / a,)

    return node(x.xp.log(a), (x,), backward, "log")


@silent
def sqrt(x: Tensor) -> Tensor:
    """y = the square root of x.  dL/dx = dL/dy / (2 y), infinite at 0."""
    x = as_float(x)
    y = x.xp.sqrt(x.data)

    def backward(dy):
        return (dy / (2 * y),)

    return node(y, (x,), backward, "sqrt")


def tanh(x: Tensor) -> Tensor:
    """y = tanh x.  dL/dx = dL/dy * (1 - y^2)."""
    x = as_float(x)
    y = x.xp.tanh(x.data)

    def backward(dy):
        return (dy * (1 - y * y),)

    return node(y, (x,), backward, "tanh")


@silent
def sin(x: Tensor) -> Tensor:
    """y = sin x, in radians.  dL/dx = dL/dy * cos x."""
    x = as_float(x)
    a, xp = x.data, x.xp

    def backward(dy):
        return (dy * xp.cos(a),)

    return node(xp.sin(a), (x,), backward, "sin")


@silent
def cos(x: Tensor) -> Tensor:
    """y = cos x, in radians.  dL/dx = -dL/dy * sin x."""
    x = as_float(x)
    a, xp = x.data, x.xp

    def backward(dy):
        return (-dy * xp.sin(a),)

    return node(xp.cos(a), (x,), backward, "cos")


@silent
def erf(x: Tensor) -> Tensor:
    """y = 2/sqrt(pi) * (integral of e^(-t^2) from 0 to x).  dL/dx = dL/dy * 2/sqrt(pi) * e^(-x^2).

    Exact to a few units in the last place; see `erf_array` for how.
    """
    x = as_float(x)
    a, xp = x.data, x.xp

    def backward(dy):
        return (dy * (2 / math.sqrt(math.pi)) * xp.exp(-a * a),)

    return node(erf_array(a), (x,), backward, "erf")


@functools.cache
def _erf_series(width: float, degree: int) -> list[float]:
    """Chebyshev coefficients of erf(x)/x as a function of s in [-1, 1], where x^2 = width^2 * (s + 1) / 2.

    With s = cos t the k-th polynomial is cos(k t), and the n = degree + 1 places t_j = pi (2 j + 1) / (2 n) give
    c_k = 2/n * sum_j erf(x_j)/x_j * cos(k t_j), half of that for k = 0. All angles are multiples of pi/(2 n): taken
    from a table, and added with fsum, they cost no digits. (NumPy's chebinterpolate loses two.)
    """
    n = degree + 1
    cosine = [math.cos(math.pi * m / (2 * n)) for m in range(4 * n)]
    x = [width * math.cos(math.pi * (2 * j + 1) / (4 * n)) for j in range(n)]
    c = [
        2 / n * math.fsum(math.erf(x[j]) / x[j] * cosine[(2 * j + 1) * k % (4 * n)] for j in range(n)) for k in range(n)
    ]
    return [c[0] / 2, *c[1:]]


def erf_array(x: Array) -> Array:
    """erf of a NumPy or CuPy array; neither library has it.

    erf(x)/x is a smooth function of x^2, so a Chebyshev series in x^2 (interpolating Python's math.erf, computed
    once) gives it to the last digits, and multiplying by x keeps the relative accuracy near 0. The series is
    summed by Clenshaw's recurrence (1955): b_k = 2 s b_(k+1) - b_(k+2) + c_k.
    """
    xp = xp_of(x)
    end, degree = (6.0, 56) if x.dtype == np.float64 else (4.0, 22)  # beyond the end, erf is 1 to the last digit
    width = 1.08 * end  # a series is least exact at the end of its width
    inside = xp.clip(x, -end, end)
    s = inside * inside * (2 / width**2) - 1
    *rest, last = _erf_series(width, degree)
    b1, b2 = xp.full_like(s, last), xp.zeros_like(s)
    for c in reversed(rest[1:]):
        b1, b2 = 2 * s * b1 - b2 + c, b1
    y = xp.clip(inside * (s * b1 - b2 + rest[0]), -1.0, 1.0)
    return xp.where(xp.abs(x) < end, y, xp.sign(x))  # exactly 1: GELU multiplies 1 + erf(x) by any large x


def relu(x: Tensor) -> Tensor:
    """y = max(x, 0).  dL/dx = 0 where x <= 0 (also at 0, PyTorch's choice), else dL/dy (also for NaN)."""
    a, xp = x.data, x.xp

    def backward(dy):
        return (choose(a <= 0, 0, dy, dy),)  # not dy times 0, which is NaN for an infinite dy

    return node(xp.maximum(a, 0).astype(a.dtype, copy=False), (x,), backward, "relu")


def abs(x: Tensor) -> Tensor:
    """y = |x|.  dL/dx = dL/dy * sign(x), which is 0 at 0 (PyTorch's choice)."""
    a, xp = x.data, x.xp

    def backward(dy):
        return (dy * xp.sign(a),)

    return node(xp.abs(a), (x,), backward, "abs")


def sign(x: Tensor) -> Tensor:
    """y = 1, 0 or -1 where x is positive, 0 or negative; a constant: no gradient flows through it."""
    return Tensor.wrap(x.xp.asarray(x.xp.sign(x.data)))


def clone(x: Tensor) -> Tensor:
    """y = x in memory of its own.  dL/dx = dL/dy."""
    return node(x.data.copy(), (x,), lambda dy: (dy,), "clone", linear=True)


def clip(x: Tensor, low: float | None = None, high: float | None = None) -> Tensor:
    """y = x, but at least `low` and at most `high`.  dL/dx = dL/dy inside and at the bounds, else 0 (PyTorch's).

    One of the two bounds may be left out. They are numbers; for tensors see `maximum` and `minimum`.
    """
    if not isinstance(low, (numbers.Real, type(None))) or not isinstance(high, (numbers.Real, type(None))):
        raise TypeError("clip: low and high are numbers; for tensors use x.maximum(low).minimum(high)")
    if low is None and high is None:
        raise ValueError("clip: give low, high or both")
    if isinstance(low, float) or isinstance(high, float) or is_float(x.dtype):
        x = as_float(x)
    a, xp = x.data, x.xp
    if not is_float(a.dtype):
        return Tensor.wrap(xp.clip(a, low, high))
    low = -math.inf if low is None else low
    high = math.inf if high is None else high

    def backward(dy):
        return (choose((a >= low) & (a <= high), dy, 0, dy),)

    return node(xp.clip(a, low, high), (x,), backward, "clip")


def where(condition: Tensor, x: Any, y: Any) -> Tensor:
    """z = x where the condition is true, else y; the gradient goes to the one that was taken."""
    if not isinstance(condition, Tensor):
        raise TypeError(f"where: the condition must be a tensor, not a {type(condition).__name__}")
    if not isinstance(x, Tensor) and not isinstance(y, Tensor):
        x = _constant(x, Tensor.wrap(condition.xp.zeros((), np.float32)))
    x, y = operands(x, y, "where")
    check_one_device((condition, x), "where")
    chosen, x_shape, y_shape = condition.data.astype(bool), x.shape, y.shape
    if not (broadcastable(chosen.shape, x_shape) and broadcastable(chosen.shape, y_shape)):
        raise ValueError(
            f"where: a condition of shape {chosen.shape} does not broadcast against {x_shape} and {y_shape}"
        )

    def backward(dz):
        dx, dy = choose(chosen, dz, 0, dz), choose(chosen, 0, dz, dz)
        return unbroadcast(dx, x_shape), unbroadcast(dy, y_shape)

    return node(choose(chosen, x.data, y.data, x.data), (x, y), backward, "where", linear=True)


@silent
def cast(x: Tensor, dtype: Any) -> Tensor:
    """The same numbers in another type; the gradient is cast back. Only floats pass a gradient on."""
    dtype = np.dtype(dtype)
    if x.dtype == dtype:
        return x
    y = x.data.astype(dtype)
    if not is_float(dtype):
        return Tensor.wrap(y)
    before = x.dtype
    return node(y, (x,), lambda dy: (dy.astype(before),), "cast", linear=True)


def to(x: Tensor, device: str) -> Tensor:
    """This tensor on another device; the gradient travels back."""
    target, home = get_device(device), device_of(x.data)
    if target is home:
        return x

    def backward(dy):
        return (home.from_host(target.to_host(dy)),)

    return node(target.from_host(home.to_host(x.data)), (x,), backward, "to", linear=True)


# --- reductions -----------------------------------------------------------------------------------------------


@silent
def sum(x: Tensor, axis: Axis = None, keepdim: bool = False) -> Tensor:
    """y = the sum over the axes.  Each summand counts once, so dL/dx is dL/dy at all of its places."""
    a = x.data
    axes, shape = None if axis is None else as_axes(axis, a.ndim, "sum"), a.shape

    def backward(dy):
        if dy.ndim and not keepdim:
            dy = dy.reshape(tuple(1 if i in axes else size for i, size in enumerate(shape)))
        return (xp_of(dy).broadcast_to(dy, shape),)

    return node(sum_over(a, axes, keepdim), (x,), backward, "sum", linear=True)


def max(x: Tensor, axis: Axis = None, keepdim: bool = False) -> Tensor:
    """y = the largest element over the axes; it gets the gradient, equal ones share it evenly (torch.amax)."""
    return _extreme(x, axis, keepdim, "max")


def min(x: Tensor, axis: Axis = None, keepdim: bool = False) -> Tensor:
    """y = the smallest element over the axes; it gets the gradient, equal ones share it evenly (torch.amin)."""
    return _extreme(x, axis, keepdim, "min")


def _extreme(x: Tensor, axis: Axis, keepdim: bool, op: str) -> Tensor:
    """The node of max and min: the gradient goes to whichever equals y."""
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


def argmax(x: Tensor, axis: int | None = None, keepdim: bool = False) -> Tensor:
    """The position of the largest element, the first of equal ones; over everything if no axis is given."""
    return _position(x, axis, keepdim, "argmax")


def argmin(x: Tensor, axis: int | None = None, keepdim: bool = False) -> Tensor:
    """The position of the smallest element, the first of equal ones; over everything if no axis is given."""
    return _position(x, axis, keepdim, "argmin")


def _position(x: Tensor, axis: int | None, keepdim: bool, op: str) -> Tensor:
    axis = axis if axis is None else one_axis(axis, x.ndim, op)
    _check_choice(x.shape, as_axes(axis, x.ndim, op), op)
    return Tensor.wrap(x.xp.asarray(getattr(x.xp, op)(x.data, axis=axis, keepdims=keepdim)))


# --- the product ----------------------------------------------------------------------------------------------


@silent
def matmul(x: Any, y: Any) -> Tensor:
    """Z = X @ Y over the last two axes, with the axes before broadcast.  dX = dZ @ Y^T and dY = X^T @ dZ.

    Why: Z[i,j] = sum_k X[i,k] Y[k,j], so dL/dX[i,k] = sum_j dZ[i,j] Y[k,j], which is row i of dZ times row k of Y.
    A vector on the left is a row, a vector on the right a column; that axis is dropped again from the result.
    """
    x, y = (x, as_tensor(y, x)) if isinstance(x, Tensor) else (as_tensor(x, y), y)
    check_one_device((x, y), "matmul")
    a, b, x_needs, y_needs = x.data, y.data, x.requires_grad, y.requires_grad
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(f"matmul: {a.shape} @ {b.shape}: a single number has no axis to multiply over")
    inner_a, inner_b = a.shape[-1], b.shape[-2] if b.ndim > 1 else b.shape[0]
    if inner_a != inner_b:
        raise ValueError(f"matmul: {a.shape} @ {b.shape}: inner sizes {inner_a} and {inner_b} differ")
    if not broadcastable(a.shape[:-2], b.shape[:-2]):
        raise ValueError(f"matmul: {a.shape} @ {b.shape}: the axes before the last two do not broadcast")
    if a.ndim == 1:
        product = matmul(x.reshape(1, -1), y)
        return product.reshape(*product.shape[:-2], *product.shape[-1:]) if b.ndim > 1 else product.reshape(())
    if b.ndim == 1:
        return matmul(x, y.reshape(-1, 1)).squeeze(-1)
    if a.dtype != b.dtype or a.dtype.kind == "V":  # bfloat16, of which CuPy multiplies no matrices (linear does)
        dtype = promote(a.dtype, b.dtype)
        dtype = np.dtype(np.float32) if dtype.kind == "V" else dtype
        return matmul(cast(x, dtype), cast(y, dtype))

    def backward(dz):
        da = unbroadcast(dz @ b.swapaxes(-1, -2), a.shape) if x_needs else None
        db = unbroadcast(a.swapaxes(-1, -2) @ dz, b.shape) if y_needs else None
        return da, db

    return node(a @ b, (x, y), backward, "matmul")


# --- shape: the numbers stay, their places change -------------------------------------------------------------


def as_shape(sizes: tuple) -> tuple[int, ...]:
    """The sizes, whether they came as f(2, 3) or as f((2, 3))."""
    return tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes


def reshape(x: Tensor, *shape: Any) -> Tensor:
    """The same elements in the same order under another shape; one size may be -1, which is then worked out.

    The memory is shared where NumPy can share it. Where it cannot, as of a transposed matrix, the result is a copy.
    """
    shape, before = as_shape(shape), x.shape
    try:
        y = x.data.reshape(shape)
    except (ValueError, TypeError):
        raise ValueError(f"reshape: {x.numel()} elements of shape {before} do not fill {tuple(shape)}") from None
    return node(y, (x,), lambda dy: (dy.reshape(before),), "reshape", linear=True, view=_is_view(y, x))


def _is_view(y: Array, x: Tensor) -> bool:
    """Whether an array that was made of x's array lies in the same memory. (A copy of it may be a view of a copy.)"""
    base = y.base
    return base is x.data or (base is not None and bool(x.xp.may_share_memory(y, x.data)))


def permute(x: Tensor, *axes: Any) -> Tensor:
    """The axes in another order: axis i of the result is axis axes[i] of x."""
    axes = tuple(one_axis(axis, x.ndim, "permute") for axis in as_shape(axes))
    if sorted(axes) != list(range(x.ndim)):
        raise ValueError(f"permute: {axes} does not name each axis of a tensor of {x.ndim} axes once")
    back = tuple(sorted(range(x.ndim), key=axes.__getitem__))
    return node(x.data.transpose(axes), (x,), lambda dy: (dy.transpose(back),), "permute", view=True)


def expand(x: Tensor, *shape: Any) -> Tensor:
    """Stretch axes of size 1, without copying; -1 keeps a size.  dL/dx sums over what was stretched."""
    shape = as_shape(shape)
    extra = len(shape) - x.ndim
    shape = tuple(x.shape[i - extra] if size == -1 and i >= extra else size for i, size in enumerate(shape))
    before = x.shape
    try:
        y = x.xp.broadcast_to(x.data, shape)
    except ValueError:
        raise ValueError(f"expand: a tensor of shape {before} cannot be stretched to {shape}") from None
    return node(y, (x,), lambda dy: (unbroadcast(dy, before),), "expand", view=True)


def pad(x: Tensor, padding: Sequence[tuple[int, int]], value: float = 0.0) -> Tensor:
    """Add `value` around: padding[i] = (how many before, how many after) along axis i."""
    pairs = list(padding) if np.iterable(padding) else [padding]
    if len(pairs) != x.ndim or any(np.shape(pair) != (2,) or np.min(pair) < 0 for pair in pairs):
        raise ValueError(f"pad: needs a pair of numbers >= 0 for each of {x.ndim} axes, not {pairs}")
    if x.ndim == 0:  # a single number has no sides
        return x
    inner = tuple(slice(before, before + size) for (before, _), size in zip(padding, x.shape, strict=True))
    y = x.xp.pad(x.data, padding, constant_values=value)
    return node(y, (x,), lambda dy: (dy[inner],), "pad", linear=True)


def as_tensors(values: tuple, op: str) -> tuple[Tensor, ...]:
    """Tensors, and what becomes one beside them, whether they came as f(x, y) or as f([x, y])."""
    values = tuple(values[0]) if len(values) == 1 and isinstance(values[0], (tuple, list)) else values
    like = next((value for value in values if isinstance(value, Tensor)), None)
    if like is None:
        raise TypeError(f"{op}: needs tensors; make them with Tensor(...)")
    tensors = tuple(as_tensor(value, like) for value in values)
    check_one_device(tensors, op)
    return tensors


def cat(*tensors: Tensor, axis: int = 0) -> Tensor:
    """This tensor and the others, one after the other along an axis; each gets its piece of the gradient."""
    tensors = as_tensors(tensors, "cat")
    first = tensors[0]
    axis = one_axis(axis, first.ndim, "cat")
    for tensor in tensors:
        rest, expected = list(tensor.shape), list(first.shape)
        if len(rest) == len(expected):
            rest[axis] = expected[axis]
        if rest != expected:
            shapes = ", ".join(str(t.shape) for t in tensors)
            raise ValueError(f"cat: shapes {shapes} differ in more than axis {axis}")
    dtype = functools.reduce(promote, (tensor.dtype for tensor in tensors))
    tensors = tuple(cast(tensor, dtype) for tensor in tensors)
    ends = np.cumsum([tensor.shape[axis] for tensor in tensors])[:-1].tolist()
    xp = first.xp

    def backward(dy):
        return tuple(xp.split(dy, ends, axis=axis))

    return node(xp.concatenate([tensor.data for tensor in tensors], axis), tensors, backward, "cat", linear=True)


# --- picking elements -----------------------------------------------------------------------------------------


def raw_index(index: Any, xp: Any) -> Any:
    """An index with arrays in place of tensors, as NumPy and CuPy want it."""
    if isinstance(index, tuple):
        return tuple(raw_index(part, xp) for part in index)
    if isinstance(index, list):
        return xp.asarray(index, dtype=None if index else np.int64)
    if isinstance(index, np.ndarray):
        return xp.asarray(index)
    return index.data if isinstance(index, Tensor) else index


def getitem(x: Tensor, index: Any) -> Tensor:
    """y = x[index] with NumPy's rules.  dL/dx is dL/dy put back in place, and summed where an index occurs twice.

    Slices and single numbers give a view; integer and truth-value arrays ("advanced" indexing) pick and copy.
    """
    index, shape, xp = raw_index(index, x.xp), x.shape, x.xp
    parts = index if isinstance(index, tuple) else (index,)
    advanced = any(hasattr(part, "dtype") and part.ndim > 0 for part in parts)
    if advanced and x.requires_grad:  # a copy, because the caller may write other positions into the same array
        index = tuple(part.copy() if hasattr(part, "dtype") else part for part in parts)

    def backward(dy):
        kind = np.float32 if advanced and dy.dtype.kind == "V" else dy.dtype  # sums of bfloat16 would be coarse
        dx = xp.zeros(shape, kind)
        if advanced:
            scatter_add(dx, index, dy.astype(kind, copy=False))
        else:
            dx[index] = dy
        return (dx.astype(dy.dtype, copy=False),)

    try:
        y = x.data[index]
        if isinstance(y, np.generic):  # NumPy copies a single element, unless an ellipsis asks for an array
            y = x.data[(*parts, ...)]
    except IndexError as error:
        raise IndexError(f"getitem: {error} (a tensor of shape {shape})") from None
    return node(y, (x,), backward, "getitem", linear=True, view=not advanced and _is_view(y, x))
