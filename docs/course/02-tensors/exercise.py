"""Exercises of chapter 2: every ... is a blank to fill in."""

import numpy as np
from tiny_tensor import TinyTensor

# x has shape (2, 1) and holds [[1], [2]]; w has shape (3,) and holds [10, 20, 30]; L = (x * w).sum().
# What are dL/dx and dL/dw, as nested lists of the right shapes? No computer.
STRETCHED = {"x": ..., "w": ...}


def linear(x: TinyTensor, w: TinyTensor, b: TinyTensor) -> TinyTensor:
    """y = x W^T + b as one operation, for x (N, C_in), W (C_out, C_in) and b (C_out,)."""
    y = x.value @ w.value.T + b.value

    def derivative(dy: np.ndarray) -> tuple:
        dx = ...
        dw = ...
        db = ...
        return dx, dw, db

    return TinyTensor(y, (x, w, b), derivative)


def mean(x: TinyTensor, axis: int) -> TinyTensor:
    """The mean over one axis, which the result no longer has: (2, 5, 3) becomes (2, 3) with axis = 1."""
    return TinyTensor(x.value.mean(axis), (x,), lambda dy: ...)


def pick(x: TinyTensor, places: list[int]) -> TinyTensor:
    """The rows of a matrix at these places; a place may occur several times, or not at all."""

    def derivative(dy: np.ndarray) -> tuple:
        dx = np.zeros_like(x.value)
        ...
        return (dx,)

    return TinyTensor(x.value[places], (x,), derivative)
