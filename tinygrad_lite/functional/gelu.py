"""GELU: the activation of GPT and BERT, x times the probability that a standard normal number is below x.

    y = x P(x)    P(x) = (1 + erf(x / sqrt 2)) / 2    p(x) = P'(x) = e^(-x^2 / 2) / sqrt(2 pi)

    dy/dx = P(x) + x p(x)                                            product rule

GPT-2 was trained with an approximation by tanh, kept for loading such weights:

    P(x) ~ (1 + tanh(z)) / 2 = s(2z)    z = sqrt(2 / pi) (x + 0.044715 x^3)    s(t) = 1 / (1 + e^-t)

    dy/dx = s + x s (1 - s) dz2/dx    with z2 = 2 z, dz2/dx = 2 sqrt(2 / pi) (1 + 3 * 0.044715 x^2)

The fused version computes value and derivative in one go and keeps only the derivative, so its backward pass is one
multiplication. It works through blocks that stay in the processor's cache, with every step in place: going to
memory and back for each of a dozen steps would take longer than the arithmetic. In float32 erf comes from

    1 - erf(a) = e^(-a^2) t Q(t)    t = 1 / (1 + a/2), a >= 0

with a polynomial Q fitted once, because e^(-a^2) with a = x / sqrt 2 is needed for p(x) anyway. (The form is that of
Abramowitz and Stegun 7.1.26.) In float64 the exact erf of `ops.py` is used.

Reference: Hendrycks, Gimpel 2016, section 2 (arXiv:1606.08415).
"""

import functools
import math

import numpy as np

from tinygrad_lite.functional.registry import Twin
from tinygrad_lite.ops import erf_array
from tinygrad_lite.tensor import Tensor, node

BLOCK = 32768  # elements; five float32 blocks fit into a 1 MiB cache
ROOT_2_OVER_PI = math.sqrt(2 / math.pi)


def gelu_composed(x: Tensor, approximate: str = "none") -> Tensor:
    """y = x (1 + erf(x / sqrt 2)) / 2, element-wise; or the tanh form of GPT-2.

    Args:
        x: float tensor of any shape.
        approximate: "none" or "tanh", as in torch.
    Returns: the shape and dtype of x.
    Reference: Hendrycks, Gimpel 2016, section 2 (arXiv:1606.08415).
    """
    if _is_tanh(approximate):
        return x * ((x + x**3 * 0.044715) * ROOT_2_OVER_PI).tanh() * 0.5 + x * 0.5
    return x * (x * math.sqrt(0.5)).erf() * 0.5 + x * 0.5


def gelu_fused(x: Tensor, approximate: str = "none") -> Tensor:
    """`gelu_composed` in one node that keeps the derivative instead of the input."""
    if x.dtype not in (np.float32, np.float64):
        return gelu_composed(x, approximate)
    forward = _tanh_block if _is_tanh(approximate) else _erf_block
    flat = x.data.reshape(-1)
    y, slope = np.empty_like(flat), np.empty_like(flat)
    scratch = np.empty((2, min(BLOCK, flat.size)), flat.dtype)
    with np.errstate(all="ignore"):
        for start in range(0, flat.size, BLOCK):
            part = slice(start, start + BLOCK)
            forward(flat[part], y[part], slope[part], *scratch[:, : flat[part].size])
    shape, slope = x.shape, slope.reshape(x.shape)

    def backward(dy):
        return (dy * slope,)

    return node(y.reshape(shape), (x,), backward, "gelu")


def gelu_array(x: np.ndarray, approximate: str = "none") -> np.ndarray:
    """The values alone, of a small float32 or float64 array."""
    forward = _tanh_block if _is_tanh(approximate) else _erf_block
    y, *scratch = np.empty((4, x.size), x.dtype)
    forward(x.reshape(-1), y, *scratch)
    return y.reshape(x.shape)


def _erf_block(x: np.ndarray, y: np.ndarray, slope: np.ndarray, p: np.ndarray, t: np.ndarray) -> None:
    """y = x P(x) and slope = P(x) + x p(x) for one block; p and t are scratch."""
    np.multiply(x, x, out=p)
    p *= -0.5
    np.exp(p, out=p)  # e^(-a^2) with a = |x| / sqrt 2
    if x.dtype == np.float32:
        np.abs(x, out=t)
        t *= math.sqrt(0.5) / 2
        t += 1.0
        np.reciprocal(t, out=t)
        highest, *coefficients = _half_erfc_polynomial()
        np.multiply(t, highest, out=slope)
        for coefficient in coefficients:
            slope += coefficient
            slope *= t
        slope *= p  # (1 - erf(a)) / 2, which is P(-|x|)
        np.subtract(0.5, slope, out=slope)  # how far P(|x|) is from 1/2
        np.copysign(slope, x, out=slope)
        slope += 0.5
    else:
        slope[:] = 0.5 * (1 + erf_array(x * math.sqrt(0.5)))
    np.multiply(x, slope, out=y)
    p *= 1 / math.sqrt(2 * math.pi)
    p *= x
    slope += p


def _tanh_block(x: np.ndarray, y: np.ndarray, slope: np.ndarray, s: np.ndarray, q: np.ndarray) -> None:
    """y = x s(z2) and slope = s + y (1 - s) dz2/dx for one block; s and q are scratch."""
    np.multiply(x, x, out=q)
    q *= 2 * ROOT_2_OVER_PI * 0.044715
    np.add(q, 2 * ROOT_2_OVER_PI, out=s)
    s *= x  # z2
    np.negative(s, out=s)
    np.exp(s, out=s)
    s += 1.0
    np.reciprocal(s, out=s)  # s(z2)
    np.multiply(x, s, out=y)
    q *= 3.0
    q += 2 * ROOT_2_OVER_PI  # dz2/dx
    np.subtract(1.0, s, out=slope)
    slope *= y
    slope *= q
    slope += s


@functools.cache
def _half_erfc_polynomial() -> list[float]:
    """Coefficients of Q(t)/2 with erfc(a) = e^(-a^2) t Q(t), highest power first; float32 error below 3e-7.

    Interpolated at Chebyshev points of t in [0.2, 1], that is a in [0, 8]; beyond, e^(-a^2) makes it vanish.
    """

    def function(s: np.ndarray) -> np.ndarray:
        t = 0.6 + 0.4 * s
        a = 2 * (1 / t - 1)
        return np.array([0.5 * math.exp(v * v) * math.erfc(v) for v in a]) / t

    series = np.polynomial.chebyshev.Chebyshev(np.polynomial.chebyshev.chebinterpolate(function, 7), domain=[0.2, 1.0])
    return series.convert(kind=np.polynomial.Polynomial).coef[::-1].tolist()


def _is_tanh(approximate: str) -> bool:
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate must be 'none' or 'tanh', not {approximate!r}")
    return approximate == "tanh"


gelu = Twin(gelu_composed, cpu=gelu_fused)
