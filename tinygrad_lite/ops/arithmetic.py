"""Arithmetic: operations on two operands, comparisons, and matrix multiplication."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tinygrad_lite.device import Array, is_float
from tinygrad_lite.ops.common import (
    as_float,
    as_tensor,
    broadcastable,
    cast,
    choose,
    operands,
    promote,
    refuse_truth_values,
    silent,
    unbroadcast,
)
from tinygrad_lite.tensor import Tensor, check_one_device, constant, node, noted


@silent
def add(x: Any, y: Any) -> Tensor:
    """z = x + y.  Both parents get dL/dz unchanged."""
    x, y = operands(x, y, "add")
    z, x_shape, y_shape, x_needs, y_needs = x.data + y.data, x.shape, y.shape, x.requires_grad, y.requires_grad

    def backward(dz):
        return unbroadcast(dz, x_shape) if x_needs else None, unbroadcast(dz, y_shape) if y_needs else None

    return node(z, (x, y), backward, "add", linear=True)


@silent
def sub(x: Any, y: Any) -> Tensor:
    """z = x - y.  dL/dx = dL/dz and dL/dy = -dL/dz."""
    x, y = operands(x, y, "sub")
    refuse_truth_values(x, "sub")
    z, x_shape, y_shape, x_needs, y_needs = x.data - y.data, x.shape, y.shape, x.requires_grad, y.requires_grad

    def backward(dz):
        return unbroadcast(dz, x_shape) if x_needs else None, unbroadcast(-dz, y_shape) if y_needs else None

    return node(z, (x, y), backward, "sub", linear=True)


@silent
def mul(x: Any, y: Any) -> Tensor:
    """z = x * y.  dL/dx = dL/dz * y and dL/dy = dL/dz * x."""
    x, y = operands(x, y, "mul")
    x_shape, y_shape, x_needs, y_needs = x.shape, y.shape, x.requires_grad, y.requires_grad
    z, a, b = x.data * y.data, x.data if y_needs else None, y.data if x_needs else None
    used = None if x_needs and y_needs else (y,) if x_needs else (x,)

    def backward(dz):
        return unbroadcast(dz * b, x_shape) if x_needs else None, unbroadcast(dz * a, y_shape) if y_needs else None

    return node(z, (x, y), backward, "mul", uses=used, uses_result=False)


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

    return node(z, (x, y), backward, "div", uses=(y,), uses_result=y_needs)


@silent
def pow(x: Any, exponent: Any) -> Tensor:
    """z = x^n.  dL/dx = dL/dz * n * x^(n-1), also for negative x if n is whole;  dL/dn = dL/dz * z * log(x).

    As in PyTorch, the gradient of x is 0 where n is 0, and that of n is 0 where x is 0 and n >= 0. For a small whole
    number n, both powers are products: NumPy's power, which is as slow for 3 as for pi, would take 40 times as long.
    """
    x, n = operands(x, exponent, "pow")
    if n.dtype.kind in "iub" and n.device == "cpu" and (n.data < 0).any():
        raise ValueError("pow: an integer to a negative power is a fraction: write x.cast('float32') ** n")
    a, b, xp, x_needs, n_needs = x.data, n.data, x.xp, x.requires_grad, n.requires_grad
    if isinstance(exponent, (int, float)) and exponent in (-4, -3, -2, -1, 2, 3, 4, 5, 6, 7, 8) and a.dtype.kind == "f":
        slope = functools.partial(_power, a, int(exponent) - 1)
        return node(_power(a, int(exponent)), (x, n), lambda dz: (dz * b * slope(), None), "pow", uses_result=False)
    z = a**b

    def backward(dz):
        dx = dn = None
        if x_needs:
            dx = unbroadcast(choose(b == 0, 0, dz * b * a ** (b - 1), dz), a.shape)
        if n_needs:
            dn = unbroadcast(choose((a == 0) & (b >= 0), 0, dz * z * xp.log(a), dz), b.shape)
        return dx, dn

    return node(z, (x, n), backward, "pow", uses_result=n_needs)


def _power(a: Array, n: int) -> Array:
    """a^n as a product."""
    y = functools.reduce(operator.mul, [a] * abs(n))
    return y if n > 0 else 1 / y


@silent
def mod(x: Any, y: Any) -> Tensor:
    """z = x - y floor(x / y), the remainder with the sign of y.  dL/dx = dL/dz and dL/dy = -dL/dz * floor(x / y).

    This is PyTorch's gradient: where the remainder jumps back to 0, it is the slope on either side of the jump.
    """
    x, y = operands(x, y, "mod")
    _check_divisor(y, "mod")
    a, b, xp, y_needs = x.data, y.data, x.xp, y.requires_grad
    z, x_shape, a = xp.remainder(a, b), a.shape, a if y_needs else None

    def backward(dz):
        return unbroadcast(dz, x_shape), unbroadcast(-dz * xp.floor_divide(a, b), b.shape) if y_needs else None

    return node(z, (x, y), backward, "mod", uses=(x, y) if y_needs else (), uses_result=False)


@silent
def floordiv(x: Any, y: Any) -> Tensor:
    """floor(x / y), a constant: it does not change when x or y changes a little, so no gradient flows through it."""
    x, y = operands(x, y, "floordiv")
    _check_divisor(y, "floordiv")
    return constant(x.xp.floor_divide(x.data, y.data), x, y)


def _check_divisor(y: Tensor, op: str) -> None:
    """Raise ZeroDivisionError for an integer 0: integers have no infinity or NaN. (On a GPU it is not read.)"""
    if y.dtype.kind in "iu" and y.device == "cpu" and not y.data.all():
        raise ZeroDivisionError(f"{op}: an integer cannot be divided by 0")


def neg(x: Tensor) -> Tensor:
    """y = -x.  dL/dx = -dL/dy."""
    refuse_truth_values(x, "neg")
    return node(-x.data, (x,), lambda dy: (-dy,), "neg", linear=True)


@silent
def maximum(x: Any, y: Any) -> Tensor:
    """z = the larger of x and y, which gets the gradient; if they are equal, each gets half (PyTorch's choice)."""
    x, y = operands(x, y, "maximum")
    return _chosen(x, y, x.xp.maximum(x.data, y.data), x.xp.less, "maximum")


@silent
def minimum(x: Any, y: Any) -> Tensor:
    """z = the smaller of x and y, which gets the gradient; if they are equal, each gets half (PyTorch's choice)."""
    x, y = operands(x, y, "minimum")
    return _chosen(x, y, x.xp.minimum(x.data, y.data), x.xp.greater, "minimum")


def _chosen(x: Tensor, y: Tensor, z: Array, loses: Callable[[Array, Array], Array], op: str) -> Tensor:
    """The node of maximum and minimum: the loser gets no gradient. Against NaN neither loses, and both get it all."""
    a, b = x.data, y.data

    def backward(dz):
        share = choose(a == b, dz * 0.5, dz, dz)
        dx, dy = choose(loses(a, b), 0, share, dz), choose(loses(b, a), 0, share, dz)
        return unbroadcast(dx, a.shape), unbroadcast(dy, b.shape)

    return node(z, (x, y), backward, op, uses_result=False)


def compare(x: Any, y: Any, how: str) -> Tensor:
    """A truth value for each pair (`how` names NumPy's function); a constant: no gradient flows through it."""
    x, y = operands(x, y, how)
    return constant(getattr(x.xp, how)(x.data, y.data), x, y)


def invert(x: Tensor) -> Tensor:
    """Not x: the opposite of truth values, and integers with every bit flipped, which is -x - 1; a constant."""
    if is_float(x.dtype):
        raise TypeError(f"~ is for truth values and integers, not for {x.dtype}: compare first, as in ~(x > 0)")
    return constant(x.xp.invert(x.data), x)


def logical(x: Any, y: Any, how: str) -> Tensor:
    """`compare` for masks: "logical_and", "logical_or" or "logical_xor" of two truth values."""
    x, y = operands(x, y, how)
    if x.dtype != np.bool_:
        raise TypeError(f"&, | and ^ combine truth values, not {x.dtype}: compare first, as in (x > 0) & (y > 0)")
    return compare(x, y, how)


def where(condition: Tensor, x: Any, y: Any) -> Tensor:
    """z = x where the condition is true, else y; the gradient goes to whichever was taken.

    The condition comes first, as in tinygrad and NumPy; torch's method is x.where(condition, y).
    """
    if not isinstance(condition, Tensor):
        raise TypeError(f"where: the condition must be a tensor, not a {type(condition).__name__}")
    if condition.dtype != np.bool_:
        raise TypeError(
            f"where: the condition holds {condition.dtype}, not truth values: write (x > 0).where(x, y), or mask != 0"
        )
    if isinstance(x, Tensor) and x.data.dtype.kind == "b":  # in torch, x is then the condition
        raise TypeError("where: of truth values, write (condition & x) | (~condition & y)")
    if not isinstance(x, Tensor) and not isinstance(y, Tensor):
        x = as_tensor(x, condition)
    x, y = operands(x, y, "where")
    check_one_device((condition, x), "where")
    chosen, x_shape, y_shape = noted(condition).data.copy(), x.shape, y.shape
    if not (broadcastable(chosen.shape, x_shape) and broadcastable(chosen.shape, y_shape)):
        raise ValueError(
            f"where: a condition of shape {chosen.shape} does not broadcast against {x_shape} and {y_shape}"
        )

    def backward(dz):
        dx, dy = choose(chosen, dz, 0, dz), choose(chosen, 0, dz, dz)
        return unbroadcast(dx, x_shape), unbroadcast(dy, y_shape)

    return node(choose(chosen, x.data, y.data, x.data), (x, y), backward, "where", linear=True)


@silent
def matmul(x: Any, y: Any) -> Tensor:
    """Z = X @ Y over the last two axes, with the others broadcast.  dX = dZ @ Y^T and dY = X^T @ dZ.

    Why: Z[i,j] = sum_k X[i,k] Y[k,j], so dL/dX[i,k] = sum_j dZ[i,j] Y[k,j], the product of row i of dZ and row k of Y.
    A vector on the left is treated as a row, one on the right as a column, and that axis is dropped from the result.
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
    if a.dtype != b.dtype or a.dtype.kind == "V":  # "V" is bfloat16, which CuPy cannot multiply (`linear` can)
        dtype = promote(a.dtype, b.dtype)
        dtype = np.dtype(np.float32) if dtype.kind == "V" else dtype
        return matmul(cast(x, dtype), cast(y, dtype))

    def backward(dz):
        da = unbroadcast(_product(dz, b.swapaxes(-1, -2)), a.shape) if x_needs else None
        db = unbroadcast(_product(a.swapaxes(-1, -2), dz), b.shape) if y_needs else None
        return da, db

    used = None if x_needs and y_needs else (y,) if x_needs else (x,)
    return node(_product(a, b), (x, y), backward, "matmul", uses=used, uses_result=False)


def _product(a: Array, b: Array) -> Array:
    """a @ b; a column times a row has no sums, and is faster without them."""
    return a * b if a.shape[-1] == 1 else a @ b
