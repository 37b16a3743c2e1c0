"""GELU: the activation of GPT and BERT, x times the probability that a standard normal number is below x.

    y = x P(x)    P(x) = (1 + erf(x / sqrt 2)) / 2    p(x) = P'(x) = e^(-x^2 / 2) / sqrt(2 pi)

    dy/dx = P(x) + x p(x)                                            product rule

erf is close to a tanh, and GPT-2 was trained with a form that needs only tanh. It differs from the exact one by up to
5e-4, and is here for weights trained with it. Its p is the derivative of its own P:

    P(x) = (1 + tanh(u)) / 2               u     = sqrt(2 / pi) (x + 0.044715 x^3)
    p(x) = (1 - tanh(u)^2) / 2 * du/dx     du/dx = sqrt(2 / pi) (1 + 3 * 0.044715 x^2)

**After a linear map**, in the first half of a Transformer's feed-forward layer, z = x W^T + b and y = gelu(z). By the
chain rule

    dz = dy gelu'(z)    dx = dz W    dW = dz^T x    db = sum of the rows of dz

They are one operation, `linear_gelu`, because adding the bias and computing GELU would each move an array of all hidden
units to memory and back.

Reference: Hendrycks, Gimpel 2016, section 2 (arXiv:1606.08415).
"""

import functools
import math

import numpy as np

from tinygrad_lite.device import sum_over
from tinygrad_lite.functional.linear import check_linear, linear
from tinygrad_lite.functional.registry import ReferenceAndFused
from tinygrad_lite.ops.elementwise import erf_array
from tinygrad_lite.tensor import Tensor, node

ROOT_2_OVER_PI = math.sqrt(2 / math.pi)


def gelu_composed(x: Tensor, *, approximate: str = "none") -> Tensor:
    """y = x (1 + erf(x / sqrt 2)) / 2, element-wise; or the tanh form of GPT-2.

    Args:
        x: float tensor of any shape.
        approximate: "none" or "tanh", as in torch.
    Returns: the shape and dtype of x.
    Raises: ValueError if there is no such form.
    """
    if wants_tanh(approximate):
        return x * ((x + x**3 * 0.044715) * ROOT_2_OVER_PI).tanh() * 0.5 + x * 0.5
    return x * (x * math.sqrt(0.5)).erf() * 0.5 + x * 0.5


def wants_tanh(approximate: str) -> bool:
    """Whether this is GPT-2's form. Raises: ValueError if there is no such form."""
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate must be 'none' or 'tanh', not {approximate!r}")
    return approximate == "tanh"


# --- the fused version: a first reader may stop here -----------------------------------------------------------
#
# GPT-2's form has u = x q(x^2), where the polynomial q has one power of x^2. With six powers, the same form gives P to
# the last digit of float32, and faster than the exact erf, which is used for float64 only. The coefficients were
# found by weighted least squares, to make the largest error of P as small as possible. Beyond |x| = 6, where P is 0 or
# 1 in float32, it only matters that q stays positive.

GPT2_POLYNOMIAL = (0.044715 * ROOT_2_OVER_PI, ROOT_2_OVER_PI)  # highest power first
ERF_POLYNOMIAL = (1.75617e-09, -1.32263e-07, 3.96474e-06, -5.53062e-05, -3.2595e-05, 0.0363331, 0.797885)
BLOCK = 32768  # elements; four float32 blocks fit into a 1 MiB cache


def gelu_fused(x: Tensor, *, approximate: str = "none") -> Tensor:
    """`gelu_composed` in one node that computes value and derivative together, and keeps only the derivative.

    It computes blocks that stay in the processor's cache, in place: moving each of a dozen intermediate results to
    memory and back would take longer than the arithmetic.
    """
    if x.dtype not in (np.float32, np.float64):
        return gelu_composed(x, approximate=approximate)
    return _with_slope(x, None, np.empty(x.shape, x.dtype), approximate)


def linear_gelu_fused(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, approximate: str = "none") -> Tensor:
    """`linear_gelu_composed` in two nodes; GELU adds the bias, and overwrites the product, which nobody else has."""
    if x.dtype not in (np.float32, np.float64) or any(p is not None and p.dtype != x.dtype for p in (weight, bias)):
        return linear_gelu_composed(x, weight, bias, approximate=approximate)
    check_linear(x, weight, bias)
    product = linear(x, weight)
    return _with_slope(product, bias, product.data, approximate)


