"""Functions applied to each element, such as exp, log, tanh, erf and relu; copies, and moves to another device."""

from __future__ import annotations

import functools
import math
import numbers

import numpy as np

from tinygrad_lite.device import Array, device_of, get_device, is_float, xp_of
from tinygrad_lite.ops.common import as_float, refuse_truth_values, silent, zero_unless
from tinygrad_lite.tensor import Tensor, check_fits, constant, node, respelled

BLOCK = 1 << 15  # elements


@silent
def exp(x: Tensor) -> Tensor:
    """y = e^x, element-wise.  dL/dx = dL/dy * y, because the exponential is its own derivative."""
    x = as_float(x)
    y = x.xp.exp(x.data)

    def backward(dy):
        return (dy * y,)

    return node(y, (x,), backward, "exp", uses=())


@silent
def log(x: Tensor) -> Tensor:
    """y = ln x.  dL/dx = dL/dy / x."""
    x = as_float(x)
    a = x.data

    def backward(dy):
        return (dy / a,)

    return node(x.xp.log(a), (x,), backward, "log", uses_result=False)


@silent
def sqrt(x: Tensor) -> Tensor:
    """y = the square root of x.  dL/dx = dL/dy / (2 y), infinite at 0."""
    x = as_float(x)
    y = x.xp.sqrt(x.data)

    def backward(dy):
        return (dy / (2 * y),)

    return node(y, (x,), backward, "sqrt", uses=())


def tanh(x: Tensor) -> Tensor:
    """y = tanh x.  dL/dx = dL/dy * (1 - y^2)."""
    x = as_float(x)
    y = x.xp.tanh(x.data)

    def backward(dy):
        return (dy * (1 - y * y),)

    return node(y, (x,), backward, "tanh", uses=())


@silent
def sigmoid(x: Tensor) -> Tensor:
    """y = 1 / (1 + e^-x).  dL/dx = dL/dy * y (1 - y).

    The slope is computed as e^-x y^2, because 1 - y loses the digits of a small e^-x. Where e^-x overflows, y is below
    the smallest normal number, and y and the slope are 0.
    """
    x = as_float(x)
    e, xp = x.xp.exp(-x.data), x.xp

    def backward(dy):
        y = 1 / (1 + e)
        return (dy * (xp.minimum(e, np.finfo(e.dtype).max) * y * y),)

    return node(1 / (1 + e), (x,), backward, "sigmoid", linear=True)


@silent
def sin(x: Tensor) -> Tensor:
    """y = sin x, in radians.  dL/dx = dL/dy * cos x."""
    x = as_float(x)
    a, xp = x.data, x.xp

    def backward(dy):
        return (dy * xp.cos(a),)

    return node(xp.sin(a), (x,), backward, "sin", uses_result=False)


@silent
def cos(x: Tensor) -> Tensor:
    """y = cos x, in radians.  dL/dx = -dL/dy * sin x."""
    x = as_float(x)
    a, xp = x.data, x.xp

    def backward(dy):
        return (-dy * xp.sin(a),)

    return node(xp.cos(a), (x,), backward, "cos", uses_result=False)


@silent
def erf(x: Tensor) -> Tensor:
    """y = 2/sqrt(pi) * (integral of e^(-t^2) from 0 to x).  dL/dx = dL/dy * 2/sqrt(pi) * e^(-x^2).

    Exact to 6 units in the last place (14 in float64); see `erf_array` for how.
    """
    x = as_float(x)
    a, xp = x.data, x.xp

    def backward(dy):
        return (dy * (2 / math.sqrt(math.pi)) * xp.exp(-a * a),)

    return node(erf_array(a), (x,), backward, "erf", uses_result=False)


