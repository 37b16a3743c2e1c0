"""GELU: the activation of GPT and BERT, x times the probability that a standard normal number is below x.

    y = x P(x)    P(x) = (1 + erf(x / sqrt 2)) / 2    p(x) = P'(x) = e^(-x^2 / 2) / sqrt(2 pi)

    dy/dx = P(x) + x p(x)                                            product rule

erf looks much like tanh, and with a polynomial q that bends the axis a little it becomes tanh:

    P(x) = (1 + tanh(u)) / 2    u = x q(x^2)

GPT-2 was trained with the simplest such q, q(s) = sqrt(2 / pi) (1 + 0.044715 s), kept for loading such weights. It is
off by up to 5e-4; there p is the derivative of what is really computed:

    p(x) = (1 - tanh(u)^2) / 2 * du/dx    du/dx = sqrt(2 / pi) (1 + 3 * 0.044715 x^2)

With six powers of s instead of one, P is right to the last digit of float32: this is how the fused version computes the
exact GELU in float32. In float64 it takes the exact erf of `ops/elementwise.py`.

The fused version computes value and derivative in one go and keeps only the derivative, so its backward pass is one
multiplication. It works through blocks that stay in the processor's cache, with every step in place: going to
memory and back for each of a dozen steps would take longer than the arithmetic.

Reference: Hendrycks, Gimpel 2016, section 2 (arXiv:1606.08415).
"""

import functools
import math

import numpy as np

from tinygrad_lite.functional.registry import ReferenceAndFused
from tinygrad_lite.ops.elementwise import erf_array
from tinygrad_lite.tensor import Tensor, node

BLOCK = 32768  # elements; four float32 blocks fit into a 1 MiB cache
ROOT_2_OVER_PI = math.sqrt(2 / math.pi)
# The coefficients of q(s), highest power first. Those for erf have the smallest largest error of (1 + tanh(u)) / 2,
# found by weighted least squares; beyond |x| = 6, where both are 1 in float32, it matters only that q stays positive.
GPT2_BEND = (0.044715 * ROOT_2_OVER_PI, ROOT_2_OVER_PI)
ERF_BEND = (1.75617e-09, -1.32263e-07, 3.96474e-06, -5.53062e-05, -3.2595e-05, 0.0363331, 0.797885)


def gelu_composed(x: Tensor, approximate: str = "none") -> Tensor:
    """y = x (1 + erf(x / sqrt 2)) / 2, element-wise; or the tanh form of GPT-2.

    Args:
        x: float tensor of any shape.
        approximate: "none" or "tanh", as in torch.
    Returns: the shape and dtype of x.
    Reference: Hendrycks, Gimpel 2016, section 2 (arXiv:1606.08415).
    """
    if wants_tanh(approximate):
        return x * ((x + x**3 * 0.044715) * ROOT_2_OVER_PI).tanh() * 0.5 + x * 0.5
    return x * (x * math.sqrt(0.5)).erf() * 0.5 + x * 0.5


def gelu_fused(x: Tensor, approximate: str = "none") -> Tensor:
    """`gelu_composed` in one node that keeps the derivative instead of the input."""
    if x.dtype not in (np.float32, np.float64):
        return gelu_composed(x, approximate)
    is_tanh = wants_tanh(approximate)
    flat = x.data.reshape(-1)
    y, slope = np.empty_like(flat), np.empty_like(flat)
    scratch = np.empty((2, min(BLOCK, flat.size)), flat.dtype)
    with np.errstate(all="ignore"):
        for start in range(0, flat.size, BLOCK):
            part = slice(start, start + BLOCK)
            xs, s, t = flat[part], *scratch[:, : flat[part].size]
            p = _probability(xs, s, slope[part], is_tanh)
            np.multiply(xs, p, out=y[part])
            p += (_tanh_slope if is_tanh else _erf_slope)(xs, s, p, t)
    shape, slope = x.shape, slope.reshape(x.shape)

    def backward(dy):
        return (dy * slope,)

    return node(y.reshape(shape), (x,), backward, "gelu")


def gelu_array(x: np.ndarray, approximate: str = "none") -> np.ndarray:
    """The values alone, of a small float32 or float64 array."""
    s, p = np.empty_like(x), np.empty_like(x)
    return x * _probability(x, s, p, wants_tanh(approximate))


def _probability(x: np.ndarray, s: np.ndarray, p: np.ndarray, is_tanh: bool) -> np.ndarray:
    """P(x), into p; and x^2, into s."""
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
    """1/2 and the coefficients of q, as arrays without axes.

    NumPy would make one of Python's number each time, and for a short array that takes longer than adding it.
    """
    return [np.array(number, dtype) for number in (0.5, *(GPT2_BEND if is_tanh else ERF_BEND))]


def _erf_slope(x: np.ndarray, s: np.ndarray, p: np.ndarray, t: np.ndarray) -> np.ndarray:
    """x P'(x) = x e^(-s / 2) / sqrt(2 pi), into t, where s = x^2."""
    np.multiply(s, -0.5, out=t)
    np.exp(t, out=t)
    t *= 1 / math.sqrt(2 * math.pi)
    t *= x
    return t


def _tanh_slope(x: np.ndarray, s: np.ndarray, p: np.ndarray, t: np.ndarray) -> np.ndarray:
    """x P'(x) = x * 2 P (1 - P) du/dx, into t, where s = x^2 (overwritten); (1 - tanh^2) / 2 = 2 P (1 - P)."""
    slope, constant = GPT2_BEND
    np.subtract(1.0, p, out=t)
    t *= p
    t *= x
    s *= 6 * slope
    s += 2 * constant  # 2 du/dx
    t *= s
    return t


def wants_tanh(approximate: str) -> bool:
    """Whether it is GPT-2's form; raises ValueError if there is no such form."""
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate must be 'none' or 'tanh', not {approximate!r}")
    return approximate == "tanh"


gelu = ReferenceAndFused(gelu_composed, cpu=gelu_fused, cuda="tinygrad_lite.cuda.gelu")
