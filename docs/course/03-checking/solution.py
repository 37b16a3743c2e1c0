"""Solutions of chapter 3."""

from collections.abc import Callable

import numpy as np

from tinygrad_lite import Tensor
from tinygrad_lite.tensor import node


def central(f: Callable[[np.ndarray], float], x: np.ndarray, h: float) -> np.ndarray:
    """The slope of f in each element of x, by central differences, in the shape of x. x must end up unchanged."""
    slopes = np.zeros(x.shape)
    for place in np.ndindex(x.shape):  # (0, 0), (0, 1), ... so that x[place] is one element
        step = np.zeros(x.shape)
        step[place] = h
        slopes[place] = (f(x + step) - f(x - step)) / (2 * h)
    return slopes


def is_right(f: Callable[[np.ndarray], float], x: np.ndarray, gradient: np.ndarray) -> bool:
    """Whether this is the gradient of f at x: every element, to within a millionth of the largest slope. Use `central`.

    All numbers are float64. Values of f may be millions or millionths, and the gradient may be zero in some places or
    in all. A gradient whose shape differs from that of x, or with a NaN in it, is wrong.
    """
    if gradient.shape != x.shape:
        return False
    slopes = central(f, x, 1e-5)
    # Not "no difference is larger": every comparison with NaN is false.
    return bool((np.abs(gradient - slopes) <= 1e-6 * np.abs(slopes).max()).all())


# The derivative with respect to h is zero where |f''| / 2 = 2 eps |f| / h^2, so h^2 = 4 eps |f| / |f''|.
POWER = 1 / 2


def silu(x: Tensor) -> Tensor:
    """y = x s(x) with s(x) = 1 / (1 + e^-x), in one node. The derivative of s is s (1 - s)."""
    a = x.data
    s = 1 / (1 + np.exp(-a))

    def backward(dy: np.ndarray) -> tuple:
        return (dy * (s + a * s * (1 - s)),)

    return node(a * s, (x,), backward, "silu")