@functools.cache
def _erf_series(width: float, degree: int) -> list[float]:
    """Chebyshev coefficients of erf(x)/x as a function of s in [-1, 1], where x^2 = width^2 * (s + 1) / 2.

    With s = cos t the k-th polynomial is cos(k t), and the n = degree + 1 places t_j = pi (2 j + 1) / (2 n) give
    c_k = 2/n * sum_j erf(x_j)/x_j * cos(k t_j), half of that for k = 0. All angles are multiples of pi/(2 n): with
    cosines from a table, and fsum, no digits are lost. (NumPy's chebinterpolate loses two.)
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
    summed by Clenshaw's recurrence (1955): b_k = 2 s b_(k+1) - b_(k+2) + c_k, in place, and on a CPU for blocks of x
    that stay in the processor's cache with all intermediate results.
    """
    xp = xp_of(x)
    if xp is np and x.size > BLOCK:
        return np.concatenate([*map(erf_array, np.array_split(x.reshape(-1), -(-x.size // BLOCK)))]).reshape(x.shape)
    end, degree = (6.0, 56) if x.dtype == np.float64 else (4.0, 22)  # beyond the end, erf is 1 to the last digit
    width = 1.08 * end  # a series is least accurate at the ends of its interval
    inside = xp.clip(x, -end, end)
    s = inside * inside * (2 / width**2) - 1
    *rest, last = _erf_series(width, degree)
    twice, b1, b2, new = 2 * s, xp.full_like(s, last), xp.zeros_like(s), xp.empty_like(s)
    for c in reversed(rest[1:]):
        xp.multiply(twice, b1, out=new)
        new -= b2
        new += c
        b1, b2, new = new, b1, b2
    y = xp.clip(inside * (s * b1 - b2 + rest[0]), -1.0, 1.0)
    return xp.where(xp.abs(x) < end, y, xp.sign(x))  # exactly 1: GELU multiplies 1 + erf(x) by any large x


def relu(x: Tensor, **names) -> Tensor:
    """y = max(x, 0).  dL/dx = 0 where x <= 0 (also at 0, PyTorch's choice), else dL/dy (also for NaN)."""
    if names:
        respelled(relu, (), names)
    y = x.xp.maximum(x.data, 0).astype(x.dtype, copy=False)

    def backward(dy):
        # y <= 0 where x <= 0, and the next layer keeps y anyway. Not dy times 0, which is NaN for an infinite dy.
        return (zero_unless(~(y <= 0), dy),)

    return node(y, (x,), backward, "relu", uses=())


def abs(x: Tensor) -> Tensor:
    """y = |x|.  dL/dx = dL/dy * sign(x), which is 0 at 0 (PyTorch's choice)."""
    a, xp = x.data, x.xp

    def backward(dy):
        return (dy * xp.sign(a),)

    return node(xp.abs(a), (x,), backward, "abs", uses_result=False)


def sign(x: Tensor) -> Tensor:
    """y = 1, 0 or -1 where x is positive, 0 or negative (NaN where it is NaN); a constant, without a gradient."""
    refuse_truth_values(x, "sign")
    return constant(x.xp.sign(x.data), x)


def clip(x: Tensor, low: float | None = None, high: float | None = None, *more, **names) -> Tensor:
    """y = x, but at least `low` and at most `high`.  dL/dx = dL/dy inside and at the bounds (as in PyTorch), else 0.

    One of the two bounds may be left out. They are numbers; for tensors see `maximum` and `minimum`.
    """
    low, high = respelled(clip, more, names, low, high)
    if not isinstance(low, (numbers.Real, type(None))) or not isinstance(high, (numbers.Real, type(None))):
        raise TypeError("clip: low and high are numbers; for tensors use x.maximum(low).minimum(high)")
    if low is None and high is None:
        raise ValueError("clip: give low, high or both")
    if isinstance(low, (float, np.floating)) or isinstance(high, (float, np.floating)) or is_float(x.dtype):
        x = as_float(x)
    a, xp = x.data, x.xp
    if not is_float(a.dtype):
        check_fits([bound for bound in (low, high) if bound is not None], a.dtype, "clip")
        return constant(xp.clip(a, low, high), x)
    low = -math.inf if low is None else low
    high = math.inf if high is None else high

    def backward(dy):
        return (zero_unless((a >= low) & (a <= high), dy),)

    return node(xp.clip(a, low, high), (x,), backward, "clip", uses_result=False)


def clone(x: Tensor) -> Tensor:
    """y = a copy of x.  dL/dx = dL/dy."""
    return node(x.data.copy(), (x,), lambda dy: (dy,), "clone", linear=True)


def to(x: Tensor, device: str | None = None, *more, **names) -> Tensor:
    """This tensor on another device; the gradient is copied back."""
    target, home = get_device(*respelled(to, more, names, device)), device_of(x.data)
    if target is home:
        return x

    def backward(dy):
        return (home.from_host(target.to_host(dy)),)

    return node(target.from_host(home.to_host(x.data)), (x,), backward, "to", linear=True)