def _with_slope(x: Tensor, bias: Tensor | None, y: np.ndarray, approximate: str) -> Tensor:
    """Write gelu(x + bias) into y, which may be the memory of x; keeps the derivative."""
    is_tanh, width = wants_tanh(approximate), 1 if bias is None else max(1, len(bias.data))
    size, kept = max(1, BLOCK // width), np.empty(x.shape, x.dtype)  # rows in a block; the derivative
    z, out, slope = (array.reshape(-1, width) for array in (x.data, y, kept))
    scratch = np.empty((2, min(size, len(z)), width), x.dtype)
    for start in range(0, len(z), size):
        part = slice(start, start + size)
        zs = z[part] if bias is None else np.add(z[part], bias.data, out=out[part])
        p, s, t = slope[part], *scratch[:, : len(zs)]
        _probability(zs, s, p, is_tanh)
        (_tanh_slope if is_tanh else _erf_slope)(zs, s, p, t)
        np.multiply(zs, p, out=out[part])
        p += t

    def backward(dy):
        dz = np.multiply(dy, kept, out=kept)  # the graph is walked only once, so the derivative is not needed again
        return (dz,) if bias is None else (dz, sum_over(dz, tuple(range(dz.ndim - 1))))

    return node(y, (x,) if bias is None else (x, bias), backward, "gelu", linear=True)


def gelu_array(x: np.ndarray, approximate: str = "none") -> np.ndarray:
    """GELU of a small float32 or float64 array, without a tensor or a gradient."""
    s, p = np.empty_like(x), np.empty_like(x)
    return x * _probability(x, s, p, wants_tanh(approximate))


def _probability(x: np.ndarray, s: np.ndarray, p: np.ndarray, is_tanh: bool) -> np.ndarray:
    """Write P(x) into p and x^2 into s; returns p."""
    half, highest, *coefficients, constant = _constants(is_tanh, x.dtype)
    np.multiply(x, x, out=s)
    if x.dtype != np.float32 and not is_tanh:
        p[...] = erf_array(x * math.sqrt(0.5))
    else:
        np.multiply(s, highest, out=p)
        for coefficient in coefficients:
            p += coefficient
            p *= s
        p += constant  # q(s)
        p *= x  # u
        np.tanh(p, out=p)
    p *= half
    p += half
    return p


@functools.cache
def _constants(is_tanh: bool, dtype: np.dtype) -> list[np.ndarray]:
    """1/2 and the coefficients of q, as 0-d arrays.

    NumPy converts a Python number to such an array at each use, and for a short array that takes longer than the
    addition itself.
    """
    return [np.array(number, dtype) for number in (0.5, *(GPT2_POLYNOMIAL if is_tanh else ERF_POLYNOMIAL))]


def _erf_slope(x: np.ndarray, s: np.ndarray, p: np.ndarray, t: np.ndarray) -> None:
    """Write x p(x) = x e^(-s / 2) / sqrt(2 pi) into t, where s = x^2."""
    np.multiply(s, -0.5, out=t)
    np.exp(t, out=t)
    t *= 1 / math.sqrt(2 * math.pi)
    t *= x


def _tanh_slope(x: np.ndarray, s: np.ndarray, p: np.ndarray, t: np.ndarray) -> None:
    """Write x p(x) = x * 2 P (1 - P) du/dx into t, where s = x^2 is overwritten.

    (1 - tanh(u)^2) / 2 = 2 P (1 - P), because P = (1 + tanh(u)) / 2.
    """
    slope, constant = GPT2_POLYNOMIAL
    np.subtract(1.0, p, out=t)
    t *= p
    t *= x
    s *= 6 * slope
    s += 2 * constant  # 2 du/dx
    t *= s


gelu = ReferenceAndFused(gelu_composed, cpu=gelu_fused, cuda="tinygrad_lite.cuda.gelu")


# --- after a linear map ---------------------------------------------------------------------------------------


def linear_gelu_composed(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, approximate: str = "none") -> Tensor:
    """y = gelu(x W^T + b).

    Args:
        x: (..., C_in) float tensor.
        weight: (C_out, C_in).
        bias: (C_out,) or None.
        approximate: "none" or "tanh", the form of GELU.
    Returns: (..., C_out).
    Raises: ValueError if the shapes do not fit.
    """
    return gelu(linear(x, weight, bias), approximate=approximate)


linear_gelu = ReferenceAndFused(linear_gelu_composed, cpu=linear_gelu_fused, cuda="tinygrad_lite.cuda.gelu")
