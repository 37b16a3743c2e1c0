"""Exercises of chapter 3: every ... is a blank to fill in."""

from collections.abc import Callable

import numpy as np

from tinygrad_lite import Tensor
from tinygrad_lite.tensor import node


def central(f: Callable[[np.ndarray], float], x: np.ndarray, h: float) -> np.ndarray:
    """The slope of f in each element of x, by central differences, in the shape of x. x must end up unchanged."""
    slopes = np.zeros(x.shape)
    for place in np.ndindex(x.shape):  # (0, 0), (0, 1), ... so that x[place] is one element
        slopes[place] = ...
    return slopes


def is_right(f: Callable[[np.ndarray], float], x: np.ndarray, gradient: np.ndarray) -> bool:
    """Whether this is the gradient of f at x: every element, to within a millionth of the largest slope. Use `central`.

    All numbers are float64. Values of f may be millions or millionths, and the gradient may be zero in some places or
    in all. A gradient whose shape differs from that of x, or with a NaN in it, is wrong.
    """
    return ...


# The error of the one-sided difference is h |f''| / 2 + 2 eps |f| / h. The best h is proportional to eps ** POWER.
POWER = ...


def silu(x: Tensor) -> Tensor:
    """y = x s(x) with s(x) = 1 / (1 + e^-x), in one node. The derivative of s is s (1 - s)."""
    a = x.data
    s = 1 / (1 + np.exp(-a))

    def backward(dy: np.ndarray) -> tuple:
        return ...

    return node(a * s, (x,), backward, "silu")
